//! Made-up workspaces for the tests of both programs, and what must hold of a program that ran in one.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A workspace with the one crate `volmedic-health`, whose library is `source`.
pub(crate) fn workspace(source: &str) -> TempDir {
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

pub(crate) fn prepared(mut command: Command, folder: &Path) -> Command {
    command
        .current_dir(folder)
        .env("CARGO_MANIFEST_DIR", folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("CARGO_TERM_COLOR", "never");
    command
}

/// Checks the exit code, and that each of the `words` is on stdout or stderr.
pub(crate) fn check(output: &Output, code: i32, words: &[&str]) {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    for word in words {
        assert!(out.contains(word) || err.contains(word), "`{word}` is missing in:\n{out}\n{err}");
    }
}
