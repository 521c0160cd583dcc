//! The node's own programs: container runtime, kubelet, and the way from pods to the API server.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use super::image;
use crate::control_plane::ControlPlane;
use crate::crew::Launch;
use crate::home::Home;
use crate::image::Image;
use crate::network::Network;
use crate::part::Part;
use crate::process;
use crate::{NODE, cache, cgroups, packages, ports, remains};

const RUNTIME_LIMIT: Duration = Duration::from_mins(2);
/// Ten seconds after the kubelet starts, on an idle machine.
const READY_LIMIT: Duration = Duration::from_mins(4);
const TOOL_LIMIT: Duration = Duration::from_mins(1);
/// Images can be large, and the disk busy.
const IMPORT_LIMIT: Duration = Duration::from_mins(3);
/// The kernel's limit for the path of a unix socket, and what the longest of ours adds to the cluster's folder.
const SOCKET_LIMIT: usize = 107;
const LONGEST_SOCKET: usize = "/kubelet/plugins_registry/a-driver.example.com-reg.sock".len();

/// Says why no node can be run here, before anything is started.
pub(super) fn require(folder: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "a node takes root, for containers, mounts and addresses; run this as root, or use a control plane only"
        );
    }
    let length = folder.as_os_str().len();
    if length + LONGEST_SOCKET > SOCKET_LIMIT {
        bail!(
            "{} is too long a path: sockets in there would pass the kernel's {SOCKET_LIMIT} letters; set VOLMEDIC_CACHE to \
             a shorter folder",
            folder.display()
        );
    }
    if let Some((process, name)) = foreign_kubelet() {
        bail!(
            "this machine is a Kubernetes node already (process {process}, {name}), and two kubelets would disturb each \
             other; use another machine, or a control plane only"
        );
    }
    packages::ensure(&packages::OF_A_NODE)?;
    Ok(())
}

/// A kubelet that is not ours: ours carry the mark of their cluster. One that is dead or about to be is nobody's; it has
/// lost its mark, and a killed one may wait long to be collected.
fn foreign_kubelet() -> Option<(u32, String)> {
    process::every().into_iter().find_map(|process| {
        let name = fs::read_to_string(format!("/proc/{}/comm", process.pid)).ok()?;
        let kubelets = ["kubelet", "k3s-server", "k3s-agent", "k0s", "kubelite"];
        let lives = || process.alive() && fs::read_link(format!("/proc/{}/exe", process.pid)).is_ok();
        let foreign = kubelets.contains(&name.trim()) && !remains::is_marked(process) && lives();
        foreign.then(|| (process.pid, name.trim().to_owned()))
    })
}

/// Starts everything a node needs and waits until it is ready.
pub(super) fn start(
    plane: &ControlPlane,
    network: Network,
    gates: &BTreeMap<String, bool>,
    settings: &Map<String, Value>,
) -> Result<()> {
    let node = Node { plane, home: plane.home()?, network };
    node.forward()?;
    node.containerd()?;
    plane.crew().with_free_ports(&[Part::Kubelet], || {
        node.kubelet(gates, settings)?;
        node.wait_until_ready()
    })
}

struct Node<'a> {
    plane: &'a ControlPlane,
    home: &'a Home,
    network: Network,
}

impl Node<'_> {
    fn forward(&self) -> Result<()> {
        let from = format!("{}:443", self.network.api_service());
        let to = format!("127.0.0.1:{}", self.plane.port());
        self.launch(Part::Forward, self.plane.program(), vec!["forward".into(), from, to])
    }

    fn containerd(&self) -> Result<()> {
        let folder = self.folder("containerd")?;
        let (networks, leases) = (self.folder("cni/networks")?, self.folder("cni/leases")?);
        let config = folder.join("config.toml");
        cache::write_whole(&config, runtime_config(&folder, &networks, &plugins()?)?.as_bytes())?;
        let network = json!({
            "cniVersion": "0.4.0",
            "name": format!("volmedic-{}", crate::short_id(self.home.path())),
            "plugins": [{"type": "ptp", "ipMasq": false, "ipam": {
                "type": "host-local",
                "dataDir": leases,
                "ranges": [[{"subnet": self.network.pods()}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            }}],
        });
        cache::write_whole(&networks.join("pods.conflist"), network.to_string().as_bytes())?;
        let arguments = vec!["--config".into(), config.display().to_string()];
        self.launch(Part::Containerd, Path::new("containerd"), arguments)?;
        self.plane.crew().wait_for(Part::Containerd, RUNTIME_LIMIT, || {
            let said = process::run(self.ctr(&["version"]), TOOL_LIMIT)?;
            Ok(if said.success { Ok(()) } else { Err(said.stderr) })
        })?;
        let archive = folder.join("image.tar");
        image::write(&archive)?;
        import_archive(self.home.path(), &archive)
    }

    fn ctr(&self, arguments: &[&str]) -> Command {
        ctr(self.home.path(), arguments)
    }

    fn kubelet(&self, gates: &BTreeMap<String, bool>, settings: &Map<String, Value>) -> Result<()> {
        let (root, pki) = (self.folder("kubelet")?, self.home.pki());
        let parent = cgroups::parent(self.home.path());
        cgroups::create(&parent)?;
        let [port] = ports::free()?;
        let mut config = json!({
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "featureGates": gates,
            "address": self.network.node(),
            "port": port,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": pki.join("ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": pki.join("kubelet.crt"),
            "tlsPrivateKeyFile": pki.join("kubelet.key"),
            "containerRuntimeEndpoint": format!("unix://{}", socket(&self.home.path().join("containerd")).display()),
            "podLogsDir": self.folder("pod-logs")?,
            "volumePluginDir": self.folder("volume-plugins")?,
            // Everything of the node in one place, where it can be found and removed.
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{parent}"),
            "cgroupsPerQOS": true,
            "enforceNodeAllocatable": [],
            "failCgroupV1": false,
            "failSwapOn": false,
            "makeIPTablesUtilChains": false,
            "localStorageCapacityIsolation": false,
            // Never evict, never collect: the disk and the memory are a developer's, and mostly full.
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
                "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
            "imageGCHighThresholdPercent": 100,
            "resolvConf": "",
            "maxPods": 200,
        });
        if let Some(config) = config.as_object_mut() {
            config.extend(settings.clone());
        }
        let file = root.join("config.json");
        cache::write_whole(&file, config.to_string().as_bytes())?;
        let kubeconfig = self.home.path().join("kubelet.kubeconfig");
        self.plane.write_kubeconfig(&kubeconfig, "node")?;
        let arguments = vec![
            format!("--config={}", file.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--root-dir={}", root.display()),
            format!("--cert-dir={}", pki.display()),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={}", self.network.node()),
        ];
        // Under its own name, by which others on the machine find it.
        let program = self.folder("bin")?.join("kubelet");
        if !program.exists() {
            symlink(self.plane.program(), &program)
                .with_context(|| format!("cannot make {}", program.display()))?;
        }
        self.launch(Part::Kubelet, &program, arguments)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let path = r#"{.status.conditions[?(@.type=="Ready")].status} {.spec.taints[*].key}"#;
        self.plane.crew().wait_for(Part::Kubelet, READY_LIMIT, || {
            let mut command = self.plane.kubectl();
            command.args(["get", "node", NODE, "-o", &format!("jsonpath={path}")]);
            let said = process::run(command, TOOL_LIMIT)?;
            // Pods go to a node only once the controller manager has taken its first taint away.
            let ready = said.success && said.stdout.trim() == "True";
            Ok(if ready { Ok(()) } else { Err(format!("{} {}", said.stdout.trim(), said.stderr.trim())) })
        })
    }

    fn launch(&self, part: Part, program: &Path, arguments: Vec<String>) -> Result<()> {
        let program = program.to_owned();
        self.plane.crew().start(Launch { part, program, arguments, environment: Vec::new() })
    }

    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.home.path().join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }
}

/// Puts one more image on the node of the cluster in `home`.
pub(super) fn import(home: &Home, image: &Image) -> Result<()> {
    let archive = home.path().join("containerd/import.tar");
    let bytes = image.archive().with_context(|| format!("cannot put the image {} together", image.name))?;
    fs::write(&archive, bytes).with_context(|| format!("cannot write {}", archive.display()))?;
    import_archive(home.path(), &archive)?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

/// The same for an archive, and for the folder of any cluster whose containerd runs.
pub(super) fn import_archive(home: &Path, archive: &Path) -> Result<()> {
    let import = ctr(home, &["--namespace", "k8s.io", "images", "import", &archive.display().to_string()]);
    let what = format!("importing the image {}", archive.display());
    process::run(import, IMPORT_LIMIT)?.or_fail(&what)?;
    Ok(())
}

fn ctr(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("ctr");
    command.arg("--address").arg(socket(&home.join("containerd"))).args(arguments);
    command
}

fn socket(containerd: &Path) -> PathBuf {
    containerd.join("containerd.sock")
}

/// Where the network plugins are; distributions do not agree.
fn plugins() -> Result<PathBuf> {
    let places = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
    let found = places.into_iter().map(PathBuf::from).find(|place| place.join("ptp").is_file());
    found.with_context(|| {
        format!(
            "the network plugin `ptp` is in none of {}; install containernetworking-plugins",
            places.join(", ")
        )
    })
}

/// Paths in it are ours, and TOML's basic strings are JSON's.
fn runtime_config(folder: &Path, networks: &Path, plugins: &Path) -> Result<String> {
    let quote =
        |path: &Path| serde_json::to_string(path).with_context(|| format!("{} is not text", path.display()));
    let at = |name: &str| quote(&folder.join(name));
    Ok(format!(
        r#"version = 2
root = {root}
state = {state}
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]

[grpc]
address = {socket}

[plugins."io.containerd.internal.v1.opt"]
path = {opt}

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {plugins}
conf_dir = {networks}

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = {runc}
SystemdCgroup = false
"#,
        root = at("root")?,
        state = at("state")?,
        socket = quote(&socket(folder))?,
        opt = at("opt")?,
        image = crate::IMAGE,
        plugins = quote(plugins)?,
        networks = quote(networks)?,
        runc = at("runc")?,
    ))
}
