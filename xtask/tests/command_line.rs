//! What a person and a CI system see of the program: words and exit codes. Runs it in made-up workspaces.

#![allow(clippy::unwrap_used)] // helpers of tests may panic as tests do

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use made_up::{check, prepared, workspace};

#[path = "made_up/workspace.rs"]
mod made_up;

fn xtask(folder: &Path, arguments: &[&str]) -> Output {
    prepared(Command::new(env!("CARGO_BIN_EXE_xtask")), folder).args(arguments).output().unwrap()
}

#[test]
fn a_wrong_command_line_ends_with_two() {
    let folder = workspace("");
    check(&xtask(folder.path(), &["tset"]), 2, &["unrecognized subcommand 'tset'"]);
    check(
        &xtask(folder.path(), &["test", "--deadline", "0"]),
        2,
        &["invalid value '0' for '--deadline <MINUTES>'"],
    );
    let said = "error: there is no part `helth` in this workspace; the parts are: health\n";
    check(&xtask(folder.path(), &["test", "helth"]), 2, &[said]);
    let said = "error: there is no step `lint` here; the steps are: machine, format, build, clippy, tests, \
                examples, docs\n";
    check(&xtask(folder.path(), &["test", "health", "--only", "lint"]), 2, &[said]);
}

#[test]
fn help_documents_the_exit_codes() {
    let folder = workspace("");
    check(&xtask(folder.path(), &["--help"]), 0, &["Usage: cargo xtask <COMMAND>", "Exit codes: 0 success"]);
    check(&xtask(folder.path(), &["test", "--help"]), 0, &["Exit codes: 0 every step passed"]);
}

#[test]
fn missing_parts_of_the_toolchain_are_reported_together_with_what_to_do() {
    let folder = workspace("");
    let cargo = folder.path().join("cargo");
    // A toolchain without the two components: everything else goes to the real one.
    let script =
        format!("#!/bin/sh\ncase $1 in fmt|clippy) exit 101;; esac\nexec '{}' \"$@\"\n", env!("CARGO"));
    std::fs::write(&cargo, script).unwrap();
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = prepared(Command::new(env!("CARGO_BIN_EXE_xtask")), folder.path());
    let output = command.env("CARGO", &cargo).args(["test", "health"]).output().unwrap();
    let fmt = "`cargo fmt` does not run; install it with `rustup component add rustfmt`\n";
    let clippy = "`cargo clippy` does not run; install it with `rustup component add clippy`\n";
    check(&output, 1, &["this machine is not ready:\n", fmt, clippy, "error: the step `machine` failed\n"]);
}

#[test]
fn a_workspace_that_cannot_be_read_is_a_sentence() {
    let folder = workspace("");
    std::fs::write(folder.path().join("crates/health/Cargo.toml"), "[package\n").unwrap();
    let words = ["error: `cargo metadata` in ", "correct the manifests first"];
    check(&xtask(folder.path(), &["test"]), 1, &words);
}

#[test]
fn a_sound_part_passes_every_step() {
    let folder = workspace("//! Nothing yet.\n\n#[test]\nfn adds() {\n    assert_eq!(1 + 1, 2);\n}\n");
    let output = xtask(folder.path(), &["test", "health"]);
    check(
        &output,
        0,
        &[
            "[1/7] machine: ",
            "[7/7] docs: passed after ",
            "passed  health (1 tests, ",
            "\n1 passed, 0 failed, 0 skipped\n",
        ],
    );
    let out = String::from_utf8_lossy(&output.stdout);
    let table = out.split_once("step       result    seconds\n").unwrap().1;
    let rows: Vec<&str> = table.lines().map(|line| line[..18].trim_end()).collect();
    assert_eq!(
        rows,
        [
            "machine    passed",
            "format     passed",
            "build      passed",
            "clippy     passed",
            "tests      passed",
            "examples   passed",
            "docs       passed"
        ]
    );
}

#[test]
fn a_part_with_a_defect_stops_at_the_first_step_that_fails() {
    let folder = workspace("fn   f() {}\n");
    let output = xtask(folder.path(), &["test", "health"]);
    let rerun = "rerun just this step: cargo fmt --package=volmedic-health --check";
    check(
        &output,
        1,
        &["[2/7] format: FAILED", "clippy     not run", rerun, "error: the step `format` failed\n"],
    );
}

#[test]
fn one_step_can_be_run_alone() {
    let folder = workspace("fn   f() {}\n");
    let output = xtask(folder.path(), &["test", "--only", "machine", "health"]);
    check(&output, 0, &["[1/1] machine: passed", "machine    passed"]);
}

#[test]
fn going_on_shows_everything_that_is_wrong() {
    let folder = workspace("fn   f() {}\n\n#[test]\nfn fails() {\n    assert_eq!(1 + 1, 3);\n}\n");
    let output = xtask(folder.path(), &["test", "health", "--keep-going"]);
    check(&output, 1, &["format     FAILED", "clippy     FAILED", "tests      FAILED", "docs       passed"]);
    check(
        &output,
        1,
        &[
            "FAILED  health: fails (",
            "test fails ... FAILED",
            "rerun just this step: cargo xtask test --only tests volmedic-health",
        ],
    );
    check(&output, 1, &["error: 3 steps failed\n"]);
}

#[test]
fn a_stressed_run_prints_how_often_each_test_failed() {
    // Fails in every second run.
    let source = "#[test]\nfn flips() {\n    let path = concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/flag\");\n    \
                  if std::fs::remove_file(path).is_err() {\n        std::fs::write(path, \"\").unwrap();\n    } else {\n        \
                  panic!(\"again\");\n    }\n}\n\n#[test]\nfn holds() {}\n";
    let folder = workspace(source);
    let output = xtask(folder.path(), &["test", "health", "--stress", "4"]);
    check(
        &output,
        1,
        &["round 4 of 4", "  2 of 4: flips\n", "50.0%", "error: 2 of 4 runs of test programs failed\n"],
    );
    assert!(!String::from_utf8_lossy(&output.stdout).contains("of 4: holds"));
}
