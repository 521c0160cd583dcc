//! Fresh seeds on every run; a failure prints the seed and the shortest history that shows it.

use std::path::Path;

use volmedic_sim::{Runner, fresh_seed};

/// Overrides the first seed.
const SEED: &str = "VOLMEDIC_SIM_SEED";
const SEEDS: u64 = 200;

fn runner() -> Runner {
    Runner::new(Path::new(env!("CARGO_BIN_EXE_volmedic-sim")))
}

#[test]
fn nothing_is_lost_and_nothing_repeated_in_fresh_histories() {
    let given = std::env::var(SEED).ok().map(|seed| seed.parse().expect("a seed is a number"));
    let from = given.unwrap_or_else(fresh_seed);
    // Captured unless the test fails.
    println!("seeds {from} to {}; {SEED}={from} repeats them", from + SEEDS - 1);
    let tally = runner().run(from, SEEDS, 3).unwrap();
    assert!(tally.failed.is_empty(), "cargo xtask simulate --seed SEED shows it: {:#?}", tally.failed);
    assert!(tally.counts.demanded > SEEDS && tally.counts.kills > SEEDS / 4, "{:?}", tally.counts);
}

#[test]
fn one_seed_is_one_history() {
    let seed = fresh_seed();
    let reports = [runner().one(seed, &[]).unwrap(), runner().one(seed, &[]).unwrap()];
    assert_eq!(reports[0].digest, reports[1].digest, "seed {seed}");
}
