//! Times between the kernel's form and the standard library's, before and after 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::TimeOrNow;
use rustix::fs::{Timespec, UTIME_NOW, UTIME_OMIT};

pub(super) fn system_time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let fraction = Duration::from_nanos(nanoseconds);
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second = if seconds >= 0 { UNIX_EPOCH.checked_add(whole) } else { UNIX_EPOCH.checked_sub(whole) };
    second.and_then(|second| second.checked_add(fraction)).unwrap_or(UNIX_EPOCH)
}

/// What `utimensat` takes; nothing said leaves the time alone.
pub(super) fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timespec {
                tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: after.subsec_nanos().into(),
            },
            Err(before) => {
                let before = before.duration();
                let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
                match before.subsec_nanos() {
                    0 => Timespec { tv_sec: seconds, tv_nsec: 0 },
                    nanos => Timespec { tv_sec: seconds - 1, tv_nsec: (1_000_000_000 - nanos).into() },
                }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        for (seconds, nanos) in [(0, 0), (1_700_000_000, 5), (-1, 500_000_000), (-1_000, 0), (-7, 1)] {
            let spec = timespec(Some(TimeOrNow::SpecificTime(system_time(seconds, nanos))));
            assert_eq!((spec.tv_sec, u64::try_from(spec.tv_nsec).unwrap()), (seconds, nanos));
        }
    }
}
