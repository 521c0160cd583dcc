//! Do requests wait at the device, and does it answer none of them? A long queue that moves is only a busy disk.

use std::time::{Duration, Instant};

use volmedic_health::WellKnown;
use volmedic_host::block::IoCounts;

use super::findings::Finding;
use super::memory::Memory;
use super::text;

/// `pause` is the device's own word for letting nothing through.
pub(super) fn check(
    device: &str,
    counts: Option<IoCounts>,
    pause: Option<String>,
    memory: &mut Memory,
    now: Instant,
    after: Duration,
) -> Option<Finding> {
    let waiting = counts.filter(|counts| counts.in_flight > 0);
    let before = memory.progress.take();
    memory.progress = waiting.map(|counts| match before {
        Some((completed, since)) if completed == counts.completed => (completed, since),
        _ => (counts.completed, now),
    });
    // A device that answered something since is not paused all the time, only whenever we look.
    let moved = counts.zip(memory.paused_at).is_some_and(|(counts, completed)| counts.completed != completed);
    memory.paused_at = counts.map(|counts| counts.completed);
    let before = memory.paused.take().filter(|_| !moved);
    memory.paused = pause.map(|word| match before {
        Some((known, since)) if known == word => (known, since),
        _ => (word, now),
    });

    let lasts = |since: Instant| Some(now.saturating_duration_since(since)).filter(|lasted| *lasted >= after);
    if let (Some((_, since)), Some(counts)) = (memory.progress, waiting)
        && let Some(lasted) = lasts(since)
    {
        let message = format!(
            "{} requests wait at {} and none was answered for {}",
            counts.in_flight,
            text::name(device),
            text::seconds(lasted)
        );
        return Some(Finding::inaccessible(WellKnown::IOHung, message));
    }
    let (word, since) = memory.paused.as_ref()?;
    let lasted = lasts(*since)?;
    let message = format!("{word} and has been for {}", text::seconds(lasted));
    Some(Finding::inaccessible(WellKnown::IOHung, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(30);

    /// (second, in flight, completed, paused) in; whether it is reported out.
    #[track_caller]
    fn verdict(looks: &[(u64, u64, u64, bool)], expected: &[bool]) {
        let start = Instant::now();
        let mut memory = Memory::default();
        let mut look = |&(second, in_flight, completed, paused): &(u64, u64, u64, bool)| {
            let pause = paused.then(|| "sda is blocked".to_owned());
            let counts = Some(IoCounts { in_flight, completed });
            check("sda", counts, pause, &mut memory, start + Duration::from_secs(second), AFTER).is_some()
        };
        let reported: Vec<bool> = looks.iter().map(&mut look).collect();
        assert_eq!(reported, expected);
    }

    #[test]
    fn only_requests_that_wait_while_nothing_is_answered_are_reported() {
        verdict(&[(0, 2, 7, false), (29, 2, 7, false), (30, 3, 7, false)], &[false, false, true]);
        verdict(&[(0, 90, 7, false), (60, 99, 8, false), (120, 99, 9, false)], &[false; 3]);
        verdict(&[(0, 0, 7, false), (60, 0, 7, false), (90, 1, 7, false)], &[false; 3]);
        verdict(&[(0, 1, 7, false), (60, 1, 7, false), (90, 0, 8, false)], &[false, true, false]);
    }

    #[test]
    fn a_pause_is_reported_when_it_lasts_and_nothing_gets_through() {
        verdict(&[(0, 0, 7, true), (29, 0, 7, true), (30, 0, 7, true)], &[false, false, true]);
        verdict(&[(0, 0, 7, true), (60, 0, 8, true), (120, 0, 9, true)], &[false; 3]);
        verdict(&[(0, 0, 7, true), (30, 0, 7, false), (60, 0, 7, true)], &[false; 3]);
    }

    #[test]
    fn a_device_that_does_not_count_is_not_judged() {
        let mut memory = Memory::default();
        let start = Instant::now();
        for second in [0, 60] {
            let now = start + Duration::from_secs(second);
            assert_eq!(check("sda", None, None, &mut memory, now, AFTER), None);
        }
    }
}
