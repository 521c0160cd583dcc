//! Who a process is: a number alone is reused by the kernel, a number and a start time are not.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

/// One process of the running system. Means nothing after a reboot: keep [`boot`] beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// In clock ticks since boot, as the kernel keeps it.
    started: u64,
}

impl Identity {
    /// The process that has this number now; a dead one that nobody has waited for yet counts too.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        stat(pid).map(|(_, started)| Self { pid, started })
    }

    /// Whether it still runs. A zombie does not, unless threads of it do: then its files and sockets are still open.
    pub(crate) fn alive(self) -> bool {
        let Some((state, started)) = stat(self.pid) else { return false };
        let threads = || fs::read_dir(format!("/proc/{}/task", self.pid)).map_or(0, Iterator::count);
        started == self.started && (!matches!(state, 'Z' | 'X') || threads() > 1)
    }

    /// Sends `signal` to exactly this process; `false` when it is gone.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<bool> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(false) };
        // The descriptor pins the process that has the number now; only then is it worth asking who that is.
        let pinned = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pinned) => pinned,
            Err(Errno::SRCH) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        if !self.alive() {
            return Ok(false);
        }
        match rustix::process::pidfd_send_signal(pinned, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Distinguishes one run of the kernel from the next.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Every process that can be seen.
pub(crate) fn every() -> Vec<Identity> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Identity::of).collect()
}

/// State letter and start time.
fn stat(pid: u32) -> Option<(char, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The second field is the program's name in parentheses and may hold anything, so counting starts after the last `)`.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        for name in ["(sleep)", "(a b) c)", "(x) S 9 9)"] {
            assert_eq!(parse_stat(&format!("7 {name} {rest}")), Some(('S', 4242)), "{name}");
        }
        assert_eq!(parse_stat("7 (sleep"), None);
        assert_eq!(parse_stat("7 (sleep) S 1 2"), None);
    }

    #[test]
    fn another_start_time_is_another_process_and_gets_no_signal() {
        let me = Identity::of(std::process::id()).unwrap();
        assert!(me.alive());
        let former = Identity { started: me.started + 1, ..me };
        assert!(!former.alive());
        assert!(!former.signal(Signal::KILL).unwrap());
        assert!(every().contains(&me));
    }
}
