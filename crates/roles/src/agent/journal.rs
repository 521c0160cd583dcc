//! Between what changes and who is informed: every change is on disk before it is sent, and stays there as unsent until the
//! API server has it.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use volmedic_api::ObjectRef;
use volmedic_health::{Change, Subject, Transition};
use volmedic_monitor::Board;
use volmedic_probe::host::{Baseline, Key};
use volmedic_report::{Notice, Reporter};

use super::memory::{Memory, Shelf, Unsent};

/// A disk that takes longer to write a few kilobytes is not waited for: news goes out without being remembered first.
const WRITE_WITHIN: Duration = Duration::from_millis(500);
/// How often the server is asked whether all is sent, and baselines are written.
const ROUND: Duration = Duration::from_secs(30);
/// Maximum number of changes that are kept as unsent; with more, the oldest may be lost by a restart.
const MOST_UNSENT: usize = 2_000;

/// With what the checks compare, as they want it remembered.
pub(crate) type Baselines = Box<dyn Fn() -> Vec<(Key, Baseline)> + Send + Sync>;
/// What a volume is called by the pod that is informed of it.
pub(crate) type KnownAs = Arc<dyn Fn(&Subject, &ObjectRef) -> Option<Arc<str>> + Send + Sync>;

/// Who is shown what changes.
type Teller = Box<dyn Fn(&Transition) + Send + Sync>;

/// The outlet of all pipes.
#[derive(Clone)]
pub(crate) struct Journal(Arc<Inner>);

struct Inner {
    board: Board,
    reporter: Arc<Reporter>,
    shelf: Option<Shelf>,
    baselines: Baselines,
    known_as: KnownAs,
    state: Mutex<State>,
    /// One writer, so that no two pages are written at the same time.
    pen: tokio::sync::Mutex<Pen>,
    woken: Notify,
    /// The same for the page and the terminal.
    news: Notify,
    shown_to: OnceLock<Teller>,
}

#[derive(Default)]
struct State {
    /// Not on disk yet.
    fresh: Vec<Unsent>,
    /// Handed to the reporter.
    handed: VecDeque<Unsent>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

impl Journal {
    /// Sends what an earlier run may not have sent. Without a shelf nothing is remembered.
    pub(crate) fn new(
        board: Board,
        reporter: Arc<Reporter>,
        shelf: Option<Shelf>,
        unsent: Vec<Unsent>,
        known_as: KnownAs,
        baselines: Baselines,
    ) -> Self {
        for unsent in &unsent {
            reporter.send(&notice(unsent));
        }
        let state = Mutex::new(State { fresh: Vec::new(), handed: unsent.into() });
        let (pen, woken, news, shown_to) = Default::default();
        Self(Arc::new(Inner {
            board,
            reporter,
            shelf,
            baselines,
            known_as,
            state,
            pen,
            woken,
            news,
            shown_to,
        }))
    }

    /// From now on every change is shown there immediately, however long it takes until it is written and sent.
    pub(crate) fn show_to(&self, teller: impl Fn(&Transition) + Send + Sync + 'static) {
        // Once only; there is one page.
        let _ = self.0.shown_to.set(Box::new(teller));
    }

    /// Runs until dropped.
    pub(crate) async fn run(&self) {
        loop {
            let settled = async {
                if self.state().handed.is_empty() {
                    std::future::pending::<usize>().await;
                }
                self.0.reporter.flush(ROUND).await
            };
            tokio::select! {
                () = self.0.woken.notified() => {}
                left = settled => if left == 0 { self.state().handed.clear() },
                () = tokio::time::sleep(ROUND) => {}
            }
            if self.0.reporter.take_overflow() {
                self.remind();
            }
            self.turn().await;
        }
    }

    /// Waits for a change. For one who waits: what nobody waited for yet is reported immediately.
    pub(crate) async fn news(&self) {
        self.0.news.notified().await;
    }

    /// Sends what is left, for as long as it may take; answers how much could not be sent. What could not is remembered.
    pub(crate) async fn end(&self, limit: Duration) -> usize {
        self.turn().await;
        let left = self.0.reporter.flush(limit).await;
        if left == 0 {
            self.state().handed.clear();
        }
        self.turn().await;
        left
    }

    /// Writes, then sends. Dropped half way it has done neither, or has written what the next turn sends.
    async fn turn(&self) {
        let mut pen = self.0.pen.lock().await;
        // What is reported and what is unsent are read without a wait in between, so a page has both or neither.
        let (memory, count) = self.memory();
        if let Some(shelf) = &self.0.shelf {
            match shelf.page(&memory) {
                Ok(page) => pen.write(shelf, page).await,
                Err(error) => {
                    tracing::error!(%error, "reports cannot be serialised; internal error (bug)");
                }
            }
        }
        let mut state = self.state();
        let sending: Vec<Unsent> = state.fresh.drain(..count).collect();
        let mut reported: Option<&Transition> = None;
        for unsent in &sending {
            let notice = notice(unsent);
            // The same news under another name is for other objects, and is no news for the log and the metrics.
            if reported == Some(&unsent.transition) {
                self.0.reporter.send(&notice);
            } else {
                self.0.reporter.tell(&notice);
            }
            reported = Some(&unsent.transition);
        }
        state.handed.extend(sending);
        let surplus = state.handed.len().saturating_sub(MOST_UNSENT);
        state.handed.drain(..surplus);
    }

    /// All that must outlive a restart, and how much of it is fresh.
    fn memory(&self) -> (Memory, usize) {
        let state = self.state();
        let unsent = state.handed.iter().chain(&state.fresh).cloned().collect();
        let memory = Memory {
            memos: self.0.board.lock_ledger().memos(),
            audiences: self.0.board.audiences(),
            unsent,
            baselines: (self.0.baselines)(),
        };
        (memory, state.fresh.len())
    }

    /// Too much waited to be sent and some of it was lost: everything that is wrong is reported again.
    fn remind(&self) {
        let at = Timestamp::now();
        for memo in self.0.board.lock_ledger().memos() {
            let Subject::Volume(volume) = &memo.subject else { continue };
            let about = self.0.board.reported_on(volume);
            for held in memo.reported {
                let change = Change::Reminder { condition: held.condition, since: held.since };
                let (subject, vantage) = (memo.subject.clone(), memo.vantage.clone());
                self.put(&Transition { at, subject, vantage, change }, about.clone());
            }
        }
    }

    fn put(&self, transition: &Transition, about: Vec<ObjectRef>) {
        let by_name = by_name(about, |object| (self.0.known_as)(&transition.subject, object));
        let unsent = by_name.into_iter().map(|(known_as, about)| Unsent {
            transition: transition.clone(),
            about,
            known_as,
        });
        self.state().fresh.extend(unsent);
        self.0.woken.notify_one();
        self.0.news.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }
}

impl volmedic_monitor::Outlet for Journal {
    fn tell(&mut self, transition: &Transition, about: Vec<ObjectRef>) {
        if let Some(show) = self.0.shown_to.get() {
            show(transition);
        }
        self.put(transition, about);
    }
}

/// Two claims may be one volume: each pod is informed of the claim by which it uses it. At least one group, because what
/// concerns no object is for the log all the same.
fn by_name(
    about: Vec<ObjectRef>,
    known_as: impl Fn(&ObjectRef) -> Option<Arc<str>>,
) -> Vec<(Option<Arc<str>>, Vec<ObjectRef>)> {
    let mut groups: Vec<(Option<Arc<str>>, Vec<ObjectRef>)> = Vec::new();
    for object in about {
        let name = known_as(&object);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, objects)) => objects.push(object),
            None => groups.push((name, vec![object])),
        }
    }
    if groups.is_empty() {
        groups.push((None, Vec::new()));
    }
    groups
}

fn notice(unsent: &Unsent) -> Notice {
    let Unsent { transition, about, known_as } = unsent.clone();
    Notice { transition, about, known_as, standing: Vec::new() }
}

/// Writes pages one after the other, and never waits for long.
#[derive(Debug, Default)]
struct Pen {
    writing: Option<JoinHandle<io::Result<()>>>,
    /// What the last page said, as a number.
    last: Option<u64>,
    /// It does not write, and that was said.
    dry_since: Option<Instant>,
}

impl Pen {
    async fn write(&mut self, shelf: &Shelf, page: Vec<u8>) {
        let mut hasher = DefaultHasher::new();
        hasher.write(&page);
        let number = hasher.finish();
        if self.last == Some(number) {
            return;
        }
        // One at a time: a disk that hangs would otherwise collect threads.
        if let Some(writing) = &mut self.writing
            && timeout(WRITE_WITHIN, writing).await.is_err()
        {
            return self.dry(shelf, "the disk does not answer");
        }
        let (to, writing) = (shelf.clone(), number);
        let mut task = tokio::task::spawn_blocking(move || to.save(&page));
        match timeout(WRITE_WITHIN, &mut task).await {
            Err(_) => {
                self.writing = Some(task);
                self.last = None;
                self.dry(shelf, "the disk does not answer");
            }
            Ok(done) => {
                self.writing = None;
                match done.map_err(io::Error::other).and_then(|saved| saved) {
                    Ok(()) => {
                        self.last = Some(writing);
                        if self.dry_since.take().is_some() {
                            tracing::info!("reports are kept in {} again", shelf.place().display());
                        }
                    }
                    Err(error) => {
                        self.last = None;
                        self.dry(shelf, &error.to_string());
                    }
                }
            }
        }
    }

    fn dry(&mut self, shelf: &Shelf, why: &str) {
        if self.dry_since.is_none() {
            self.dry_since = Some(Instant::now());
            tracing::warn!(
                "reports cannot be kept in {}: {why}; they are sent all the same. If the agent ends before this is \
                 corrected, its next start may report again what was reported from now on, and may not report what was not \
                 sent yet and what recovers meanwhile; check --state-dir",
                shelf.place().display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use volmedic_api::Kind;

    use super::*;

    #[tokio::test]
    async fn a_disk_that_fails_delays_nothing_and_the_page_is_written_when_it_is_back() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(dir.path(), "n").unwrap();
        shelf.load();
        let (mut pen, page) = (Pen::default(), shelf.page(&Memory::default()).unwrap());
        // Root may write to anything, but not to a directory as if it were a file.
        std::fs::create_dir(dir.path().join("journal-0")).unwrap();
        for _ in 0..2 {
            pen.write(&shelf, page.clone()).await;
            assert!(pen.dry_since.is_some() && pen.last.is_none());
        }
        std::fs::remove_dir(dir.path().join("journal-0")).unwrap();
        pen.write(&shelf, page.clone()).await;
        assert!(pen.dry_since.is_none() && pen.last.is_some());
        let text = std::fs::read(dir.path().join("journal-0")).unwrap();
        assert!(text.windows(page.len()).any(|part| part == page));
    }

    #[test]
    fn each_pod_is_informed_of_its_own_claim() {
        let pod = |name: &str| ObjectRef::new(Kind::Pod, "shop", name, name);
        let claim = |pod: &ObjectRef| {
            (&*pod.name != "c").then(|| Arc::from(&*format!("claim of {}", &pod.name[..1])))
        };
        let groups = by_name(vec![pod("a"), pod("b"), pod("a2"), pod("c")], claim);
        let shown: Vec<String> = groups
            .iter()
            .map(|(name, pods)| {
                let pods: Vec<&str> = pods.iter().map(|pod| &*pod.name).collect();
                format!("{}: {}", name.as_deref().unwrap_or("-"), pods.join(" "))
            })
            .collect();
        assert_eq!(shown, ["claim of a: a a2", "claim of b: b", "-: c"]);
        assert_eq!(by_name(Vec::new(), |_| None), [(None, Vec::new())], "it is logged all the same");
    }
}
