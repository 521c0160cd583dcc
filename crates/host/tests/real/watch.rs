//! Waiting for changes of the mount table.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::time::timeout;
use volmedic_host::mounts::{Changes, Table, Watch};

use super::mounts::Mounted;
use super::{PATIENCE, Test, block_on, until};

pub(crate) const TESTS: &[Test] = &[
    ("every_change_wakes_the_watch", every_change_wakes_the_watch),
    ("a_burst_of_changes_is_reported_in_few_wake_ups_and_to_its_end", a_burst),
    ("another_mount_namespace_is_watched_and_silence_stays_silent", another_namespace),
    ("a_caller_that_asks_learns_of_each_change_once", a_caller_that_asks),
];

async fn until_mounted(watch: &mut Watch, target: &Path, mounted: bool) -> usize {
    let mut wakes = 0;
    loop {
        timeout(PATIENCE, watch.changed()).await.expect("a change wakes the watch").unwrap();
        wakes += 1;
        if Table::read().unwrap().at(target).is_some() == mounted {
            return wakes;
        }
    }
}

fn every_change_wakes_the_watch() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let mut watch = Watch::new().unwrap();
        for turn in 0..20 {
            // Now before there is a waiting task, now while there is one.
            let path = folder.path().to_path_buf();
            let mount = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(turn % 3));
                Mounted::tmpfs(path, "one")
            });
            until_mounted(&mut watch, folder.path(), true).await;
            drop(mount.join().unwrap());
            until_mounted(&mut watch, folder.path(), false).await;
        }
    });
}

fn a_burst() {
    let folder = tempfile::tempdir().unwrap();
    let last = folder.path().join("last");
    fs::create_dir(&last).unwrap();
    let noise = folder.path().join("noise");
    fs::create_dir(&noise).unwrap();
    block_on(async {
        let mut watch = Watch::new().unwrap();
        let started = Instant::now();
        let target = last.clone();
        let mounts = std::thread::spawn(move || {
            for _ in 0..300 {
                drop(Mounted::tmpfs(noise.clone(), "noise"));
            }
            Mounted::tmpfs(target, "last")
        });
        let wakes = until_mounted(&mut watch, &last, true).await;
        let most = started.elapsed().as_millis() / 100 + 1;
        assert!(wakes as u128 <= most, "{wakes} wake-ups in {:?}", started.elapsed());
        drop(mounts.join().unwrap());
    });
}

/// A shell in a mount namespace of its own, which does one thing for every line it reads.
struct Shell {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Shell {
    fn start() -> Self {
        let mut child = Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                "while read -r order; do eval \"$order\"; echo done; done",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut shell = Self { child, orders, answers };
        shell.order("true");
        shell
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // With its last process the namespace goes, and all its mounts.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Nothing of ours happens there. What other tests had mounted when the namespace was made goes there, too, when they remove
/// the directory; but who is woken again and again finds nothing changed.
async fn stays_silent(watch: &mut Watch, mountinfo: &str) {
    let mut before = fs::read(mountinfo).unwrap();
    let mut in_vain = 0;
    let end = Instant::now() + Duration::from_millis(500);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        if timeout(left, watch.changed()).await.is_err() {
            break;
        }
        let now = fs::read(mountinfo).unwrap();
        in_vain += u32::from(now == before);
        before = now;
    }
    assert!(in_vain <= 1, "woken {in_vain} times for nothing");
}

fn another_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Shell::start();
    let mountinfo = format!("/proc/{}/mountinfo", shell.child.id());
    block_on(async {
        let mut watch = Watch::at(&mountinfo).unwrap();
        stays_silent(&mut watch, &mountinfo).await;
        shell.order(&format!("mount -t tmpfs there {}", folder.path().display()));
        timeout(PATIENCE, watch.changed()).await.unwrap().unwrap();
        let there = Table::read_from(&mountinfo).unwrap();
        assert_eq!(there.at(folder.path()).unwrap().source(), "there");
        assert!(Table::read().unwrap().at(folder.path()).is_none(), "here it is not mounted");
        // A watch that was given up keeps its place.
        stays_silent(&mut watch, &mountinfo).await;
        shell.order(&format!("mount -o remount,ro {}", folder.path().display()));
        timeout(PATIENCE, watch.changed()).await.unwrap().unwrap();
        assert!(Table::read_from(&mountinfo).unwrap().at(folder.path()).unwrap().is_read_only());
    });
    let error = block_on(async { Watch::at("/proc/self/nothing").unwrap_err() });
    assert!(error.to_string().starts_with("watching /proc/self/nothing failed"), "{error}");
}

fn a_caller_that_asks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let mut shell = Shell::start();
    let changes = Changes::of(Some(shell.child.id())).unwrap();
    for order in [
        format!("mount -t tmpfs there {path}"),
        format!("mount -o remount,ro {path}"),
        format!("mount --bind {path} {path}"),
        format!("umount {path}"),
    ] {
        // What other tests do to their directories may show there as well, but not for ever.
        until("no change is reported", || !changes.any());
        shell.order(&order);
        assert!(changes.any(), "{order}");
    }
    until("no change is reported", || !changes.any());
    assert!(Changes::of(Some(u32::MAX)).unwrap_err().to_string().starts_with("opening /proc/4294967295/"));
}
