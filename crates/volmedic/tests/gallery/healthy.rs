//! The healthy gallery: volumes that are hard at work, nearly full, coming and going, meant to be read-only. Nothing may
//! be reported of any of them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde_json::json;
use volmedic_driver::fault::{Fault, Kind};

use crate::page;
use crate::role::Manner;
use crate::stage::{Stage, Usage, Volume};

const MIB: u64 = 1 << 20;
/// As a test.
const BRIEFLY: Duration = Duration::from_secs(20);

fn open_for() -> Duration {
    let given = std::env::var("VOLMEDIC_GALLERY_HEALTHY").ok();
    given.map_or(BRIEFLY, |given| Duration::from_secs(given.parse().expect("a number of seconds")))
}

pub(crate) async fn nothing_is_reported() {
    let stage = Stage::new(Manner::new("both")).await.watched(true).await;
    let load = Load::default();
    let mut made = Vec::new();
    let plain = Usage::default();
    for kind in [Kind::Ext4, Kind::Xfs, Kind::Btrfs, Kind::Fuse, Kind::Block] {
        let (volume, target, uid) = make(&stage, &format!("busy-{}", kind.name()), kind, plain).await;
        load.start(
            move |stop, _| {
                if kind == Kind::Block { whole_device(&target, stop) } else { write(&target, stop) }
            },
        );
        made.push((volume, uid));
    }
    for kind in [Kind::Ext4, Kind::Btrfs] {
        let (volume, target, uid) = make(&stage, &format!("storm-{}", kind.name()), kind, plain).await;
        load.start(move |stop, _| fsync_storm(&target, stop));
        made.push((volume, uid));
    }
    for kind in [Kind::Ext4, Kind::Xfs] {
        let (volume, target, uid) = make(&stage, &format!("nearly-full-{}", kind.name()), kind, plain).await;
        fill(&target, 0.95);
        load.start(move |stop, _| up_and_down(&target, stop));
        made.push((volume, uid));
    }
    for kind in [Kind::Ext4, Kind::Fuse] {
        let usage = Usage { read_only: true, ..plain };
        let (volume, _, uid) = make(&stage, &format!("read-only-{}", kind.name()), kind, usage).await;
        made.push((volume, uid));
    }
    let usage = Usage { sub_path: Some("part"), ..plain };
    let (volume, target, uid) = make(&stage, "sub-path", Kind::Ext4, usage).await;
    let part = target.join("part");
    load.start(move |stop, _| write(&part, stop));
    made.push((volume, uid));
    let noise = stage.ground.path().join("kubelet/noise");
    load.start(move |stop, mounts| come_and_go(&noise, stop, mounts));

    let end = Instant::now() + open_for();
    let churned = stage.volume("churn", Kind::Ext4).await;
    let mut pods = 0;
    while Instant::now() < end {
        pod_comes_and_goes(&stage, &churned, pods).await;
        pods += 1;
    }
    let (rounds, mounts) = load.end();
    assert!(rounds > 0 && mounts > 0, "the gallery was empty: {rounds} rounds, {mounts} mounts");

    // Something real at last: when that is reported, somebody has watched all the time.
    let (witness, _) = &made[0];
    stage.harm(Fault::ReadOnly, Some(witness)).await.unwrap();
    stage.reported.reported(&witness.claim, "host", "Inaccessible/ReadOnlyFilesystem").await.unwrap();
    let others: Vec<_> = stage.reported.all().into_iter().filter(|tale| tale.on != witness.claim).collect();
    assert!(others.is_empty(), "{others:#?}\n--- the agent's log ---\n{}", stage.agents_log());
    let looks = looks(&stage.metrics().await);
    page::record_healthy(format!(
        "{} s of heavy I/O, fsync storms, volumes between 93 and 96 percent full, read-only ones, a subPath, a block \
         volume, {pods} pods that came and went, {mounts} other mounts that did: {looks} looks, no false alarm.",
        open_for().as_secs(),
    ));
}

/// A pod with a volume of its own, checked; answers where the volume is.
async fn make(stage: &Stage, name: &str, kind: Kind, usage: Usage) -> (Volume, PathBuf, String) {
    let volume = stage.volume(name, kind).await;
    let uid = stage.pod(name, &volume, usage).await;
    stage.checked(&volume).await.unwrap();
    let target = stage.target(&uid, &volume);
    (volume, target, uid)
}

/// The life of a pod, in one of the ways it can end.
async fn pod_comes_and_goes(stage: &Stage, volume: &Volume, turn: u32) {
    let name = format!("churn-{turn}");
    let uid = stage.pending(&name, volume, Usage::default()).await;
    stage.publish(&uid, volume, false).await;
    stage.runs(&name).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    match turn % 3 {
        // It completes, and its volume goes in the same moment.
        0 => {
            stage.set_status(&name, json!({"phase": "Succeeded"})).await;
            stage.unpublish(&uid, volume).await;
            stage.delete(&name).await;
        }
        // It is deleted, and its volume goes in the same moment.
        1 => {
            stage.delete(&name).await;
            stage.unpublish(&uid, volume).await;
        }
        // The kubelet is ahead of the news that it failed. It removes the directory right after the mount.
        _ => {
            stage.remove(&uid, volume);
            tokio::time::sleep(Duration::from_millis(300)).await;
            stage.set_status(&name, json!({"phase": "Failed"})).await;
            stage.delete(&name).await;
            stage.unpublish(&uid, volume).await;
        }
    }
}

/// All looks, by the host and through the driver.
fn looks(metrics: &str) -> u64 {
    let counts = metrics.lines().filter(|line| line.starts_with("csi_volume_health_probe_total{"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Threads at work until the end, however that comes.
#[derive(Default)]
struct Load {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    mounts: Arc<AtomicU64>,
    threads: std::cell::RefCell<Vec<JoinHandle<()>>>,
}

impl Load {
    /// `work` is done again and again; it returns when it is asked to stop.
    fn start(&self, work: impl FnOnce(&Stop, &AtomicU64) + Send + 'static) {
        let stop = Stop { stop: self.stop.clone(), rounds: self.rounds.clone() };
        let mounts = self.mounts.clone();
        self.threads.borrow_mut().push(std::thread::spawn(move || work(&stop, &mounts)));
    }

    /// Answers how many rounds of work and mounts there were.
    fn end(&self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.borrow_mut().drain(..) {
            thread.join().expect("the load itself meets no error");
        }
        (self.rounds.load(Ordering::Relaxed), self.mounts.load(Ordering::Relaxed))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.borrow_mut().drain(..) {
            let _ = thread.join();
        }
    }
}

struct Stop {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
}

impl Stop {
    /// Whether to go on for another round.
    fn go_on(&self) -> bool {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        !self.stop.load(Ordering::Relaxed)
    }
}

fn write(folder: &Path, stop: &Stop) {
    let block = vec![7; usize::try_from(MIB).unwrap()];
    let file = File::create(folder.join("load")).unwrap();
    let mut turn = 0;
    while stop.go_on() {
        file.write_all_at(&block, turn % 24 * MIB).unwrap();
        if turn % 24 == 23 {
            file.sync_all().unwrap();
        }
        let small = folder.join(format!("small-{}", turn % 8));
        fs::write(&small, &block[..100]).unwrap();
        fs::rename(&small, folder.join("renamed")).unwrap();
        turn += 1;
    }
}

fn whole_device(device: &Path, stop: &Stop) {
    let block = vec![7; usize::try_from(MIB).unwrap()];
    let file = File::options().write(true).open(device).unwrap();
    let mut turn = 0;
    while stop.go_on() {
        file.write_all_at(&block, turn % 48 * MIB).unwrap();
        if turn % 48 == 47 {
            file.sync_all().unwrap();
        }
        turn += 1;
    }
}

fn fsync_storm(folder: &Path, stop: &Stop) {
    let file = File::create(folder.join("storm")).unwrap();
    let mut turn = 0;
    while stop.go_on() {
        file.write_all_at(&[7; 512], turn % 64 * 512).unwrap();
        file.sync_all().unwrap();
        turn += 1;
    }
}

/// How full it is for users other than root.
fn share(folder: &Path) -> f64 {
    let counted = statvfs(folder).unwrap();
    let used = counted.f_blocks - counted.f_bfree;
    #[allow(clippy::cast_precision_loss, reason = "a share needs few digits")]
    let share = used as f64 / (used + counted.f_bavail) as f64;
    share
}

/// Until so much of it is used.
fn fill(folder: &Path, until: f64) {
    let mut number = 0;
    while share(folder) < until {
        let file = File::create(folder.join(format!("filler-{number}"))).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, MIB / 4).unwrap();
        number += 1;
    }
}

/// A little more and a little less, below the threshold.
fn up_and_down(folder: &Path, stop: &Stop) {
    let path = folder.join("tide");
    while stop.go_on() {
        let file = File::create(&path).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, MIB / 2).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        fs::remove_file(&path).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Mounts that are nobody's volume.
fn come_and_go(folder: &Path, stop: &Stop, mounts: &AtomicU64) {
    let (from, to) = (folder.join("from"), folder.join("to"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&to).unwrap();
    while stop.go_on() {
        mount_bind(&from, &to).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        unmount(&to, UnmountFlags::empty()).unwrap();
        mounts.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
    }
}
