//! What a person and a CI system see of the program: words and exit codes. Runs it in made-up workspaces.

#![allow(clippy::unwrap_used)] // helpers of tests may panic as tests do

use std::path::Path;
use std::process::{Command, Output};

use made_up::{check, prepared, workspace};

#[path = "../../tests/made_up/workspace.rs"]
mod made_up;

fn xtask(folder: &Path, arguments: &[&str]) -> Output {
    prepared(Command::new(env!("CARGO_BIN_EXE_xtask-tools")), folder).args(arguments).output().unwrap()
}

#[test]
fn a_wrong_command_line_ends_with_two() {
    let folder = workspace("");
    check(&xtask(folder.path(), &["tidy", "--hard"]), 2, &["unexpected argument '--hard'"]);
}

#[test]
fn a_workspace_that_cannot_be_read_is_a_sentence() {
    let folder = workspace("");
    std::fs::write(folder.path().join("crates/health/Cargo.toml"), "[package\n").unwrap();
    for task in ["tidy", "codegen"] {
        let words = ["error: `cargo metadata` in ", "correct the manifests first"];
        check(&xtask(folder.path(), &[task]), 1, &words);
    }
}

#[test]
fn generated_files_make_a_workspace_tidy() {
    let folder = workspace("");
    check(
        &xtask(folder.path(), &["tidy"]),
        1,
        &["docs/reasons.md:1: the well-known reason `VolumeNotFound`"],
    );
    check(&xtask(folder.path(), &["codegen", "--check"]), 1, &["2 of 2 generated files are out of date"]);
    check(&xtask(folder.path(), &["codegen"]), 0, &["wrote docs/metrics.md\nwrote docs/reasons.md\n"]);
    check(&xtask(folder.path(), &["codegen", "--check"]), 0, &["codegen: 2 files, all up to date\n"]);
    check(&xtask(folder.path(), &["tidy"]), 0, &["nothing to correct\n"]);
}

#[test]
fn a_disk_that_takes_no_more_leaves_the_old_file_whole() {
    let folder = workspace("");
    check(&xtask(folder.path(), &["codegen"]), 0, &[]);
    std::fs::write(folder.path().join("docs/reasons.md"), "old").unwrap();
    // A limit of zero on written files stands for the full disk.
    let mut shell = prepared(Command::new("sh"), folder.path());
    shell.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" codegen", env!("CARGO_BIN_EXE_xtask-tools")]);
    let said = "docs/reasons.md was not written and is as it was before: File too large";
    check(&shell.output().unwrap(), 1, &[said]);
    assert_eq!(std::fs::read_to_string(folder.path().join("docs/reasons.md")).unwrap(), "old");
    assert_eq!(
        std::fs::read_dir(folder.path().join("docs")).unwrap().count(),
        2,
        "no temporary file is left"
    );
}
