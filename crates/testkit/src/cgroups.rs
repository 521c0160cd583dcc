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

/// Makes the group in every hierarchy, with all controllers. The kubelet wants to find it so.
pub(crate) fn create(parent: &str) -> Result<()> {
    let roots = hierarchies()?;
    match roots.as_slice() {
        [] => bail!("no control groups are mounted on this machine; mount cgroup2 on /sys/fs/cgroup"),
        // In version 2 a group has the controllers that the one above hands down; in version 1 each hierarchy is one.
        [Hierarchy { root, version: 2 }] => hand_down(root)?,
        _ => {}
    }
    for hierarchy in roots {
        let group = hierarchy.root.join(parent);
        fs::create_dir_all(&group)
            .with_context(|| format!("cannot make the control group {}", group.display()))?;
    }
    Ok(())
}

/// Lets groups below `root` have every controller that it has itself.
fn hand_down(root: &Path) -> Result<()> {
    let switch = root.join("cgroup.subtree_control");
    let available = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    for controller in available.split_whitespace() {
        // One by one: a single one that the kernel refuses would take the others along.
        let Err(error) = fs::write(&switch, format!("+{controller}")) else { continue };
        if ["cpu", "cpuset", "memory", "pids"].contains(&controller) {
            bail!(
                "the control group {} does not hand the controller {controller} down ({error}); inside of a container its \
                 processes have to be moved to a group of their own first, or run this outside",
                root.display()
            );
        }
    }
    Ok(())
}

/// Every process in the group or below it.
pub(crate) fn processes(parent: &str) -> Vec<Identity> {
    let groups = hierarchies().unwrap_or_default().into_iter().flat_map(|one| below(&one.root.join(parent)));
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
    for Hierarchy { root, .. } in hierarchies().unwrap_or_default() {
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

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hierarchy {
    root: PathBuf,
    version: u8,
}

/// Where the hierarchies are mounted.
fn hierarchies() -> Result<Vec<Hierarchy>> {
    let version = |kind: &str| match kind {
        "cgroup" => Some(1),
        "cgroup2" => Some(2),
        _ => None,
    };
    let mounts = mounts::all()?.into_iter();
    let mut found: Vec<Hierarchy> = mounts
        .filter_map(|mount| Some(Hierarchy { version: version(&mount.kind)?, root: mount.point }))
        .collect();
    found.sort();
    found.dedup();
    Ok(found)
}
