//! What the kernel said, put beside what was found. It never makes a finding.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use volmedic_health::WellKnown;
use volmedic_host::block::Device;
use volmedic_host::kernel_log::{Evidence, Line};

use super::findings::Finding;
use super::text;

/// What was said this long before trouble showed may still explain it.
const BEFORE: Duration = Duration::from_mins(2);

/// What was said about a volume's device before there was trouble, and so explains none.
///
/// Lines are distinguished by their numbers: the log's clock drifts away from every other one, and the name of a device is
/// given to others all the time.
#[derive(Debug)]
pub(super) struct Heard {
    device: String,
    /// Up to this line it is old.
    old: u64,
    /// Up to this line it will be, some time after.
    next: u64,
    at: Instant,
}

impl Heard {
    /// All that was said before the volume was on this device is about another one.
    pub(super) fn new(device: &str, lines: &[Arc<Line>], now: Instant) -> Self {
        let last = last(lines);
        Self { device: device.to_owned(), old: last, next: last, at: now }
    }

    pub(super) fn is_of(&self, device: &str) -> bool {
        self.device == device
    }

    /// Nothing is wrong, so what was said a while ago explains nothing.
    pub(super) fn all_is_healthy(&mut self, lines: &[Arc<Line>], now: Instant) {
        if now.saturating_duration_since(self.at) >= BEFORE {
            self.old = self.next;
            self.next = last(lines);
            self.at = now;
        }
    }

    /// The line that says most: the worst, and of equals the latest.
    pub(super) fn explanation(&self, lines: &[Arc<Line>]) -> Option<String> {
        let new = lines.iter().filter(|line| line.sequence > self.old);
        let worst = new.min_by_key(|line| (line.level, Reverse(line.sequence)))?;
        Some(text::name(&worst.text))
    }
}

fn last(lines: &[Arc<Line>]) -> u64 {
    lines.iter().map(|line| line.sequence).max().unwrap_or(0)
}

/// All that was said about these devices and this server.
pub(super) fn lines(evidence: &Evidence, devices: &[Device], server: Option<&str>) -> Vec<Arc<Line>> {
    let of_devices = devices.iter().flat_map(|device| evidence.of(device));
    let of_server = server.into_iter().flat_map(|server| evidence.of_server(server));
    of_devices.chain(of_server).collect()
}

/// Adds the line to what it may explain.
pub(super) fn add(finding: &mut Finding, said: &str) {
    if is_explained_by_the_kernel(finding.reason) {
        finding.message.push_str("; the kernel said: ");
        finding.message.push_str(said);
    }
}

pub(super) fn is_explained_by_the_kernel(reason: WellKnown) -> bool {
    use WellKnown as R;
    match reason {
        R::DiskFailure
        | R::DiskRemoved
        | R::DiskDegrading
        | R::NetworkError
        | R::RWIOError
        | R::ReadOnlyFilesystem
        | R::FilesystemCorruption
        | R::FilesystemShutdown
        | R::IOHung
        | R::SlowIO
        | R::StaleHandle => true,
        R::VolumeNotFound
        | R::OutOfCapacity
        | R::OutOfInodes
        | R::ConfigError
        | R::VolumeUnmounted
        | R::WrongMount
        | R::MounterDead
        | R::NotMounted
        | R::AttachFailed
        | R::AttachedElsewhere
        | R::DetachFailed
        | R::ProvisioningFailed
        | R::ResizeFailed
        | R::UnmountStuck
        | R::DriverNotRegistered
        | R::NodeDown
        | R::VolumeConditionAbnormal => false,
    }
}

#[cfg(test)]
mod tests {
    use volmedic_host::DeviceNumber;
    use volmedic_host::kernel_log::Record;

    use super::*;

    fn record(sequence: u64, level: u8, text: &str) -> Record {
        Record::parse(format!("{level},{sequence},1000,-;{text}\n").as_bytes()).unwrap()
    }

    fn loop3() -> Device {
        Device {
            name: "loop3".into(),
            number: DeviceNumber::new(7, 3),
            disk: "loop3".into(),
            attachments: Vec::new(),
            bytes: 1,
            read_only: false,
            state: None,
            paths: Vec::new(),
            mapper: None,
            backing: None,
            detaches_when_unused: false,
        }
    }

    #[test]
    fn the_worst_and_latest_new_line_about_the_device_explains_trouble() {
        let mut log = Evidence::default();
        let of_loop3 = |log: &Evidence| lines(log, &[loop3()], None);
        log.add(&record(1, 2, "EXT4-fs error (device loop3): of another time"));
        let start = Instant::now();
        let mut heard = Heard::new("loop3", &of_loop3(&log), start);
        assert_eq!(heard.explanation(&of_loop3(&log)), None, "that was about another loop3");
        log.add(&record(2, 3, "EXT4-fs error (device loop3): first"));
        log.add(&record(3, 3, "EXT4-fs error (device loop3): second"));
        log.add(&record(4, 4, "EXT4-fs warning (device loop3): mild"));
        log.add(&record(5, 2, "EXT4-fs error (device loop4): another"));
        let reported = Some("EXT4-fs error (device loop3): second".to_owned());
        assert_eq!(heard.explanation(&of_loop3(&log)), reported);
        // It explains trouble that shows a little later, but not for ever.
        heard.all_is_healthy(&of_loop3(&log), start + BEFORE);
        assert_eq!(heard.explanation(&of_loop3(&log)), reported);
        heard.all_is_healthy(&of_loop3(&log), start + BEFORE * 2);
        assert_eq!(heard.explanation(&of_loop3(&log)), None);
        assert!(heard.is_of("loop3") && !heard.is_of("loop4"));
    }

    #[test]
    fn only_what_the_kernel_may_explain_gets_its_words() {
        let mut full = Finding::degraded(WellKnown::OutOfCapacity, "full");
        add(&mut full, "loop3: odd");
        assert_eq!(full.message, "full");
        let mut failed = Finding::degraded(WellKnown::RWIOError, "failed");
        add(&mut failed, "loop3: odd");
        assert_eq!(failed.message, "failed; the kernel said: loop3: odd");
    }
}
