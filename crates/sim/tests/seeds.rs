//! Fresh seeds on every run; a failure prints the seed and the shortest history that shows it.

use std::io::Write;
use std::path::Path;

use volmedic_sim::{Runner, fresh_seed};

/// Overrides the first seed, as it does for every test that depends on chance.
const SEED: &str = "VOLMEDIC_SEED";
const SEEDS: u64 = 200;

fn runner() -> Runner {
    Runner::new(Path::new(env!("CARGO_BIN_EXE_volmedic-sim")))
}

fn first_seed() -> u64 {
    let given = std::env::var(SEED).ok().map(|seed| seed.parse().expect("a seed is a number"));
    given.unwrap_or_else(fresh_seed)
}

/// Past the harness, which captures what macros print: the log of a run that passed has its seeds too.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

#[test]
fn nothing_is_lost_and_nothing_repeated_in_fresh_histories() {
    let from = first_seed();
    say(&format!("histories of seeds {from} to {}: {SEED}={from}", from.wrapping_add(SEEDS - 1)));
    let tally = runner().run(from, SEEDS, 3).unwrap();
    assert!(tally.failed.is_empty(), "cargo xtask simulate --seed SEED shows it: {:#?}", tally.failed);
    assert!(tally.counts.demanded > SEEDS && tally.counts.kills > SEEDS / 4, "{:?}", tally.counts);
}

#[test]
fn one_seed_is_one_history() {
    let seed = first_seed();
    say(&format!("one_seed_is_one_history: {SEED}={seed}"));
    let reports = [runner().one(seed, &[]).unwrap(), runner().one(seed, &[]).unwrap()];
    assert_eq!(reports[0].digest, reports[1].digest, "seed {seed}");
}
