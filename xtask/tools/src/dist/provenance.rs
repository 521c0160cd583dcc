//! How the files were made: an in-toto statement with SLSA's provenance, version 1. It says what a build on this machine can
//! say about itself; who believes it, believes the one who signed the checksums.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use volmedic_testkit::hex_digest;

use crate::workspace::Workspace;

/// What was built from what.
#[derive(Debug)]
pub(super) struct Build<'a> {
    pub(super) image: &'a str,
    pub(super) target: &'a str,
    /// What the compiler calls itself.
    pub(super) compiler: &'a str,
    /// The commit, and whether files differ from it; unknown outside a git checkout.
    pub(super) commit: Option<(String, bool)>,
    pub(super) lock_digest: String,
}

impl<'a> Build<'a> {
    pub(super) fn of(
        workspace: &Workspace,
        image: &'a str,
        target: &'a str,
        compiler: &'a str,
    ) -> Result<Self> {
        let lock = workspace.root.join("Cargo.lock");
        let lock = fs::read(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
        Ok(Self { image, target, compiler, commit: commit(&workspace.root), lock_digest: hex_digest(&lock) })
    }
}

/// About these files, given with their digests. The same build always gives the same statement.
pub(super) fn statement(build: &Build<'_>, files: &[(String, String)]) -> Value {
    let subjects = files.iter().map(|(name, digest)| json!({"name": name, "digest": {"sha256": digest}}));
    let mut materials = vec![json!({"name": "Cargo.lock", "digest": {"sha256": build.lock_digest}})];
    if let Some((commit, changed)) = &build.commit {
        let source = json!({
            "name": "source",
            "digest": {"gitCommit": commit},
            "annotations": {"filesDifferFromCommit": changed},
        });
        materials.insert(0, source);
    }
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects.collect::<Vec<_>>(),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://volmedic.dev/build/dist/v1",
                "externalParameters": {"image": build.image},
                "internalParameters": {"target": build.target, "compiler": build.compiler},
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": "https://volmedic.dev/build/local"}},
        },
    })
}

fn commit(root: &Path) -> Option<(String, bool)> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(root).stdin(Stdio::null());
        let output = command.output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = !git(&["status", "--porcelain"])?.is_empty();
    Some((commit, changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_files_the_source_and_the_compiler() {
        let build = |commit| Build {
            image: "volmedic",
            target: "x86_64-unknown-linux-gnu",
            compiler: "rustc 1.95.0",
            commit,
            lock_digest: "1c".into(),
        };
        let files = [("volmedic".to_owned(), "ab".to_owned())];
        let made = statement(&build(Some(("c0ffee".into(), true))), &files);
        assert_eq!(made["subject"], json!([{"name": "volmedic", "digest": {"sha256": "ab"}}]));
        let definition = &made["predicate"]["buildDefinition"];
        assert_eq!(definition["internalParameters"]["compiler"], "rustc 1.95.0");
        assert_eq!(definition["resolvedDependencies"][0]["digest"], json!({"gitCommit": "c0ffee"}));
        assert_eq!(definition["resolvedDependencies"][0]["annotations"]["filesDifferFromCommit"], true);
        let outside = statement(&build(None), &files);
        let materials = &outside["predicate"]["buildDefinition"]["resolvedDependencies"];
        assert_eq!(materials, &json!([{"name": "Cargo.lock", "digest": {"sha256": "1c"}}]));
    }

    #[test]
    fn a_folder_without_git_has_no_commit() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(commit(folder.path()), None);
        let (commit, _) = commit(&Workspace::here().unwrap().root).expect("this is a checkout");
        assert_eq!(commit.len(), 40, "{commit}");
    }
}
