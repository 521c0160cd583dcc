//! The one place with unsafe code: what must happen in a child between fork and exec.

#![allow(unsafe_code, reason = "std offers no safe way to run code between fork and exec")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

/// The child gets SIGKILL when the thread that starts it ends.
pub(super) fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let prepare = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above: then no signal will ever come.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::from(rustix::io::Errno::SRCH))
        }
    };
    // SAFETY: the closure makes system calls only; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// The child leaves the terminal and the process group of its parent.
pub(super) fn lead_new_session(command: &mut Command) {
    let prepare = || {
        rustix::process::setsid()?;
        Ok(())
    };
    // SAFETY: the closure makes one system call; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}
