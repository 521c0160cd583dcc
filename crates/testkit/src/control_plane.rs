//! A real etcd and kube-apiserver for one test program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::cache;
use crate::crew::{Crew, Launch};
use crate::home::Home;
use crate::kubernetes::{self, Version};
use crate::network::Network;
use crate::part::Part;
use crate::pki::Pki;
use crate::ports;
use crate::process::{Lifetime, Process};

#[cfg(feature = "client")]
mod client;
mod flags;
mod forge;

/// Ready takes three seconds; on a machine that compiles something beside it, many times that.
const START_LIMIT: Duration = Duration::from_mins(4);
const STOP_GRACE: Duration = Duration::from_secs(15);

/// What a control plane is started with.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) version: Version,
    pub(crate) gates: BTreeMap<String, bool>,
    pub(crate) apiserver_arguments: Vec<String>,
    pub(crate) network: Network,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: Version::under_test(),
            gates: BTreeMap::from([("CSIVolumeHealth".to_owned(), true)]),
            apiserver_arguments: Vec::new(),
            network: Network::UNUSED,
        }
    }
}

impl Options {
    /// Another release than the one under test.
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Switches a feature gate on or off. `CSIVolumeHealth` is on unless it is switched off.
    pub fn gate(mut self, name: &str, on: bool) -> Self {
        self.gates.insert(name.to_owned(), on);
        self
    }

    /// One more argument of the API server, such as `--event-ttl=5m`. The last of its kind counts.
    pub fn apiserver_argument(mut self, argument: &str) -> Self {
        self.apiserver_arguments.push(argument.to_owned());
        self
    }

    /// Starts it; it ends with this process.
    pub fn start(self) -> Result<ControlPlane> {
        ControlPlane::launch(&self, Home::for_this_process("control-plane")?, Lifetime::Tied)
    }
}

/// A running etcd and kube-apiserver with TLS, RBAC and service-account tokens, on loopback.
///
/// Both end when this value is dropped and when the process ends, however it ends.
#[derive(Debug)]
pub struct ControlPlane {
    // Before `home`: the programs end before their folder goes.
    crew: Crew,
    home: Option<Home>,
    kubeconfig: PathBuf,
    program: PathBuf,
    port: u16,
    lifetime: Lifetime,
}

impl ControlPlane {
    /// The one that all tests of a program share. Started by the first that asks; tests keep apart by namespaces.
    ///
    /// Panics when it cannot be started, with the reason.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Result<ControlPlane>> = OnceLock::new();
        match SHARED.get_or_init(|| Options::default().start()) {
            Ok(shared) => shared,
            Err(error) => panic!("there is no control plane to test against: {error:#}"),
        }
    }

    /// What to change before [`Options::start`].
    pub fn options() -> Options {
        Options::default()
    }

    pub(crate) fn launch(options: &Options, home: Home, lifetime: Lifetime) -> Result<Self> {
        let program = kubernetes::program(options.version)?;
        let crew = Crew::new(&home, lifetime);
        let pki = Pki::create(&home.pki())?;
        flags::certify(&pki, options.network)?;
        let opened = crew.with_free_ports(&[Part::Etcd, Part::ApiServer], || {
            open(&crew, &home, &program, options, ports::free()?)
        });
        let port = opened.context("the control plane did not start")?;
        let kubeconfig = home.kubeconfig();
        flags::write_kubeconfig(&kubeconfig, &home.pki(), "admin", port)?;
        Ok(Self { crew, home: Some(home), kubeconfig, program, port, lifetime })
    }

    /// A kubeconfig with all rights.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where the API server listens.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Where a part writes its log.
    pub fn log(&self, part: Part) -> PathBuf {
        self.crew.log(part)
    }

    /// The process number of a part that runs.
    pub fn pid(&self, part: Part) -> Option<u32> {
        self.crew.pid(part)
    }

    /// `kubectl` with all rights, to which arguments can be added.
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("kubectl").arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    /// Installs our resource definitions and waits until the API server serves them.
    pub fn install_definitions(&self) -> Result<()> {
        let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart/files/crds");
        for arguments in [&["apply"][..], &["wait", "--for=condition=Established", "--timeout=180s"]] {
            let output = self.kubectl().args(arguments).args(["-f", definitions]).output();
            let output = output.context("kubectl does not start")?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "kubectl {} of {definitions} failed: {said}", arguments[0]);
        }
        Ok(())
    }

    /// Ends the API server in good order. Its port stays its own.
    pub fn stop_apiserver(&self) -> Result<()> {
        self.crew.stop(Part::ApiServer, STOP_GRACE)
    }

    /// Starts the API server again, on the same port, and waits until it is ready.
    pub fn start_apiserver(&self) -> Result<()> {
        self.start(Part::ApiServer)
    }

    /// Starts a part again that was stopped or killed, and waits until the API server is ready.
    pub fn start(&self, part: Part) -> Result<()> {
        self.crew.restart(part)?;
        if self.crew.pid(Part::ApiServer).is_some() {
            self.wait_until_ready()?;
        }
        Ok(())
    }

    /// Ends a part in good order.
    pub fn stop(&self, part: Part) -> Result<()> {
        self.crew.stop(part, STOP_GRACE)
    }

    /// Ends a part the hard way.
    pub fn kill(&self, part: Part) -> Result<()> {
        self.crew.kill(part)
    }

    /// Freezes a part: its connections stay open and nothing is answered from now on.
    pub fn pause(&self, part: Part) -> Result<()> {
        self.crew.pause(part)
    }

    /// Lets a paused part go on.
    pub fn resume(&self, part: Part) -> Result<()> {
        self.crew.signal(part, Signal::CONT)
    }

    /// Waits until the API server says that it and its store are ready.
    pub fn wait_until_ready(&self) -> Result<()> {
        await_ready(&self.crew, self.home()?, &self.program, self.port)
    }

    pub(crate) fn home(&self) -> Result<&Home> {
        self.home.as_ref().context("the control plane has ended")
    }

    pub(crate) fn crew(&self) -> &Crew {
        &self.crew
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Writes a kubeconfig for the holder of the certificate `name`.
    pub(crate) fn write_kubeconfig(&self, path: &Path, name: &str) -> Result<()> {
        flags::write_kubeconfig(path, &self.home()?.pki(), name, self.port)
    }

    /// Ends its programs and leaves its folder to the next process that clears folders away.
    pub(crate) fn abandon(mut self) {
        // What does not end is killed again by the process that clears the rest away.
        let _ = self.crew.kill_all();
        drop(self.home.take());
    }

    /// Ends everything and removes its folder.
    pub(crate) fn end(mut self) -> Result<()> {
        self.crew.kill_all()?;
        self.home.take().map_or(Ok(()), Home::clear)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Tied {
            let _ = self.crew.kill_all();
            if let Some(Err(error)) = self.home.take().map(Home::clear) {
                cache::say(&format!("a control plane could not be cleared away: {error:#}"));
            }
        }
    }
}

/// Starts both programs side by side and waits until the second is ready, which needs the first.
fn open(crew: &Crew, home: &Home, program: &Path, options: &Options, ports: [u16; 3]) -> Result<u16> {
    let [clients, peers, secure] = ports;
    let launch = |part, arguments| {
        let arguments = std::iter::once(Part::name(part).to_owned()).chain(arguments).collect();
        crew.start(Launch { part, program: program.to_owned(), arguments, environment: Vec::new() })
    };
    // What an earlier attempt stored names its own peer address.
    crate::home::remove_folder(&home.path().join("etcd"))?;
    launch(Part::Etcd, flags::etcd(home, clients, peers))?;
    launch(Part::ApiServer, flags::apiserver(home, options, clients, secure))?;
    await_ready(crew, home, program, secure)?;
    Ok(secure)
}

fn await_ready(crew: &Crew, home: &Home, program: &Path, port: u16) -> Result<()> {
    await_https(
        crew,
        home,
        program,
        Part::ApiServer,
        &format!("https://127.0.0.1:{port}/readyz"),
        START_LIMIT,
    )
}

/// Waits until `url` answers 200 to the admin.
pub(crate) fn await_https(
    crew: &Crew,
    home: &Home,
    program: &Path,
    part: Part,
    url: &str,
    limit: Duration,
) -> Result<()> {
    let pki = home.pki();
    let mut command = Command::new(program);
    command.arg("await").arg(url).args([pki.join("ca.crt"), pki.join("admin.crt"), pki.join("admin.key")]);
    let obstacles = home.logs().join(format!("await-{part}.log"));
    // One asker that stays costs nothing; one per question would cost as much as the start itself.
    let mut asker =
        Process::start(command, Lifetime::Tied, &obstacles).context("cannot ask for readiness")?;
    let waited = crew.wait_for(part, limit, || match asker.ended() {
        Some(status) if status.success() => Ok(Ok(())),
        Some(status) => anyhow::bail!("asking {url} failed ({status}); see {}", obstacles.display()),
        None => Ok(Err(crate::process::tail(&obstacles, 1))),
    });
    let _ = asker.kill();
    waited
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn a_port_that_somebody_took_in_between_is_given_up_for_another() {
        let home = Home::for_this_process("busy-port").unwrap();
        let crew = Crew::new(&home, Lifetime::Tied);
        let options = Options::default();
        let program = kubernetes::program(options.version).unwrap();
        flags::certify(&Pki::create(&home.pki()).unwrap(), options.network).unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut picks = Vec::new();
        let port = crew.with_free_ports(&[Part::Etcd, Part::ApiServer], || {
            let mut ports = ports::free()?;
            if picks.is_empty() {
                ports[2] = taken.local_addr()?.port();
            }
            picks.push(ports[2]);
            open(&crew, &home, &program, &options, ports)
        });
        // Once, unless somebody took one of the others, too.
        assert!(picks.len() > 1, "{picks:?}");
        assert_eq!(Some(&port.unwrap()), picks.last());
        crew.kill_all().unwrap();
        home.clear().unwrap();
    }
}
