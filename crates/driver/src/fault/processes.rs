//! Faults of processes: the mounter of a volume, and the driver.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use volmedic_host::process::wait_until_stopped;

use super::victim::Victim;
use super::{Fault, mounts};
use crate::error::{Error, Result};
use crate::mounter;
use crate::state_dir::StateDir;

/// A stop takes effect when the process gets its turn; only one stuck in the kernel takes longer than a moment.
const FREEZES_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn hurt_mounter(fault: Fault, victim: &Victim) -> Result<()> {
    victim.staged()?;
    match fault {
        Fault::MounterKilled => signal_mounter(victim, Signal::KILL),
        Fault::MounterFrozen => signal_mounter(victim, Signal::STOP),
        _ => fs::write(victim.directory.mounter_fault(), "eio\n").map_err(victim.io("make the mounter fail")),
    }
}

pub(super) fn heal_mounter(fault: Fault, victim: &Victim) -> Result<()> {
    match fault {
        // Healed meanwhile, its mounts are good ones.
        Fault::MounterKilled if mounter::find(&victim.directory)?.is_some() => Ok(()),
        Fault::MounterKilled => mounts::abandon(victim),
        Fault::MounterFrozen => signal_mounter(victim, Signal::CONT),
        _ => match fs::remove_file(victim.directory.mounter_fault()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(victim.io("make the mounter work again")),
        },
    }
}

fn signal_mounter(victim: &Victim, signal: Signal) -> Result<()> {
    let record = mounter::find(&victim.directory)?;
    let pid = record.and_then(|record| Pid::from_raw(record.pid));
    let pid = pid.ok_or_else(|| Error::precondition(&victim.id, "no mounter process serves it"))?;
    kill_process(pid, signal).map_err(victim.io("signal the mounter"))?;
    // One that is dying still seems alive for a moment, although its mounts are dead already.
    if signal != Signal::CONT && !wait_until_stopped(pid.as_raw_nonzero().get(), FREEZES_WITHIN) {
        return Err(Error::precondition(&victim.id, "its mounter was sent a signal to stop and did not"));
    }
    Ok(())
}

/// The faults that are not signals are done by being noted: the driver reads the notes.
pub(super) fn hurt_driver(fault: Fault, state: &StateDir) -> Result<()> {
    match fault {
        Fault::DriverFrozen => signal_driver(state, Signal::STOP),
        Fault::DriverKilled => signal_driver(state, Signal::KILL),
        _ => Ok(()),
    }
}

pub(super) fn heal_driver(fault: Fault, state: &StateDir) -> Result<()> {
    match fault {
        Fault::DriverFrozen => signal_driver(state, Signal::CONT),
        _ => Ok(()),
    }
}

fn signal_driver(state: &StateDir, signal: Signal) -> Result<()> {
    let locks = fs::read_to_string("/proc/locks").map_err(Error::io("read /proc/locks"))?;
    let mut drivers = BTreeSet::new();
    for service in ["controller", "node"] {
        let Ok(lock) = fs::metadata(state.lock_file(service)) else { continue };
        drivers.extend(holder(&locks, lock.dev(), lock.ino()));
    }
    if drivers.is_empty() {
        let why = format_args!("no running driver serves {}", state.root().display()).to_string();
        return Err(Error::invalid("state_dir", why));
    }
    for pid in drivers.into_iter().filter_map(Pid::from_raw) {
        kill_process(pid, signal)
            .map_err(Error::io(format_args!("signal the driver with pid {}", pid.as_raw_nonzero())))?;
        if signal == Signal::STOP && !wait_until_stopped(pid.as_raw_nonzero().get(), FREEZES_WITHIN) {
            let why =
                format!("the driver with pid {} was sent a signal to stop and did not", pid.as_raw_nonzero());
            return Err(Error::invalid("state_dir", why));
        }
    }
    Ok(())
}

/// Who holds the lock on a file. A line is `1: FLOCK ADVISORY WRITE 708 fe:00:1234 0 EOF`.
fn holder(locks: &str, device: u64, inode: u64) -> Option<i32> {
    let file = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, _, pid, on, ..] if on == file => pid.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 fe:00:9 0 EOF\n2: FLOCK  ADVISORY  WRITE 708 fe:00:9 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 709 fe:00:9 0 EOF\n3: FLOCK  ADVISORY  WRITE 7 08:10:99 0 EOF\n";
        let device = |major, minor| rustix::fs::makedev(major, minor);
        assert_eq!(holder(locks, device(0xfe, 0), 9), Some(708));
        assert_eq!(holder(locks, device(8, 16), 99), Some(7));
        assert_eq!(holder(locks, device(8, 16), 9), None);
        assert_eq!(holder("odd\n\n", device(8, 16), 9), None);
    }
}
