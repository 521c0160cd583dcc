//! What it means when a volume answers with an error, or not at all.

use std::time::Duration;

use volmedic_health::{NotProbed, WellKnown};
use volmedic_host::helper::HelperError;

use super::findings::Finding;
use super::text;

/// What is known about the volume besides that it failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances<'a> {
    /// Where, in words.
    pub(super) place: &'a str,
    /// Of what is mounted there; empty of a raw device.
    pub(super) fs_type: &'a str,
    /// Something is mounted there, whatever it is.
    pub(super) mounted: bool,
    /// It answered us before.
    pub(super) answered: bool,
    /// For how long it has not answered, this time included.
    pub(super) silent: Duration,
    /// Its device answered others while we waited.
    pub(super) busy: bool,
    /// Requests that its FUSE server has not answered.
    pub(super) waiting: Option<u64>,
}

/// A disk that answers others may keep us waiting for so long before we call that a hang.
const BUSY_FOR: Duration = Duration::from_mins(1);

impl Circumstances<'_> {
    fn is_given_time(&self) -> bool {
        self.busy && self.silent < BUSY_FOR
    }
}

/// What a failed look came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// Something is wrong with the volume.
    Trouble(Finding),
    /// It is not there after all. The mount table said it was, so somebody is at work there.
    NotThere(Finding),
    /// Nothing was learnt about it, and why.
    Unknown(NotProbed, String),
    /// It can never be asked by us, and why. That is no trouble of its own.
    Closed(NotProbed, String),
}

pub(super) fn judge(error: &HelperError, about: Circumstances<'_>) -> Failure {
    let place = about.place;
    match error {
        HelperError::Failed { step, errno, .. } => failed(step, *errno, about),
        // The machine was too slow to even start asking.
        HelperError::Hung { step, after, .. } if step == "starting the helper" => Failure::Unknown(
            NotProbed::NoHelper,
            format!(
                "the helper for {place} did not start within {}; the machine is overloaded",
                text::seconds(*after)
            ),
        ),
        HelperError::Hung { step, after, .. } => {
            let message = format!("{step} on {place} did not come back within {}", text::seconds(*after));
            hung(&message, about)
        }
        HelperError::Slow { step, after, call, .. } => {
            let message = format!(
                "the check of {place} did not end within {} although no call took {}; the last call was {step}",
                text::seconds(*after),
                text::seconds(*call)
            );
            slow(&message, about)
        }
        HelperError::StillHung { since, .. } => hung(
            &format!(
                "the probe of {place} has not come back for {} and cannot be ended",
                text::seconds(*since)
            ),
            about,
        ),
        HelperError::Full { .. } | HelperError::TooManyStuck { .. } | HelperError::NotStarted { .. } => {
            Failure::Unknown(NotProbed::NoHelper, error.to_string())
        }
        HelperError::Busy { .. } | HelperError::Garbled { .. } => {
            Failure::Unknown(NotProbed::ProbeFailed, error.to_string())
        }
    }
}

/// It answers, so it is not hung, however long it takes.
fn slow(message: &str, about: Circumstances<'_>) -> Failure {
    if about.is_given_time() {
        let why = format!("{message}; its device is busy answering others");
        return Failure::Unknown(NotProbed::ProbeFailed, why);
    }
    Failure::Trouble(Finding::degraded(WellKnown::SlowIO, message))
}

fn hung(message: &str, about: Circumstances<'_>) -> Failure {
    if about.is_given_time() {
        let why = format!("{message}, but its device is busy answering others");
        return Failure::Unknown(NotProbed::ProbeFailed, why);
    }
    let waiting = about.waiting.filter(|waiting| *waiting > 0);
    let waiting =
        waiting.map_or_else(String::new, |waiting| format!("; {waiting} requests wait for its FUSE server"));
    Failure::Trouble(Finding::inaccessible(WellKnown::IOHung, format!("{message}{waiting}")))
}

fn failed(step: &str, errno: i32, about: Circumstances<'_>) -> Failure {
    let message = format!("{step} on {} failed: {}", about.place, text::errno(errno));
    match errno {
        // Ours or the machine's.
        libc::EINTR | libc::EAGAIN | libc::ENOMEM | libc::ENFILE | libc::EMFILE => {
            Failure::Unknown(NotProbed::ProbeFailed, message)
        }
        // A server that lets no stranger in, root or not, serves its users all the same. Only who was let in before and
        // is not any more has something to report.
        libc::EACCES | libc::EPERM if !about.answered => {
            let is_raw = about.fs_type.is_empty();
            let why = if is_raw { NotProbed::OnlyDeviceState } else { NotProbed::AccessDenied };
            Failure::Closed(why, format!("{message}; only what can be seen from outside is checked"))
        }
        // The place itself is not what it should be, rather than what is mounted there.
        libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENOTBLK => {
            Failure::NotThere(Finding::inaccessible(
                if about.mounted { WellKnown::WrongMount } else { WellKnown::VolumeUnmounted },
                message,
            ))
        }
        _ => Failure::Trouble(Finding::inaccessible(reason_of(errno, about.fs_type), message)),
    }
}

/// We look as root and only read, so each of these says something about the volume.
fn reason_of(errno: i32, fs_type: &str) -> WellKnown {
    let fuse = fs_type == "fuse" || fs_type == "fuseblk" || fs_type.starts_with("fuse.");
    match errno {
        libc::ENOTCONN | libc::ECONNABORTED if fuse => WellKnown::MounterDead,
        libc::ESTALE => WellKnown::StaleHandle,
        libc::ENOTCONN
        | libc::ECONNABORTED
        | libc::ECONNRESET
        | libc::ECONNREFUSED
        | libc::EHOSTDOWN
        | libc::EHOSTUNREACH
        | libc::ENETUNREACH
        | libc::ENETDOWN
        | libc::ENETRESET
        | libc::ETIMEDOUT
        | libc::ENOLINK => WellKnown::NetworkError,
        libc::EACCES | libc::EPERM | libc::EKEYREJECTED | libc::EKEYEXPIRED | libc::EKEYREVOKED => {
            WellKnown::ConfigError
        }
        libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM => WellKnown::DiskRemoved,
        // How ext4, xfs and btrfs say "corrupted" and "bad checksum".
        libc::EUCLEAN | libc::EBADMSG => WellKnown::FilesystemCorruption,
        libc::ESHUTDOWN => WellKnown::FilesystemShutdown,
        _ => WellKnown::RWIOError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIVE: Duration = Duration::from_secs(5);

    fn about(fs_type: &str) -> Circumstances<'_> {
        Circumstances {
            place: "/t of pod shop/web-0",
            fs_type,
            mounted: !fs_type.is_empty(),
            answered: true,
            silent: FIVE,
            busy: false,
            waiting: None,
        }
    }

    fn shown(failure: &Failure) -> String {
        match failure {
            Failure::Trouble(found) => format!("{}/{}", found.status, found.reason),
            Failure::NotThere(found) => format!("not there: {}", found.reason),
            Failure::Unknown(..) => "unknown".to_owned(),
            Failure::Closed(..) => "closed".to_owned(),
        }
    }

    #[track_caller]
    fn check(errno: i32, fs_type: &str, expected: &str) {
        let error = HelperError::Failed { step: "open".into(), path: "/t".into(), errno };
        assert_eq!(shown(&judge(&error, about(fs_type))), expected, "{}", text::errno(errno));
    }

    #[test]
    fn error_numbers_become_reasons() {
        check(libc::ENOTCONN, "fuse.sshfs", "Inaccessible/MounterDead");
        check(libc::ENOTCONN, "cifs", "Inaccessible/NetworkError");
        check(libc::ESTALE, "nfs4", "Inaccessible/StaleHandle");
        check(libc::EHOSTDOWN, "cifs", "Inaccessible/NetworkError");
        check(libc::ETIMEDOUT, "nfs", "Inaccessible/NetworkError");
        check(libc::EACCES, "nfs", "Inaccessible/ConfigError");
        check(libc::ENODEV, "ext4", "Inaccessible/DiskRemoved");
        check(libc::ENXIO, "", "Inaccessible/DiskRemoved");
        check(libc::EUCLEAN, "xfs", "Inaccessible/FilesystemCorruption");
        check(libc::EIO, "xfs", "Inaccessible/RWIOError");
        check(4000, "ext4", "Inaccessible/RWIOError");
        check(libc::ENOENT, "ext4", "not there: WrongMount");
        check(libc::ENOTBLK, "", "not there: VolumeUnmounted");
        check(libc::ENOMEM, "ext4", "unknown");
    }

    #[test]
    fn something_else_over_a_raw_device_is_no_missing_mount() {
        let error = HelperError::Failed { step: "stat".into(), path: "/t".into(), errno: libc::ENOTBLK };
        let failure = judge(&error, Circumstances { mounted: true, ..about("") });
        assert_eq!(shown(&failure), "not there: WrongMount");
    }

    #[test]
    fn a_server_that_never_let_us_in_is_not_unhealthy() {
        let error = HelperError::Failed { step: "open".into(), path: "/t".into(), errno: libc::EACCES };
        let failure = judge(&error, Circumstances { answered: false, ..about("nfs") });
        assert!(
            matches!(&failure, Failure::Closed(NotProbed::AccessDenied, why) if why.contains("EACCES")),
            "{failure:?}"
        );
    }

    #[test]
    fn a_hang_is_reported_with_its_evidence() {
        let hung = HelperError::Hung { step: "statfs".into(), path: "/t".into(), after: FIVE };
        let Failure::Trouble(found) = judge(&hung, Circumstances { waiting: Some(3), ..about("fuse") })
        else {
            panic!("a hang is trouble")
        };
        assert_eq!(
            found.message,
            "statfs on /t of pod shop/web-0 did not come back within 5 s; 3 requests wait for its FUSE server"
        );
        let still = HelperError::StillHung { path: "/t".into(), since: FIVE * 5 };
        let Failure::Trouble(found) = judge(&still, about("fuse")) else { panic!("still trouble") };
        assert!(found.message.contains("has not come back for 25 s"), "{}", found.message);
    }

    #[test]
    fn a_volume_that_answers_each_call_is_slow_and_never_hung() {
        let slow =
            HelperError::Slow { step: "readdir".into(), path: "/t".into(), after: FIVE * 3, call: FIVE };
        assert!(!slow.is_hang() && slow.is_about_the_volume());
        let Failure::Trouble(found) = judge(&slow, about("fuse")) else {
            panic!("a slow volume is reported")
        };
        assert_eq!(
            format!("{}/{} {}", found.status, found.reason, found.message),
            "Degraded/SlowIO the check of /t of pod shop/web-0 did not end within 15 s although no call took 5 s; \
             the last call was readdir"
        );
        assert_eq!(shown(&judge(&slow, Circumstances { busy: true, ..about("ext4") })), "unknown");
    }

    #[test]
    fn a_busy_disk_is_given_time() {
        let hung = HelperError::Hung { step: "readdir".into(), path: "/t".into(), after: FIVE };
        let busy = Circumstances { busy: true, ..about("ext4") };
        assert_eq!(shown(&judge(&hung, busy)), "unknown");
        assert_eq!(shown(&judge(&hung, Circumstances { silent: BUSY_FOR, ..busy })), "Inaccessible/IOHung");
    }

    #[test]
    fn our_own_trouble_says_nothing_about_the_volume() {
        for ours in [
            HelperError::Busy { key: "v".into() },
            HelperError::Full { limit: 1, waited: FIVE },
            HelperError::TooManyStuck { limit: 1 },
            HelperError::Garbled { said: String::new() },
            HelperError::Hung { step: "starting the helper".into(), path: "/t".into(), after: FIVE },
        ] {
            assert_eq!(shown(&judge(&ours, about("ext4"))), "unknown", "{ours}");
        }
    }
}
