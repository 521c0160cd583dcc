//! Made-up workspaces on disk, for tests.

use std::path::Path;

use crate::sources::{self, Source};
use crate::workspace::Workspace;

/// A folder that goes away with this value.
pub(crate) struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    /// Each entry is a path and what the file holds.
    pub(crate) fn new(entries: &[(&str, &str)]) -> Self {
        let tree = Self { folder: tempfile::tempdir().unwrap() };
        for (path, text) in entries {
            tree.write(path, text);
        }
        tree
    }

    /// Adds the root manifest and, for each package, a library and a manifest with these lines after its third.
    pub(crate) fn workspace(packages: &[(&str, &str)], entries: &[(&str, &str)]) -> Self {
        let tree = Self::new(entries);
        let mut members = Vec::new();
        for (name, rest) in packages {
            let folder = format!("crates/{}", name.trim_start_matches("volmedic-"));
            tree.write(
                &format!("{folder}/Cargo.toml"),
                &format!(
                    "[package]\nname = \"{name}\"\nedition = \"2024\"\n{rest}\n[lints]\nworkspace = true\n"
                ),
            );
            if !tree.root().join(&folder).join("src/lib.rs").exists() {
                tree.write(&format!("{folder}/src/lib.rs"), "");
            }
            members.push(folder);
        }
        tree.write(
            "Cargo.toml",
            &format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n[workspace.lints]\n"),
        );
        tree
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn load(&self) -> Workspace {
        Workspace::of(self.root()).unwrap()
    }

    pub(crate) fn sources(&self) -> Vec<Source> {
        sources::read(&self.load()).unwrap()
    }
}
