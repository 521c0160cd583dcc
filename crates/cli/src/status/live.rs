//! `--watch`: the same, kept up to date by watches.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use volmedic_health::{Health, Vantage};
use volmedic_view::Row;
use volmedic_view::render::Paint;
use volmedic_view::text::plain;

use super::screen::{Shown, compose};
use super::{Args, Filter, Output, Status, must_have_claims, narrower};
use crate::look::{self, Following, Picture, Reach, Scope};
use volmedic_runtime::signals::Signals;
use volmedic_runtime::terminal::{Screen, is_screen, paint, say, size};

/// A screen is drawn at least this often, so that ages grow.
const DRAW: Duration = Duration::from_secs(1);
/// Making rows and drawing them takes no more than this share of the time.
const SHARE: u32 = 5;
/// Changes that come together are shown together.
const GATHER: Duration = Duration::from_millis(100);
/// Where events are all there is, they are read again this often.
const EVENTS: Duration = Duration::from_secs(10);
/// Lines above and below the table.
const AROUND: usize = 6;

pub(super) async fn watch(
    reach: &Reach,
    mut scope: Scope,
    filter: &Filter,
    args: &Args,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new()?;
    let mut unread = look::probe(reach, &scope).await;
    if narrower(&unread, &args.filter) {
        scope.namespace = Some(reach.namespace.clone());
        unread = look::probe(reach, &scope).await;
    }
    must_have_claims(&unread, reach, &scope)?;
    let mut following = Following::start(&reach.client, &scope, unread);
    let (picture, woken) = (following.picture.clone(), following.woken.clone());
    let events = async {
        while !picture.lock().has("volumehealths") {
            look::read_events(reach, &scope, &picture).await;
            woken.notify_one();
            sleep(EVENTS).await;
        }
        std::future::pending::<()>().await;
    };
    let wide = args.output == Output::Wide;
    let mut view = View { reach, scope: &scope, filter, wide, limit: args.limit, reported: None };
    let screen = if is_screen() { Some(Screen::open()?) } else { None };
    let shown = async {
        loop {
            let began = Instant::now();
            if following.is_ready() {
                let stale = following.stale();
                let mut picture = picture.lock();
                picture.settle(Timestamp::now(), stale.is_none());
                view.show(&picture, stale.as_deref(), screen.as_ref())?;
            } else if let Some(screen) = &screen {
                screen.draw("reading the cluster …")?;
            }
            sleep((began.elapsed() * SHARE).max(GATHER)).await;
            tokio::select! {
                () = woken.notified() => {}
                () = sleep(DRAW) => {}
            }
        }
        #[allow(unreachable_code, reason = "it gives the loop its type")]
        Ok::<(), anyhow::Error>(())
    };
    tokio::select! {
        outcome = shown => outcome?,
        () = events => {}
        () = signals.next() => {}
    }
    // Anyone who began to watch is still counted on until here.
    drop(screen);
    following.end();
    Ok(ExitCode::SUCCESS)
}

struct View<'a> {
    reach: &'a Reach,
    scope: &'a Scope,
    filter: &'a Filter,
    wide: bool,
    limit: Option<usize>,
    /// How each claim was when its line was last written, where lines are written.
    reported: Option<HashMap<Name, Condition>>,
}

impl View<'_> {
    fn show(
        &mut self,
        picture: &Picture,
        stale: Option<&str>,
        screen: Option<&Screen>,
    ) -> anyhow::Result<()> {
        let now = Timestamp::now();
        let status = Status::new(picture, self.reach, self.scope, self.filter, now);
        match screen {
            Some(screen) => {
                let height = size().map_or(24, |(_, height)| height);
                let text = compose(&self.shown(&status, stale, height, now), paint());
                let lines: Vec<&str> = text.lines().take(height).collect();
                screen.draw(&lines.join("\n"))?;
            }
            None if self.reported.is_none() => {
                say(&compose(&self.shown(&status, stale, usize::MAX, now), Paint::default()))?;
                self.reported = Some(status.snapshot.rows().iter().map(state).collect());
            }
            None => self.lines(status.snapshot.rows(), now)?,
        }
        Ok(())
    }

    fn shown<'a>(
        &self,
        status: &'a Status,
        trouble: Option<&'a str>,
        height: usize,
        now: Timestamp,
    ) -> Shown<'a> {
        let room = height.saturating_sub(AROUND + status.about.limits.len()).max(3);
        Shown {
            about: &status.about,
            snapshot: &status.snapshot,
            claims: status.claims,
            filtered: !self.filter.is_open(),
            rows: self.limit.filter(|limit| *limit > 0).unwrap_or(super::ROWS).min(room),
            wide: self.wide,
            trouble,
            now,
        }
    }

    /// A line for each claim that is other than it was.
    fn lines(&mut self, rows: &[Row], now: Timestamp) -> std::io::Result<()> {
        let mut before = self.reported.take().unwrap_or_default();
        let mut after = HashMap::with_capacity(rows.len());
        let mut text = String::new();
        for row in rows {
            let (name, is) = state(row);
            let was = before.remove(&name);
            if was.as_ref() != Some(&is) {
                text.push_str(&line(row, was.as_ref(), now));
            }
            after.insert(name, is);
        }
        for ((namespace, claim), _) in before {
            let _ = writeln!(text, "{now:.0} {}/{} is no longer shown", plain(&namespace), plain(&claim));
        }
        self.reported = Some(after);
        if text.is_empty() { Ok(()) } else { say(&text) }
    }
}

/// A claim's namespace and name.
type Name = (Box<str>, Box<str>);
/// How it is, and why.
type Condition = (Health, Box<str>);

fn state(row: &Row) -> (Name, Condition) {
    ((row.namespace.clone(), row.claim.clone()), (row.health, row.reason().into()))
}

fn words((health, reason): &Condition) -> String {
    if reason.is_empty() { health.to_string() } else { format!("{health}/{reason}") }
}

fn line(row: &Row, was: Option<&Condition>, now: Timestamp) -> String {
    let was = was.map(|was| format!("{} -> ", words(was))).unwrap_or_default();
    let is = words(&(row.health, row.reason().into()));
    let said = match row.message() {
        "" => String::new(),
        message => format!(" ({})", plain(message)),
    };
    let seers: Vec<String> = row.seers().map(Vantage::name).collect();
    let seers = if seers.is_empty() { String::new() } else { format!(", seen by {}", seers.join(", ")) };
    let next = if row.next().is_empty() { String::new() } else { format!(". Next: {}", row.next()) };
    format!("{now:.0} {}/{}: {was}{is}{said}{seers}{next}\n", plain(&row.namespace), plain(&row.claim))
}
