//! `--watch`: a change is shown without being asked for.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use volmedic_testkit::objects;

use crate::stage::{DISK, LONG_AGO, PATIENCE, Stage, build};

/// Killed when dropped.
struct Watch {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Watch {
    fn start(stage: &Stage, arguments: &[&str]) -> Self {
        let mut command = stage.command(&[&["status", "--watch"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (said, out) = (Arc::new(Mutex::new(String::new())), BufReader::new(child.stdout.take().unwrap()));
        let lines = said.clone();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let mut said = lines.lock().unwrap();
                said.push_str(&line);
                said.push('\n');
            }
        });
        Self { child, said }
    }

    async fn wait(&self, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.said.lock().unwrap().clone();
            if said.contains(wanted) {
                return;
            }
            assert!(Instant::now() < deadline, "it did not say {wanted:?}:\n{said}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn interrupt(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn furnish(stage: &Stage) {
    objects::node(&stage.client, "worker-1").await.unwrap();
    stage.namespace("shop").await;
    stage.claim("shop", "data", DISK).await;
    objects::pod(&stage.client, "shop", "db", "worker-1", &["data"]).await.unwrap();
    stage.lease("volmedic-agent-worker-1", "agent-1", true).await;
    let coverage = json!({"groups": [{"probedFrom": ["Host"], "persistentVolumes": ["pv-shop-data"]}]});
    stage.node_report("worker-1", json!({ "coverage": coverage })).await;
}

#[tokio::test]
async fn changes_are_lines() {
    let stage = build(true, |stage| Box::pin(furnish(stage)));
    let stage = Stage { client: stage.plane.client().await.unwrap(), plane: stage.plane };
    let watch = Watch::start(&stage, &[]);
    watch.wait("nothing is wrong with 1 claim in all namespaces").await;
    let wrong = json!({"type": "HealthWarning", "status": "True", "errorCode": "Degraded", "reason": "DiskDegrading",
        "message": "9 sectors", "lastTransitionTime": LONG_AGO});
    let vantage = json!({"name": "pushed/scan", "kind": "Pushed", "source": "scan", "health": "HealthWarning",
        "since": LONG_AGO, "expires": "2036-08-21T10:00:00Z", "healthConditions": [wrong]});
    stage
        .health(
            "shop",
            "data",
            json!({"headline": {"health": "HealthWarning", "status": "Degraded"}, "vantages": [vantage]}),
        )
        .await;
    watch
        .wait(
            "shop/data: Healthy -> Degraded/DiskDegrading (9 sectors; others see it differently: host/worker-1 sees nothing \
             wrong), seen by pushed/scan. Next: Plan its",
        )
        .await;
    objects::set_node_ready(&stage.client, "worker-1", "Unknown").await.unwrap();
    stage.kubectl(&["taint", "node", "worker-1", "node.kubernetes.io/unreachable:NoExecute"]);
    watch.wait("shop/data: Degraded/DiskDegrading -> Inaccessible/NodeDown").await;
    stage.kubectl(&["delete", "volumehealth", "-n", "shop", "data"]);
    stage.kubectl(&["delete", "pod", "-n", "shop", "db", "--force", "--grace-period=0"]);
    watch.wait("shop/data: Inaccessible/NodeDown -> Unknown/NotProbed").await;
    stage.kubectl(&["delete", "pvc", "-n", "shop", "data", "--wait=false"]);
    stage.kubectl(&[
        "patch",
        "pvc",
        "-n",
        "shop",
        "data",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    watch.wait("shop/data is no longer shown").await;
    assert_eq!(watch.interrupt().await, Some(0));
}
