//! What must raise nothing.

use std::time::Duration;

use serde_json::json;
use volmedic_driver::fault::Fault;

use crate::process::Controller as Process;
use crate::stage::{ABNORMAL, Stage, Volume, unmount};

const ARGUMENTS: [&str; 2] = ["--monitor-interval=300ms", "--http-endpoint=127.0.0.1:0"];
/// Longer than what must be seen twice has to last.
const A_WHILE: Duration = Duration::from_secs(2);

/// After all that could raise a false alarm, something real happens to a witness: when that is reported, the agent has been
/// at work all the time.
async fn nothing_but_the_witness(stage: &Stage, agent: &Process, witness: &Volume) {
    tokio::time::sleep(A_WHILE).await;
    stage.looks(agent, 10).await;
    stage.harm(Fault::ReadOnly, witness);
    stage.event("witness", ABNORMAL, &["ReadOnlyFilesystem"]).await;
    let others: Vec<_> = stage
        .all_reported()
        .await
        .into_iter()
        .filter(|(_, message)| !message.contains(&witness.id))
        .collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[tokio::test]
async fn pods_that_come_and_go_raise_nothing() {
    let mut stage = Stage::new().await;
    let witness = stage.volume("witness", "ext4").await;
    stage.pod("witness", &[&witness]).await;
    let data = stage.volume("data", "ext4").await;
    let agent = stage.watching(&ARGUMENTS).await;

    // One that takes its time to start: its directory is there, its mount is not yet.
    let slow = stage.pending_pod("slow", &[&data]).await;
    std::fs::create_dir_all(stage.kubelet.publish(&slow, &data.pv).unwrap()).unwrap();

    // One that has ended keeps its object and loses its volume.
    let done = stage.pod("done", &[&data]).await;
    stage.looks(&agent, 4).await;
    stage.set_status("done", json!({"phase": "Succeeded"})).await;
    stage.unpublish(&done, &data).await;

    // One that the kubelet ends before it has said so.
    let quick = stage.pod("quick", &[&data]).await;
    stage.looks(&agent, 4).await;
    stage.unpublish(&quick, &data).await;
    tokio::time::sleep(A_WHILE).await;
    stage.set_status("quick", json!({"phase": "Failed"})).await;

    // One that is being deleted, whose mount goes before its directory.
    let ending = stage.pod("ending", &[&data]).await;
    stage.looks(&agent, 4).await;
    stage.delete("ending").await;
    unmount(&stage.kubelet.publish(&ending, &data.pv).unwrap());

    nothing_but_the_witness(&stage, &agent, &witness).await;
}

#[tokio::test]
async fn its_own_restart_raises_nothing_and_writes_nothing() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("witness", &[&data]).await;
    let fuse = stage.volume("fuse", "fuse").await;
    stage.pod("web", &[&fuse]).await;
    for _ in 0..3 {
        let agent = stage.watching(&ARGUMENTS).await;
        agent.wait_log("connected to the driver").await;
        stage.looks(&agent, 4).await;
        assert_eq!(agent.terminate(), Some(0));
    }
    let agent = stage.watching(&ARGUMENTS).await;
    nothing_but_the_witness(&stage, &agent, &data).await;
}
