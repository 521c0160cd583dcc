//! The README's commands, exactly as they are written: in a clean clone, with the programs that a newcomer has.
//!
//! Nothing stands in for cargo, and no word of a command is replaced. The clone is of what is committed, and keeps nothing
//! from run to run but cargo's target folder.
//!
//! The commands for a cluster are run by the test program `cluster`, which has one; `cargo xtask test` is what runs this.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;
use std::path::Path;

use newcomer::{Newcomer, README, text};

mod newcomer;

/// What runs each block of the README. A block is known by a word that no other block has.
const BLOCKS: &[(&str, &str)] = &[
    ("-- demo\n", "here: the_demo_runs_as_written"),
    ("-- driver ", "here: a_driver_is_served_watched_and_checked_as_written"),
    ("-- conformance ", "here: a_driver_is_served_watched_and_checked_as_written"),
    ("cargo xtask dist\n", "the test program `cluster`"),
    ("helm install", "the test program `cluster`"),
    ("cargo xtask test\n", "the command that runs this test"),
];

#[test]
fn every_block_is_run_by_a_test() {
    for block in README.blocks() {
        let known = BLOCKS.iter().filter(|(word, _)| block.contains(word)).count();
        assert_eq!(known, 1, "no test, or more than one, runs this block of the README:\n{block}");
    }
    for (word, _) in BLOCKS {
        assert!(README.blocks().iter().any(|block| block.contains(word)), "no block has `{word}`");
    }
}

#[test]
fn the_demo_runs_as_written() {
    let newcomer = Newcomer::new();
    let output = newcomer.run(&README.block("-- demo\n"));
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("MounterDead"), "{}", text(&output));
}

#[test]
fn a_driver_is_served_watched_and_checked_as_written() {
    const SOCKET: &str = "/tmp/csi.sock";
    let newcomer = Newcomer::new();
    let (serve, check) = (README.block("-- driver "), README.block("-- conformance "));
    assert!(serve.contains(SOCKET) && check.contains(SOCKET));
    assert!(!Path::new(SOCKET).exists(), "{SOCKET} exists; is another driver running? End it first");
    // Two terminals. Nobody types in the second one before the first says that it serves.
    let waits = format!("until [ -S {SOCKET} ]; do kill -0 $! || exit 9; sleep 0.1; done");
    let output = newcomer.run(&format!("{} &\n{waits}\n{check}", serve.trim_end()));
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("try.example.net"), "{}", text(&output));
    let left: Vec<_> = [SOCKET].into_iter().filter(|path| Path::new(path).exists()).collect();
    assert_eq!(left, [""; 0], "the driver that ended left something behind");
    fs::remove_dir_all("/tmp/volmedic").unwrap();
}
