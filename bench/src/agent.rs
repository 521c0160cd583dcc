//! The agent as a process on a node with many volumes, at rest, and while some of them hang.

mod bare;
mod calls;
mod measure;
mod node;
mod page;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::ground::Ground;
use crate::machine::Machine;
use crate::say;
use measure::{Hang, Rest};
use node::{HUNG, Node};

/// Set for the process that has mounts of its own.
const APART: &str = "VOLMEDIC_BENCH_APART";
/// Volumes are made by this many: ten pods with ten volumes each.
const BATCH: usize = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many volumes there are, in hundreds, one figure after the other; with the last some of them hang
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000], value_name = "N", value_parser = hundreds)]
    volumes: Vec<usize>,
    /// The program to measure
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// Write the page with the figures here
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// How the page says it was made
    #[arg(long, value_name = "TEXT", default_value = "cargo xtask bench agent")]
    made_by: String,
}

/// Everything that goes on the page.
#[derive(Debug)]
struct Outcome {
    machine: Machine,
    made_by: String,
    rest: Vec<Rest>,
    hang: Hang,
}

fn hundreds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (BATCH..=10_000).contains(&count) && count % BATCH == 0 => Ok(count),
        _ => Err(format!("it must be a multiple of {BATCH}, at most 10000")),
    }
}

pub(crate) fn run(mut args: Args) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("mounting a thousand volumes takes root; run this as root");
    }
    if std::env::var_os(APART).is_none() {
        return Err(go_apart());
    }
    args.volumes.sort_unstable();
    args.volumes.dedup();
    if !args.program.is_file() {
        bail!(
            "there is no program {}; build it with `cargo build --release --package=volmedic`",
            args.program.display()
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(measure_all(&args))?;
    say::result(&page::figures(&outcome));
    if let Some(path) = &args.page {
        std::fs::write(path, page::page(&outcome))
            .with_context(|| format!("cannot write {}", path.display()))?;
        say::line(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// This program again, with a mount table of its own: nobody else on the machine sees the volumes, and they are gone with
/// the last process that does. Answers only when that failed.
fn go_apart() -> anyhow::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return anyhow::Error::new(error).context("cannot find this program"),
    };
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "--"]).arg(program).args(std::env::args_os().skip(1));
    let error = command.env(APART, "1").exec();
    anyhow::Error::new(error).context("cannot run `unshare` of util-linux, which makes a mount namespace")
}

async fn measure_all(args: &Args) -> Result<Outcome> {
    let mut ground = Ground::lay().await?;
    let mut node = Node::new(&ground, &args.program).await?;
    let mut rest = Vec::new();
    let mut hang = None;
    for (nth, &volumes) in args.volumes.iter().enumerate() {
        ground.fill(volumes).await?;
        node.fill(&ground, volumes).await?;
        say::line(&format!("measuring the agent with {volumes} volumes"));
        let mut agent = measure::Agent::start(&ground, &node, &args.program, volumes).await?;
        let measured = agent.rest(&ground, &node).await.with_context(|| agent.tail())?;
        say::line(&format!("  {}", page::line(&measured)));
        rest.push(measured);
        if nth + 1 == args.volumes.len() {
            say::line(&format!("  {HUNG} of them hang, and all others become full"));
            hang = Some(agent.hang(&mut node).await.with_context(|| agent.tail())?);
        }
        agent.end()?;
    }
    node.end().await?;
    let hang = hang.context("nothing was measured")?;
    Ok(Outcome { machine: Machine::this(), made_by: args.made_by.clone(), rest, hang })
}
