//! The shipped rights are enough, as all other tests here show by running under them; and none is too many: without
//! any single one, something breaks, and the log says what is missing.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use volmedic_testkit::{ControlPlane, objects, sim::capability as can};

use crate::process::{Controller, PATIENCE};
use crate::rights::{Right, Rights};
use crate::server;
use crate::stage::{DEGRADED, Stage};

/// What breaks without a right.
enum Breaks {
    /// It never begins to watch, and says this.
    Start(&'static str),
    /// It begins, but where it has no volume yet it says this.
    Fresh(&'static str),
    /// It begins, but says this as soon as health changes or time goes by.
    Later(&'static str),
    /// It begins, but says this where health cannot be stored in the claim.
    Hub(&'static str),
}

/// Every right there is, and what breaks without it.
const NEEDED: &[(&str, &str, Breaks)] = &[
    ("csidrivers", "get", Breaks::Fresh("cannot see whether there is a CSIDriver")),
    ("drivers", "report", Breaks::Hub("may not report for the driver")),
    ("events", "create", Breaks::Later("does not let us write events")),
    ("events", "get", Breaks::Later("does not let us write events")),
    ("events", "list", Breaks::Start("cannot read the events written earlier")),
    ("events", "patch", Breaks::Later("does not let us write events")),
    ("leases", "create", Breaks::Start("cannot read or write the lease")),
    ("leases", "get", Breaks::Start("cannot read or write the lease")),
    ("leases", "update", Breaks::Later("lost the lease")),
    ("nodes", "list", Breaks::Start("does not let us list nodes")),
    ("nodes", "watch", Breaks::Later("does not let us watch nodes")),
    ("persistentvolumeclaims", "list", Breaks::Start("cannot read the claims' stored health")),
    ("persistentvolumeclaims/status", "patch", Breaks::Later("does not let us write claim status")),
    ("persistentvolumes", "list", Breaks::Start("does not let us list persistentvolumes")),
    ("persistentvolumes", "watch", Breaks::Later("does not let us watch persistentvolumes")),
    ("pods", "list", Breaks::Start("does not let us list pods")),
    ("pods", "watch", Breaks::Later("does not let us watch pods")),
    ("volumehealths", "create", Breaks::Hub("does not let us write VolumeHealths")),
    ("volumehealths", "list", Breaks::Later("cannot read what was stored in VolumeHealths")),
    ("volumehealths/status", "patch", Breaks::Hub("does not let us write VolumeHealths")),
];

#[tokio::test]
async fn every_right_that_is_shipped_is_needed() {
    let shipped = Rights::shipped(&server::shared());
    let needed: Vec<Right> = NEEDED
        .iter()
        .map(|(resource, verb, _)| Right { resource: (*resource).to_owned(), verb: (*verb).to_owned() })
        .collect();
    assert_eq!(
        shipped.all(),
        needed,
        "each right in the manifest has its line in this test, and each line its right"
    );
    let mut cases = tokio::task::JoinSet::new();
    for (right, (_, _, breaks)) in needed.into_iter().zip(NEEDED) {
        cases.spawn(lacks(shipped.clone(), right, breaks));
    }
    while let Some(case) = cases.join_next().await {
        if let Err(error) = case {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// A server that does not keep health in claims, with VolumeHealths.
fn with_resources() -> Arc<ControlPlane> {
    static PLANE: OnceLock<Arc<ControlPlane>> = OnceLock::new();
    let start = || {
        let plane = server::own(ControlPlane::options().gate("CSIVolumeHealth", false));
        plane.install_definitions().expect("VolumeHealths are installed");
        let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart/files/admission-health.yaml");
        let applied = plane.kubectl().args(["apply", "-f", policy]).output().expect("kubectl runs");
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
        plane
    };
    PLANE.get_or_init(start).clone()
}

async fn lacks(shipped: Rights, right: Right, breaks: &'static Breaks) {
    let plane = match breaks {
        Breaks::Hub(_) => with_resources(),
        _ => server::shared(),
    };
    let stage = Stage::on(plane, &[can::LIST_VOLUME_HEALTH]).await;
    if !matches!(breaks, Breaks::Fresh(_)) {
        stage.claims(&["data"]).await;
    }
    let account = stage.account("poor", &shipped.without(&right)).await;
    let controller = stage.controller_as(&account, &everything(&stage.namespace).each_ref().map(|s| &**s));
    match breaks {
        Breaks::Start(says) => {
            controller.wait_log(says).await;
            assert_eq!(controller.says("watching"), 0, "without {right:?}: {}", controller.log());
        }
        Breaks::Fresh(says) => {
            controller.wait_log(says).await;
            controller.wait_log("watching").await;
        }
        Breaks::Hub(says) => {
            controller.wait_log("watching").await;
            stage.harm("data", DEGRADED, "OutOfCapacity", "99 % used");
            controller.wait_log(says).await;
        }
        Breaks::Later(says) => {
            controller.wait_log("watching").await;
            exercise(&stage, &controller, says).await;
        }
    }
}

/// All that needs rights.
fn everything(namespace: &str) -> [String; 6] {
    [
        "--enable-node-watcher".to_owned(),
        "--leader-election".to_owned(),
        format!("--leader-election-namespace={namespace}"),
        "--leader-election-lease-duration=20s".to_owned(),
        "--leader-election-renew-deadline=15s".to_owned(),
        "--leader-election-retry-period=500ms".to_owned(),
    ]
}

/// Trouble that comes, goes and comes again, so that an event is there already: until the log says what was to come.
async fn exercise(stage: &Stage, controller: &Controller, says: &str) {
    let deadline = Instant::now() + PATIENCE;
    for n in 0.. {
        if n % 2 == 0 {
            stage.harm("data", DEGRADED, "OutOfCapacity", "99 % used");
        } else {
            stage.repair("data");
        }
        let enough = stage.sim.calls("ControllerListVolumeHealth") + 3;
        while stage.sim.calls("ControllerListVolumeHealth") < enough {
            if controller.says(says) > 0 {
                return;
            }
            assert!(Instant::now() < deadline, "the log never says {says:?}:\n{}", controller.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The same, seen from the other side: with all rights, all of that works.
#[tokio::test]
async fn the_shipped_rights_are_enough_for_everything() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["data"]).await;
    let node = format!("{}-node", stage.namespace);
    objects::node(&stage.client, &node).await.expect("a node");
    objects::pod(&stage.client, &stage.namespace, "web", &node, &["data"]).await.expect("a pod");
    let arguments = everything(&stage.namespace);
    let mut arguments: Vec<&str> = arguments.iter().map(|argument| &**argument).collect();
    arguments.push("--node-grace-period=1s");
    let controller = stage.watching(&arguments).await;
    for count in [1, 2] {
        stage.harm("data", DEGRADED, "OutOfCapacity", "99 % used");
        stage.counted("data", "VolumeConditionAbnormal", count).await;
        stage.wait_stored("data", &["Degraded/OutOfCapacity"]).await;
        stage.repair("data");
        stage.counted("data", "VolumeConditionNormal", count).await;
        stage.wait_stored("data", &[]).await;
    }
    objects::set_node_ready(&stage.client, &node, "Unknown").await.expect("a condition");
    stage.event("data", "NodeFailed", &node).await;
    let refused: Vec<_> = stage.requests().into_iter().filter(|r| matches!(r.code, 401 | 403)).collect();
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(controller.terminate(), Some(0));
}
