//! A user namespace of our own: there even those without rights may mount, if only what the kernel lets them.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::Context;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The hidden flag of the process that only tries.
pub(super) const TRY: &str = "--try-namespace";

/// Whether [`enter`] would succeed. Tried by another process, since there is no way back from half of it.
pub(super) fn can_enter() -> bool {
    let Ok(program) = std::env::current_exe() else { return false };
    let mut command = Command::new(program);
    command.args(["demo", TRY]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// From here on this process and its children are root in a small world of their own: nobody else sees what they
/// mount, and it goes when they do. To be called before there is a second thread.
pub(super) fn enter() -> anyhow::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: only the flag that gives up shared file descriptors could harm, and it is not set.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
        .context("this user may not create a user namespace")?;
    let maps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ];
    for (file, text) in maps {
        fs::write(file, text).with_context(|| format!("cannot write {file}"))?;
    }
    // What the host unmounts must go from here too, or we would keep its devices busy.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .context("mounting is not allowed in a user namespace here")
}
