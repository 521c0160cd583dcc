//! Faults in the mount table and in mounted file systems.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use super::Kind;
use super::notes::Note;
use super::victim::Victim;
use crate::command;
use crate::error::{Error, Result};
use crate::mount::{bind, mount_disk, table};
use crate::paths::{Opened, Place, Roots};
use crate::record::{Access, Published};
use crate::sys;

/// Small volumes are repaired in far less.
const REPAIR: Duration = Duration::from_mins(2);

pub(super) fn unmount_targets(victim: &Victim) -> Result<()> {
    victim.targets()?.iter().try_for_each(|(target, _)| take_off(victim, target))
}

pub(super) fn unmount_staging(victim: &Victim) -> Result<()> {
    // Without a target the file system would go away and with it everything to bind from.
    victim.targets()?;
    take_off(victim, victim.staging()?)
}

pub(super) fn bind_targets(victim: &Victim) -> Result<()> {
    for (target, published) in victim.targets()? {
        if table()?.at(target).is_none() {
            bind_target(victim, target, published)?;
        }
    }
    Ok(())
}

pub(super) fn bind_staging(victim: &Victim) -> Result<()> {
    let staging = victim.staging()?;
    if table()?.at(staging).is_some() {
        return Ok(());
    }
    let (target, _) = victim.targets()?[0];
    bind(&place(victim, target)?.open_directory()?, &place(victim, staging)?.open_directory()?, false)
}

pub(super) fn cover_targets(victim: &Victim, note: &Note) -> Result<()> {
    for (target, published) in victim.targets()? {
        let foreign = note.path(if published.block { "file" } else { "folder" });
        let made = if published.block {
            fs::write(&foreign, "not the volume")
        } else {
            fs::create_dir_all(&foreign)
        };
        made.map_err(victim.io("make something to cover a target"))?;
        mount_bind(&foreign, target).map_err(victim.io("cover a target"))?;
    }
    Ok(())
}

pub(super) fn uncover_targets(victim: &Victim) -> Result<()> {
    for (target, _) in victim.targets()? {
        if table()?.stacked(target).count() > 1 {
            take_off(victim, target)?;
        }
    }
    Ok(())
}

pub(super) fn remount(victim: &Victim, read_only: bool) -> Result<()> {
    let flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    mount_remount(victim.staging()?, flags, "").map_err(victim.io("remount the file system"))
}

pub(super) fn raise_ext4_error(victim: &Victim) -> Result<()> {
    let file = format!("/sys/fs/ext4/loop{}/trigger_fs_error", victim.device()?.0);
    fs::write(file, "volmedic fault").map_err(victim.io("raise an ext4 error on the file system"))
}

pub(super) fn repair_ext4(victim: &Victim) -> Result<()> {
    remounted(victim, || {
        command::run("e2fsck", &["-f", "-y"], &victim.device()?.path(), REPAIR).or_else(repaired)
    })
}

/// Exit codes 1 and 2 say that e2fsck found something and repaired it.
fn repaired(error: Error) -> Result<()> {
    match &error {
        Error::Tool { why, .. }
            if ["exit status: 1:", "exit status: 2:"].iter().any(|code| why.starts_with(code)) =>
        {
            Ok(())
        }
        _ => Err(error),
    }
}

pub(super) fn shut_down(victim: &Victim) -> Result<()> {
    let root = File::open(victim.staging()?).map_err(victim.io("open the root"))?;
    sys::shut_down_filesystem(&root).map_err(victim.io("shut down the file system"))
}

pub(super) fn mount_again(victim: &Victim) -> Result<()> {
    remounted(victim, || Ok(()))
}

/// Takes every mount of the volume down, does something, and puts them all back.
pub(super) fn remounted(victim: &Victim, between: impl FnOnce() -> Result<()>) -> Result<()> {
    let Access::Mount { options } = &victim.staged()?.access else { return between() };
    let staging = victim.staging()?;
    let targets = victim.targets().unwrap_or_default();
    for place in targets.iter().map(|(target, _)| *target).chain([staging]) {
        if table()?.at(place).is_some() {
            take_off(victim, place)?;
        }
    }
    if victim.kind != Kind::Fuse {
        // A file system that is still mounted elsewhere would only be shown again, as it is.
        victim.device()?.wait_until_free()?;
    }
    let done = between();
    if victim.kind != Kind::Fuse {
        let opened = place(victim, staging)?.open_directory()?;
        mount_disk(victim.device()?, &opened, victim.volume.filesystem, options, victim.staged()?.readonly)?;
    }
    for (target, published) in targets {
        bind_target(victim, target, published)?;
    }
    done
}

/// Unmounts without waiting for anyone who has a file open.
pub(super) fn abandon(victim: &Victim) -> Result<()> {
    let targets = victim.targets().unwrap_or_default();
    for place in targets.iter().map(|(target, _)| *target).chain([victim.staging()?]) {
        if table()?.at(place).is_some() {
            unmount(place, UnmountFlags::DETACH).map_err(victim.io("unmount a path"))?;
        }
    }
    Ok(())
}

fn bind_target(victim: &Victim, target: &Path, published: &Published) -> Result<()> {
    let at = place(victim, target)?;
    if published.block {
        return bind(&Opened::device(&victim.device()?.path())?, &at.open_file()?, published.readonly);
    }
    bind(&place(victim, victim.staging()?)?.open_directory()?, &at.open_directory()?, published.readonly)
}

fn take_off(victim: &Victim, place: &Path) -> Result<()> {
    match unmount(place, UnmountFlags::empty()) {
        Err(Errno::BUSY) => {
            let why = format_args!("something uses {}; stop it first", place.display()).to_string();
            Err(Error::precondition(&victim.id, why))
        }
        other => other.map_err(victim.io("unmount a path")),
    }
}

/// The recorded paths passed the driver's own rules; here only links below their parent are guarded against.
fn place(victim: &Victim, path: &Path) -> Result<Place> {
    let parent = path.parent().unwrap_or(Path::new("/")).to_owned();
    let text = path.to_str().ok_or_else(|| Error::invalid("path", "it is not valid UTF-8"))?;
    Roots::new(vec![parent], victim.state_root.clone()).place("path", text)
}
