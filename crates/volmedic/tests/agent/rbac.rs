//! The shipped rights are enough, as all other tests here show by running under them; and none is too many: without any
//! single one something breaks, and the log says what is missing.

use std::time::Instant;

use volmedic_driver::fault::Fault;

use crate::process::PATIENCE;
use crate::rights::{Right, Rights};
use crate::server;
use crate::stage::{ABNORMAL, NORMAL, Stage, shipped};

/// What breaks without a right.
enum Breaks {
    /// It never begins to watch, and says this.
    Start(&'static str),
    /// It begins, but says this.
    Later(&'static str),
}

/// Every right there is, and what breaks without it.
const NEEDED: &[(&str, &str, Breaks)] = &[
    ("events", "create", Breaks::Later("does not let us write events")),
    ("events", "patch", Breaks::Later("does not let us write events")),
    ("leases", "create", Breaks::Later("cannot create resource \"leases\"")),
    ("leases", "get", Breaks::Later("cannot get resource \"leases\"")),
    ("leases", "update", Breaks::Later("cannot update resource \"leases\"")),
    ("nodevolumehealths", "create", Breaks::Later("cannot create resource \"nodevolumehealths\"")),
    ("nodevolumehealths", "get", Breaks::Later("cannot get resource \"nodevolumehealths\"")),
    ("nodevolumehealths", "patch", Breaks::Later("cannot patch resource \"nodevolumehealths\"")),
    ("persistentvolumeclaims", "get", Breaks::Later("does not let us get persistentvolumeclaims")),
    ("persistentvolumes", "get", Breaks::Later("does not let us get persistentvolumes")),
    ("pods", "list", Breaks::Start("does not let us list pods")),
    ("pods", "watch", Breaks::Later("does not let us watch pods")),
];

#[tokio::test]
async fn every_right_that_is_shipped_is_needed() {
    let shipped = shipped(&server::shared());
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

async fn lacks(shipped: Rights, right: Right, breaks: &'static Breaks) {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let local = stage.host_path("local", stage.ground.path()).await;
    stage.pending_pod("local", &[&local]).await;
    stage.set_status("local", serde_json::json!({"phase": "Running"})).await;
    let account = stage.account("poor", &shipped.without(&right)).await;
    let kubeconfig = format!("--kubeconfig={}", account.display());
    let agent = stage.agent(&[&kubeconfig, "--csi-address=/nowhere/csi.sock"]);
    match breaks {
        Breaks::Start(says) => {
            agent.wait_log(says).await;
            assert_eq!(agent.says("watching"), 0, "without {right:?}: {}", agent.log());
        }
        Breaks::Later(says) => {
            agent.wait_log("watching").await;
            // Trouble that comes, goes and comes again, so that an event is there already.
            if right.resource == "events" {
                for times in [1, 2] {
                    stage.harm(Fault::ReadOnly, &data);
                    agent.wait_says("kind=\"appeared\"", times).await;
                    stage.repair(Fault::ReadOnly, &data);
                    agent.wait_says("kind=\"cleared\"", times).await;
                }
            }
            agent.wait_log(says).await;
        }
    }
}

/// The same, seen from the other side: with all rights nothing is refused.
#[tokio::test]
async fn the_shipped_rights_are_enough_for_everything() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let agent = stage.watching(&["--csi-address=/nowhere/csi.sock"]).await;
    for count in [1, 2] {
        stage.harm(Fault::ReadOnly, &data);
        stage.counted("web", ABNORMAL, count).await;
        stage.repair(Fault::ReadOnly, &data);
        stage.counted("web", NORMAL, count).await;
    }
    let user = format!("system:serviceaccount:{}:agent", stage.namespace);
    let requests = server::requests(&stage.plane, &user);
    let refused: Vec<_> = requests.iter().filter(|request| matches!(request.code, 401 | 403)).collect();
    assert!(refused.is_empty() && !requests.is_empty(), "{refused:?}");
    assert_eq!(agent.terminate(), Some(0));
}

/// Nothing is written while nothing changes but the sign of life.
#[tokio::test]
async fn a_quiet_node_asks_the_api_server_for_nothing() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let agent = stage.watching(&["--monitor-interval=200ms", "--http-endpoint=127.0.0.1:0"]).await;
    let user = format!("system:serviceaccount:{}:agent", stage.namespace);
    stage.report("it is there", |report| report.counts.healthy == 1).await;
    let requests = || -> Vec<_> {
        let all = server::requests(&stage.plane, &user).into_iter();
        all.filter(|request| request.resource != "leases").collect()
    };
    // What it asked at its start is noted some time after it was answered.
    let deadline = Instant::now() + PATIENCE;
    let before = loop {
        let before = requests().len();
        stage.looks(&agent, 10).await;
        if requests().len() == before {
            break before;
        }
        assert!(Instant::now() < deadline, "it goes on asking: {:?}", requests().split_off(before));
    };
    stage.looks(&agent, 15).await;
    let after = requests();
    assert_eq!(after.len(), before, "{:?}", &after[before..]);
}
