//! The demo: a driver, its volumes, the monitor and the healer on this machine, and a story of what goes wrong.

mod driver;
mod ends;
mod eyes;
mod healer;
mod home;
mod keys;
mod means;
mod namespace;
mod pipes;
mod show;
mod source;
mod story;
mod sweep;
mod voice;
mod volumes;
mod world;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use serde_json::json;

use crate::flags::positive;
use crate::page::PageArgs;
use crate::terminal::is_screen;
use home::Home;
use means::{Means, Mounts};
use story::Wish;
use voice::{News, Style, Topic, Voice};
use world::{Ended, play};

/// Watch volumes fail, be told and be healed, on this machine and with no cluster.
///
/// Starts the reference driver with a dozen volumes, looks at them as in a cluster, breaks one every few seconds, and
/// shows what is told and what the healer does about it. As root the volumes are real ones on loop devices and FUSE;
/// without, as much as can be had, and it says so. At the end nothing stays behind.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  volmedic demo
  volmedic demo --fault mounter-killed --fault full:orders
  volmedic demo --headless --duration 30s --json

Where standard output is no terminal, it is as with --headless.

Exit codes: 0 when every fault was told, healed where the healer heals, and everything was taken away; also when you end
it yourself on a terminal. 1 when something of that is missing, with what; 2 when the command line is wrong.")]
pub(crate) struct Args {
    /// Break this instead of telling the story: a fault as `volmedic fault list` has them, and a volume if you like. May
    /// be given several times.
    #[arg(long = "fault", value_name = "FAULT[:VOLUME]")]
    faults: Vec<Wish>,
    /// No screen and no keys; ends when the story is told.
    #[arg(long)]
    headless: bool,
    /// One JSON object on each line.
    #[arg(long, requires = "headless")]
    json: bool,
    /// End after this time at the latest. The story is told faster if need be.
    #[arg(long, value_parser = positive, value_name = "DURATION")]
    duration: Option<Duration>,
    /// Where everything is, and is taken away from in the end. It must not exist, or be empty, or be an earlier demo's.
    #[arg(long, value_name = "PATH")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
    /// Only try whether a user namespace can be had.
    #[arg(long, hide = true)]
    try_namespace: bool,
}

impl Args {
    /// Where the terminal is drawn on, log lines would only be in the way.
    pub(crate) fn usual_level(&self) -> Option<tracing::Level> {
        (self.style() != Style::Screen).then_some(tracing::Level::ERROR)
    }

    fn style(&self) -> Style {
        match (self.json, self.headless || !is_screen()) {
            (true, _) => Style::Json,
            (false, true) => Style::Lines,
            (false, false) => Style::Screen,
        }
    }
}

pub(crate) fn run(args: Args) -> Result<(), Box<dyn Error>> {
    if args.try_namespace {
        return Ok(namespace::enter()?);
    }
    // Before the namespace: there everybody is root, and nobody may know any more where this program was.
    let program = std::env::current_exe().context("cannot find this program")?;
    let root = args.state_dir.clone().unwrap_or_else(Home::usual);
    let means = Means::look();
    if means.mounts == Mounts::OnOurOwn {
        namespace::enter().context("a user namespace could be had a moment ago")?;
    }
    let (home, swept) = Home::claim(&root)?;
    let voice = Arc::new(Voice::start(args.style()).context("cannot start a thread")?);
    if let Some(words) = swept.words() {
        voice.note(format!("an earlier demo was killed; {words} of it were taken away"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(play(args, &program, &means, &home, &voice));
    runtime.shutdown_background();
    voice.close_screen();
    if voice.style() == Style::Screen {
        voice.note("taking everything away");
    }
    let left = home.leave();
    let outcome = judge(&voice, ended, left);
    voice.finish();
    Ok(outcome?)
}

/// Says how it went, and answers with what was missing.
fn judge(voice: &Voice, ended: anyhow::Result<Ended>, left: Vec<String>) -> anyhow::Result<()> {
    let (ended, failed) = match ended {
        Ok(ended) => (ended, None),
        Err(error) => (Ended::default(), Some(error)),
    };
    let Ended { by_hand, tally, mut missing, next } = ended;
    if by_hand && voice.style() == Style::Screen {
        // Who leaves before the end has seen enough.
        missing.clear();
    }
    let cleaned = left.is_empty();
    missing.extend(left);
    if let Some(error) = &failed {
        missing.push(format!("{error:#}"));
    }
    let text = format!(
        "{} faults, {} told, {} of {} healed; {}",
        tally.faults,
        tally.told,
        tally.healed,
        tally.healable,
        if cleaned { "everything is taken away again" } else { "not everything could be taken away" }
    );
    let data = json!({
        "ok": missing.is_empty(), "faults": tally.faults, "told": tally.told, "healable": tally.healable,
        "healed": tally.healed, "cleanedUp": cleaned, "missing": missing,
    });
    voice.say(News { at: Timestamp::now(), topic: Topic::Summary, volume: None, text, data });
    if voice.style() != Style::Json {
        for line in next {
            voice.say(News {
                at: Timestamp::now(),
                topic: Topic::Next,
                volume: None,
                text: line,
                data: json!({}),
            });
        }
    }
    match (failed, missing.is_empty()) {
        (Some(error), _) => Err(error),
        (None, true) => Ok(()),
        (None, false) => Err(anyhow!("the demo is not what it should be: {}", missing.join("; "))),
    }
}
