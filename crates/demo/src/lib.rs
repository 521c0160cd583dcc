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

use home::Home;
use means::{Means, Mounts};
use story::Wish;
use voice::{News, Style, Topic, Voice};
use volmedic_cli::fault;
use volmedic_runtime::flags::positive;
use volmedic_runtime::page::PageArgs;
use volmedic_runtime::terminal::is_screen;
use world::{Ended, Tally, play};

/// Show volumes that fail, are reported and are healed, on this machine and without a cluster.
///
/// Starts the reference driver with a dozen volumes, checks them as in a cluster, breaks one every few seconds, and
/// shows what is reported and what the healer does. As root the volumes are on loop devices and FUSE; without root it
/// shows what is possible and says what is left out. It needs no network, and leaves nothing behind.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  volmedic demo
  volmedic demo --fault list
  volmedic demo --fault mounter-killed --fault full:orders
  volmedic demo --headless --duration 30s --json

Without a terminal on standard output it runs as with --headless. Lines are then 80 columns wide, or $COLUMNS.

Exit codes: 0 when every fault was reported, every fault that the healer acts on was healed, and everything was cleaned
up; also when you end it yourself on a terminal. 1 when something of that is missing, and it says what; 2 when the
command line is wrong.")]
pub struct Args {
    /// Fault to inject instead of the story, on a volume of your choice if you name one. May be given several times.
    /// `list` lists all faults and exits.
    #[arg(long = "fault", value_parser = asked, value_name = "FAULT[:VOLUME]")]
    faults: Vec<Asked>,
    /// No screen and no keys; exits when the story is over.
    #[arg(long)]
    headless: bool,
    /// One JSON object on each line.
    #[arg(long, requires = "headless")]
    json: bool,
    /// Maximum time to run. The story goes faster if necessary.
    #[arg(long, value_parser = positive, value_name = "DURATION")]
    duration: Option<Duration>,
    /// Directory for all files of the demo, removed at the end. It must not exist yet, or be empty, or be left over
    /// from an earlier demo [default: /tmp/volmedic-demo-UID].
    #[arg(long, value_name = "PATH")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
    /// Only try whether a user namespace can be created.
    #[arg(long, hide = true)]
    try_namespace: bool,
}

/// What `--fault` says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    List,
    Inject(Wish),
}

fn asked(text: &str) -> Result<Asked, String> {
    if text == "list" { Ok(Asked::List) } else { text.parse().map(Asked::Inject) }
}

impl Args {
    /// Where the terminal is drawn on, log lines would only be in the way.
    pub fn usual_level(&self) -> Option<tracing::Level> {
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

pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    if args.try_namespace {
        return Ok(namespace::enter()?);
    }
    let mut wishes = Vec::new();
    for asked in args.faults.clone() {
        match asked {
            Asked::List => return fault::list(),
            Asked::Inject(wish) => wishes.push(wish),
        }
    }
    // Before the namespace: there every user is root, and the path of this program may no longer be valid.
    let program = std::env::current_exe().context("cannot find this program")?;
    let root = args.state_dir.clone().unwrap_or_else(Home::usual);
    let means = Means::look();
    if means.mounts == Mounts::OnOurOwn {
        namespace::enter().context("a user namespace could be had a moment ago")?;
    }
    let (home, swept) = Home::claim(&root, means.bytes())?;
    let voice = Arc::new(Voice::start(args.style()).context("cannot start a thread")?);
    if let Some(words) = swept.words() {
        voice.note(format!("an earlier demo was killed; removed what it left behind: {words}"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(play(args, wishes, &program, &means, &home, &voice));
    runtime.shutdown_background();
    voice.close_screen();
    if voice.style() == Style::Screen {
        voice.note("cleaning up");
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
    let cleanup = if cleaned { "everything was cleaned up" } else { "not everything could be cleaned up" };
    let Tally { faults, reported, healable, healed } = tally;
    let text = match &failed {
        None => {
            let plural = if faults == 1 { "" } else { "s" };
            let heals = match healable {
                0 => "none to heal".to_owned(),
                _ => format!("{healed} of {healable} healable ones healed"),
            };
            format!("{faults} fault{plural}, {reported} reported, {heals}; {cleanup}")
        }
        Some(_) => format!("the demo failed; {cleanup}"),
    };
    let data = json!({
        "ok": missing.is_empty(), "faults": faults, "told": reported, "healable": healable, "healed": healed,
        "cleanedUp": cleaned, "missing": missing,
    });
    voice.say(News { at: Timestamp::now(), topic: Topic::Summary, volume: None, text, data });
    if voice.style() != Style::Json && failed.is_none() {
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
        (None, false) => Err(anyhow!("the demo is not complete: {}", missing.join("; "))),
    }
}
