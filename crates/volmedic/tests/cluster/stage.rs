//! A cluster with the reference driver on its node, and eyes for what volumes leave on the machine.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use volmedic_driver::StateDir;
use volmedic_host::mounts::Table;
use volmedic_testkit::image::Image;
use volmedic_testkit::sidecars::{self, Companion};
use volmedic_testkit::{Cluster, ControlPlane, NODE, cache};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_volmedic");
pub(crate) const DRIVER: &str = "driver.volmedic.dev";
/// Generous, because the machine may be busy; everything waited for comes much sooner.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// How long other tests may keep us waiting for our own cluster.
const TURN: Duration = Duration::from_mins(20);
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
    cluster: Cluster,
    /// Two clusters at once would slow each other down, and an agent that looks for its kubelet might find the other's.
    _turn: File,
}

impl Stage {
    pub(crate) fn start() -> Self {
        Self::begin(|_| Vec::new())
    }

    /// With a driver that can heal, by its csi-addons socket.
    pub(crate) fn start_healing() -> Self {
        Self::begin(|addons| vec![format!("--addons-endpoint=unix://{}", addons.display())])
    }

    fn begin(arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        assert!(rustix::process::geteuid().is_root(), "a node takes root; run this as root");
        let turn = turn();
        let sidecars = sidecars::build().unwrap();
        detach_left_over();
        // As often as this the kubelet asks about the health of volumes, too.
        let often = serde_json::json!(KUBELET_ASKS_EVERY);
        let cluster = Cluster::options().kubelet_setting("volumeStatsAggPeriod", often).start().unwrap();
        let kubelet = cluster.kubelet_folder().unwrap();
        let state = StateDir::new(kubelet.parent().unwrap().join("driver"));
        let machine = Machine { kubelet: kubelet.clone(), state };
        fs::create_dir_all(machine.socket().parent().unwrap()).unwrap();
        let (socket, arguments) = (machine.socket(), arguments(&machine.addons()));
        let mut stage = Self {
            agent: None,
            companions: Vec::new(),
            provisioner: None,
            driver: None,
            arguments,
            machine,
            cluster,
            _turn: turn,
        };
        stage.start_driver();

        let mut registrar = Command::new(sidecars.registrar);
        registrar.arg(DRIVER).arg(&socket).arg(kubelet.join(format!("plugins_registry/{DRIVER}-reg.sock")));
        stage.run("registrar", registrar);
        stage.start_provisioner();
        let mut controller = Command::new(PROGRAM);
        controller.arg("controller").arg(format!("--csi-address={}", socket.display()));
        controller.arg(format!("--kubeconfig={}", stage.cluster.plane().kubeconfig().display()));
        controller.args(["--monitor-interval=1s", "--list-volumes-interval=1s", "--timeout=5s"]);
        stage.run("controller", controller);

        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/driver");
        stage.kubectl(&["apply", "-f", manifests.to_str().unwrap()]);
        stage.wait("the kubelet knows the driver", || {
            let known = stage.kubectl(&["get", "csinode", NODE, "-o", "jsonpath={.spec.drivers[*].name}"]);
            if known == DRIVER { Ok(()) } else { Err(format!("CSINode has {known:?}")) }
        });
        stage
    }

    fn run(&mut self, name: &'static str, command: Command) {
        self.companions.push(self.companion(name, command));
    }

    /// Any other program, in the hands of whoever starts it.
    pub(crate) fn companion(&self, name: &'static str, command: Command) -> Companion {
        Companion::start(&self.cluster, name, command).unwrap()
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
        command.arg(format!("--kubeconfig={}", self.plane().kubeconfig().display()));
        self.provisioner = Some(self.companion("provisioner", command));
    }

    /// Ends the driver the hard way and starts it anew, and the provisioner, which gives up when it loses its driver.
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
        command.args(["--monitor-interval=2s", "--probe-timeout=5s", "--http-endpoint=127.0.0.1:0"]);
        let before = self.agent_says("watching");
        self.agent = Some(Companion::start(&self.cluster, "agent", command).unwrap());
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

    /// The agent's metrics.
    pub(crate) fn agents_metrics(&self) -> String {
        self.metrics_of("agent").unwrap()
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

    /// Waits until the agent has looked at all volumes so many times more, by its own eyes.
    pub(crate) fn agent_looks(&self, times: u64) {
        let looks = || -> u64 {
            let metrics = self.agents_metrics();
            let counts = metrics.lines().filter(|line| {
                line.starts_with("csi_volume_health_probe_total{") && line.contains(r#"method_name="host""#)
            });
            counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        let volumes = fs::read_dir(self.state().volumes()).unwrap().count() as u64;
        let enough = looks() + times * volumes;
        self.wait("the agent looks again", || {
            let seen = looks();
            if seen >= enough { Ok(()) } else { Err(format!("{seen} looks, not {enough}")) }
        });
    }

    fn agents_kubeconfig(&self) -> PathBuf {
        let path = self.folder().join("agent.kubeconfig");
        if !path.exists() {
            let rights = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac-agent.yaml");
            self.kubectl(&["apply", "-f", rights.to_str().unwrap()]);
            let token = self.kubectl(&["create", "token", "volmedic-agent", "--duration=1h"]);
            self.write_kubeconfig(&path, &token);
        }
        path
    }

    /// A kubeconfig with this token.
    pub(crate) fn write_kubeconfig(&self, path: &Path, token: &str) {
        let admin = fs::read(self.plane().kubeconfig()).unwrap();
        let mut config: serde_json::Value = serde_json::from_slice(&admin).unwrap();
        config["users"][0]["user"] = serde_json::json!({"token": token.trim()});
        fs::write(path, config.to_string()).unwrap();
    }

    /// Where the cluster keeps everything.
    pub(crate) fn folder(&self) -> PathBuf {
        self.machine.kubelet.parent().unwrap().to_owned()
    }

    pub(crate) fn plane(&self) -> &ControlPlane {
        self.cluster.plane()
    }

    pub(crate) fn state(&self) -> &StateDir {
        &self.machine.state
    }

    /// Puts an image on the node.
    pub(crate) fn import(&self, image: &Image) {
        self.cluster.import(image).unwrap();
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
        command.args(["60", PROGRAM, "fault", action, fault, "--volume", volume, "--state-dir"]);
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
        let told = ["get pods,pvc,pv,events -A", "describe pods"].map(|line| {
            let arguments: Vec<&str> = line.split(' ').collect();
            self.try_kubectl(&arguments).unwrap_or_else(|error| error)
        });
        let programs = self.agent.iter().chain(&self.companions).chain(&self.provisioner).chain(&self.driver);
        let logs = programs.map(|one| format!("{one:?}\n{}", one.log()));
        told.into_iter().chain(logs).collect::<Vec<_>>().join("\n\n")
    }

    /// Everything that volumes have left in the cluster and on the machine.
    pub(crate) fn traces(&self) -> Vec<String> {
        let kinds = "persistentvolumes,persistentvolumeclaims,volumeattachments";
        let objects = self.kubectl(&["get", kinds, "--all-namespaces", "-o", "name"]);
        objects.lines().map(str::to_owned).chain(self.machine.traces()).collect()
    }

    /// Ends everything in order; each program must have lived until now.
    pub(crate) fn stop(mut self) {
        let programs = self.agent.take().into_iter().chain(self.companions.drain(..).rev());
        for mut companion in programs.chain(self.provisioner.take()).chain(self.driver.take()) {
            companion.check().unwrap();
            companion.stop().unwrap();
        }
        self.cluster.stop().unwrap();
    }
}

/// Waits until no other test on this machine has a cluster. The kernel lets go of it however a test ends.
fn turn() -> File {
    let path = cache::folder().unwrap().join("cluster-tests.lock");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = File::create(&path).unwrap();
    let deadline = Instant::now() + TURN;
    while let Err(error) = file.try_lock() {
        assert!(Instant::now() < deadline, "another test keeps {} to itself: {error}", path.display());
        sleep(PAUSE);
    }
    file
}

fn said(output: Output, arguments: &[&str]) -> Result<String, String> {
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} failed ({}): {error}", arguments.join(" "), output.status))
}

/// Where volumes leave traces outside of the cluster.
struct Machine {
    kubelet: PathBuf,
    state: StateDir,
}

impl Machine {
    fn socket(&self) -> PathBuf {
        self.kubelet.join("plugins").join(DRIVER).join("csi.sock")
    }

    fn addons(&self) -> PathBuf {
        self.socket().with_file_name("addons.sock")
    }

    fn traces(&self) -> Vec<String> {
        let mut found: Vec<String> =
            self.mounts().iter().map(|path| format!("mount {}", path.display())).collect();
        found.extend(
            self.loop_devices()
                .into_iter()
                .map(|(device, image)| format!("loop {device} on {}", image.display())),
        );
        found.extend(self.mounters().into_iter().map(|line| format!("mounter {line}")));
        for place in
            [self.state.volumes(), self.state.snapshots(), self.state.new_things(), self.state.trash()]
        {
            let entries = fs::read_dir(&place).unwrap();
            found.extend(entries.map(|entry| format!("file {}", entry.unwrap().path().display())));
        }
        found
    }

    fn mounts(&self) -> Vec<PathBuf> {
        let table = Table::read().unwrap();
        let below =
            |folder: &Path| table.under(folder).map(|mount| mount.target().to_owned()).collect::<Vec<_>>();
        let mut found = [below(&self.kubelet), below(self.state.root())].concat();
        // The kubelet mounts its own folder onto itself, to share what appears below it.
        found.retain(|target| *target != self.kubelet);
        found
    }

    /// The driver's, and those that the kubelet puts on raw block volumes.
    fn loop_devices(&self) -> Vec<(String, PathBuf)> {
        loop_devices(|image| image.starts_with(&self.kubelet) || image.starts_with(self.state.root()))
    }

    /// Processes that serve volumes of this driver, by their command lines.
    fn mounters(&self) -> Vec<String> {
        let volumes = self.state.volumes().display().to_string();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.contains(" mounter ") && line.contains(&volumes)).collect()
    }
}

/// After a failed test: the cluster clears its mounts and processes away, but knows nothing of loop devices. A device
/// that is in use goes with its last user, so this comes first, while the kubelet's devices still have names.
impl Drop for Machine {
    fn drop(&mut self) {
        detach(self.loop_devices());
    }
}

/// The same for runs that were killed: the next cluster to start clears the rest away.
fn detach_left_over() {
    let runs = cache::folder().unwrap().join("run");
    detach(loop_devices(|image| {
        let name = image.strip_prefix(&runs).ok().and_then(|rest| rest.iter().next()?.to_str());
        let owner = name.and_then(|name| name.strip_prefix("cluster-")?.split_once('-'));
        owner.is_some_and(|(pid, _)| !Path::new("/proc").join(pid).exists())
    }));
}

fn loop_devices(wanted: impl Fn(&Path) -> bool) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").unwrap() {
        let entry = entry.unwrap();
        let Ok(image) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let image = PathBuf::from(image.trim_end());
        if wanted(&image) {
            found.push((entry.file_name().into_string().unwrap(), image));
        }
    }
    found
}

fn detach(devices: Vec<(String, PathBuf)>) {
    for (device, _) in devices {
        let mut losetup = Command::new("timeout");
        // What cannot be detached is in nobody's way.
        let _ = losetup.args(["20", "losetup", "-d"]).arg(Path::new("/dev").join(device)).status();
    }
}
