use super::judge::{self, Run};
use super::*;

fn job(tool: Tool, mounted: bool) -> Job {
    Job { tool, on: "/image".into(), mounted }
}

/// The verdict over runs that each ended with the same code and said one of these.
fn check(tool: Tool, mounted: bool, code: i32, said: &[&str], expected: &str) {
    let runs: Vec<Run> = said.iter().map(|said| judge::read(tool, Some(code), said)).collect();
    assert_eq!(judge::verdict(&job(tool, mounted), &runs).to_string(), expected, "{said:?}");
}

const BUSY: &str = "e2fsck 1.47.0\nWarning!  /i is mounted.\nPass 1: Checking inodes\nFix? no\n\
    Free blocks count wrong (10, counted=9).\nFix? no\n\ni: ********** WARNING: Filesystem still has errors **********\n";

#[test]
fn a_busy_ext4_complains_but_is_not_corrupt() {
    check(
        Tool::E2fsck,
        true,
        4,
        &[BUSY, BUSY, BUSY],
        "inconclusive: 1 complaints, none that use alone could not explain",
    );
    check(
        Tool::E2fsck,
        false,
        4,
        &[BUSY, BUSY],
        "corrupt: e2fsck says Free blocks count wrong (10, counted=9).",
    );
    let dirty =
        format!("Warning: skipping journal recovery because doing a read-only filesystem check.\n{BUSY}");
    check(
        Tool::E2fsck,
        false,
        4,
        &[&dirty],
        "inconclusive: 1 complaints, none that use alone could not explain",
    );
}

#[test]
fn damage_in_a_fixed_block_counts_even_when_mounted() {
    let bad = "ext2fs_open2: Bad magic number in super-block\ne2fsck: Superblock invalid, trying backup blocks...\n";
    check(
        Tool::E2fsck,
        true,
        4,
        &[bad, bad, bad],
        "corrupt: e2fsck says e2fsck: Superblock invalid, trying backup blocks... / ext2fs_open2: Bad magic number in super-block",
    );
    let agf = |address: &str| {
        format!(
            "Phase 2\nMetadata CRC error detected at {address}, xfs_agf block 0x1/0x200\nsb_fdblocks 1, counted 2\n"
        )
    };
    check(
        Tool::XfsRepair,
        true,
        1,
        &[&agf("0x55c27110af80"), &agf("0x5569560bad20")],
        "corrupt: xfs_repair says Metadata CRC error detected at (address) xfs_agf block 0x1/0x200",
    );
}

#[test]
fn only_what_every_run_says_counts() {
    let [one, two] =
        ["one bad block", "two bad blocks"].map(|line| format!("{line}\nERROR: errors found in fs roots\n"));
    check(Tool::BtrfsCheck, true, 1, &[&one, &two], "corrupt: btrfs says ERROR: errors found in fs roots");
    check(
        Tool::BtrfsCheck,
        true,
        1,
        &["parent transid 1\n", "parent transid 2\n"],
        "inconclusive: 0 complaints, none that use alone could not explain",
    );
    let runs = [judge::read(Tool::E2fsck, Some(4), "Bad magic"), judge::read(Tool::E2fsck, Some(0), "")];
    assert_eq!(judge::verdict(&job(Tool::E2fsck, false), &runs), Verdict::Clean, "one clean run is enough");
}

#[test]
fn being_kept_out_is_not_damage() {
    let mounted = "xfs_repair: /dev/loop0 contains a mounted and writable filesystem\n\nfatal error -- couldn't initialize XFS library\n";
    check(
        Tool::XfsRepair,
        false,
        1,
        &[mounted],
        "the tool refused: exit code 1: fatal error -- couldn't initialize XFS library",
    );
    check(
        Tool::BtrfsCheck,
        false,
        1,
        &["ERROR: /d is currently mounted"],
        "the tool refused: exit code 1: ERROR: /d is currently mounted",
    );
    check(
        Tool::E2fsck,
        false,
        8,
        &["Device or resource busy\n"],
        "the tool refused: exit code 8: Device or resource busy",
    );
    check(Tool::E2fsck, false, 16, &[""], "the tool refused: exit code 16: it said nothing");
    assert_eq!(judge::read(Tool::E2fsck, None, ""), Run::Refused("e2fsck was killed".into()));
}
