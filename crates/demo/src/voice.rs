//! What is said, and how: a screen, lines for people, or JSON for programs.
//!
//! A thread of its own writes, so that a reader who does not read delays nothing. What does not fit into the queue is
//! counted and reported at the end.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use volmedic_view::text::{plain, wrap};

use volmedic_runtime::terminal::{Screen, columns};

/// What may wait to be written.
const QUEUE: usize = 4_096;
/// Number of messages that the screen can show.
const RECENT: usize = 200;
/// For the last words to be written.
const FAREWELL: Duration = Duration::from_secs(3);

/// What a piece of news is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topic {
    /// How things stand with the demo itself.
    Note,
    /// Something was broken on purpose.
    Fault,
    /// The monitor saw something change.
    Transition,
    /// The healer did something, or left it alone.
    Heal,
    /// What was broken on purpose is undone, since it is not healed.
    Undo,
    /// How one fault of the story went.
    Act,
    /// What a reader may try next.
    Next,
    Summary,
}

impl Topic {
    /// For machines.
    pub(super) fn event(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Fault => "fault",
            Self::Transition => "transition",
            Self::Heal => "heal",
            Self::Undo => "undo",
            Self::Act => "act",
            Self::Next => "next",
            Self::Summary => "summary",
        }
    }

    /// For people, who is speaking.
    pub(super) fn who(self) -> &'static str {
        match self {
            Self::Note | Self::Summary | Self::Act => "demo",
            Self::Fault => "fault",
            Self::Transition => "monitor",
            Self::Heal => "healer",
            Self::Undo => "undo",
            Self::Next => "next",
        }
    }
}

/// One thing to say.
#[derive(Debug, Clone)]
pub(super) struct News {
    pub(super) at: Timestamp,
    pub(super) topic: Topic,
    pub(super) volume: Option<Arc<str>>,
    /// A sentence.
    pub(super) text: String,
    /// The same for machines: the fields of an object.
    pub(super) data: Value,
}

/// How it is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Screen,
    Lines,
    Json,
}

#[derive(Debug)]
pub(super) struct Voice {
    style: Style,
    out: SyncSender<Out>,
    recent: Mutex<VecDeque<News>>,
    /// The screen is open, so lines go there.
    drawing: AtomicBool,
    lost: AtomicUsize,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Something new is to be shown, or the output was closed.
    woken: Notify,
    broken: AtomicBool,
}

#[derive(Debug)]
enum Out {
    Text(String),
    Open,
    Frame(String),
    Close,
    Done(Sender<()>),
}

impl Voice {
    pub(super) fn start(style: Style) -> io::Result<Self> {
        let (out, incoming) = sync_channel(QUEUE);
        let state = Arc::new(State::default());
        let shared = state.clone();
        thread::Builder::new().name("voice".to_owned()).spawn(move || {
            if let Err(error) = write_all(&incoming) {
                tracing::debug!(%error, "the output was closed");
                shared.broken.store(true, Ordering::Relaxed);
                shared.woken.notify_one();
                // Callers that wait for the end are answered all the same.
                while let Ok(out) = incoming.recv() {
                    drop(out);
                }
            }
        })?;
        Ok(Self {
            style,
            out,
            recent: Mutex::default(),
            drawing: AtomicBool::new(false),
            lost: AtomicUsize::new(0),
            state,
        })
    }

    pub(super) fn style(&self) -> Style {
        self.style
    }

    /// Says it now, or puts it on the next screen.
    pub(super) fn say(&self, news: News) {
        let text = match self.style {
            Style::Json => json_line(&news),
            // How a fault of the story went is said by those who did it.
            Style::Lines | Style::Screen if news.topic == Topic::Act => return,
            Style::Screen if self.drawing.load(Ordering::Relaxed) => {
                let mut recent = self.recent.lock();
                recent.push_front(news);
                recent.truncate(RECENT);
                drop(recent);
                self.state.woken.notify_one();
                return;
            }
            Style::Lines | Style::Screen => lines(&news, columns()),
        };
        self.send(Out::Text(text));
    }

    /// About the demo itself.
    pub(super) fn note(&self, text: impl Into<String>) {
        let (at, text) = (Timestamp::now(), text.into());
        self.say(News { at, topic: Topic::Note, volume: None, text, data: json!({}) });
    }

    /// Newest first.
    pub(super) fn recent(&self) -> Vec<News> {
        self.recent.lock().iter().cloned().collect()
    }

    pub(super) fn open_screen(&self) {
        self.drawing.store(true, Ordering::Relaxed);
        self.send(Out::Open);
    }

    pub(super) fn draw(&self, text: String) {
        self.send(Out::Frame(text));
    }

    pub(super) fn close_screen(&self) {
        if self.drawing.swap(false, Ordering::Relaxed) {
            self.send(Out::Close);
        }
    }

    /// Returns when there is something new for the screen.
    pub(super) async fn woken(&self) {
        self.state.woken.notified().await;
    }

    /// Whether the output was closed.
    pub(super) fn is_broken(&self) -> bool {
        self.state.broken.load(Ordering::Relaxed)
    }

    /// Returns when all is written, or the output was closed.
    pub(super) fn finish(&self) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            self.note(format!("{lost} lines were dropped, because they were not read in time"));
        }
        let (done, written) = channel();
        if self.out.try_send(Out::Done(done)).is_ok() {
            match written.recv_timeout(FAREWELL) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
                Err(RecvTimeoutError::Timeout) => tracing::debug!("what was said last is not written"),
            }
        }
    }

    fn send(&self, out: Out) {
        if self.out.try_send(out).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_all(incoming: &Receiver<Out>) -> io::Result<()> {
    let mut screen: Option<Screen> = None;
    let mut next = incoming.recv().ok();
    while let Some(out) = next.take() {
        match out {
            Out::Text(text) => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(text.as_bytes())?;
                stdout.flush()?;
            }
            Out::Open => {
                // The old one first, or its end would be taken for the end of the new one.
                drop(screen.take());
                screen = Some(Screen::open()?);
            }
            Out::Close => screen = None,
            Out::Done(done) => {
                let _ = done.send(());
            }
            Out::Frame(frame) => {
                // Of several only the last is worth drawing.
                let mut newest = frame;
                while let Ok(out) = incoming.try_recv() {
                    match out {
                        Out::Frame(frame) => newest = frame,
                        other => {
                            next = Some(other);
                            break;
                        }
                    }
                }
                if let Some(screen) = &screen {
                    screen.draw(&newest)?;
                }
            }
        }
        next = next.or_else(|| incoming.recv().ok());
    }
    Ok(())
}

/// As in `10:15:23 healer  wiki is healed`. What does not fit into a line goes on below its first word.
fn lines(news: &News, columns: usize) -> String {
    let head = if news.topic == Topic::Next { "  ".to_owned() } else { head(news) };
    let lines = wrap(&plain(&news.text), columns, &head, &" ".repeat(head.len()));
    lines.into_iter().map(|line| line + "\n").collect()
}

/// When, and who is speaking.
pub(super) fn head(news: &News) -> String {
    format!("{} {:<7} ", clock(news.at), news.topic.who())
}

/// The time of day, in UTC.
pub(super) fn clock(at: Timestamp) -> String {
    let text = format!("{at:.0}");
    text.get(11..19).unwrap_or(&text).to_owned()
}

fn json_line(news: &News) -> String {
    let News { at, topic, volume, text, data } = news;
    let mut object = json!({ "event": topic.event(), "at": at.to_string(), "text": text });
    if let (Some(object), Value::Object(data)) = (object.as_object_mut(), data) {
        if let Some(volume) = volume {
            object.insert("volume".to_owned(), json!(&**volume));
        }
        object.extend(data.clone());
    }
    format!("{object}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_each_for_people_and_for_programs() {
        let news = News {
            at: Timestamp::UNIX_EPOCH,
            topic: Topic::Heal,
            volume: Some("wiki".into()),
            text: "wiki is healed\nall of it".to_owned(),
            data: json!({ "outcome": "Succeeded" }),
        };
        assert_eq!(lines(&news, 80), "00:00:00 healer  wiki is healed\\u{a}all of it\n");
        assert_eq!(
            lines(&news, 32),
            "00:00:00 healer  wiki is\n                 healed\\u{a}all\n                 of it\n",
            "what does not fit goes on below its first word"
        );
        let said = json_line(&news);
        assert_eq!(said.lines().count(), 1, "{said}");
        let read: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(
            read,
            json!({ "event": "heal", "at": "1970-01-01T00:00:00Z", "volume": "wiki", "outcome": "Succeeded",
                    "text": "wiki is healed\nall of it" })
        );
    }
}
