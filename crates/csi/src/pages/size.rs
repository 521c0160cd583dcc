//! How many entries to ask for: more while pages come fast, half as soon as one is too much.

use std::time::Duration;

use super::Limits;

/// A page that takes no longer than this could be larger.
const FAST: Duration = Duration::from_millis(100);
/// Trying a larger size again may cost a whole deadline, so it is done only after this many complete passes.
const CALM: u32 = 16;

#[derive(Debug)]
pub(super) struct Size {
    current: u32,
    /// What has proved to be too much, halved.
    ceiling: u32,
    /// Complete passes since something proved to be too much.
    calm: u32,
    largest: u32,
    /// Ask for everything: the driver cannot handle a limit.
    lifted: bool,
}

impl Size {
    pub(super) fn new(limits: &Limits) -> Self {
        let largest = limits.largest_size.clamp(1, i32::MAX.unsigned_abs());
        Self {
            current: limits.first_size.clamp(1, largest),
            ceiling: largest,
            calm: 0,
            largest,
            lifted: false,
        }
    }

    /// What to put into `max_entries`; zero asks for all.
    pub(super) fn ask(&self) -> u32 {
        if self.lifted { 0 } else { self.current }
    }

    pub(super) fn answered(&mut self, entries: usize, asked: u32, took: Duration) {
        if asked > 0 && entries == asked as usize && took <= FAST {
            self.current = self.current.saturating_mul(2).min(self.ceiling);
        }
    }

    /// False if there is nothing left to halve.
    pub(super) fn halve(&mut self) -> bool {
        if self.lifted || self.current <= 1 {
            return false;
        }
        self.current /= 2;
        self.ceiling = self.current;
        self.calm = 0;
        true
    }

    /// From now on no limit is set. False if that was so already.
    pub(super) fn lift(&mut self) -> bool {
        !std::mem::replace(&mut self.lifted, true)
    }

    /// A whole pass succeeded.
    pub(super) fn passed(&mut self) {
        self.calm += 1;
        if self.calm >= CALM {
            self.calm = 0;
            self.ceiling = self.ceiling.saturating_mul(2).min(self.largest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` a fast full page, `-` too much, `.` a slow full page, `<` a short page, `p` enough complete passes.
    fn check(events: &str, expected: &str) {
        let mut size = Size::new(&Limits { first_size: 4, largest_size: 16, ..Limits::default() });
        let mut asked = vec![size.ask().to_string()];
        for event in events.chars() {
            let now = size.ask();
            match event {
                '+' => size.answered(now as usize, now, Duration::from_millis(1)),
                '.' => size.answered(now as usize, now, Duration::from_secs(1)),
                '<' => size.answered(now as usize - 1, now, Duration::from_millis(1)),
                '-' => drop(size.halve()),
                'p' => (0..CALM).for_each(|_| size.passed()),
                other => panic!("unknown event {other}"),
            }
            asked.push(size.ask().to_string());
        }
        assert_eq!(asked.join(" "), expected, "{events}");
    }

    #[test]
    fn grows_shrinks_and_remembers() {
        check("+++", "4 8 16 16");
        check(".<", "4 4 4");
        check("---", "4 2 1 1");
        check("+-++", "4 8 4 4 4");
        check("+-p++", "4 8 4 4 8 8");
    }

    #[test]
    fn halving_ends() {
        let mut size =
            Size::new(&Limits { first_size: u32::MAX, largest_size: u32::MAX, ..Limits::default() });
        assert_eq!((0..100).filter(|_| size.halve()).count(), 30);
        assert_eq!(size.ask(), 1);
        assert!(size.lift());
        assert!(!size.lift());
        assert!(!size.halve());
        assert_eq!(size.ask(), 0);
    }
}
