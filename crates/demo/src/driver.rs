//! The reference driver as a child process, started again when it dies.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};
use volmedic_csi::{Address, Driver, Metrics, Protocol, Session, Settings};

use super::home::Home;
use super::means::Mounts;
use super::volumes::NODE;

/// What the driver calls itself.
pub(super) const NAME: &str = "demo.volmedic.dev";
/// For the driver to come up, on a busy machine too.
const START: Duration = Duration::from_secs(30);
/// For one call.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);
/// How long a volume has for an answer before it counts as hung.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(200);
/// Between a death and the next start: doubled each time, and short again after a driver that lived. Long enough to see
/// what is reported about it.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
const LIVED: Duration = Duration::from_secs(10);

/// The driver's process.
#[derive(Debug)]
pub(super) struct Process {
    command: Command,
    child: Child,
}

impl Process {
    /// To be called from the thread that lives longest: the driver dies with it.
    pub(super) fn start(program: &Path, home: &Home, mounts: Mounts) -> anyhow::Result<Self> {
        fs::create_dir_all(home.node())
            .with_context(|| format!("cannot create {}", home.node().display()))?;
        let log =
            File::create(home.log()).with_context(|| format!("cannot create {}", home.log().display()))?;
        let unix = |path: PathBuf| format!("unix://{}", path.display());
        let services = if mounts == Mounts::Nowhere { "controller" } else { "controller,node" };
        let mut command = Command::new(program);
        command
            .args(["driver", "--name", NAME, "--node-id", NODE, "--services", services])
            .args(["--endpoint", &unix(home.csi_socket()), "--addons-endpoint", &unix(home.addons_socket())])
            .args(["--check-deadline", &PATIENCE.as_secs().to_string(), "--fsck-every", "0"])
            .args(["--parent", &std::process::id().to_string()])
            .arg("--state-dir")
            .arg(home.state())
            .arg("--allowed-root")
            .arg(home.node())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C is for us; the driver is still needed then.
            .process_group(0);
        let child = spawn(&mut command)?;
        Ok(Self { command, child })
    }

    /// Waits for the driver to answer.
    pub(super) async fn connect(
        &mut self,
        home: &Home,
        metrics: Metrics,
    ) -> anyhow::Result<(Driver, Session)> {
        let address: Address = address(&home.csi_socket().display().to_string())?;
        let settings =
            Settings { deadline: DEADLINE, longest_pause: Duration::from_secs(1), ..Settings::default() };
        let driver = Driver::start(address, settings, metrics);
        let deadline = Instant::now() + START;
        loop {
            if let Ok(session) = driver.ready_within(LOOK).await {
                return Ok((driver, session));
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the driver did not start ({status}): {}", last_words(home));
            }
            if Instant::now() >= deadline {
                bail!(
                    "the driver did not answer within {} s; the machine may be busy, try again: {}",
                    START.as_secs(),
                    last_words(home)
                );
            }
        }
    }

    /// Starts the driver again whenever it dies, and says so.
    pub(super) async fn keep(&mut self, mut report: impl FnMut(String)) {
        let mut pause = FIRST_PAUSE;
        let mut born = Instant::now();
        loop {
            sleep(LOOK).await;
            let Ok(Some(status)) = self.child.try_wait() else { continue };
            pause = if born.elapsed() >= LIVED { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            report(format!("the driver exited ({status}); it is restarted in {} s", pause.as_secs()));
            sleep(pause).await;
            born = Instant::now();
            match spawn(&mut self.command) {
                Ok(child) => self.child = child,
                Err(error) => report(format!("{error:#}")),
            }
        }
    }

    /// Ends it. It has nothing to finish: what it made is taken away next.
    pub(super) fn end(&mut self) {
        // Stopped ones are ended by nothing less.
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The healer's way to the driver.
pub(super) fn addons(home: &Home, metrics: Metrics) -> anyhow::Result<Driver> {
    let address = address(&home.addons_socket().display().to_string())?;
    let settings = Settings {
        protocol: Protocol::Addons,
        deadline: DEADLINE,
        longest_pause: Duration::from_secs(1),
        ..Settings::default()
    };
    Ok(Driver::start(address, settings, metrics))
}

pub(super) fn address(path: &str) -> anyhow::Result<Address> {
    path.parse().with_context(|| format!("{path} is not the address of a socket"))
}

fn spawn(command: &mut Command) -> anyhow::Result<Child> {
    command.spawn().context("cannot start the driver")
}

fn last_words(home: &Home) -> String {
    let log = fs::read_to_string(home.log()).unwrap_or_default();
    log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("its log is empty").to_owned()
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.end();
        }
    }
}
