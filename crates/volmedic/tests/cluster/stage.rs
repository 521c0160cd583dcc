//! A cluster with the reference driver on its node, and eyes for what volumes leave on the machine.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use volmedic_driver::StateDir;
use volmedic_testkit::image::Image;
use volmedic_testkit::sidecars::{self, Companion};
use volmedic_testkit::{Cluster, ControlPlane, NODE};

use machine::{Ground, Machine};

mod machine;

pub(crate) use machine::{Named, Turn, newcomers};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_volmedic");
pub(crate) const DRIVER: &str = "driver.volmedic.dev";
/// Generous, because the machine may be busy; everything waited for comes much sooner.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);
/// The same for commands that wait by themselves.
pub(crate) const KUBECTL_WAITS: &str = "--timeout=240s";
const PAUSE: Duration = Duration::from_millis(200);
const KUBELET_ASKS_EVERY: &str = "2s";

/// Dropped from top to bottom: programs, the loop devices they left, and the cluster with its processes and mounts.
pub(crate) struct Stage {
    agent: Option<Companion>,
    companions: Vec<Companion>,
    provisioner: Option<Companion>,
    driver: Option<Companion>,
    /// More arguments of the driver.
    arguments: Vec<String>,
    machine: Machine,
    cluster: Ground,
    _turn: Turn,
}

impl Stage {
    /// With a driver that does not mistake a busy machine for a volume that hangs.
    pub(crate) fn start() -> Self {
        Self::begin(|_| vec!["--check-deadline=30".to_owned()])
    }

    /// With a driver as it is if nothing is said.
    pub(crate) fn start_as_shipped() -> Self {
        Self::begin(|_| Vec::new())
    }

    /// With a driver that can heal, by its csi-addons socket.
    pub(crate) fn start_healing() -> Self {
        Self::begin(|addons| vec![format!("--addons-endpoint=unix://{}", addons.display())])
    }

    /// On a cluster that runs, with a driver that can heal and a controller that is a candidate, as sidecars are.
    pub(crate) fn start_on(cluster: Named, turn: Turn) -> Self {
        let heals = |addons: &Path| vec![format!("--addons-endpoint=unix://{}", addons.display())];
        Self::set_up(
            turn,
            Ground::Named(cluster),
            heals,
            &["--leader-election", "--leader-election-namespace=default"],
        )
    }

    /// With no driver, for those of other projects.
    pub(crate) fn start_bare() -> Self {
        let turn = Turn::take();
        Self::bare(turn, Ground::Own(Cluster::start().unwrap()))
    }

    fn begin(arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let turn = Turn::take();
        // As often as this the kubelet asks about the health of volumes, too.
        let often = serde_json::json!(KUBELET_ASKS_EVERY);
        let cluster = Cluster::options().kubelet_setting("volumeStatsAggPeriod", often).start().unwrap();
        Self::set_up(turn, Ground::Own(cluster), arguments, &[])
    }

    fn set_up(
        turn: Turn,
        cluster: Ground,
        arguments: impl FnOnce(&Path) -> Vec<String>,
        more_for_the_controller: &[&str],
    ) -> Self {
        let sidecars = sidecars::build().unwrap();
        let mut stage = Self::bare(turn, cluster);
        let (socket, kubelet) = (stage.machine.socket(), stage.machine.kubelet.clone());
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        stage.arguments = arguments(&stage.machine.addons());
        stage.start_driver();

        let mut registrar = Command::new(sidecars.registrar);
        registrar.arg(DRIVER).arg(&socket).arg(kubelet.join(format!("plugins_registry/{DRIVER}-reg.sock")));
        stage.run("registrar", registrar);
        stage.start_provisioner();
        let mut controller = Command::new(PROGRAM);
        controller.arg("controller").arg(format!("--csi-address={}", socket.display()));
        controller.arg(format!("--kubeconfig={}", stage.kubeconfig().display()));
        controller.args(["--monitor-interval=1s", "--list-volumes-interval=1s", "--timeout=60s"]);
        controller.args(more_for_the_controller);
        stage.run("controller", controller);

        // Without its workload: here the driver runs beside the cluster.
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/driver");
        for file in ["csidriver.yaml", "storageclasses.yaml"] {
            stage.kubectl(&["apply", "-f", manifests.join(file).to_str().unwrap()]);
        }
        stage.wait("the kubelet knows the driver", || {
            let known = stage.kubectl(&["get", "csinode", NODE, "-o", "jsonpath={.spec.drivers[*].name}"]);
            if known == DRIVER { Ok(()) } else { Err(format!("CSINode has {known:?}")) }
        });
        stage
    }

    fn bare(turn: Turn, cluster: Ground) -> Self {
        let kubelet = cluster.kubelet();
        let state = StateDir::new(kubelet.parent().unwrap().join("driver"));
        let machine = Machine { kubelet, state };
        Self {
            agent: None,
            companions: Vec::new(),
            provisioner: None,
            driver: None,
            arguments: Vec::new(),
            machine,
            cluster,
            _turn: turn,
        }
    }

    fn run(&mut self, name: &'static str, command: Command) {
        self.companions.push(self.companion(name, command));
    }

    /// Any other program, in the hands of its starter.
    pub(crate) fn companion(&self, name: &'static str, command: Command) -> Companion {
        Companion::start(&self.folder(), name, command).unwrap()
    }

    fn start_driver(&mut self) {
        let socket = self.machine.socket();
        let mut command = Command::new(PROGRAM);
        command.args(["driver", "--name", DRIVER, "--node-id", NODE]);
        command.arg(format!("--endpoint=unix://{}", socket.display()));
        command.arg("--state-dir").arg(self.state().root());
        command.arg("--allowed-root").arg(&self.machine.kubelet).args(&self.arguments);
        self.driver = Some(self.companion("driver", command));
        self.wait("the driver listens", || UnixStream::connect(&socket).map_err(|error| error.to_string()));
    }

    fn start_provisioner(&mut self) {
        let mut command = Command::new(sidecars::build().unwrap().provisioner);
        command.arg(format!("--csi-address={}", self.machine.socket().display()));
        command.arg(format!("--kubeconfig={}", self.kubeconfig().display()));
        self.provisioner = Some(self.companion("provisioner", command));
    }

    /// Ends the driver the hard way and starts it again, and the provisioner, which gives up when it loses its driver.
    pub(crate) fn restart_driver(&mut self) {
        drop(self.driver.take().expect("a driver runs"));
        drop(self.provisioner.take().expect("a provisioner runs"));
        self.start_driver();
        self.start_provisioner();
    }

    /// Where the driver serves csi-addons, if it does.
    pub(crate) fn addons(&self) -> PathBuf {
        self.machine.addons()
    }

    /// Starts the agent as on any node: with the rights that are shipped, and nothing said of where things are.
    pub(crate) fn start_agent(&mut self) {
        let folder = self.folder();
        let mut command = Command::new(PROGRAM);
        command.arg("agent").arg(format!("--node-name={NODE}"));
        command.arg(format!("--state-dir={}", folder.join("agent").display()));
        command.arg(format!("--kubeconfig={}", self.agents_kubeconfig().display()));
        // None of the faults here is a hang, so the time is for a busy machine.
        command.args(["--monitor-interval=2s", "--probe-timeout=30s", "--http-endpoint=127.0.0.1:0"]);
        let before = self.agent_says("watching");
        self.agent = Some(self.companion("agent", command));
        self.wait("the agent watches", || {
            let watches = self.agent_says("watching") > before;
            watches.then_some(()).ok_or_else(|| "it does not say so".to_owned())
        });
    }

    /// Ends the agent the hard way.
    pub(crate) fn kill_agent(&mut self) {
        drop(self.agent.take().expect("an agent runs"));
    }

    /// How many lines of the agent's log, of all its lives, hold this.
    pub(crate) fn agent_says(&self, text: &str) -> usize {
        self.says("agent", text)
    }

    /// How many lines of a program's log, of all its lives, hold this.
    pub(crate) fn says(&self, program: &str, text: &str) -> usize {
        let log = self.folder().join(format!("logs/{program}.log"));
        fs::read_to_string(log).unwrap_or_default().lines().filter(|line| line.contains(text)).count()
    }

    /// The metrics of a program, where its log says that they are.
    pub(crate) fn metrics_of(&self, program: &str) -> std::io::Result<String> {
        let log = fs::read_to_string(self.folder().join(format!("logs/{program}.log")))?;
        let (_, rest) = log.rsplit_once("on http://").ok_or(std::io::ErrorKind::NotFound)?;
        let mut stream = TcpStream::connect(rest.split('/').next().unwrap_or_default())?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// The agent's metrics. A moment after its start its log may still name where the one before it served.
    pub(crate) fn agents_metrics(&self) -> String {
        self.wait("the agent serves metrics", || self.metrics_of("agent").map_err(|error| error.to_string()))
    }

    /// Waits until the agent has checked all volumes this many more times, by host checks, and has sent all that it had to
    /// report of that.
    pub(crate) fn agent_looks(&self, times: u64) {
        let figures = |wanted: &dyn Fn(&str) -> bool| -> u64 {
            let metrics = self.agents_metrics();
            let counts = metrics.lines().filter(|line| wanted(line));
            counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        let is_look = |line: &str| {
            line.starts_with("csi_volume_health_probe_total{") && line.contains(r#"method_name="host""#)
        };
        let volumes = fs::read_dir(self.state().volumes()).unwrap().count() as u64;
        let enough = figures(&is_look) + times * volumes;
        self.wait("the agent looks again", || {
            let seen = figures(&is_look);
            if seen >= enough { Ok(()) } else { Err(format!("{seen} looks, not {enough}")) }
        });
        self.wait("the agent has sent its reports", || {
            match figures(&|line| line.starts_with("volmedic_report_queue ")) {
                0 => Ok(()),
                left => Err(format!("{left} reports wait")),
            }
        });
    }

    fn agents_kubeconfig(&self) -> PathBuf {
        let path = self.folder().join("agent.kubeconfig");
        if !path.exists() {
            let rights =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/files/rbac-agent.yaml");
            self.kubectl(&["apply", "-f", rights.to_str().unwrap()]);
            let token = self.kubectl(&["create", "token", "volmedic-agent", "--duration=1h"]);
            self.write_kubeconfig(&path, &token);
        }
        path
    }

    /// A kubeconfig with this token.
    pub(crate) fn write_kubeconfig(&self, path: &Path, token: &str) {
        let admin = fs::read(self.kubeconfig()).unwrap();
        let mut config: serde_json::Value = serde_json::from_slice(&admin).unwrap();
        config["users"][0]["user"] = serde_json::json!({"token": token.trim()});
        fs::write(path, config.to_string()).unwrap();
    }

    /// Puts an image on the node.
    pub(crate) fn import(&self, image: &Image) {
        self.cluster.import(image);
    }

    /// The folder that on other machines is `/var/lib/kubelet`.
    pub(crate) fn kubelet(&self) -> &Path {
        &self.machine.kubelet
    }

    /// Where the cluster keeps everything.
    pub(crate) fn folder(&self) -> PathBuf {
        self.machine.kubelet.parent().unwrap().to_owned()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.cluster.kubeconfig()
    }

    /// The parts of a cluster of this process.
    pub(crate) fn plane(&self) -> &ControlPlane {
        match &self.cluster {
            Ground::Own(cluster) => cluster.plane(),
            Ground::Named(name) => panic!("the parts of the cluster {} belong to no process", name.0),
        }
    }

    pub(crate) fn state(&self) -> &StateDir {
        &self.machine.state
    }

    /// What kubectl says when it succeeds.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        said(self.output(arguments), arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Self::kubectl`], for what may fail a few times first.
    pub(crate) fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        said(self.output(arguments), arguments)
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let kubectl = self.cluster.kubectl();
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", &PATIENCE.as_secs().to_string()]);
        command.arg(kubectl.get_program()).args(kubectl.get_args()).args(arguments);
        command.envs(kubectl.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Creates these objects.
    pub(crate) fn create(&self, objects: &serde_json::Value) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        fs::write(file.path(), list.to_string()).unwrap();
        // The service account that pods need takes a fresh cluster a moment; applying again does no harm.
        self.wait("the objects are taken", || {
            self.try_kubectl(&["apply", "-f", file.path().to_str().unwrap()])
        });
    }

    /// Hurts a volume, or undoes it.
    pub(crate) fn fault(&self, action: &str, fault: &str, volume: &str) {
        let mut command = Command::new("timeout");
        command.args(["240", PROGRAM, "fault", action, fault, "--volume", volume, "--state-dir"]);
        let output = command.arg(self.state().root()).stdin(Stdio::null()).output().unwrap();
        said(output, &["fault", action, fault, volume]).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Asks until the answer is there. Fails when it never comes, with the logs that may tell why.
    pub(crate) fn wait<T>(&self, what: &str, look: impl Fn() -> Result<T, String>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match look() {
                Ok(found) => return found,
                Err(why) if Instant::now() >= deadline => {
                    panic!("not within {} s: {what}; last: {why}\n{}", PATIENCE.as_secs(), self.logs())
                }
                Err(_) => sleep(PAUSE),
            }
        }
    }

    fn logs(&self) -> String {
        let reported = ["get pods,pvc,pv,events -A", "describe pods"].map(|line| {
            let arguments: Vec<&str> = line.split(' ').collect();
            self.try_kubectl(&arguments).unwrap_or_else(|error| error)
        });
        let programs = self.agent.iter().chain(&self.companions).chain(&self.provisioner).chain(&self.driver);
        let logs = programs.map(|one| format!("{one:?}\n{}", one.log()));
        reported.into_iter().chain(logs).collect::<Vec<_>>().join("\n\n")
    }

    /// Everything that volumes have left in the cluster and on the machine.
    pub(crate) fn traces(&self) -> Vec<String> {
        let kinds = "persistentvolumes,persistentvolumeclaims,volumeattachments";
        let objects = self.kubectl(&["get", kinds, "--all-namespaces", "-o", "name"]);
        objects.lines().map(str::to_owned).chain(self.machine.traces()).collect()
    }

    /// Ends one of the programs beside the cluster.
    pub(crate) fn end(&mut self, name: &str) {
        let place = self.companions.iter().position(|one| one.name() == name);
        self.companions.remove(place.expect("it runs")).stop().unwrap();
    }

    /// Ends everything in order; each program must have lived until now.
    pub(crate) fn stop(mut self) {
        let programs = self.agent.take().into_iter().chain(self.companions.drain(..).rev());
        for mut companion in programs.chain(self.provisioner.take()).chain(self.driver.take()) {
            companion.check().unwrap();
            companion.stop().unwrap();
        }
        self.cluster.stop();
    }
}

fn said(output: Output, arguments: &[&str]) -> Result<String, String> {
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} failed ({}): {error}", arguments.join(" "), output.status))
}
