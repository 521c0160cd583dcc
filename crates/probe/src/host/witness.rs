//! What speaks for what was found: the facts behind it, as lines, as they were when the trouble began. They stay as they
//! are until it is other trouble: a counter that goes on counting is no news.

use serde::{Deserialize, Serialize};
use volmedic_host::block::{Device, IoCounts};
use volmedic_host::mounts::Mount;

use super::findings::{Check, Finding};
use super::memory::{Errors, Memory};
use super::text;

/// Lines that are kept of one volume, and the bytes of each.
const MOST: usize = 8;
const LONGEST: usize = 480;

/// The facts of one look.
pub(super) struct Facts<'a> {
    pub(super) mount: Option<Mount<'a>>,
    /// The device under it, and all that it stands on.
    pub(super) stack: &'a [Device],
    pub(super) io: Option<IoCounts>,
    /// The name of what the file system counts errors on, and how many there are.
    pub(super) counted: Option<(&'a str, Errors)>,
}

/// What was found last, and the lines that speak for it. A restart goes on with it: that the agent was away is no news
/// of the volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Witness {
    pub of: Vec<String>,
    /// Whether the kernel's words are among the lines.
    pub kernel: bool,
    pub lines: Vec<String>,
}

impl Memory {
    /// Gathers again when something else is wrong than before, or the kernel has said something at last.
    pub(super) fn call_witness(&mut self, reported: &[Finding], facts: &Facts<'_>) {
        let of: Vec<_> = reported.iter().map(|found| format!("{}/{}", found.status, found.reason)).collect();
        let kernel = self.baseline.kernel_said.is_some();
        let before = &self.baseline.witness;
        if of != before.of || kernel != before.kernel {
            let lines = if of.is_empty() { Vec::new() } else { self.lines(facts) };
            self.baseline.witness = Witness { of, kernel, lines };
        }
    }

    fn lines(&self, facts: &Facts<'_>) -> Vec<String> {
        let Facts { mount, stack, io, counted } = facts;
        let mut lines: Vec<String> = Vec::new();
        lines.extend(self.baseline.kernel_said.iter().map(|said| format!("the kernel said: {said}")));
        lines.extend(self.found(Check::Answers).iter().map(|found| format!("asked: {}", found.message)));
        if let Some((name, now)) = counted
            && let Some(before) = self.baseline.errors
            && now != &before
        {
            lines.push(format!(
                "counted on {name}: {} damaged and {} failed, {} and {} when it was well",
                now.damaged, now.failed, before.damaged, before.failed
            ));
        }
        if let Some(io) = io.filter(|io| io.in_flight > 0)
            && !(self.found(Check::Stalled).is_empty() && self.found(Check::Answers).is_empty())
        {
            lines.push(format!("in flight: {} requests that the device has not answered", io.in_flight));
        }
        lines.extend(mount.iter().map(|mount| {
            let options =
                [mount.options(), mount.super_options()].map(|all| text::name(all.as_os_str().display()));
            format!(
                "mounted: {} on {}, {}, {} over {}",
                text::name(mount.source().display()),
                text::path(mount.target()),
                text::name(mount.fs_type().display()),
                options[0],
                options[1]
            )
        }));
        if !self.found(Check::Device).is_empty() {
            lines.extend(stack.iter().map(|device| {
                let state = device
                    .state
                    .as_ref()
                    .map_or_else(String::new, |state| format!(", {}", text::name(state)));
                let read_only = if device.read_only { ", read-only" } else { "" };
                format!("device: {}, {} bytes{state}{read_only}", text::name(&device.name), device.bytes)
            }));
        }
        lines.truncate(MOST);
        for line in &mut lines {
            line.truncate(line.floor_char_boundary(LONGEST));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use volmedic_health::WellKnown;

    use super::super::findings::Verdict;
    use super::*;

    fn facts(damaged: u64) -> Facts<'static> {
        let io = Some(IoCounts { in_flight: 2, completed: 7 });
        Facts { mount: None, stack: &[], io, counted: Some(("loop3", Errors { damaged, failed: 0 })) }
    }

    #[test]
    fn what_speaks_for_trouble_stays_as_it_was_when_it_began() {
        let mut memory = Memory::default();
        memory.baseline.errors = Some(Errors::default());
        memory.call_witness(&[], &facts(0));
        assert!(memory.baseline.witness.lines.is_empty(), "nothing is wrong");
        let failed = Finding::degraded(WellKnown::RWIOError, "statfs: EIO");
        memory.record(Check::Answers, Verdict::Seen(vec![failed.clone()]));
        memory.call_witness(std::slice::from_ref(&failed), &facts(3));
        let begun = [
            "asked: statfs: EIO",
            "counted on loop3: 3 damaged and 0 failed, 0 and 0 when it was well",
            "in flight: 2 requests that the device has not answered",
        ];
        assert_eq!(memory.baseline.witness.lines, begun);
        memory.call_witness(std::slice::from_ref(&failed), &facts(99));
        assert_eq!(memory.baseline.witness.lines, begun, "it goes on, which is no news");
        memory.baseline.kernel_said = Some("loop3: odd".to_owned());
        memory.call_witness(std::slice::from_ref(&failed), &facts(99));
        assert_eq!(memory.baseline.witness.lines[0], "the kernel said: loop3: odd");
        memory.record(Check::Answers, Verdict::fine());
        memory.call_witness(&[], &facts(99));
        assert!(memory.baseline.witness.lines.is_empty(), "it is over");
    }

    #[test]
    fn however_much_there_is_to_say_it_stays_short() {
        let mut memory = Memory::default();
        let long = Finding::degraded(WellKnown::RWIOError, "ü".repeat(2_000));
        memory.record(Check::Answers, Verdict::Seen(vec![long.clone(); 50]));
        memory.call_witness(&[long], &facts(0));
        assert_eq!(memory.baseline.witness.lines.len(), MOST);
        assert!(memory.baseline.witness.lines.iter().all(|line| line.len() <= LONGEST));
    }
}
