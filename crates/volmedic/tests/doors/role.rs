//! The roles as processes with the memory that the chart gives them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tempfile::TempDir;
use volmedic_testkit::sim::{Sim, capability};
use volmedic_testkit::{ControlPlane, objects};

use crate::cgroup::Group;
use crate::door::{Door, HOST, Kind};
use crate::ground::{self, CRDS, HOME};
use crate::pki::Authority;
use crate::process::{Controller as Process, program};

const NODE: &str = "doors-node";
const DRIVER: &str = "doors.csi.example.net";

/// What all roles share.
pub(crate) struct Ground {
    plane: Arc<ControlPlane>,
    folder: TempDir,
}

/// A role that runs. It ends before its control group is removed.
pub(crate) struct Role {
    pub(crate) name: &'static str,
    pub(crate) process: Process,
    pub(crate) doors: Vec<Door>,
    pub(crate) leases: Api<Lease>,
    pub(crate) lease: String,
    pub(crate) group: Group,
    _sim: Option<Sim>,
}

impl Ground {
    pub(crate) async fn new() -> Self {
        let plane = ground::bare();
        ground::install(&plane, &[CRDS]);
        let folder = tempfile::tempdir().unwrap();
        Authority::new(folder.path(), "ca").issue(HOST, 2099);
        objects::node(&plane.client().await.unwrap(), NODE).await.unwrap();
        Self { plane, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn start(
        &self,
        name: &'static str,
        lease: &str,
        arguments: &[String],
        ready: &str,
    ) -> (Role, SocketAddr) {
        let group = Group::new(name, memory_limit(name));
        let mut command = group.command(&program());
        command
            .arg(name)
            .args(["--http-endpoint=127.0.0.1:0", &flag("kubeconfig", self.plane.kubeconfig())])
            .args(arguments)
            .env("POD_NAMESPACE", HOME)
            .env("POD_NAME", "doors");
        let process = Process::spawn(&mut command);
        process.wait_log(ready).await;
        let metrics = process.address().await;
        let leases = Api::namespaced(self.plane.client().await.unwrap(), HOME);
        let doors = vec![Door::plain(Kind::Metrics, metrics)];
        (Role { name, process, doors, leases, lease: lease.to_owned(), group, _sim: None }, metrics)
    }

    pub(crate) async fn hub(&self) -> Role {
        let arguments = [
            format!("--leader-election-namespace={HOME}"),
            "--page=127.0.0.1:0".to_owned(),
            "--push-endpoint=127.0.0.1:0".to_owned(),
            flag("push-tls-cert", &self.file("tls.crt")),
            flag("push-tls-key", &self.file("tls.key")),
        ];
        let (mut role, _) = self.start("hub", "volmedic-hub", &arguments, "merging what is known").await;
        let page = said(&role.process, "serving the page on http://").await;
        let push = said(&role.process, "taking reports on https://").await;
        role.doors.push(Door::plain(Kind::Page, page));
        role.doors.push(Door::tls(Kind::Push, push, Some(&self.file("ca.crt"))));
        role
    }

    pub(crate) async fn agent(&self) -> Role {
        let arguments = [
            format!("--node-name={NODE}"),
            flag("kubelet-root-dir", &self.file("kubelet")),
            flag("state-dir", &self.file("state")),
            // Its driver is away. The relay listens all the same.
            flag("addons-address", &self.file("addons.sock")),
            "--relay-endpoint=127.0.0.1:0".to_owned(),
        ];
        std::fs::create_dir_all(self.file("kubelet")).unwrap();
        let lease = format!("volmedic-agent-{NODE}");
        let (mut role, _) = self.start("agent", &lease, &arguments, "relaying heals on").await;
        let relay = said(&role.process, "relaying heals on ").await;
        role.doors.push(Door::tls(Kind::Relay, relay, None));
        role
    }

    pub(crate) async fn controller(&self) -> Role {
        let sim = Sim::start(&self.file("csi.sock"), DRIVER, &[capability::LIST_VOLUME_HEALTH]).unwrap();
        let arguments = [
            flag("csi-address", &self.file("csi.sock")),
            "--leader-election".to_owned(),
            format!("--leader-election-namespace={HOME}"),
        ];
        let lease = format!("external-health-monitor-leader-{}", DRIVER.replace('.', "-"));
        let (role, _) = self.start("controller", &lease, &arguments, "watching").await;
        Role { _sim: Some(sim), ..role }
    }
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// The address that stands behind these words in the log.
async fn said(process: &Process, words: &str) -> SocketAddr {
    process.wait_log(words).await;
    let log = process.log();
    let (_, rest) = log.split_once(words).unwrap();
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && !".:".contains(letter));
    rest[..end.unwrap_or(rest.len())].parse().unwrap()
}

/// In bytes, as in the values of the chart.
fn memory_limit(role: &str) -> u64 {
    let values = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart/values.yaml");
    let values = std::fs::read_to_string(values).unwrap();
    let (_, section) = values.split_once(&format!("\n{role}:\n")).unwrap();
    let (_, limit) = section.split_once("limits: {memory: ").unwrap();
    let (number, _) = limit.split_once("Mi}").unwrap();
    number.parse::<u64>().unwrap() << 20
}
