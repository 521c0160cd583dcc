//! The control groups of one cluster's containers, in every hierarchy of the machine: version 1, 2 or both.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::mounts;
use crate::process::{Identity, PAUSE};

/// The kernel takes a moment to let go of a group whose last process died.
const REMOVE_LIMIT: Duration = Duration::from_secs(20);

/// The name of the group below which all containers of the cluster in `home` are.
pub(crate) fn parent(home: &Path) -> String {
    format!("volmedic-{}", crate::short_id(home))
}

/// Makes the group in every hierarchy. The kubelet wants to find it.
pub(crate) fn create(parent: &str) -> Result<()> {
    let roots = hierarchies()?;
    if roots.is_empty() {
        bail!("no control groups are mounted on this machine; mount cgroup2 on /sys/fs/cgroup");
    }
    for root in roots {
        let group = root.join(parent);
        fs::create_dir_all(&group)
            .with_context(|| format!("cannot make the control group {}", group.display()))?;
    }
    Ok(())
}

/// Every process in the group or below it.
pub(crate) fn processes(parent: &str) -> Vec<Identity> {
    let groups = hierarchies().unwrap_or_default().into_iter().flat_map(|root| below(&root.join(parent)));
    let lists = groups.map(|group| fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default());
    let mut numbers: Vec<u32> = lists
        .flat_map(|list| list.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>())
        // Processes of namespaces that cannot be seen from here are shown as zero.
        .filter(|number| *number != 0)
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().filter_map(Identity::of).filter(|process| process.alive()).collect()
}

/// Removes the group and everything below it. Its processes must have ended.
pub(crate) fn remove(parent: &str) -> Result<()> {
    let end = Instant::now() + REMOVE_LIMIT;
    for root in hierarchies().unwrap_or_default() {
        loop {
            let Some(error) = below(&root.join(parent)).iter().find_map(|group| remove_one(group).err())
            else {
                break;
            };
            if Instant::now() >= end {
                return Err(error);
            }
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}

fn remove_one(group: &Path) -> Result<()> {
    match fs::remove_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove the control group {}", group.display()))
        }
        _ => Ok(()),
    }
}

/// The group and all groups in it, deepest first; empty when it is not there.
fn below(group: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(group) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut groups: Vec<PathBuf> = folders.flat_map(|entry| below(&entry.path())).collect();
    groups.push(group.to_owned());
    groups
}

/// Where the hierarchies are mounted.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = mounts::all()?;
    let groups = mounts.into_iter().filter(|mount| matches!(mount.kind.as_str(), "cgroup" | "cgroup2"));
    let mut roots: Vec<PathBuf> = groups.map(|mount| mount.point).collect();
    roots.sort();
    roots.dedup();
    Ok(roots)
}
