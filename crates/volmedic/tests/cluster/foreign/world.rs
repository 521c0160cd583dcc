//! Every scenario with every driver, measured. Nothing is asserted of what drivers of other projects report: the results
//! are for the documents. What must hold is that each volume was healthy before, and that the run was whole.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs};

use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;
use volmedic_testkit::Part;

use super::hostpath::{self, Hostpath};
use super::juicefs::JuiceFs;
use super::local_path::{self, LocalPath};
use super::measure::{Look, Observation, log_lines, observe, recovered};
use super::{install_volmedic, processes, target};
use crate::agent::say;
use crate::ready;
use crate::stage::{KUBECTL_WAITS, Stage};

/// Where the results go: the file that `cargo xtask world` makes the table from.
const RESULTS: &str = "VOLMEDIC_WORLD_RESULTS";
/// Which drivers, with commas between them; all if it is not set.
const ONLY: &str = "VOLMEDIC_WORLD_DRIVERS";

/// Eight intervals.
const LIMIT: Duration = Duration::from_secs(40);
/// Until a node counts as down: Kubernetes takes almost a minute, the hub 40 seconds more.
const NODE_LIMIT: Duration = Duration::from_mins(4);
/// Calls that hang are given up after ten seconds each, several times.
const HUNG_LIMIT: Duration = Duration::from_mins(2);
const RECOVERY_LIMIT: Duration = Duration::from_mins(2);
/// Before the first fault, for what is reported without one.
const BASELINE: Duration = Duration::from_secs(30);

/// One row of the results.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    driver: &'static str,
    version: &'static str,
    scenario: &'static str,
    how: String,
    #[serde(flatten)]
    seen: Observation,
    /// `None` where it was not undone, or did not end in time.
    recovered_seconds: Option<f32>,
    undone: bool,
}

/// The rows of one driver as they are measured.
pub(super) struct Table<'a> {
    pub(super) stage: &'a Stage,
    pub(super) driver: &'static str,
    pub(super) version: &'static str,
    /// Its name in logs.
    pub(super) name: &'static str,
    pub(super) sidecar: Option<&'static str>,
    pub(super) rows: Vec<Row>,
}

/// Something that happens to a claim's volume.
pub(super) struct Fault<'a> {
    pub(super) scenario: &'static str,
    pub(super) how: &'a str,
    pub(super) claim: &'a str,
    pub(super) limit: Duration,
}

impl Table<'_> {
    /// What is reported of a volume to which nothing happened.
    pub(super) fn nothing(&mut self, claim: &str) {
        sleep(BASELINE);
        let fault = Fault { scenario: "none", how: "a pod writes", claim, limit: Duration::from_secs(5) };
        let (stage, began) = (self.stage, Instant::now().checked_sub(BASELINE).unwrap());
        let seen = observe(stage, claim, &Look::default(), fault.limit);
        self.push(&fault, seen, began, None, false);
    }

    pub(super) fn run(&mut self, fault: &Fault<'_>, inflict: impl FnOnce(), undo: Option<&mut dyn FnMut()>) {
        let before = Look::at(self.stage, fault.claim);
        let began = Instant::now();
        inflict();
        let seen = observe(self.stage, fault.claim, &before, fault.limit);
        let undone = undo.is_some();
        let recovery = undo.and_then(|undo| {
            undo();
            recovered(self.stage, fault.claim, &before, RECOVERY_LIMIT)
        });
        self.push(fault, seen, began, recovery, undone);
    }

    fn push(
        &mut self,
        fault: &Fault<'_>,
        mut seen: Observation,
        began: Instant,
        recovered_seconds: Option<f32>,
        undone: bool,
    ) {
        seen.of_the_driver = log_lines(self.stage, self.name, self.sidecar, began);
        let (driver, version) = (self.driver, self.version);
        let how = fault.how.to_owned();
        let row = Row { driver, version, scenario: fault.scenario, how, seen, recovered_seconds, undone };
        say(&serde_json::to_string_pretty(&row).unwrap());
        self.rows.push(row);
    }

    /// The kubelet is killed, and started again.
    pub(super) fn node_down(&mut self, claim: &str) {
        let fault = Fault { scenario: "NodeDown", how: "the kubelet is killed", claim, limit: NODE_LIMIT };
        let stage = self.stage;
        let mut start = || stage.plane().start(Part::Kubelet).unwrap();
        self.run(&fault, || stage.plane().kill(Part::Kubelet).unwrap(), Some(&mut start));
        stage.wait("the node is ready again", || {
            let ready = r#"jsonpath={.items[0].status.conditions[?(@.type=="Ready")].status}"#;
            match stage.try_kubectl(&["get", "nodes", "-o", ready])?.as_str() {
                "True" => Ok(()),
                other => Err(format!("Ready is {other:?}")),
            }
        });
    }

    /// A process is killed, which its pod starts again; then one is stopped, and continued.
    pub(super) fn driver_killed_and_hung(&mut self, claim: &str, pod: [&str; 3], program: &str) {
        let stage = self.stage;
        let [namespace, name, container] = pod;
        let found = || processes::find(stage, namespace, name, container, program);
        let killed = Fault {
            scenario: "driver killed",
            how: "its process gets SIGKILL; the kubelet starts it again",
            claim,
            limit: LIMIT,
        };
        self.run(&killed, || processes::signal(&found(), Signal::KILL), Some(&mut || {}));
        stage.wait("the driver runs again", || {
            let ready = "jsonpath={.status.containerStatuses[*].ready}";
            let all = stage.try_kubectl(&["get", "pod", name, "-n", namespace, "-o", ready])?;
            if all.contains("false") { Err(all) } else { Ok(()) }
        });
        let hung = Fault {
            scenario: "driver hung",
            how: "its process gets SIGSTOP, later SIGCONT",
            claim,
            limit: HUNG_LIMIT,
        };
        let stopped = found();
        self.run(
            &hung,
            || processes::signal(&stopped, Signal::STOP),
            Some(&mut || processes::signal(&stopped, Signal::CONT)),
        );
    }
}

#[test]
#[ignore = "up to an hour, for docs/driver-matrix.md: cargo xtask world"]
fn drivers_of_other_projects() {
    let only = env::var(ONLY).unwrap_or_default();
    let wanted = |name: &str| only.is_empty() || only.split(',').any(|one| one == name);
    let stage = Stage::start_bare();
    install_volmedic(&stage);
    let mut rows = Vec::new();
    for (name, measure) in [
        ("hostpath", measure_hostpath as fn(&Stage) -> Vec<Row>),
        ("juicefs", measure_juicefs),
        ("local-path", measure_local_path),
    ] {
        if wanted(name) {
            say(&format!("== {name}"));
            rows.extend(measure(&stage));
            write(&stage, &rows);
        }
    }
    assert!(!rows.is_empty(), "{ONLY}={only} names no driver");
    stage.stop();
}

/// After each driver, so that a failure later loses nothing. Rows of other drivers in there stay.
fn write(stage: &Stage, rows: &[Row]) {
    let Some(path) = env::var_os(RESULTS) else { return };
    let path = Path::new(&path);
    let old: Vec<Value> =
        fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let measured = |row: &Value| rows.iter().any(|new| row["driver"] == new.driver);
    let mut all: Vec<Value> = old.into_iter().filter(|row| !measured(row)).collect();
    all.extend(rows.iter().map(|row| serde_json::to_value(row).unwrap()));
    // As on other machines, where the kubelet's folder is below this one.
    let text =
        serde_json::to_string_pretty(&all).unwrap().replace(stage.folder().to_str().unwrap(), "/var/lib");
    fs::write(path, format!("{text}\n")).unwrap();
}

fn measure_hostpath(stage: &Stage) -> Vec<Row> {
    let driver = Hostpath::install(stage);
    Hostpath::add_sidecar(stage);
    let claims = ["hp-other", "hp-unmounted", "hp-full", "hp-lost"];
    stage.create(&claims.map(Hostpath::volume).concat().into());
    for claim in claims {
        ready(stage, claim);
    }
    let (version, name) = (driver.version(), hostpath::DRIVER);
    let sidecar = Some(hostpath::WORKLOAD);
    let mut table = Table { stage, driver: "hostpath", version, name, sidecar, rows: Vec::new() };

    table.nothing("hp-other");
    let pod = ["default", hostpath::POD, hostpath::CONTAINER];
    table.driver_killed_and_hung("hp-other", pod, hostpath::PROGRAM);
    let (mounted, data) = (target(stage, "hp-unmounted"), driver.data(stage, "hp-unmounted"));
    let fault = Fault {
        scenario: "VolumeUnmounted",
        how: "the pod's volume is unmounted on the host",
        claim: "hp-unmounted",
        limit: LIMIT,
    };
    table.run(
        &fault,
        || unmount(&mounted, UnmountFlags::DETACH).unwrap(),
        Some(&mut || mount_bind(&data, &mounted).unwrap()),
    );
    let fault = Fault {
        scenario: "OutOfCapacity",
        how: "the file system of the driver's folder is filled",
        claim: "hp-full",
        limit: LIMIT,
    };
    table.run(&fault, || driver.disk.fill(), Some(&mut || driver.disk.free()));
    let fault = Fault {
        scenario: "VolumeNotFound",
        how: "the volume's folder is removed",
        claim: "hp-lost",
        limit: LIMIT,
    };
    let lost = driver.data(stage, "hp-lost");
    table.run(&fault, || fs::remove_dir_all(&lost).unwrap(), None);
    table.node_down("hp-other");
    let rows = table.rows;
    remove(stage, &claims);
    driver.remove(stage);
    rows
}

fn measure_local_path(stage: &Stage) -> Vec<Row> {
    let driver = LocalPath::install(stage);
    let version = driver.version();
    let mut rows = Vec::new();
    for (of, local) in [("local-path, hostPath volumes", false), ("local-path, local volumes", true)] {
        let prefix = if local { "ll" } else { "lp" };
        let names = ["other", "full", "lost"].map(|name| format!("{prefix}-{name}"));
        let claims = names.each_ref().map(String::as_str);
        stage.create(&claims.map(|claim| LocalPath::volume(claim, local)).concat().into());
        for claim in claims {
            ready(stage, claim);
        }
        let mut table =
            Table { stage, driver: of, version, name: "local-path", sidecar: None, rows: Vec::new() };
        let [other, full, lost] = claims;
        table.nothing(other);
        let fault = Fault {
            scenario: "OutOfCapacity",
            how: "the file system of the provisioner's folder is filled",
            claim: full,
            limit: LIMIT,
        };
        table.run(&fault, || driver.disk.fill(), Some(&mut || driver.disk.free()));
        let folder = LocalPath::data(stage, lost, local);
        let fault = Fault {
            scenario: "VolumeNotFound",
            how: "the volume's folder is removed",
            claim: lost,
            limit: LIMIT,
        };
        table.run(&fault, || fs::remove_dir_all(&folder).unwrap(), None);
        if local {
            let uid = stage.kubectl(&["get", "pod", other, "-o", "jsonpath={.metadata.uid}"]);
            let volume = stage.kubectl(&["get", "pvc", other, "-o", "jsonpath={.spec.volumeName}"]);
            let mounted =
                stage.kubelet().join(format!("pods/{uid}/volumes/kubernetes.io~local-volume/{volume}"));
            let data = LocalPath::data(stage, other, true);
            let fault = Fault {
                scenario: "VolumeUnmounted",
                how: "the pod's volume is unmounted on the host",
                claim: other,
                limit: LIMIT,
            };
            table.run(
                &fault,
                || unmount(&mounted, UnmountFlags::DETACH).unwrap(),
                Some(&mut || mount_bind(&data, &mounted).unwrap()),
            );
        } else {
            let pods =
                ["get", "pods", "-n", local_path::NAMESPACE, "-o", "jsonpath={.items[0].metadata.name}"];
            let pod = stage.kubectl(&pods);
            let place = [local_path::NAMESPACE, pod.as_str(), local_path::CONTAINER];
            table.driver_killed_and_hung(other, place, local_path::CONTAINER);
        }
        // Which kind of volume makes no difference to the node.
        if !local {
            table.node_down(other);
        }
        rows.extend(table.rows);
        remove(stage, &claims);
    }
    driver.remove(stage);
    rows
}

fn measure_juicefs(stage: &Stage) -> Vec<Row> {
    let driver = JuiceFs::install(stage);
    let claims = ["jfs-other", "jfs-unmounted", "jfs-full", "jfs-dead"];
    let volumes = claims.map(|claim| driver.volume(claim));
    stage.create(&volumes.concat().into());
    for claim in claims {
        ready(stage, claim);
    }
    let mut table = Table {
        stage,
        driver: "JuiceFS, mounted by process",
        version: driver.version(),
        name: super::juicefs::DRIVER,
        sidecar: None,
        rows: Vec::new(),
    };
    table.nothing("jfs-other");
    let server = driver.server(stage, "jfs-other");
    let fault = Fault {
        scenario: "mounter restarted",
        how: "the process that serves the volume gets SIGKILL; JuiceFS starts it again",
        claim: "jfs-other",
        limit: LIMIT,
    };
    table.run(&fault, || processes::signal(&server, Signal::KILL), Some(&mut || {}));
    let mounter = driver.mounter(stage, "jfs-dead");
    let fault = Fault {
        scenario: "mounter killed",
        how: "the process that serves the volume gets SIGKILL, and so does the one that would start it again",
        claim: "jfs-dead",
        limit: LIMIT,
    };
    table.run(&fault, || processes::signal(&mounter, Signal::KILL), None);
    let hung = driver.mounter(stage, "jfs-other");
    let fault = Fault {
        scenario: "mounter hung",
        how: "both processes get SIGSTOP, later SIGCONT",
        claim: "jfs-other",
        limit: HUNG_LIMIT,
    };
    table.run(
        &fault,
        || processes::signal(&hung, Signal::STOP),
        Some(&mut || processes::signal(&hung, Signal::CONT)),
    );
    let mounted = target(stage, "jfs-unmounted");
    let fault = Fault {
        scenario: "VolumeUnmounted",
        how: "the pod's volume is unmounted on the host",
        claim: "jfs-unmounted",
        limit: LIMIT,
    };
    table.run(&fault, || unmount(&mounted, UnmountFlags::DETACH).unwrap(), None);
    let fault = Fault {
        scenario: "OutOfCapacity",
        how: "the file system with its objects is filled",
        claim: "jfs-full",
        limit: LIMIT,
    };
    table.run(&fault, || driver.disk.fill(), Some(&mut || driver.disk.free()));
    table.node_down("jfs-other");
    let pod = driver.pod(stage);
    let place = ["kube-system", pod.as_str(), super::juicefs::CONTAINER];
    table.driver_killed_and_hung("jfs-other", place, super::juicefs::PROGRAM);
    let rows = table.rows;
    remove(stage, &claims);
    driver.remove(stage);
    rows
}

/// The pods and claims, and waits for their volumes to be gone.
fn remove(stage: &Stage, claims: &[&str]) {
    for kind in ["pod", "pvc"] {
        let mut arguments = vec!["delete", kind, "--wait", KUBECTL_WAITS, "--force", "--grace-period=0"];
        if kind == "pvc" {
            arguments.truncate(4);
        }
        arguments.extend(claims);
        stage.kubectl(&arguments);
    }
}
