//! Everything that runs during a demo, and how long.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use jiff::{SignedDuration, Timestamp};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use volmedic_csi::{Limits, Metrics};
use volmedic_driver::StateDir;
use volmedic_driver::fault::Faults;
use volmedic_health::{Ledger, Policy, Vantage};
use volmedic_host::helper::{Helpers, Limits as HelperLimits};
use volmedic_monitor::Board;
use volmedic_panics::caught;
use volmedic_probe::host::Host;
use volmedic_probe::node::Node;

use super::Args;
use super::driver::{DEADLINE, PATIENCE, Process, addons};
use super::ends::{End, Ends};
use super::eyes::{ControllerEyes, HostEyes, NodeEyes};
use super::healer::Healer;
use super::home::Home;
use super::keys::{Key, Keys};
use super::means::{Means, Mounts};
use super::pipes::{INTERVAL, watch};
use super::show::{Shown, compose};
use super::source::{Parts, Source};
use super::story::{Act, Report, Stage, Wish, plan, until, words};
use super::voice::{News, Style, Topic, Voice};
use super::volumes::{NODE, Volumes};
use volmedic_runtime::terminal::{paint, size};

/// The port of the page, unless it is in use.
const PORT: u16 = 8090;
/// Between the beginnings of two faults.
const PACE: Duration = Duration::from_secs(4);
const FASTEST: Duration = Duration::from_secs(1);
/// Time for the last fault of a story that is played in a hurry.
const LAST: Duration = Duration::from_secs(12);
/// Time to show a healthy table before the first fault.
const PRELUDE: Duration = Duration::from_secs(3);
/// For all volumes to be reported healthy at the beginning.
const SETTLED: Duration = Duration::from_mins(1);
/// For one fault to be done or undone.
const ONE_FAULT: Duration = Duration::from_secs(30);
/// Time for work on a volume that is under way at the end.
const DOWN_TOOLS: Duration = Duration::from_secs(10);
const DRAW: Duration = Duration::from_secs(1);
const APART: Duration = Duration::from_millis(100);

/// How a demo ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// A signal or a key ended it.
    pub(super) by_hand: bool,
    pub(super) tally: Tally,
    /// What is missing, a sentence each.
    pub(super) missing: Vec<String>,
    /// What to try next, a line each.
    pub(super) next: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    pub(super) faults: usize,
    pub(super) reported: usize,
    pub(super) healable: usize,
    pub(super) healed: usize,
}

impl Tally {
    fn add(&mut self, report: &Report) {
        self.faults += 1;
        self.reported += usize::from(report.reported);
        self.healable += usize::from(report.healable);
        self.healed += usize::from(report.healed);
    }
}

/// From the first process to the last act. What is left then is for [`Home::leave`].
pub(super) async fn play(
    args: Args,
    wishes: Vec<Wish>,
    program: &Path,
    means: &Means,
    home: &Home,
    voice: &Arc<Voice>,
) -> anyhow::Result<Ended> {
    let began = Instant::now();
    let mut ends = Ends::new()?;
    let mut process = Process::start(program, home, means.mounts)?;
    let built = tokio::select! {
        built = World::build(&args, &wishes, means, home, voice, &mut process) => built?,
        () = ends.next() => return Ok(Ended { by_hand: true, missing: vec![INTERRUPTED.to_owned()], ..Ended::default() }),
    };
    let deadline = args.duration.map(|duration| began + duration);
    let ended = built.run(!wishes.is_empty(), &mut process, ends, deadline, voice).await;
    process.end();
    ended
}

const INTERRUPTED: &str = "it was stopped before the story was over";

/// What is up once all volumes are there.
struct World {
    stage: Arc<Stage>,
    source: Arc<Source>,
    /// What runs until the end.
    tasks: JoinSet<()>,
    acts: Vec<Act>,
    url: String,
    headline: &'static str,
    left_out: Vec<String>,
    csi: String,
    mounts: Mounts,
}

impl World {
    async fn build(
        args: &Args,
        wishes: &[Wish],
        means: &Means,
        home: &Home,
        voice: &Arc<Voice>,
        process: &mut Process,
    ) -> anyhow::Result<Self> {
        let (door, elsewhere) = args.page.open_or_any(PORT).await?;
        if let Some(why) = elsewhere {
            voice.note(format!("{why}, so the page is on another port"));
        }
        for line in &means.left_out {
            voice.note(line.clone());
        }
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let (driver, session) = process.connect(home, metrics.clone()).await?;
        voice.note(format!("the reference driver is running; creating volumes in {}", home.root().display()));
        let (volumes, failed) = Volumes::make(home, means).await?;
        for line in &failed {
            voice.note(line.clone());
        }
        let volumes = Arc::new(volumes);
        let mounted = means.mounts != Mounts::Nowhere;
        let (story, without) = plan(&volumes, mounted);
        let mut left_out = means.left_out.clone();
        left_out.extend(failed);
        if !without.is_empty() && wishes.is_empty() {
            let names: Vec<String> = without.iter().map(ToString::to_string).collect();
            left_out.push(format!("left out of the story, because no volume fits: {}", names.join(", ")));
            voice.note(left_out[left_out.len() - 1].clone());
        }
        let csi = format!("unix://{}", home.csi_socket().display());
        let ids: Vec<String> =
            volumes.iter().map(|volume| format!("{} is {}", volume.name, volume.id)).collect();
        let facts = vec![
            ("Socket", csi.clone()),
            ("State directory", home.state().display().to_string()),
            ("Volume ids", ids.join(", ")),
            ("Checked every", format!("{INTERVAL:?}")),
        ];
        let patience = Policy {
            flap_limit: 30,
            flap_window: SignedDuration::from_mins(2),
            reword_every: SignedDuration::from_mins(1),
            ..Policy::default()
        };
        let board = Board::new(Ledger::new(patience));
        let source = Arc::new(Source::new(Parts {
            volumes: volumes.clone(),
            board: board.clone(),
            voice: voice.clone(),
            driver: driver.clone(),
            metrics: metrics.clone(),
            session,
            facts,
            limits: left_out.clone(),
        }));
        let url = door.url.clone();
        let text = format!("{} volumes are ready: {}; the page is at {url}", volumes.len(), volumes.words());
        let names: Vec<serde_json::Value> = volumes
            .iter()
            .map(|volume| json!({ "name": &*volume.name, "id": &*volume.id, "kind": volume.kind.name() }))
            .collect();
        let data = json!({ "event": "started", "page": url, "volumes": names, "leftOut": left_out });
        voice.say(News { at: Timestamp::now(), topic: Topic::Note, volume: None, text, data });

        let mut tasks = JoinSet::new();
        tasks.spawn(door.serve(source.clone()));
        let limits = Limits { page_deadline: DEADLINE, ..Limits::default() };
        let controller = ControllerEyes {
            probe: volmedic_probe::Controller::new(driver.clone(), limits),
            volumes: volumes.clone(),
        };
        watch(&mut tasks, &source, Vantage::Controller, Arc::new(controller));
        if mounted {
            let node = Arc::new(NodeEyes { node: Node::new(driver, false), volumes: volumes.clone() });
            let settings = volmedic_probe::host::Settings { deadline: PATIENCE, ..Default::default() };
            let host = Host::new(Arc::new(Helpers::new(HelperLimits::default())), settings);
            let host = Arc::new(HostEyes { host: Arc::new(host), volumes });
            watch(&mut tasks, &source, Vantage::Node(NODE.into()), node.clone());
            watch(&mut tasks, &source, Vantage::Host(NODE.into()), host.clone());
            let healer = Healer { source: source.clone(), addons: addons(home, metrics)?, node, host };
            tasks.spawn(healer.run());
        }
        let faults = Faults::at(StateDir::new(home.state())).with_deadline(ONE_FAULT);
        let stage = Arc::new(Stage::new(source.clone(), faults));
        let acts = wanted(&stage, wishes, story).await?;
        Ok(Self {
            stage,
            source,
            tasks,
            acts,
            url,
            headline: means.headline(),
            left_out,
            csi,
            mounts: means.mounts,
        })
    }

    async fn run(
        mut self,
        own: bool,
        process: &mut Process,
        mut ends: Ends,
        deadline: Option<Instant>,
        voice: &Arc<Voice>,
    ) -> anyhow::Result<Ended> {
        let screen = voice.style() == Style::Screen;
        let mut keys = if screen { Keys::open() } else { None };
        if screen {
            voice.open_screen();
            voice.note("all volumes are healthy; the first fault comes in a moment");
        }
        let mut ended = Ended { next: next_lines(), ..Ended::default() };
        let now: Vec<String> = self.now_lines(keys.is_some()).into_iter().chain(next_lines()).collect();
        let mut left = self.acts.clone().into_iter();
        let mut playing: JoinSet<Result<(Option<String>, Report), String>> = JoinSet::new();
        let pace = pace(left.len(), deadline.map(|at| at.saturating_duration_since(Instant::now())));
        let mut due = Instant::now() + if screen { PRELUDE } else { Duration::ZERO };
        let mut all_over = false;
        let mut waiting: Vec<String> = self.acts.iter().map(words).collect();
        let mut under_way: Vec<String> = Vec::new();
        let keeper = {
            let voice = voice.clone();
            process.keep(move |text| voice.note(text))
        };
        tokio::pin!(keeper);
        loop {
            if !all_over && left.len() == 0 && playing.is_empty() {
                all_over = true;
                if !screen {
                    break;
                }
                let over = if own { "all requested faults are over" } else { "the story is over" };
                let next = if keys.is_some() {
                    "press a key to inject a fault, or q to quit"
                } else {
                    "Ctrl-C quits"
                };
                voice.note(format!("{over}; {next}"));
            }
            if screen {
                self.draw(voice, keys.is_some(), all_over.then_some(&now));
            }
            tokio::select! {
                () = &mut keeper => {}
                what = ends.which() => {
                    if matches!(what, End::Resumed) {
                        if let Some(keys) = &keys {
                            keys.listen().context("the keyboard is gone")?;
                        }
                        if screen {
                            voice.open_screen();
                        }
                        continue;
                    }
                    ended.by_hand = true;
                    break;
                }
                () = sleep_until(due), if left.len() > 0 => {
                    due = Instant::now() + pace;
                    if let Some(act) = left.next() {
                        let name = words(&act);
                        waiting.retain(|waiting| *waiting != name);
                        under_way.push(name.clone());
                        let stage = self.stage.clone();
                        playing.spawn(caught(async move { (Some(name), stage.play(act, "story").await) }));
                    }
                }
                Some(Ok(done)) = playing.join_next() => {
                    // The volumes are cleaned up all the same.
                    let (of_the_story, report) =
                        done.map_err(|panic| anyhow!("internal error (bug): a fault panicked: {panic}"))?;
                    if let Some(name) = of_the_story {
                        under_way.retain(|under_way| *under_way != name);
                        ended.tally.add(&report);
                        ended.missing.extend(report.missing);
                    } else if let Some(missing) = report.missing {
                        voice.note(missing);
                    }
                }
                key = next_key(keys.as_mut()) => match key {
                    Key::Quit => { ended.by_hand = true; break; }
                    Key::Fault(fault) => match self.stage.choose(&Wish { fault, volume: None }, &[]) {
                        Ok(act) => {
                            let stage = self.stage.clone();
                            playing.spawn(caught(async move { (None, stage.play(act, "you").await) }));
                        }
                        Err(why) => voice.note(why),
                    },
                },
                () = at(deadline) => break,
                () = async { voice.woken().await; sleep(APART).await }, if screen || !voice.is_broken() => {
                    if voice.is_broken() {
                        ended.missing.push("standard output was closed".to_owned());
                        break;
                    }
                }
                () = sleep(DRAW), if screen => {}
            }
        }
        if !all_over {
            let reason =
                if ended.by_hand { INTERRUPTED } else { "the time was up before the story was over" };
            let mut untold = vec![reason.to_owned()];
            for (what, names) in [("in progress", under_way), ("not started", waiting)] {
                if !names.is_empty() {
                    untold.push(format!("{what}: {}", names.join(", ")));
                }
            }
            ended.missing.push(untold.join("; "));
        }
        drop(keys);
        playing.shutdown().await;
        if !self.stage.down_tools(DOWN_TOOLS).await {
            voice.note("a fault is still being injected or undone; its volume is cleaned up anyway");
        }
        self.tasks.shutdown().await;
        Ok(ended)
    }

    fn draw(&self, voice: &Voice, keys: bool, next: Option<&Vec<String>>) {
        let (snapshot, recent) = (self.source.snapshot(), voice.recent());
        let shown = Shown {
            headline: self.headline,
            snapshot: &snapshot,
            recent: &recent,
            page: &self.url,
            left_out: &self.left_out,
            next: next.map_or(&[], Vec::as_slice),
            keys,
        };
        let height = size().map_or(24, |(_, height)| height);
        voice.draw(compose(&shown, paint(), height));
    }

    /// What to try while it is running.
    fn now_lines(&self, keys: bool) -> Vec<String> {
        let press = keys.then(|| "press a key to break something yourself".to_owned());
        let mut lines: Vec<String> =
            press.into_iter().chain([format!("open {} in a browser", self.url)]).collect();
        if self.mounts == Mounts::OnTheHost {
            lines.push(format!("from another terminal: volmedic watch --csi-address {}", self.csi));
        }
        lines
    }
}

/// What to try after it.
fn next_lines() -> Vec<String> {
    let lines = [
        "your own driver: volmedic watch --csi-address unix:///path/to/csi.sock",
        "does it report health correctly? volmedic conformance --help",
        "in a cluster: docs/install.md",
    ];
    lines.map(str::to_owned).to_vec()
}

/// What is to be played: what was asked for, or the story. Waits until all volumes are seen healthy, so that later reports
/// are about the fault.
async fn wanted(stage: &Stage, wishes: &[Wish], story: Vec<Act>) -> anyhow::Result<Vec<Act>> {
    let all = || stage.source.volumes.iter().all(|volume| stage.source.is_healthy(Some(&volume.name)));
    if !until(SETTLED, all).await {
        let unhealthy: Vec<&str> = stage
            .source
            .volumes
            .iter()
            .filter(|volume| !stage.source.is_healthy(Some(&volume.name)))
            .map(|volume| &*volume.name)
            .collect();
        anyhow::bail!(
            "not healthy within {} s of the start: {}; the machine may be too busy, try again",
            SETTLED.as_secs(),
            unhealthy.join(", ")
        );
    }
    if wishes.is_empty() {
        return Ok(story);
    }
    let mut acts = Vec::new();
    for wish in wishes {
        acts.push(stage.choose(wish, &acts).map_err(anyhow::Error::msg)?);
    }
    Ok(acts)
}

/// Faster where there is only so much time.
fn pace(acts: usize, time: Option<Duration>) -> Duration {
    let Some(time) = time else { return PACE };
    let gaps = u32::try_from(acts.saturating_sub(1).max(1)).unwrap_or(u32::MAX);
    (time.saturating_sub(LAST) / gaps).clamp(FASTEST, PACE)
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn next_key(keys: Option<&mut Keys>) -> Key {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_makes_a_fast_story() {
        let within = |seconds| pace(7, Some(Duration::from_secs(seconds)));
        assert_eq!(pace(7, None), PACE);
        assert_eq!(within(600), PACE);
        assert_eq!(within(27), Duration::from_millis(2_500));
        assert_eq!(within(5), FASTEST);
        assert_eq!(pace(0, Some(Duration::ZERO)), FASTEST);
    }
}
