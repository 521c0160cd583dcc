//! Watching the volumes of any CSI driver, from its socket and nothing else.

mod eyes;
mod once;
mod roll;
mod screen;
mod source;
mod store;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use volmedic_csi::{Address, AddressError, Driver, Limits, Metrics, Protocol, Session, Settings};
use volmedic_health::{Ledger, Policy, Subject, Vantage};
use volmedic_monitor::{Board, Pipe, Way};
use volmedic_view::render::{self, Document};
use volmedic_view::{Counts, History, Moment, Source as _};

use eyes::Eyes;
use roll::Roll;
use screen::{Screen, Shown, compose, is_screen, say};
use source::{Outlet, Parts, Source};
use store::Store;
use volmedic_runtime::flags::positive;
use volmedic_runtime::page::{PageArgs, PageServer};
use volmedic_runtime::process;
use volmedic_runtime::signals::{Signals, clock};

/// A screen is drawn at least this often, so that ages grow.
const DRAW: Duration = Duration::from_secs(1);
/// Drawing takes no more than this share of the time.
const SHARE: u32 = 5;

/// Watch the volumes of any CSI driver from its socket. No cluster is needed.
///
/// Shows the driver's volumes and their health, what changes, how long its calls take, and what it cannot report. On a
/// terminal the screen is refreshed; elsewhere each change is a line.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  volmedic watch --csi-address unix:///run/csi.sock
  volmedic watch --csi-address unix:///run/csi.sock --once -o json
  volmedic watch --csi-address unix:///run/csi.sock --page 127.0.0.1:8090 --history /var/tmp/volumes.history
  volmedic watch --explain vol-17 --history /var/tmp/volumes.history

Exit codes: 0 after a signal or when everything was shown, whatever was found; 1 when the driver cannot be reached or
something else failed; 2 when the command line is wrong.")]
pub struct Args {
    #[command(flatten)]
    driver: DriverArgs,
    #[command(flatten)]
    past: HistoryArgs,
    #[command(flatten)]
    page: PageArgs,
    /// Check every volume once, show the result, and exit.
    #[arg(long, conflicts_with = "address")]
    once: bool,
    /// Output format of --once.
    #[arg(long, short, value_enum, default_value_t = Output::Table, requires = "once", value_name = "FORMAT")]
    output: Output,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The driver")]
struct DriverArgs {
    /// Socket of the driver: a path, or unix:///path.
    #[arg(long, env = "CSI_ADDRESS", required_unless_present = "explain", value_name = "SOCKET")]
    csi_address: Option<Address>,
    /// Interval between two checks of each volume, or between two lists.
    #[arg(long, default_value = "10s", value_parser = positive, value_name = "DURATION")]
    interval: Duration,
    /// Deadline of one call, or of one page of a list; also how long to wait for the driver at the start.
    #[arg(long, default_value = "15s", value_parser = positive, value_name = "DURATION")]
    timeout: Duration,
    /// Maximum number of concurrent calls, where the driver does not list the health of its volumes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    workers: u16,
    /// Volume to watch, instead of all. May be given several times; needed for drivers that cannot list their volumes.
    #[arg(long = "volume", value_name = "ID")]
    volumes: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "History")]
struct HistoryArgs {
    /// File to keep changes in; what is in it already is continued.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Maximum number of changes to keep; the oldest are dropped first.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000), value_name = "N")]
    history_limit: u32,
    /// Volume to show the history of, and exit. The driver is not called.
    #[arg(long, requires = "history", conflicts_with_all = ["once", "address"], value_name = "ID")]
    explain: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
    Yaml,
}

impl Args {
    /// Where the terminal is drawn on, log lines would only be in the way.
    pub fn usual_level(&self) -> Option<tracing::Level> {
        let draws = !self.once && self.past.explain.is_none() && is_screen();
        (!draws).then_some(tracing::Level::WARN)
    }
}

pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    if let (Some(volume), Some(file)) = (&args.past.explain, &args.past.history) {
        return closed_is_fine(explain(volume, file));
    }
    closed_is_fine(process::run(watch(args)))
}

/// A reader that closes the pipe has read enough.
fn closed_is_fine(outcome: anyhow::Result<()>) -> Result<(), Box<dyn Error>> {
    let closed = |error: &anyhow::Error| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    match outcome {
        Err(error) if !closed(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

fn explain(volume: &str, file: &Path) -> anyhow::Result<()> {
    for (driver, story) in past(volume, file)? {
        say(&render::explain(&driver, volume, &[], &story, Timestamp::now(), screen::paint()))?;
    }
    Ok(())
}

/// What changed about a volume of a driver, oldest first.
pub(crate) type Story = (Arc<str>, Vec<Arc<Moment>>);

/// What a history has about a volume, by driver.
pub fn past(volume: &str, file: &Path) -> anyhow::Result<Vec<Story>> {
    let past = Store::read(file)?;
    let about = past.moments.iter().filter(|moment| moment.volume.as_deref() == Some(volume));
    let drivers: std::collections::BTreeSet<Arc<str>> = about.map(|moment| moment.driver.clone()).collect();
    if drivers.is_empty() {
        bail!(
            "the history {} has nothing about a volume {volume}; it has {} changes of other volumes",
            file.display(),
            past.moments.len()
        );
    }
    let history = History::new(past.moments.len());
    history.recall(past.moments);
    let story = |driver: Arc<str>| {
        let story = history.of(&driver, volume);
        (driver, story)
    };
    Ok(drivers.into_iter().map(story).collect())
}

async fn watch(args: Args) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let Args {
        driver: DriverArgs { csi_address, interval, timeout, workers, volumes },
        past,
        page,
        once,
        output,
    } = args;
    let address = csi_address.context("--csi-address is not given")?;
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let door = page.open().await?;
    let (store, moments) = match &past.history {
        Some(file) => {
            let (store, past) = Store::open(file, past.history_limit as usize)?;
            if past.unreadable > 0 {
                tracing::warn!("{} lines of the history could not be read and are left out", past.unreadable);
            }
            (Some(store), past.moments)
        }
        None => (None, Vec::new()),
    };
    let settings = Settings {
        protocol: Protocol::Csi { controller: true, node: true },
        deadline: timeout,
        ..Settings::default()
    };
    let session_or_signal = async {
        tokio::select! {
            connected = connect(&address, settings, metrics.clone(), timeout) => connected.map(Some),
            () = signals.next() => Ok(None),
        }
    };
    let Some((driver, session)) = session_or_signal.await? else { return Ok(()) };

    // One look is all there is: what it says is believed.
    let patience = Policy::default();
    let policy = if once { Policy { missing_after: 1, blind_after: 1, ..patience } } else { patience };
    let roll = Arc::new(Roll::new(&volumes));
    let board = Board::new(Ledger::new(policy));
    let history = History::new(past.history_limit as usize);
    recall(&board, &roll, session.driver(), &moments);
    history.recall(moments);
    let parts = Parts {
        address,
        interval,
        driver: driver.clone(),
        session,
        metrics,
        roll: roll.clone(),
        board,
        history,
        store,
    };
    let source = Arc::new(Source::new(parts));
    let limits = Limits { page_deadline: timeout, ..Limits::default() };
    let eyes = Arc::new(Eyes::new(driver, &limits, roll.clone()));

    if once {
        tokio::select! {
            () = once::look(&eyes, &source, workers.into()) => {}
            () = signals.next() => return Ok(()),
        }
        return show(&source, output);
    }
    live(source, eyes, workers.into(), door, signals).await
}

/// Waits for the driver to be there, for as long as one call may take.
async fn connect(
    address: &Address,
    settings: Settings,
    metrics: Metrics,
    timeout: Duration,
) -> anyhow::Result<(Driver, Session)> {
    if let Err(
        error @ (AddressError::NotASocket { .. }
        | AddressError::Unreadable { .. }
        | AddressError::Missing { .. }),
    ) = address.check()
    {
        bail!("cannot watch the driver: {error}; start the driver, or correct --csi-address");
    }
    let driver = Driver::start(address.clone(), settings, metrics);
    let session = driver.ready_within(timeout).await.map_err(|error| {
        anyhow!(
            "{error}; check that a CSI driver listens there and answers, or give it longer with --timeout"
        )
    })?;
    Ok((driver, session))
}

/// Goes on from what the history says stood last.
fn recall(board: &Board, roll: &Roll, driver: &str, moments: &[Moment]) {
    let mut last = std::collections::HashMap::<(Subject, Vantage), &Moment>::new();
    for moment in moments.iter().filter(|moment| *moment.driver == *driver) {
        last.insert((moment.subject(), moment.vantage.clone()), moment);
    }
    for memo in last.into_values().filter_map(Moment::memo) {
        if let Subject::Volume(volume) = &memo.subject {
            // Those that the driver no longer has leave again when it lists them.
            roll.listed(&volume.handle);
        }
        board.lock_ledger().recall(memo);
    }
}

fn show(source: &Source, output: Output) -> anyhow::Result<()> {
    let (about, snapshot) = (source.about(), source.snapshot());
    let document = || Document::new(Some(&about), &snapshot, snapshot.rows().iter().collect());
    let text = match output {
        Output::Json => render::json(&document())?,
        Output::Yaml => render::yaml(&document())?,
        Output::Table => {
            let abilities = source.abilities();
            let shown = Shown {
                about: &about,
                abilities: &abilities,
                snapshot: &snapshot,
                latest: &[],
                page: None,
                now: snapshot.at(),
            };
            compose(&shown, screen::paint(), None)
        }
    };
    Ok(say(&text)?)
}

async fn live(
    source: Arc<Source>,
    eyes: Arc<Eyes>,
    workers: usize,
    door: Option<PageServer>,
    mut signals: Signals,
) -> anyhow::Result<()> {
    let url = door.as_ref().map(|door| door.url.clone());
    let mut tasks: JoinSet<()> = JoinSet::new();
    if let Some(door) = door {
        tasks.spawn(door.serve(source.clone()));
    }
    // What is to be watched is known before watching begins, so that nothing of the history is closed in error.
    if let Err(why) = eyes.call_the_roll().await {
        tracing::warn!("the driver did not list all of its volumes: {why}; retrying");
    }
    tasks.spawn(call_again(eyes.clone(), source.interval));

    let settings =
        volmedic_monitor::Settings { list_every: source.interval, look_every: source.interval, workers };
    let pace = settings.pace(&Way::Nothing);
    let (name, roll, board) = (source.name.clone(), source.roll.clone(), source.board.clone());
    let outlet = Outlet(source.clone());
    let pipe = Pipe::new(name, Vantage::Controller, roll.clone(), outlet, board, pace, clock());
    let (_observer, observations) = mpsc::channel(1);
    let monitor =
        volmedic_monitor::run(pipe, roll, eyes, settings, observations, clock, std::future::pending());
    let shown = async {
        if is_screen() { draw(&source, url.as_deref()).await } else { lines(&source, url.as_deref()).await }
    };
    tokio::select! {
        _ = monitor => Ok(()),
        outcome = shown => Ok(outcome?),
        () = signals.next() => Ok(()),
    }
}

/// Asks which volumes there are, again and again.
async fn call_again(eyes: Arc<Eyes>, every: Duration) {
    let mut reported = None;
    loop {
        sleep(every).await;
        match eyes.call_the_roll().await {
            Ok(()) => reported = None,
            // The same failure again and again is reported once.
            Err(why) if reported.replace(why.kind) != Some(why.kind) => {
                tracing::warn!("the driver did not list all of its volumes: {why}");
            }
            Err(_) => {}
        }
    }
}

/// The screen, refreshed when something changes and every second.
async fn draw(source: &Arc<Source>, page: Option<&str>) -> io::Result<()> {
    let screen = Screen::open()?;
    let mut news = source.history().listen();
    loop {
        let began = Instant::now();
        let (about, snapshot) = (source.about(), source.snapshot());
        let latest = source.history().latest(screen::CHANGES);
        let abilities = source.abilities();
        let shown = Shown {
            about: &about,
            abilities: &abilities,
            snapshot: &snapshot,
            latest: &latest,
            page,
            now: snapshot.at(),
        };
        let height = screen::size().map(|(_, height)| height);
        screen.draw(&compose(&shown, screen::paint(), height))?;
        let least = (began.elapsed() * SHARE).max(Duration::from_millis(100));
        sleep(least).await;
        tokio::select! {
            // Falling behind is as good as a change.
            _ = news.recv() => {}
            () = sleep(DRAW) => {}
        }
    }
}

/// A line for each change, and one for the counts when they change.
async fn lines(source: &Arc<Source>, page: Option<&str>) -> io::Result<()> {
    use tokio::sync::broadcast::error::RecvError;
    let mut news = source.history().listen();
    let about = source.about();
    say(&format!("{} {}\n", about.title, about.place))?;
    for line in source.abilities() {
        say(&format!("{line}\n"))?;
    }
    for limit in &about.limits {
        say(&format!("limit: {limit}\n"))?;
    }
    if let Some(page) = page {
        say(&format!("the page: {page}\n"))?;
    }
    let mut tick = interval(DRAW);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut counts: Option<Counts> = None;
    loop {
        tokio::select! {
            moment = news.recv() => match moment {
                Ok(moment) => {
                    let text = volmedic_view::text::plain(&moment.text).into_owned();
                    say(&format!("{:.0} {text}\n", moment.at))?;
                }
                Err(RecvError::Lagged(count)) => say(&format!("{count} changes came too fast to be shown\n"))?,
                Err(RecvError::Closed) => return Ok(()),
            },
            _ = tick.tick() => {
                let began = Instant::now();
                let snapshot = source.snapshot();
                if counts.replace(*snapshot.counts()) != Some(*snapshot.counts()) {
                    say(&format!("{:.0} {}\n", snapshot.at(), screen::tally(&snapshot)))?;
                }
                tick.reset_after(DRAW.max(began.elapsed() * SHARE));
            }
        }
    }
}
