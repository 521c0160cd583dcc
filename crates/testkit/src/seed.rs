//! Seeds of tests that depend on chance: fresh for each run, always logged, and repeatable.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;

/// Overrides the seed of every test.
pub const VARIABLE: &str = "VOLMEDIC_SEED";

/// The seed for a test of this name, never 0. It is printed where the test harness does not capture it, so that the log of a
/// run that passed has it too.
///
/// # Panics
///
/// If the variable is set and is not a number from 1.
pub fn seed(test: &str) -> u64 {
    let given = std::env::var(VARIABLE).ok();
    let seed = given.as_deref().map_or_else(fresh, |text| {
        read(text).unwrap_or_else(|| panic!("{VARIABLE} is {text:?}; it takes a number from 1"))
    });
    // The harness captures what macros print, and this is no macro. Where nobody reads it, the test is none the worse.
    let _ = std::io::stderr().write_all(format!("{test}: {VARIABLE}={seed}\n").as_bytes());
    seed
}

fn read(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|seed| *seed > 0)
}

/// One that was probably never tried, short enough to be typed.
fn fresh() -> u64 {
    1 + RandomState::new().hash_one(std::process::id()) % 1_000_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_fresh_unless_it_is_given() {
        assert_ne!(fresh(), fresh());
        assert_eq!(read(" 42\n"), Some(42));
        for wrong in ["", "0", "-1", "x", "18446744073709551616"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
