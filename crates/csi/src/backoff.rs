//! Waiting longer after each failure, up to a cap, with jitter.

use std::time::Duration;

/// Doubles from `first` to `cap`; each wait is between half of that and all of it.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap: cap.max(first), failures: 0 }
    }

    /// How long to wait after another failure.
    pub fn failed(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        let whole = doubled.min(self.cap);
        self.failures = self.failures.saturating_add(1);
        whole * (1024 + fastrand::u32(..1024)) / 2048
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_cap_with_jitter() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for whole in [100, 200, 400, 800, 1000, 1000, 1000] {
            let wait = backoff.failed();
            assert!(wait >= Duration::from_millis(whole / 2), "{wait:?} after {whole}");
            assert!(wait <= Duration::from_millis(whole), "{wait:?} after {whole}");
        }
        backoff.succeeded();
        assert!(backoff.failed() <= Duration::from_millis(100));
    }

    #[test]
    fn two_clients_do_not_wait_equally_long() {
        let waits = || {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
            (0..8).map(|_| backoff.failed()).collect::<Vec<_>>()
        };
        assert_ne!(waits(), waits());
    }

    #[test]
    fn never_overflows() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        for _ in 0..200 {
            assert!(backoff.failed() <= Duration::from_secs(30));
        }
    }
}
