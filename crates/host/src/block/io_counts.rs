//! How many requests a device has, and how many it has answered.

use std::io;
use std::path::Path;

use super::{Sysfs, read_line};
use crate::DeviceNumber;

/// The requests of a device at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoCounts {
    /// Given to the device and not answered.
    pub in_flight: u64,
    /// Answered since the device came: reads, writes, discards and flushes.
    pub completed: u64,
}

impl IoCounts {
    /// Whether requests were waiting then, are waiting now, and none was answered in between. A busy device that
    /// works is not stalled, however long its queue is.
    pub fn is_stalled_since(self, earlier: Self) -> bool {
        self.in_flight > 0 && earlier.in_flight > 0 && self.completed == earlier.completed
    }

    /// From the line of `stat`: reads completed is the 1st number, writes the 5th, then requests in flight the 9th,
    /// and on newer kernels discards the 12th and flushes the 16th.
    fn from_stat(line: &str) -> Option<Self> {
        let numbers: Vec<u64> =
            line.split_ascii_whitespace().take(32).map_while(|number| number.parse().ok()).collect();
        let (&reads, &writes, &in_flight) = (numbers.first()?, numbers.get(4)?, numbers.get(8)?);
        let newer = [11, 15].into_iter().filter_map(|at| numbers.get(at).copied());
        Some(Self { in_flight, completed: newer.fold(reads.saturating_add(writes), u64::saturating_add) })
    }
}

impl Sysfs {
    /// The requests of the device with this number, or `None` when there is none (any more) or it does not count.
    pub fn io_counts(&self, number: DeviceNumber) -> io::Result<Option<IoCounts>> {
        let folder = self.path(format!("dev/block/{number}"));
        let Some(stat) = read_line(&folder.join("stat"))? else { return Ok(None) };
        let counts = IoCounts::from_stat(&stat);
        // `inflight` is counted where the requests are, `stat` at times only on demand; the larger one is right.
        let now = read_line(&folder.join(Path::new("inflight")))?;
        let in_flight = now.map_or(0, |line| {
            line.split_ascii_whitespace()
                .filter_map(|number| number.parse::<u64>().ok())
                .fold(0, u64::saturating_add)
        });
        Ok(counts.map(|counts| IoCounts { in_flight: counts.in_flight.max(in_flight), ..counts }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_line_is_survived(line in "[0-9 a-z.-]{0,400}") {
            let _ = IoCounts::from_stat(&line);
        }

        #[test]
        fn numbers_of_any_size_are_added(numbers in proptest::collection::vec(any::<u64>(), 9..40)) {
            let line: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            let counts = IoCounts::from_stat(&line.join(" "));
            prop_assert_eq!(counts.map(|counts| counts.in_flight), Some(numbers[8]));
        }
    }

    #[test]
    fn the_line_of_each_kernel_is_read() {
        let old = "  10 1 80 5  20 2 160 6  3 11 12";
        let with_discards = format!("{old} 4 0 0 0");
        let newest = format!("{with_discards} 5 0");
        for (line, completed) in [(old, 30), (&with_discards, 34), (&newest, 39)] {
            assert_eq!(IoCounts::from_stat(line), Some(IoCounts { in_flight: 3, completed }), "{line}");
        }
        for line in ["", "1 2 3", "a b c d e f g h i", "1 2 3 4 -5 6 7 8 9"] {
            assert_eq!(IoCounts::from_stat(line), None, "{line:?}");
        }
    }

    #[test]
    fn only_waiting_without_an_answer_is_a_stall() {
        let counts = |in_flight, completed| IoCounts { in_flight, completed };
        assert!(counts(2, 7).is_stalled_since(counts(1, 7)));
        assert!(!counts(2, 8).is_stalled_since(counts(1, 7)), "one was answered");
        assert!(!counts(2, 7).is_stalled_since(counts(0, 7)), "they only just came");
        assert!(!counts(0, 7).is_stalled_since(counts(1, 7)));
    }
}
