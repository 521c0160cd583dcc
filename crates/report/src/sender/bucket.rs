//! How fast requests may follow each other.

use std::time::{Duration, Instant};

/// Tokens drip in at a rate up to a capacity; each request takes one. Taking one that is not there yet reserves it
/// and says how long to wait, so that waiters are served in the order they came.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: f64,
    capacity: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub(super) fn new(rate: f64, capacity: f64, now: Instant) -> Self {
        Self { rate, capacity, tokens: capacity, at: now }
    }

    pub(super) fn take(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate).min(self.capacity) - 1.0;
        self.at = self.at.max(now);
        if self.tokens >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-self.tokens / self.rate) }
    }
}

/// Two buckets. Over time no more than `qps` requests a second are made, and never more than `burst` concurrently. What
/// was not used in the last minute may be used up three times as fast, so that a thousand volumes that fail after a
/// quiet hour are reported within seconds.
#[derive(Debug)]
pub(super) struct Pace {
    average: Bucket,
    peak: Bucket,
}

/// A fault that ends within seconds is reported at the same speed as it began. At the default rate, a thousand failures and
/// their recoveries are 4,000 requests: an event and a stored state of each. Savings of 3,000, with the 50 a second that are
/// added during the half minute this takes, are just enough. The load that the API server gets in one second is set by
/// `PEAK`, not by this.
const SAVED_SECONDS: f64 = 60.0;
const PEAK: f64 = 3.0;

impl Pace {
    pub(super) fn new(qps: f64, burst: f64, now: Instant) -> Self {
        let qps = if qps.is_finite() && qps > 0.0 { qps } else { f64::MIN_POSITIVE.max(1e-3) };
        let burst = burst.max(1.0);
        Self {
            average: Bucket::new(qps, burst.max(qps * SAVED_SECONDS), now),
            peak: Bucket::new(qps * PEAK, burst, now),
        }
    }

    pub(super) fn take(&mut self, now: Instant) -> Duration {
        self.average.take(now).max(self.peak.take(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the n-th of requests that come together may go.
    fn nth(qps: f64, burst: f64, n: usize) -> f64 {
        let now = Instant::now();
        let mut pace = Pace::new(qps, burst, now);
        (0..n).map(|_| pace.take(now)).last().unwrap_or_default().as_secs_f64()
    }

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 0.05, "{found} is not {expected}");
    }

    #[test]
    fn a_burst_goes_immediately_then_savings_fast_then_the_average() {
        near(nth(50.0, 100.0, 100), 0.0);
        near(nth(50.0, 100.0, 1_000), 6.0);
        // 3,000 are saved, and 50 a second are added to them: they last until the two lines cross.
        near(nth(50.0, 100.0, 4_000), 26.0);
        near(nth(50.0, 100.0, 4_450), 29.0);
        near(nth(50.0, 100.0, 5_000), 40.0);
        near(nth(5.0, 10.0, 10), 0.0);
        near(nth(5.0, 10.0, 100), 6.0);
        near(nth(5.0, 10.0, 400), 26.0);
        near(nth(5.0, 10.0, 500), 40.0);
    }

    #[test]
    fn over_a_long_time_the_average_holds() {
        let start = Instant::now();
        let mut pace = Pace::new(50.0, 100.0, start);
        let mut now = start;
        let mut sent = 0;
        while now < start + Duration::from_mins(10) {
            now += pace.take(now);
            sent += 1;
        }
        assert!(sent < 600 * 50 + 3_100, "{sent} in ten minutes");
    }

    #[test]
    fn savings_come_back_with_rest() {
        let start = Instant::now();
        let mut pace = Pace::new(50.0, 100.0, start);
        // The savings are used up, and the last of these may go after 29 s.
        for _ in 0..4_450 {
            pace.take(start);
        }
        let rested = start + Duration::from_mins(1);
        let waits: Vec<Duration> = (0..100).map(|_| pace.take(rested)).collect();
        assert!(waits.iter().all(Duration::is_zero), "{waits:?}");
    }

    #[test]
    fn nonsense_does_not_stop_the_clock() {
        for qps in [0.0, -1.0, f64::NAN] {
            assert!(nth(qps, 0.0, 1) < 1e6);
        }
    }
}
