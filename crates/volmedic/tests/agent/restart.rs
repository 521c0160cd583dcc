//! An agent that is killed, and one that finds nothing to go on from: nothing is reported twice, and every end is reported.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Event;
use volmedic_driver::fault::Fault;
use volmedic_testkit::seed;

use crate::process::PATIENCE;
use crate::stage::{ABNORMAL, NORMAL, Stage};

const ROUNDS: usize = 8;
/// After a change, in microseconds.
const LATEST_KILL: u64 = 500_000;

fn counts(events: &[Event]) -> Vec<(String, i32)> {
    let mut counts: Vec<_> = events
        .iter()
        .map(|event| (event.reason.clone().unwrap_or_default(), event.count.unwrap_or_default()))
        .collect();
    counts.sort();
    counts
}

/// The latest page of the agent's journal, as anybody could read it: a line with its number and length, and JSON.
fn page(stage: &Stage) -> Option<serde_json::Value> {
    let pages = ["journal-0", "journal-1"].into_iter().filter_map(|slot| {
        let text = fs::read(stage.state_dir().join(slot)).ok()?;
        let end = text.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<&str> = std::str::from_utf8(&text[..end]).ok()?.split_whitespace().collect();
        let (number, length): (u64, usize) = (line.get(1)?.parse().ok()?, line.get(2)?.parse().ok()?);
        Some((number, serde_json::from_slice(text.get(end + 1..end + 1 + length)?).ok()?))
    });
    pages.max_by_key(|(number, _)| *number).map(|(_, page)| page)
}

/// Waits until the agent's memory says this.
async fn remembered(stage: &Stage, what: impl Fn(&serde_json::Value) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = page(stage);
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
async fn killed_while_a_volume_is_unhealthy_it_repeats_nothing_and_reports_the_recovery() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    // By host checks only, so that there is one story.
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
    stage.repair(Fault::ReadOnly, &data);
    let _agent = stage.watching(&arguments).await;
    stage.event("web", NORMAL, &["ReadOnlyFilesystem"]).await;
    all_sent(&stage).await;
    let reported = counts(&stage.events("web").await);
    assert_eq!(reported, [(ABNORMAL.to_owned(), 1), (NORMAL.to_owned(), 1)]);
}

/// Killed again and again at any moment while volumes fall unhealthy and recover: each story has both its ends, once.
#[tokio::test]
async fn killed_at_any_moment_it_neither_repeats_nor_loses() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let arguments = ["--csi-address=/nowhere/csi.sock", "--monitor-interval=200ms"];
    let mut agent = stage.watching(&arguments).await;
    let mut dice = seed("killed_at_any_moment_it_neither_repeats_nor_loses");
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            stage.harm(Fault::ReadOnly, &data);
        } else {
            stage.repair(Fault::ReadOnly, &data);
        }
        // xorshift. From before the change is seen until long after it was sent.
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        tokio::time::sleep(Duration::from_micros(dice % LATEST_KILL)).await;
        agent.kill();
        agent = stage.watching(&arguments).await;
        let (reason, count) =
            if round % 2 == 0 { (ABNORMAL, round / 2 + 1) } else { (NORMAL, round / 2 + 1) };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let reported = counts(&stage.events("web").await);
            let of =
                |reason: &str| reported.iter().filter(|(r, _)| r == reason).map(|(_, n)| *n).sum::<i32>();
            let (mine, expected) = (of(reason), i32::try_from(count).unwrap());
            assert!(mine <= expected, "in round {round} {reason} is there {mine} times: {reported:?}");
            if mine == expected {
                break;
            }
            assert!(Instant::now() < deadline, "in round {round}: {reported:?}\n{}", agent.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn a_memory_that_makes_no_sense_is_put_aside_and_nothing_is_reported_as_a_second_event() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let arguments = ["--csi-address=/nowhere/csi.sock"];
    let mut agent = stage.watching(&arguments).await;
    stage.harm(Fault::ReadOnly, &data);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem"]).await;
    all_sent(&stage).await;
    agent.kill();
    for slot in ["journal-0", "journal-1"] {
        fs::write(stage.state_dir().join(slot), "{\"format\": \"volm").unwrap();
    }
    let agent = stage.watching(&arguments).await;
    assert_eq!(agent.says("a copy was put aside"), 1, "{}", agent.log());
    remembered(&stage, |page| page["memos"].as_array().is_some_and(|memos| !memos.is_empty())).await;
    all_sent(&stage).await;
    assert_eq!(stage.events("web").await.len(), 1, "counted on the event that is there");
    assert!(stage.state_dir().join("journal-0.unreadable").exists());
}

/// A file system of this size, unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf, size: &str) -> Self {
        fs::create_dir_all(&at).unwrap();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        rustix::mount::mount("tmpfs", &at, "tmpfs", rustix::mount::MountFlags::empty(), options.as_c_str())
            .unwrap();
        Self(at)
    }

    /// Takes the last byte that there is.
    fn fill(&self) {
        let mut filler = fs::File::create(self.0.join("filler")).unwrap();
        let full = (0..1 << 20).find_map(|_| filler.write_all(&[1; 512]).err());
        assert_eq!(full.map(|error| error.kind()), Some(ErrorKind::StorageFull));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        crate::stage::unmount(&self.0);
    }
}

/// What is reported while the disk under the state directory is full is neither repeated nor lost by a kill.
#[tokio::test]
async fn killed_on_a_full_disk_it_neither_repeats_nor_loses() {
    let mut stage = Stage::new().await;
    let (first, second) = (stage.volume("first", "ext4").await, stage.volume("second", "ext4").await);
    stage.pod("one", &[&first]).await;
    stage.pod("two", &[&second]).await;
    let disk = Small::mount(stage.state_dir(), "192k");
    let arguments = ["--csi-address=/nowhere/csi.sock", "--monitor-interval=300ms"];
    let mut agent = stage.watching(&arguments).await;
    stage.harm(Fault::ReadOnly, &first);
    stage.event("one", ABNORMAL, &["ReadOnlyFilesystem"]).await;
    all_sent(&stage).await;
    disk.fill();
    // One that is reported as over while the disk is full, and one that is reported, and over before the next start.
    stage.repair(Fault::ReadOnly, &first);
    stage.event("one", NORMAL, &["ReadOnlyFilesystem"]).await;
    stage.harm(Fault::ReadOnly, &second);
    stage.event("two", ABNORMAL, &["ReadOnlyFilesystem"]).await;
    all_sent(&stage).await;
    agent.kill();
    stage.repair(Fault::ReadOnly, &second);
    let agent = stage.watching(&arguments).await;
    stage.event("two", NORMAL, &["ReadOnlyFilesystem"]).await;
    all_sent(&stage).await;
    for pod in ["one", "two"] {
        let reported = counts(&stage.events(pod).await);
        assert_eq!(reported, [(ABNORMAL.to_owned(), 1), (NORMAL.to_owned(), 1)], "{pod}");
    }
    assert_eq!(agent.says("cannot be kept"), 0, "{}", agent.log());
    drop(agent);
    drop(disk);
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
