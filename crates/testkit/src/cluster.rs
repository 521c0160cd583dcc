//! A whole cluster on one machine: control plane, controller manager, scheduler and one real node.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cache;
use crate::control_plane::{self, ControlPlane};
use crate::crew::Launch;
use crate::home::Home;
use crate::image::Image;
use crate::kubernetes::Version;
use crate::network::Network;
use crate::part::Part;
use crate::ports;
use crate::process::Lifetime;
use crate::remains::{self, settings};

mod image;
mod named;
mod node;

pub use image::busybox;
pub use named::{Name, Status, Up, down, kubeconfig, kubectl, kubelet_folder, load, log, status, up};

/// Both are ready within a second or two.
const MANAGER_LIMIT: Duration = Duration::from_mins(3);

/// What a cluster is started with.
#[derive(Debug, Clone)]
pub struct Options {
    plane: control_plane::Options,
    node: bool,
    controller_manager_arguments: Vec<String>,
    kubelet_settings: serde_json::Map<String, Value>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            plane: control_plane::Options::default(),
            node: true,
            controller_manager_arguments: Vec::new(),
            kubelet_settings: serde_json::Map::new(),
        }
    }
}

impl Options {
    /// Another release than the one under test.
    pub fn version(mut self, version: Version) -> Self {
        self.plane = self.plane.version(version);
        self
    }

    /// Switches a feature gate of the API server and the kubelet. `CSIVolumeHealth` is on unless it is switched off.
    pub fn gate(mut self, name: &str, on: bool) -> Self {
        self.plane = self.plane.gate(name, on);
        self
    }

    /// No node: then no root is needed either.
    pub fn control_plane_only(mut self) -> Self {
        self.node = false;
        self
    }

    /// Whether a node is started.
    pub fn has_node(&self) -> bool {
        self.node
    }

    /// One more argument of the API server.
    pub fn apiserver_argument(mut self, argument: &str) -> Self {
        self.plane = self.plane.apiserver_argument(argument);
        self
    }

    /// One more argument of the controller manager, such as `--node-monitor-grace-period=10s`.
    pub fn controller_manager_argument(mut self, argument: &str) -> Self {
        self.controller_manager_arguments.push(argument.to_owned());
        self
    }

    /// One more field of the kubelet's configuration, such as `volumeStatsAggPeriod` with `"2s"`.
    pub fn kubelet_setting(mut self, name: &str, value: Value) -> Self {
        self.kubelet_settings.insert(name.to_owned(), value);
        self
    }

    /// Starts it; it ends when the value is dropped, or with this process.
    pub fn start(self) -> Result<Cluster> {
        if self.node {
            // Before anything is started, and before minutes are spent on building.
            node::require(&cache::folder()?.join("run/cluster-4194304-99"))?;
        }
        let home = Home::for_this_process("cluster")?;
        let plane = self.launch(home, Lifetime::Tied)?;
        Ok(Cluster { plane })
    }

    /// After a failure only the folder is left, for its logs, which the error names.
    fn launch(self, home: Home, lifetime: Lifetime) -> Result<ControlPlane> {
        let path = home.path().to_owned();
        self.try_launch(home, lifetime).or_else(|error| {
            remains::quiet(&path).with_context(|| format!("after this failure: {error:#}"))?;
            Err(error)
        })
    }

    fn try_launch(mut self, home: Home, lifetime: Lifetime) -> Result<ControlPlane> {
        if self.node {
            settings::remember(home.path())?;
            self.plane.network = Network::claim(home.path())?;
        }
        // For a person who waits at a terminal; a test has none.
        let tell = |step: &str| {
            if lifetime == Lifetime::Detached {
                cache::say(step);
            }
        };
        tell("starting etcd and the API server");
        let plane = ControlPlane::launch(&self.plane, home, lifetime)?;
        let rest = || {
            tell("starting the controller manager and the scheduler");
            plane.crew().with_free_ports(&[Part::ControllerManager, Part::Scheduler], || {
                managers(&plane, &self.controller_manager_arguments)
            })?;
            if self.node {
                tell("starting the node: containerd and the kubelet");
                node::start(&plane, self.plane.network, &self.plane.gates, &self.kubelet_settings)?;
            }
            Ok(())
        };
        match rest() {
            Ok(()) => Ok(plane),
            Err(error) => {
                plane.abandon();
                Err(error)
            }
        }
    }
}

/// A whole cluster of this process. Dropping it leaves no process, mount, network namespace or control group. When the
/// process is killed instead, its programs die with it, and the next start clears away the rest.
#[derive(Debug)]
pub struct Cluster {
    plane: ControlPlane,
}

impl Cluster {
    /// Starts one as it is by default.
    pub fn start() -> Result<Self> {
        Options::default().start()
    }

    /// What to change before [`Options::start`].
    pub fn options() -> Options {
        Options::default()
    }

    /// Its API server and store, and the control over all of its parts.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// `kubectl` with all rights, to which arguments can be added.
    pub fn kubectl(&self) -> Command {
        self.plane.kubectl()
    }

    /// The folder that on other machines is `/var/lib/kubelet`.
    pub fn kubelet_folder(&self) -> Result<PathBuf> {
        Ok(self.plane.home()?.path().join("kubelet"))
    }

    /// Puts an image on the node, for pods with `imagePullPolicy: Never`.
    pub fn import(&self, image: &Image) -> Result<()> {
        node::import(self.plane.home()?, image)
    }

    /// Ends it, and says what could not be cleared away.
    pub fn stop(self) -> Result<()> {
        self.plane.end()
    }
}

/// Starts controller manager and scheduler side by side and waits for both.
fn managers(plane: &ControlPlane, more: &[String]) -> Result<()> {
    let home = plane.home()?;
    let [first, second] = ports::free()?;
    let file = |name: &str| home.pki().join(name).display().to_string();
    let common = |name: &str, port: u16| -> Result<Vec<String>> {
        let kubeconfig = home.path().join(format!("{name}.kubeconfig"));
        plane.write_kubeconfig(&kubeconfig, name)?;
        let kubeconfig = kubeconfig.display();
        Ok(vec![
            name.to_owned(),
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", file("local.crt")),
            format!("--tls-private-key-file={}", file("local.key")),
            "--leader-elect=false".to_owned(),
            "--profiling=false".to_owned(),
        ])
    };
    let launch = |part: Part, arguments: Vec<String>| {
        let program = plane.program().to_owned();
        plane.crew().start(Launch { part, program, arguments, environment: Vec::new() })
    };
    let mut arguments = common(Part::ControllerManager.name(), first)?;
    arguments.extend([
        "--use-service-account-credentials=true".to_owned(),
        format!("--service-account-private-key-file={}", file("tokens.key")),
        format!("--root-ca-file={}", file("ca.crt")),
    ]);
    arguments.extend(more.iter().cloned());
    launch(Part::ControllerManager, arguments)?;
    launch(Part::Scheduler, common(Part::Scheduler.name(), second)?)?;
    for (part, port) in [(Part::ControllerManager, first), (Part::Scheduler, second)] {
        let url = format!("https://127.0.0.1:{port}/healthz");
        control_plane::await_https(plane.crew(), home, plane.program(), part, &url, MANAGER_LIMIT)?;
    }
    Ok(())
}

/// The folder of all clusters that outlive the command that started them.
fn base() -> Result<PathBuf> {
    let base = cache::folder()?.join("cluster");
    crate::home::make(&base)?;
    Ok(base)
}

/// What a person needs to know to read a log.
fn log_file(home: &Path, part: Part) -> PathBuf {
    home.join("logs").join(format!("{part}.log"))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))
}
