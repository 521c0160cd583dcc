//! Taking away whatever a demo made: processes, mounts, loop devices, files. It needs nothing but the directory, so it
//! works as well after a demo that was killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use volmedic_driver::fault::{Fault, Faults};
use volmedic_driver::record::MounterRecord;
use volmedic_driver::{StateDir, VolumeDir, attached_below, mounter};
use volmedic_host::mounts::Table;

/// The driver's state, below the root.
pub(super) const STATE: &str = "state";
/// For all of it. What is not gone by then is reported.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// What was there, and what would not go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Swept {
    pub(super) processes: usize,
    pub(super) mounts: usize,
    pub(super) loops: usize,
    /// A sentence each.
    pub(super) problems: Vec<String>,
}

impl Swept {
    /// As in `2 processes, 1 mount and 1 loop device`; nothing if there was nothing.
    pub(super) fn words(&self) -> Option<String> {
        let counted = [
            (self.processes, "process", "processes"),
            (self.mounts, "mount", "mounts"),
            (self.loops, "loop device", "loop devices"),
        ];
        let counted: Vec<String> = counted
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
            .collect();
        let (last, others) = counted.split_last()?;
        Some(if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) })
    }
}

/// Empties the directory. Processes first, since they hold the rest; files last, and only when nothing is mounted on
/// them any more.
pub(super) fn sweep(root: &Path) -> Swept {
    let deadline = Instant::now() + PATIENCE;
    let mut swept = Swept::default();
    swept.processes += end_driver(root, deadline, &mut swept.problems);
    swept.processes += end_mounters(root, deadline, &mut swept.problems);
    swept.mounts = unmount_all(root, deadline, &mut swept.problems);
    let cleared = swept.problems.is_empty();
    // A device in use goes by itself when it is closed; the files need not wait for that.
    swept.loops = detach_all(root, deadline, &mut swept.problems);
    if cleared {
        remove_files(root, &mut swept.problems);
    }
    swept
}

/// The process that holds the lock of the driver's state is the driver.
fn end_driver(root: &Path, deadline: Instant, problems: &mut Vec<String>) -> usize {
    let state = StateDir::new(root.join(STATE));
    if !state.root().is_dir() {
        return 0;
    }
    let faults = Faults::at(state);
    let mut ended = 0;
    // A note of an earlier kill would keep this one from being done.
    let kill = || {
        let _ = faults.clear(Fault::DriverKilled, None);
        faults.inject(Fault::DriverKilled, None)
    };
    // Fails when there is none.
    while kill().is_ok() {
        ended = 1;
        if Instant::now() >= deadline {
            problems.push("the driver was killed but does not exit".to_owned());
            break;
        }
        sleep(PAUSE);
    }
    ended
}

fn end_mounters(root: &Path, deadline: Instant, problems: &mut Vec<String>) -> usize {
    let state = StateDir::new(root.join(STATE));
    let mut ended: Vec<MounterRecord> = Vec::new();
    for folder in [state.volumes(), state.new_things(), state.trash()] {
        for directory in entries(&folder) {
            let Ok(Some(record)) = mounter::find(&VolumeDir::at(directory)) else { continue };
            if let Some(pid) = Pid::from_raw(record.pid)
                && kill_process(pid, Signal::KILL).is_ok()
            {
                ended.push(record);
            }
        }
    }
    while let Some(alive) = ended.iter().find(|record| mounter::is_alive(record)) {
        if Instant::now() >= deadline {
            problems.push(format!("the mounter with pid {} was killed but does not exit", alive.pid));
            break;
        }
        sleep(PAUSE);
    }
    ended.len()
}

fn unmount_all(root: &Path, deadline: Instant, problems: &mut Vec<String>) -> usize {
    let mut count = 0;
    loop {
        let table = match Table::read() {
            Ok(table) => table,
            Err(error) => {
                problems.push(error.to_string());
                return count;
            }
        };
        let mut targets: Vec<PathBuf> = table
            .iter()
            .map(|mount| mount.target().to_owned())
            // The directory itself may be a mount of the user's.
            .filter(|target| target.starts_with(root) && target != root)
            .collect();
        if targets.is_empty() {
            return count;
        }
        // Those that lie deeper come off first.
        targets.sort_unstable_by(|a, b| b.cmp(a));
        let mut failed = None;
        for target in targets {
            // A process that still has a file open keeps it; the name is free all the same.
            match unmount(&target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                Ok(()) => count += 1,
                Err(error) => failed = Some(format!("{} cannot be unmounted: {error}", target.display())),
            }
        }
        if let Some(failed) = failed
            && Instant::now() >= deadline
        {
            problems.push(failed);
            return count;
        }
        sleep(Duration::from_millis(1));
    }
}

fn detach_all(root: &Path, deadline: Instant, problems: &mut Vec<String>) -> usize {
    let mut count = 0;
    loop {
        let found = match attached_below(root) {
            Ok(found) => found,
            // Where there are no block devices to be seen there are none of ours.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return count,
            Err(error) => {
                problems.push(format!("the loop devices cannot be listed: {error}"));
                return count;
            }
        };
        count = count.max(found.len());
        let Some((_, first)) = found.first() else { return count };
        if Instant::now() >= deadline {
            let device = first.device().path().display().to_string();
            problems.push(format!(
                "{device} is still in use and goes away when its user closes it; `fuser -vm {device}` lists who uses it"
            ));
            return count;
        }
        for (_, attached) in &found {
            // Reported below if it lasts.
            let _ = attached.detach();
        }
        sleep(PAUSE);
    }
}

/// All but the directory itself, which is the lock.
fn remove_files(root: &Path, problems: &mut Vec<String>) {
    for path in entries(root) {
        let removed = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
            _ => fs::remove_file(&path),
        };
        if let Err(error) = removed {
            problems.push(format!("{} cannot be removed: {error}", path.display()));
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .map(|list| list.map_while(Result::ok).map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_said_in_words() {
        let swept = |processes, mounts, loops| Swept { processes, mounts, loops, problems: Vec::new() };
        assert_eq!(swept(0, 0, 0).words(), None);
        assert_eq!(swept(1, 0, 0).words().unwrap(), "1 process");
        assert_eq!(swept(2, 1, 3).words().unwrap(), "2 processes, 1 mount and 3 loop devices");
    }
}
