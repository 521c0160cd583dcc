//! The text files of the workspace, read once for all checks of text.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// No text file that is written by hand is longer than this, and recorded data is not checked.
const LARGEST: u64 = 2 << 20;

/// One text file.
#[derive(Debug)]
pub(crate) struct Source {
    /// From the workspace's root.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }
}

/// Reads every text file of the workspace but those that a build or git made, in the order of their paths.
pub(crate) fn read(workspace: &Workspace) -> Result<Vec<Source>> {
    below(&workspace.root, &workspace.target)
}

fn below(root: &Path, target: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let cannot = || format!("the folder {} cannot be read", folder.display());
        for entry in std::fs::read_dir(&folder).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            let path = entry.path();
            // A link is not followed: its target is read anyway, and links could form a cycle.
            let kind = entry.file_type().with_context(cannot)?;
            if kind.is_dir() {
                // A module may be called `target`, too; what cargo builds lies beside a manifest.
                let built = entry.file_name() == "target" && folder.join("Cargo.toml").exists();
                if path != target && entry.file_name() != ".git" && !built {
                    folders.push(path);
                }
            } else if kind.is_file() {
                // Another program may just have deleted the file; that is not an error.
                let Ok(meta) = entry.metadata() else { continue };
                if meta.len() > LARGEST {
                    continue;
                }
                let Ok(bytes) = std::fs::read(&path) else { continue };
                if let Some(text) = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')) {
                    let path = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
                    sources.push(Source { path, text });
                }
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn text_is_read_and_builds_git_and_binaries_are_not() {
        let tree = Tree::new(&[
            ("a.txt", "a"),
            (".ci/run", "b"),
            ("deep/er/c.rs", "c"),
            ("Cargo.toml", ""),
            ("target/d.rs", "d"),
            ("crates/x/src/target/e.rs", "e"),
            ("elsewhere/f.rs", "f"),
            (".git/g", "g"),
            ("binary", "h\0"),
        ]);
        std::os::unix::fs::symlink("..", tree.root().join("deep/loop")).unwrap();
        let found = below(tree.root(), &tree.root().join("elsewhere")).unwrap();
        let paths: Vec<PathBuf> = found.into_iter().map(|source| source.path).collect();
        assert_eq!(
            paths,
            [".ci/run", "Cargo.toml", "a.txt", "crates/x/src/target/e.rs", "deep/er/c.rs"].map(PathBuf::from)
        );
    }
}
