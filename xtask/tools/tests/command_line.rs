//! What a person and a CI system see of the program: words and exit codes. Runs it in made-up workspaces.

#![allow(clippy::unwrap_used)] // helpers of tests may panic as tests do

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A workspace with the one crate `volmedic-health`, whose library is `source`.
fn workspace(source: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/health\"]\n[workspace.lints]\n");
    write(
        "crates/health/Cargo.toml",
        "[package]\nname = \"volmedic-health\"\nedition = \"2024\"\nlints.workspace = true\n",
    );
    write("crates/health/src/lib.rs", source);
    folder
}

fn xtask(folder: &Path, arguments: &[&str]) -> Output {
    prepared(Command::new(env!("CARGO_BIN_EXE_xtask-tools")), folder).args(arguments).output().unwrap()
}

fn prepared(mut command: Command, folder: &Path) -> Command {
    command
        .current_dir(folder)
        .env("CARGO_MANIFEST_DIR", folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("CARGO_TERM_COLOR", "never");
    command
}

/// Checks the exit code, and that each of the `words` is on stdout or stderr.
fn check(output: &Output, code: i32, words: &[&str]) {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    for word in words {
        assert!(out.contains(word) || err.contains(word), "`{word}` is missing in:\n{out}\n{err}");
    }
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
