//! One check per volume at a time. A caller shares the result of another only if it is not older than its own question.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The checks under way.
#[derive(Debug)]
pub(super) struct Flights<T> {
    open: Mutex<HashMap<String, Arc<Flight<T>>>>,
}

#[derive(Debug)]
struct Flight<T> {
    /// The facts that it checks were read at this time.
    as_of: Instant,
    landed: Mutex<Landing<T>>,
    landing: Condvar,
}

#[derive(Debug)]
enum Landing<T> {
    InTheAir,
    Landed(T),
    /// The one that flew it panicked.
    Lost,
}

impl<T: Clone> Flights<T> {
    pub(super) fn new() -> Self {
        Self { open: Mutex::default() }
    }

    /// Does `act`, which checks the state of `as_of` or later, unless such a check is under way for the same
    /// key; then waits for that result. An older check is waited for and not shared: a caller that asks after a volume was
    /// healed must not get what was seen before. The argument of `act` is whether there was such a wait; then it must read the
    /// state again, so that all who waited share one check and none has to wait for every other. `None` when it is not over
    /// within `patience`, or was lost.
    pub(super) fn share(
        &self,
        key: &str,
        as_of: Instant,
        patience: Duration,
        act: impl FnOnce(bool) -> T,
    ) -> Option<T> {
        let end = Instant::now() + patience;
        let mut waited = false;
        let flight = loop {
            let flight = {
                let mut open = self.open.lock();
                match open.get(key) {
                    Some(flight) => flight.clone(),
                    None => {
                        let as_of = if waited { Instant::now() } else { as_of };
                        let landed = Mutex::new(Landing::InTheAir);
                        let flight = Arc::new(Flight { as_of, landed, landing: Condvar::new() });
                        open.insert(key.to_owned(), flight.clone());
                        break flight;
                    }
                }
            };
            let over = flight.wait(end)?;
            if flight.as_of >= as_of {
                return over;
            }
            waited = true;
        };
        let mut pilot = Pilot { flights: self, key, flight: &flight, result: Landing::Lost };
        let result = act(waited);
        pilot.result = Landing::Landed(result.clone());
        Some(result)
    }
}

impl<T: Clone> Flight<T> {
    /// Its result, if it has one. `None` when it is not over at `end`.
    #[expect(clippy::option_option, reason = "not over, and over without a result, are different")]
    fn wait(&self, end: Instant) -> Option<Option<T>> {
        let mut landed = self.landed.lock();
        loop {
            match &*landed {
                Landing::Landed(result) => return Some(Some(result.clone())),
                Landing::Lost => return Some(None),
                Landing::InTheAir => {}
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.landing.wait_for(&mut landed, left);
        }
    }
}

/// Wakes those that wait, also when the work panics.
struct Pilot<'f, T> {
    flights: &'f Flights<T>,
    key: &'f str,
    flight: &'f Flight<T>,
    result: Landing<T>,
}

impl<T> Drop for Pilot<'_, T> {
    fn drop(&mut self) {
        // Closed before those that wait are woken: a caller in between starts a new check rather than get an old result.
        self.flights.open.lock().remove(self.key);
        let result = std::mem::replace(&mut self.result, Landing::Lost);
        *self.flight.landed.lock() = result;
        self.flight.landing.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_mins(2);

    #[test]
    fn callers_with_the_same_or_an_older_question_share_the_result() {
        let (flights, now) = (Flights::new(), Instant::now());
        let [entered, release] = [Barrier::new(2), Barrier::new(2)];
        let acts = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                flights.share("v", now, LONG, |_| {
                    entered.wait();
                    release.wait();
                    acts.fetch_add(1, Ordering::SeqCst) + 1
                })
            });
            entered.wait();
            let sharers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| flights.share("v", now, LONG, |_| unreachable!("shared"))))
                .collect();
            assert_eq!(
                flights.share("v", now, Duration::from_millis(1), |_| unreachable!("shared")),
                None,
                "no more patience"
            );
            assert_eq!(flights.share("other", now, LONG, |_| 77), Some(77), "another volume is not held up");
            // The sharers hold the flight besides the map, and its pilot.
            while Arc::strong_count(&flights.open.lock()["v"]) < 2 + sharers.len() {
                std::thread::yield_now();
            }
            release.wait();
            assert_eq!(first.join().unwrap(), Some(1));
            for sharer in sharers {
                assert_eq!(sharer.join().unwrap(), Some(1));
            }
        });
        assert_eq!(flights.share("v", now, LONG, |_| 2), Some(2));
    }

    #[test]
    fn a_newer_question_is_not_answered_with_what_was_seen_before_it() {
        let (flights, before) = (Flights::new(), Instant::now());
        let after = before + Duration::from_nanos(1);
        let [entered, release] = [Barrier::new(2), Barrier::new(2)];
        std::thread::scope(|scope| {
            let old = scope.spawn(|| {
                flights.share("v", before, LONG, |_| {
                    entered.wait();
                    release.wait();
                    "dead"
                })
            });
            entered.wait();
            let new = scope.spawn(|| flights.share("v", after, LONG, |_| "healed"));
            let patience = Duration::from_millis(1);
            assert_eq!(flights.share("v", after, patience, |_| "two at a time"), None, "no more patience");
            while Arc::strong_count(&flights.open.lock()["v"]) < 3 {
                std::thread::yield_now();
            }
            release.wait();
            assert_eq!((old.join().unwrap(), new.join().unwrap()), (Some("dead"), Some("healed")));
        });
    }

    #[test]
    fn all_who_wait_for_an_old_look_share_the_next_one() {
        let (flights, before) = (Flights::new(), Instant::now());
        let [entered, release] = [Barrier::new(2), Barrier::new(2)];
        let acts = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let old = scope.spawn(|| {
                flights.share("v", before, LONG, |waited| {
                    assert!(!waited);
                    entered.wait();
                    release.wait();
                    0
                })
            });
            entered.wait();
            // Each asks later than the one before it.
            let new: Vec<_> = (1..=4)
                .map(|n| {
                    let (flights, acts) = (&flights, &acts);
                    scope.spawn(move || {
                        flights.share("v", before + Duration::from_nanos(n), LONG, |waited| {
                            assert!(waited, "what it knows is old by now");
                            // Until the others have seen that this one is under way.
                            while Arc::strong_count(&flights.open.lock()["v"]) < 2 + 3 {
                                std::thread::yield_now();
                            }
                            acts.fetch_add(1, Ordering::SeqCst) + 1
                        })
                    })
                })
                .collect();
            while Arc::strong_count(&flights.open.lock()["v"]) < 2 + new.len() {
                std::thread::yield_now();
            }
            release.wait();
            assert_eq!(old.join().unwrap(), Some(0));
            for new in new {
                assert_eq!(new.join().unwrap(), Some(1));
            }
        });
    }

    #[test]
    fn a_panic_strands_nobody() {
        let (flights, now): (Flights<u32>, _) = (Flights::new(), Instant::now());
        let [entered, release] = [Barrier::new(2), Barrier::new(2)];
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                flights.share("v", now, LONG, |_| {
                    entered.wait();
                    release.wait();
                    panic!("on purpose")
                })
            });
            entered.wait();
            let sharer = scope.spawn(|| flights.share("v", now, LONG, |_| unreachable!("shared")));
            while Arc::strong_count(&flights.open.lock()["v"]) < 3 {
                std::thread::yield_now();
            }
            release.wait();
            assert!(first.join().is_err());
            assert_eq!(sharer.join().unwrap(), None);
        });
        assert_eq!(flights.share("v", now, LONG, |_| 3), Some(3), "and the next check works");
    }
}
