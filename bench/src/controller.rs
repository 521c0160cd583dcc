//! The controller as a process, at rest and while a thousand volumes fail, beside the other programs that do its work.

pub(crate) mod measure;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::bare::{self, List};
use crate::ground::Ground;
use crate::machine::Machine;
use crate::peer::{self, Peer};
use crate::{page, say};
use measure::Measured;

/// Number of passes at rest that are measured. At the default interval of five minutes that is almost an hour.
const QUIET_PASSES: usize = 10;
const BARE_PASSES: u32 = 10;
/// Peers keep whole objects in memory; more than this could be more than the machine has.
const PEER_VOLUMES: usize = 10_000;
/// What the API server and its store need for one pair, and how long one takes to write.
const BYTES_PER_PAIR: u64 = 65_000;
const TIME_PER_PAIR: Duration = Duration::from_millis(6);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many volumes there are, one figure after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 10_000, 100_000], value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=500_000))]
    volumes: Vec<usize>,
    /// The program to measure
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// A release of external-health-monitor to measure beside it, built from its Go module; may be repeated
    #[arg(long, value_name = "VERSION", default_values_t = [peer::DEFAULT.to_owned()])]
    peer_release: Vec<String>,
    /// Another program that takes external-health-monitor's flags, to measure beside it; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = peer::given)]
    peer: Vec<Peer>,
    /// Maximum number of volumes to measure peers with
    #[arg(long, value_name = "N", default_value_t = PEER_VOLUMES)]
    peer_volumes: usize,
    /// Measure no peers
    #[arg(long, conflicts_with_all = ["peer", "peer_release"])]
    alone: bool,
    /// Write the page with the figures here
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// How the page says it was made
    #[arg(long, value_name = "TEXT", default_value = "cargo xtask bench controller")]
    made_by: String,
}

/// How the driver reports its volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All volumes with their conditions: the older dialect, which peers know.
    Volumes,
    /// The unhealthy volumes only: the newer dialect.
    Health,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Volumes => "ListVolumes",
            Self::Health => "ControllerListVolumeHealth",
        }
    }

    fn list(self) -> List {
        match self {
            Self::Volumes => List::Volumes,
            Self::Health => List::Health,
        }
    }
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) volumes: usize,
    pub(crate) mode: Mode,
    /// The peer's name, or none for ours.
    pub(crate) peer: Option<String>,
    /// How long a pass of the bare client takes.
    pub(crate) bare: Duration,
    pub(crate) measured: Measured,
}

impl Row {
    pub(crate) fn name(&self) -> &str {
        self.peer.as_deref().unwrap_or("volmedic")
    }
}

/// Everything that goes on the page.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) machine: Machine,
    pub(crate) made_by: String,
    pub(crate) rows: Vec<Row>,
    /// What was to be measured and could not be, and why.
    pub(crate) missing: Vec<String>,
}

impl Outcome {
    fn add(&mut self, row: Row) {
        say::line(&format!("  {}", page::line(&row)));
        let (volumes, mode) = (row.volumes, row.mode.name());
        for missing in row.measured.missing() {
            let missing = format!("{} with {volumes} volumes, {mode}: {missing}", row.name());
            say::line(&format!("  {missing}"));
            self.missing.push(missing);
        }
        self.rows.push(row);
    }
}

pub(crate) fn run(mut args: Args) -> Result<()> {
    args.volumes.sort_unstable();
    args.volumes.dedup();
    if !args.program.is_file() {
        bail!(
            "there is no program {}; build it with `cargo build --release --package=volmedic`",
            args.program.display()
        );
    }
    let machine = Machine::this();
    announce(&args.volumes, machine)?;
    let mut outcome =
        Outcome { machine, made_by: args.made_by.clone(), rows: Vec::new(), missing: Vec::new() };
    let mut peers = std::mem::take(&mut args.peer);
    for release in args.peer_release.iter().filter(|_| !args.alone) {
        match peer::build(release) {
            Ok(peer) => peers.push(peer),
            Err(error) => {
                let why = format!("external-health-monitor {release} is not measured: {error:#}");
                say::line(&why);
                outcome.missing.push(why);
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure_all(&args, &peers, &mut outcome))?;
    say::result(&page::table(&outcome));
    if let Some(path) = &args.page {
        std::fs::write(path, page::page(&outcome))
            .with_context(|| format!("cannot write {}", path.display()))?;
        say::line(&format!("wrote {}", path.display()));
    }
    // A peer's failure is a result. One of ours is an error.
    let ours = outcome.rows.iter().filter(|row| row.peer.is_none());
    let missing: Vec<String> = ours.flat_map(|row| row.measured.missing()).collect();
    if !missing.is_empty() {
        bail!("volmedic did not come to its end: {}", missing.join("; "));
    }
    Ok(())
}

/// Says what it takes, before it is taken.
fn announce(volumes: &[usize], machine: Machine) -> Result<()> {
    let most = volumes.last().copied().unwrap_or_default();
    let memory = most as u64 * BYTES_PER_PAIR + (1 << 30);
    let minutes =
        (TIME_PER_PAIR * u32::try_from(most).unwrap_or(u32::MAX)).as_secs() / 60 + 4 * volumes.len() as u64;
    say::line(&format!(
        "{most} volumes: about {} GiB of memory and {minutes} minutes on a machine that is not busy",
        (memory >> 30) + 1
    ));
    if memory > machine.memory() {
        bail!(
            "this machine has {machine}, which is not enough for {most} volumes; ask for fewer with --volumes"
        );
    }
    Ok(())
}

async fn measure_all(args: &Args, peers: &[Peer], outcome: &mut Outcome) -> Result<()> {
    let mut ground = Ground::lay().await?;
    for &volumes in &args.volumes {
        ground.fill(volumes).await?;
        for mode in [Mode::Volumes, Mode::Health] {
            measure::set_mode(&mut ground, mode)?;
            let bare = bare_pass(&ground, mode).await?;
            let ours = measure::Subject { program: &args.program, role: &["controller"], name: "volmedic" };
            let measured = measure::measure(&ground, &ours, volumes, QUIET_PASSES).await;
            let measured =
                measured.with_context(|| format!("volmedic with {volumes} volumes, {}", mode.name()))?;
            outcome.add(Row { volumes, mode, peer: None, bare, measured });
            // Peers speak the older dialect only.
            for peer in peers.iter().filter(|_| mode == Mode::Volumes) {
                let what = format!("{} with {volumes} volumes", peer.name);
                if volumes > args.peer_volumes {
                    outcome.missing.push(format!("{what} is not measured: more than --peer-volumes"));
                    continue;
                }
                let theirs = measure::Subject { program: &peer.program, role: &[], name: &peer.name };
                match measure::measure(&ground, &theirs, volumes, QUIET_PASSES).await {
                    Ok(measured) => {
                        let peer = Some(peer.name.clone());
                        outcome.add(Row { volumes, mode, peer, bare, measured });
                    }
                    Err(error) => outcome.missing.push(format!("{what} could not be measured: {error:#}")),
                }
            }
        }
    }
    Ok(())
}

async fn bare_pass(ground: &Ground, mode: Mode) -> Result<Duration> {
    ground.sim.behaviour().walks.clear();
    bare::drain_apart(ground.sim.socket(), mode.list(), BARE_PASSES).await?;
    let times = measure::times(&ground.sim, 0);
    measure::median(times).context("the bare client did not list anything")
}
