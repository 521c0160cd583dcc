//! One look per volume at a time; whoever comes meanwhile shares its result.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The looks under way.
#[derive(Debug)]
pub(super) struct Flights<T> {
    open: Mutex<HashMap<String, Arc<Flight<T>>>>,
}

#[derive(Debug)]
struct Flight<T> {
    landed: Mutex<Landing<T>>,
    told: Condvar,
}

#[derive(Debug)]
enum Landing<T> {
    InTheAir,
    Landed(T),
    /// Whoever flew it panicked.
    Lost,
}

impl<T: Clone> Flights<T> {
    pub(super) fn new() -> Self {
        Self { open: Mutex::default() }
    }

    /// Does `act` unless somebody already does it for the same key; then waits for that result, at most for
    /// `patience`. `None` when the wait was in vain.
    pub(super) fn share(&self, key: &str, patience: Duration, act: impl FnOnce() -> T) -> Option<T> {
        let (flight, mine) = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            match open.get(key) {
                Some(flight) => (flight.clone(), false),
                None => {
                    let flight =
                        Arc::new(Flight { landed: Mutex::new(Landing::InTheAir), told: Condvar::new() });
                    open.insert(key.to_owned(), flight.clone());
                    (flight, true)
                }
            }
        };
        if !mine {
            return flight.wait(patience);
        }
        let mut pilot = Pilot { flights: self, key, flight: &flight, result: Landing::Lost };
        let result = act();
        pilot.result = Landing::Landed(result.clone());
        Some(result)
    }
}

impl<T: Clone> Flight<T> {
    fn wait(&self, patience: Duration) -> Option<T> {
        let end = Instant::now() + patience;
        let mut landed = self.landed.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*landed {
                Landing::Landed(result) => return Some(result.clone()),
                Landing::Lost => return None,
                Landing::InTheAir => {}
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            landed = self.told.wait_timeout(landed, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Tells those who wait, also when the work panics.
struct Pilot<'f, T> {
    flights: &'f Flights<T>,
    key: &'f str,
    flight: &'f Flight<T>,
    result: Landing<T>,
}

impl<T> Drop for Pilot<'_, T> {
    fn drop(&mut self) {
        // Closed before told: a caller that comes in between starts a new look rather than get an old result.
        self.flights.open.lock().unwrap_or_else(PoisonError::into_inner).remove(self.key);
        let result = std::mem::replace(&mut self.result, Landing::Lost);
        *self.flight.landed.lock().unwrap_or_else(PoisonError::into_inner) = result;
        self.flight.told.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn whoever_comes_meanwhile_shares_the_result_and_whoever_comes_later_does_not() {
        let flights = Flights::new();
        let [entered, release] = [Barrier::new(2), Barrier::new(2)];
        let acts = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                flights.share("v", LONG, || {
                    entered.wait();
                    release.wait();
                    acts.fetch_add(1, Ordering::SeqCst) + 1
                })
            });
            entered.wait();
            let sharers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| flights.share("v", LONG, || unreachable!("shared")))).collect();
            assert_eq!(
                flights.share("v", Duration::from_millis(1), || unreachable!("shared")),
                None,
                "no more patience"
            );
            assert_eq!(flights.share("other", LONG, || 77), Some(77), "another volume is not held up");
            // The sharers hold the flight besides the map, its pilot and nobody else.
            while Arc::strong_count(&flights.open.lock().unwrap()["v"]) < 2 + sharers.len() {
                std::thread::yield_now();
            }
            release.wait();
            assert_eq!(first.join().unwrap(), Some(1));
            for sharer in sharers {
                assert_eq!(sharer.join().unwrap(), Some(1));
            }
        });
        assert_eq!(flights.share("v", LONG, || 2), Some(2));
    }

    #[test]
    fn a_panic_strands_nobody() {
        let flights: Flights<u32> = Flights::new();
        let [entered, release] = [Barrier::new(2), Barrier::new(2)];
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                flights.share("v", LONG, || {
                    entered.wait();
                    release.wait();
                    panic!("on purpose")
                })
            });
            entered.wait();
            let sharer = scope.spawn(|| flights.share("v", LONG, || unreachable!("shared")));
            while Arc::strong_count(&flights.open.lock().unwrap()["v"]) < 3 {
                std::thread::yield_now();
            }
            release.wait();
            assert!(first.join().is_err());
            assert_eq!(sharer.join().unwrap(), None);
        });
        assert_eq!(flights.share("v", LONG, || 3), Some(3), "and the next look works");
    }
}
