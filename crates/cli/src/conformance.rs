//! Checking any CSI driver through its socket.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use volmedic_conformance::{Baseline, Harm, Options, Report, Verdict};
use volmedic_driver::StateDir;
use volmedic_driver::fault::{Fault, Faults};

use volmedic_runtime::size;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  volmedic conformance --csi-address unix:///run/csi.sock
  volmedic conformance --csi-address unix:///run/csi.sock --parameters type=fast --secrets-file ./secrets
  volmedic conformance --csi-address unix:///run/csi.sock --only published-node-ids -o json
  volmedic conformance --csi-address unix:///run/csi.sock -o junit --baseline last.json > report.xml

The volumes that it creates are removed again. docs/conformance.md has all rules.

Exit codes: 0 when no rule is broken, 1 when one is, 2 when the command line is wrong, 3 when the driver could not be checked
or the run was stopped. With --baseline only a rule that was not broken before makes it 1.")]
pub struct Args {
    /// Socket of the driver.
    #[arg(long, env = "CSI_ADDRESS", value_parser = socket, value_name = "unix:///PATH")]
    csi_address: PathBuf,
    /// Socket of its node service, if that is another one.
    #[arg(long, value_parser = socket, value_name = "unix:///PATH")]
    node_address: Option<PathBuf>,
    /// Parameters of the volumes that are created, as in a storage class.
    #[arg(long, value_parser = pairs, default_value = "", value_name = "KEY=VALUE,…")]
    parameters: HashMap<String, String>,
    /// File with the secrets that the driver needs, one KEY=VALUE on each line.
    #[arg(long, value_name = "PATH")]
    secrets_file: Option<PathBuf>,
    /// Directory to stage volumes in [default: the directory for temporary files].
    #[arg(long, value_name = "PATH")]
    staging_dir: Option<PathBuf>,
    /// Directory to publish volumes in [default: the directory for temporary files].
    #[arg(long, value_name = "PATH")]
    target_dir: Option<PathBuf>,
    /// Create raw block volumes instead of mounted ones.
    #[arg(long)]
    block: bool,
    /// Size of the volumes that are created.
    #[arg(long, default_value = "1Gi", value_parser = size::bytes, value_name = "BYTES")]
    volume_size: u64,
    /// Maximum seconds of one call.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600), value_name = "SECONDS")]
    deadline: u64,
    /// Rule to check, instead of all. May be given several times.
    #[arg(long, value_parser = rule, value_name = "RULE")]
    only: Vec<String>,
    /// State directory of a reference driver, to inject faults into its volumes and check that it reports them.
    #[arg(long, value_name = "PATH")]
    fault_state_dir: Option<PathBuf>,
    /// Report of an earlier run, as -o json wrote it, to compare with.
    #[arg(long, value_name = "PATH")]
    baseline: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = Output::Table, value_name = "FORMAT")]
    output: Output,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    Table,
    Json,
    /// JUnit XML, with one test case for each rule.
    Junit,
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text.strip_prefix("unix://").unwrap_or(text));
    if path.is_absolute() {
        return Ok(path);
    }
    Err("it is not unix:// followed by an absolute path, such as unix:///run/csi.sock".to_owned())
}

fn pairs(text: &str) -> Result<HashMap<String, String>, String> {
    let mut pairs = HashMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        // The value may be a secret, so it is not repeated.
        let (key, value) = pair.split_once('=').ok_or("each must be KEY=VALUE, separated by commas")?;
        if pairs.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    Ok(pairs)
}

fn rule(text: &str) -> Result<String, String> {
    let known = || volmedic_conformance::rules().map(|(name, _)| name);
    if known().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    Err(format!("there is no such rule; the rules are {}", known().collect::<Vec<_>>().join(", ")))
}

/// The reference driver looks when it is asked; this is for the kernel to settle.
const NOTICE: Duration = Duration::from_secs(5);

/// Injuries of the reference driver that can be done to every kind of volume and taken back in one step.
const INJURIES: &[Fault] = &[Fault::DriveSuspect, Fault::DriveBad, Fault::TargetUnmounted];

struct Injuries(Faults);

impl Injuries {
    fn find(name: &str) -> Result<Fault, String> {
        name.parse()
    }
}

impl Harm for Injuries {
    fn injuries(&self) -> Vec<String> {
        INJURIES.iter().map(Fault::to_string).collect()
    }

    fn hurt(&self, injury: &str, volume_id: &str) -> Result<(), String> {
        self.0.inject(Self::find(injury)?, Some(volume_id)).map_err(|error| error.to_string())
    }

    fn heal(&self, injury: &str, volume_id: &str) -> Result<(), String> {
        self.0.clear(Self::find(injury)?, Some(volume_id)).map_err(|error| error.to_string())
    }
}

fn harm(state: &Path) -> Result<Arc<dyn Harm>, String> {
    let root = state.canonicalize().map_err(|error| {
        format!(
            "cannot find the state directory {}: {error}; give the --state-dir of the driver",
            state.display()
        )
    })?;
    Ok(Arc::new(Injuries(Faults::at(StateDir::new(root)))))
}

fn secrets(file: &Path) -> Result<HashMap<String, String>, String> {
    let reported =
        |error: &dyn std::fmt::Display| format!("cannot read the secrets file {}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| reported(&error))?;
    let mut secrets = HashMap::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        // A secret may have commas in it, so each has a line of its own.
        let (key, value) = line.split_once('=').ok_or_else(|| reported(&"a line is not KEY=VALUE"))?;
        secrets.insert(key.trim().to_owned(), value.to_owned());
    }
    Ok(secrets)
}

/// The driver could not be checked, or not by every rule.
const NOT_CHECKED: u8 = 3;

pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    match check(args) {
        Ok(code) => Ok(code),
        Err(error) => {
            // If this fails too, there is nowhere left to report it.
            let _ = writeln!(io::stderr(), "volmedic: {error}");
            Ok(ExitCode::from(NOT_CHECKED))
        }
    }
}

fn check(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let temporary = std::env::temp_dir();
    let baseline = args.baseline.as_deref().map(earlier).transpose()?;
    let options = Options {
        socket: args.csi_address,
        node_socket: args.node_address,
        parameters: args.parameters,
        secrets: args.secrets_file.as_deref().map(secrets).transpose()?.unwrap_or_default(),
        staging_dir: args.staging_dir.unwrap_or_else(|| temporary.clone()),
        target_dir: args.target_dir.unwrap_or(temporary),
        block: args.block,
        volume_bytes: i64::try_from(args.volume_size)
            .map_err(|_| "the volume size is larger than CSI allows")?,
        deadline: Duration::from_secs(args.deadline),
        notice: NOTICE,
        only: args.only,
    };
    let harm = args.fault_state_dir.as_deref().map(harm).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let stop = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        Ok::<_, Box<dyn Error>>(volmedic_conformance::run(options, harm, stop).await?)
    });
    // Harm that waits for the kernel must not keep the process from ending.
    runtime.shutdown_background();
    let report = outcome?;
    say(&match args.output {
        Output::Table => report.table(),
        Output::Json => report.json()?,
        Output::Junit => report.junit(),
    })?;
    if report.stopped {
        return Err("the run was stopped, so not every rule was checked".into());
    }
    judged(&report, baseline.as_ref())
}

/// The exit code, and on standard error why it is not 0.
fn judged(report: &Report, baseline: Option<&Baseline>) -> Result<ExitCode, Box<dyn Error>> {
    let (broken, kind) = match baseline {
        None => (report.count(Verdict::Fail), "broken"),
        Some(baseline) => {
            // Not on standard output, which may be read by a program.
            write!(io::stderr(), "{}", report.comparison(baseline))?;
            (report.since(baseline).iter().filter(|change| change.is_regression()).count(), "newly broken")
        }
    };
    let sentence = match broken {
        0 => return Ok(ExitCode::SUCCESS),
        1 => format!("a rule is {kind}"),
        broken => format!("{broken} rules are {kind}"),
    };
    writeln!(io::stderr(), "volmedic: {sentence}; the report says which")?;
    Ok(ExitCode::FAILURE)
}

fn earlier(file: &Path) -> Result<Baseline, String> {
    let cannot =
        |why: String| format!("cannot read the baseline {}: {why}; give a file of -o json", file.display());
    let text = fs::read_to_string(file).map_err(|error| cannot(error.to_string()))?;
    Baseline::parse(&text).map_err(cannot)
}

/// A reader that closes the pipe has read enough.
fn say(text: &str) -> Result<(), Box<dyn Error>> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_pairs_and_rules_are_checked() {
        assert_eq!(socket("unix:///run/csi.sock"), Ok(PathBuf::from("/run/csi.sock")));
        assert!(socket("tcp://10.0.0.1:9000").is_err() && socket("csi.sock").is_err());
        assert_eq!(pairs("").unwrap().len(), 0);
        assert_eq!(pairs("kind=fuse,fsType=a=b").unwrap()["fsType"], "a=b");
        assert!(pairs("kind").is_err() && pairs("a=1,a=2").is_err());
        assert!(rule("no-such-rule").unwrap_err().contains("adverse-is-told"));
    }
}
