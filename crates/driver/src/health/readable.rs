//! What it means when a volume answers with an error, or not at all.

use volmedic_health::{Condition, Status, WellKnown};
use volmedic_host::helper::HelperError;

/// The condition behind a failed check, or `None` when the failure is not the volume's.
pub(super) fn condition(error: &HelperError) -> Option<Condition> {
    if !error.is_about_the_volume() {
        return None;
    }
    if matches!(error, HelperError::Slow { .. }) {
        return Some(Condition::new(Status::Degraded, WellKnown::SlowIO.into(), &error.to_string()));
    }
    let reason = error.errno().map_or(WellKnown::IOHung, reason_of);
    Some(Condition::new(Status::Inaccessible, reason.into(), &error.to_string()))
}

/// The check runs as root and only reads, so each of these says something about the volume.
fn reason_of(errno: i32) -> WellKnown {
    match errno {
        libc::ENOTCONN | libc::ECONNABORTED => WellKnown::MounterDead,
        libc::ESTALE => WellKnown::StaleHandle,
        libc::EHOSTDOWN | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN | libc::ETIMEDOUT => {
            WellKnown::NetworkError
        }
        // Root is let in everywhere but by a server that has shut us out.
        libc::EACCES | libc::EPERM | libc::EKEYREJECTED | libc::EKEYEXPIRED => WellKnown::ConfigError,
        libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM => WellKnown::DiskRemoved,
        libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENOTBLK => WellKnown::WrongMount,
        // EUCLEAN and EBADMSG are how ext4, xfs and btrfs say "corrupted" and "bad checksum".
        libc::EUCLEAN | libc::EBADMSG => WellKnown::FilesystemCorruption,
        libc::ESHUTDOWN => WellKnown::FilesystemShutdown,
        _ => WellKnown::RWIOError,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn failed(errno: i32) -> String {
        let error = HelperError::Failed { step: "open".into(), path: "/v".into(), errno };
        condition(&error).unwrap().to_string()
    }

    #[test]
    fn error_numbers_become_reasons() {
        assert_eq!(failed(libc::ENOTCONN), "Inaccessible/MounterDead");
        assert_eq!(failed(libc::ESTALE), "Inaccessible/StaleHandle");
        assert_eq!(failed(libc::EHOSTDOWN), "Inaccessible/NetworkError");
        assert_eq!(failed(libc::EACCES), "Inaccessible/ConfigError");
        assert_eq!(failed(libc::ENODEV), "Inaccessible/DiskRemoved");
        assert_eq!(failed(libc::EUCLEAN), "Inaccessible/FilesystemCorruption");
        assert_eq!(failed(libc::EIO), "Inaccessible/RWIOError");
        assert_eq!(failed(9999), "Inaccessible/RWIOError");
    }

    #[test]
    fn a_hang_is_reported_and_our_own_problem_is_not() {
        let hung =
            HelperError::Hung { step: "statfs".into(), path: "/v".into(), after: Duration::from_secs(5) };
        let hangs = condition(&hung).unwrap();
        assert_eq!(hangs.to_string(), "Inaccessible/IOHung");
        assert_eq!(&*hangs.message, "statfs on /v did not come back within 5.0 s");
        let [after, call] = [8, 5].map(Duration::from_secs);
        let slow = HelperError::Slow { step: "readdir".into(), path: "/v".into(), after, call };
        assert_eq!(condition(&slow).unwrap().to_string(), "Degraded/SlowIO");
        for ours in [
            HelperError::Busy { key: "v".into() },
            HelperError::Full { limit: 1, waited: Duration::ZERO },
            HelperError::TooManyStuck { limit: 1 },
            HelperError::Garbled { said: String::new() },
        ] {
            assert_eq!(condition(&ours), None, "{ours}");
        }
    }
}
