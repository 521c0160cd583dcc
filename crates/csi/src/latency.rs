//! How long the latest calls of each kind took, for people. The histogram is for machines, and begins where people
//! already wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::method::Method;

/// Maximum number of calls of each kind that are remembered.
const LATEST: usize = 128;

/// How calls of one kind went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    pub method: Method,
    pub count: u64,
    /// Those that the driver does not have are not counted as failed.
    pub failed: u64,
    /// Of the latest calls.
    pub median: Duration,
    pub slowest: Duration,
}

/// Of all methods; there are few. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Arc<Mutex<BTreeMap<Method, Calls>>>);

#[derive(Debug, Default)]
struct Calls {
    count: u64,
    failed: u64,
    latest: VecDeque<Duration>,
}

impl Latencies {
    pub(crate) fn called(&self, method: Method, failed: bool, took: Duration) {
        let mut all = self.0.lock();
        let calls = all.entry(method).or_default();
        calls.count += 1;
        calls.failed += u64::from(failed);
        if calls.latest.len() == LATEST {
            calls.latest.pop_front();
        }
        calls.latest.push_back(took);
    }

    pub(crate) fn read(&self) -> Vec<Latency> {
        let all = self.0.lock();
        let latency = |(method, calls): (&Method, &Calls)| {
            let mut latest: Vec<Duration> = calls.latest.iter().copied().collect();
            latest.sort_unstable();
            Latency {
                method: *method,
                count: calls.count,
                failed: calls.failed,
                median: latest.get(latest.len() / 2).copied().unwrap_or_default(),
                slowest: latest.last().copied().unwrap_or_default(),
            }
        };
        all.iter().map(latency).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_calls_count_for_how_long_they_take() {
        let latencies = Latencies::default();
        latencies.called(Method::Probe, true, Duration::from_secs(99));
        for millis in 1..=128 {
            latencies.called(Method::Probe, false, Duration::from_millis(millis));
        }
        latencies.called(Method::ListVolumes, false, Duration::from_secs(1));
        let [list, probe] = <[Latency; 2]>::try_from(latencies.read()).unwrap();
        let (list, probe) = if list.method == Method::Probe { (probe, list) } else { (list, probe) };
        assert_eq!((list.count, list.failed, list.median), (1, 0, Duration::from_secs(1)));
        assert_eq!((probe.count, probe.failed), (129, 1));
        assert_eq!((probe.median, probe.slowest), (Duration::from_millis(65), Duration::from_millis(128)));
    }
}
