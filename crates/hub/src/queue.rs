//! Which claim is checked when. It neither waits nor reads a clock.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::ClaimKey;

const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Each claim is in here once, however often it is put in, and never worked on twice at a time.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    due: BTreeSet<(Instant, ClaimKey)>,
    at: HashMap<ClaimKey, Instant>,
    in_work: HashSet<ClaimKey>,
    failures: HashMap<ClaimKey, u32>,
}

impl Queue {
    /// The earlier of two times counts, unless the claim is being left alone for a while.
    pub(crate) fn push(&mut self, key: ClaimKey, at: Instant) {
        match self.at.get(&key) {
            Some(&known) if known <= at || self.failures.contains_key(&key) => {}
            Some(&known) => {
                self.due.remove(&(known, key.clone()));
                self.insert(key, at);
            }
            None => self.insert(key, at),
        }
    }

    fn insert(&mut self, key: ClaimKey, at: Instant) {
        self.due.insert((at, key.clone()));
        self.at.insert(key, at);
    }

    /// The next claim that is due and not being worked on; it is from now on.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<ClaimKey> {
        let mut ready = self.due.iter().take_while(|(at, _)| *at <= now);
        let found = ready.find(|(_, key)| !self.in_work.contains(key)).cloned()?;
        self.due.remove(&found);
        let (_, key) = found;
        self.at.remove(&key);
        self.in_work.insert(key.clone());
        Some(key)
    }

    /// It is done; `again` if it has to be checked later in any case.
    pub(crate) fn done(&mut self, key: ClaimKey, again: Option<Instant>) {
        self.in_work.remove(&key);
        self.failures.remove(&key);
        if let Some(at) = again {
            self.push(key, at);
        }
    }

    /// It did not work. It is left alone for longer each time; answers for how long.
    pub(crate) fn failed(&mut self, key: ClaimKey, now: Instant) -> Duration {
        self.in_work.remove(&key);
        let failures = self.failures.entry(key.clone()).or_default();
        let wait = (FIRST_WAIT * 2_u32.saturating_pow((*failures).min(10))).min(LONGEST_WAIT);
        *failures = failures.saturating_add(1);
        if let Some(known) = self.at.remove(&key) {
            self.due.remove(&(known, key.clone()));
        }
        self.insert(key, now + wait);
        wait
    }

    /// When the next claim is due that nobody works on.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.iter().find(|(_, key)| !self.in_work.contains(key)).map(|(at, _)| *at)
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len() + self.in_work.len()
    }
}

/// How fast requests may follow each other: tokens drip in at a rate, up to a number. Who needs several takes them in one step,
/// and the next one waits until that is made good.
#[derive(Debug)]
pub struct Pace {
    every: Duration,
    burst: i64,
    tokens: i64,
    /// When the newest token dripped in.
    at: Instant,
}

impl Pace {
    pub fn new(per_second: f64, burst: u32, now: Instant) -> Self {
        let sane = if per_second.is_finite() { per_second.clamp(0.01, 10_000.0) } else { 1.0 };
        let burst = burst.max(1).into();
        Self { every: Duration::from_secs_f64(1.0 / sane), burst, tokens: burst, at: now }
    }

    /// None if there is a token now, else when there will be one.
    pub fn wait(&mut self, now: Instant) -> Option<Instant> {
        let dripped = now.saturating_duration_since(self.at).as_nanos() / self.every.as_nanos().max(1);
        if dripped > 0 {
            let dripped = u32::try_from(dripped).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(dripped.into()).min(self.burst);
            self.at = if self.tokens == self.burst { now } else { self.at + self.every * dripped };
        }
        let missing = u32::try_from(1 - self.tokens).ok().filter(|missing| *missing > 0)?;
        Some(self.at + self.every * missing)
    }

    pub fn take(&mut self, tokens: u32) {
        self.tokens = self.tokens.saturating_sub(tokens.into());
    }
}

/// Who wants to ask waits for its turn, in the order of coming.
#[derive(Debug)]
pub struct Turns(tokio::sync::Mutex<Pace>);

impl Turns {
    pub fn new(per_second: f64, burst: u32) -> Self {
        Self(tokio::sync::Mutex::new(Pace::new(per_second, burst, tokio::time::Instant::now().into_std())))
    }

    pub async fn turn(&self) {
        let mut pace = self.0.lock().await;
        while let Some(at) = pace.wait(tokio::time::Instant::now().into_std()) {
            tokio::time::sleep_until(at.into()).await;
        }
        pace.take(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ClaimKey {
        ClaimKey::new("ns", name)
    }

    #[test]
    fn a_claim_waits_once_and_is_worked_on_once() {
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        let mut queue = Queue::default();
        queue.push(key("a"), later);
        queue.push(key("a"), start);
        queue.push(key("a"), later);
        assert_eq!((queue.len(), queue.next_due()), (1, Some(start)));
        assert_eq!(queue.pop(start), Some(key("a")));
        queue.push(key("a"), start);
        assert_eq!(queue.pop(start), None, "it is being worked on");
        assert_eq!(queue.next_due(), None);
        queue.done(key("a"), None);
        assert_eq!(queue.pop(start), Some(key("a")), "what came in meanwhile is not lost");
        queue.done(key("a"), Some(later));
        assert_eq!((queue.pop(start), queue.pop(later)), (None, Some(key("a"))));
    }

    #[test]
    fn who_fails_is_left_alone_for_longer_each_time_and_news_do_not_change_that() {
        let start = Instant::now();
        let mut queue = Queue::default();
        queue.push(key("a"), start);
        let mut waits = Vec::new();
        let mut now = start;
        for _ in 0..10 {
            assert_eq!(queue.pop(now), Some(key("a")));
            let wait = queue.failed(key("a"), now);
            queue.push(key("a"), now);
            assert_eq!(queue.pop(now), None);
            waits.push(wait.as_millis());
            now += wait;
        }
        assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
        assert_eq!(queue.pop(now), Some(key("a")));
        queue.done(key("a"), None);
        queue.push(key("a"), now);
        assert_eq!(queue.pop(now), Some(key("a")), "a success forgives all");
    }

    #[test]
    fn a_burst_goes_immediately_and_then_the_rate_holds() {
        let start = Instant::now();
        let mut pace = Pace::new(10.0, 5, start);
        let mut now = start;
        let mut sent: u32 = 0;
        while now < start + Duration::from_secs(10) {
            match pace.wait(now) {
                None => {
                    // Every other one needs two.
                    let needs = 1 + sent % 2;
                    pace.take(needs);
                    sent += needs;
                }
                Some(at) => now = at,
            }
        }
        assert!((104..=107).contains(&sent), "{sent}");
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Pace::new(odd, 0, start).wait(start).is_none());
        }
    }

    #[tokio::test]
    async fn turns_come_at_their_pace() {
        let turns = Turns::new(300.0, 10);
        let began = Instant::now();
        for _ in 0..10 + 30 {
            turns.turn().await;
        }
        assert!(began.elapsed() >= Duration::from_millis(95), "{:?}", began.elapsed());
    }
}
