//! An agent that is killed, and one that finds nothing to go on from: nothing is told twice, and no end goes untold.

use std::fs;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Event;
use volmedic_driver::fault::Fault;

use crate::process::PATIENCE;
use crate::stage::{ABNORMAL, NORMAL, Stage};

fn counts(events: &[Event]) -> Vec<(String, i32)> {
    let mut counts: Vec<_> = events
        .iter()
        .map(|event| (event.reason.clone().unwrap_or_default(), event.count.unwrap_or_default()))
        .collect();
    counts.sort();
    counts
}

/// Waits until the agent's memory says this.
async fn remembered(stage: &Stage, what: impl Fn(&serde_json::Value) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let file = stage.state_dir().join("agent.json");
    loop {
        let page = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if page.as_ref().is_some_and(&what) {
            return;
        }
        assert!(Instant::now() < deadline, "the memory is {page:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Nothing is left to be sent.
async fn all_sent(stage: &Stage) {
    remembered(stage, |page| page["unsent"].as_array().is_some_and(Vec::is_empty)).await;
}

#[tokio::test]
async fn killed_while_a_volume_is_ill_it_repeats_nothing_and_tells_the_recovery() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    // By the host's own eyes only, so that there is one story.
    let arguments =
        ["--csi-address=/nowhere/csi.sock", "--monitor-interval=300ms", "--http-endpoint=127.0.0.1:0"];
    let mut agent = stage.watching(&arguments).await;
    stage.harm(Fault::ReadOnly, &data);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem"]).await;
    for _ in 0..3 {
        agent.kill();
        agent = stage.watching(&arguments).await;
        // It looks again and again, and has nothing new to say.
        stage.looks(&agent, 3).await;
    }
    all_sent(&stage).await;
    assert_eq!(counts(&stage.events("web").await), [(ABNORMAL.to_owned(), 1)]);
    agent.kill();
    // While nobody looks it gets well.
    stage.mend(Fault::ReadOnly, &data);
    let _agent = stage.watching(&arguments).await;
    stage.event("web", NORMAL, &["ReadOnlyFilesystem"]).await;
    all_sent(&stage).await;
    let told = counts(&stage.events("web").await);
    assert_eq!(told, [(ABNORMAL.to_owned(), 1), (NORMAL.to_owned(), 1)]);
}

/// Killed again and again at any moment while volumes fall ill and get well: each story has both its ends, once.
#[tokio::test]
async fn killed_at_any_moment_it_neither_repeats_nor_loses() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let arguments = ["--csi-address=/nowhere/csi.sock", "--monitor-interval=200ms"];
    let mut agent = stage.watching(&arguments).await;
    for (round, pause) in [0, 30, 60, 100, 150, 220, 300, 400].into_iter().enumerate() {
        if round % 2 == 0 {
            stage.harm(Fault::ReadOnly, &data);
        } else {
            stage.mend(Fault::ReadOnly, &data);
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
        agent.kill();
        agent = stage.watching(&arguments).await;
        let (reason, count) =
            if round % 2 == 0 { (ABNORMAL, round / 2 + 1) } else { (NORMAL, round / 2 + 1) };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let told = counts(&stage.events("web").await);
            let of = |reason: &str| told.iter().filter(|(r, _)| r == reason).map(|(_, n)| *n).sum::<i32>();
            let (mine, expected) = (of(reason), i32::try_from(count).unwrap());
            assert!(mine <= expected, "in round {round} {reason} is there {mine} times: {told:?}");
            if mine == expected {
                break;
            }
            assert!(Instant::now() < deadline, "in round {round}: {told:?}\n{}", agent.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn a_memory_that_makes_no_sense_is_put_aside_and_nothing_is_told_as_a_second_event() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let arguments = ["--csi-address=/nowhere/csi.sock"];
    let mut agent = stage.watching(&arguments).await;
    stage.harm(Fault::ReadOnly, &data);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem"]).await;
    all_sent(&stage).await;
    agent.kill();
    fs::write(stage.state_dir().join("agent.json"), "{\"format\": \"volm").unwrap();
    let agent = stage.watching(&arguments).await;
    assert_eq!(agent.says("it was put aside"), 1, "{}", agent.log());
    remembered(&stage, |page| page["memos"].as_array().is_some_and(|memos| !memos.is_empty())).await;
    all_sent(&stage).await;
    assert_eq!(stage.events("web").await.len(), 1, "counted on the event that is there");
    assert!(stage.state_dir().join("agent.json.unreadable").exists());
}

#[tokio::test]
async fn without_a_place_to_remember_it_watches_all_the_same_and_says_so() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let agent = stage.watching(&["--state-dir=/proc/volmedic"]).await;
    assert_eq!(agent.says("check --state-dir"), 1, "{}", agent.log());
    stage.harm(Fault::ReadOnly, &data);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem"]).await;
}
