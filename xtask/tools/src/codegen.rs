//! `cargo xtask codegen`: every generated file of the repository, made by one command, checked by the same one.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::say;
use crate::sources::{self, Source};
use crate::workspace::Workspace;

mod difference;
mod pages;
mod program;

pub(crate) use pages::{METRICS_PAGE, REASONS_PAGE, metric_row_start, reason_heading};

/// Write every generated file
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail when a file is not what would be written
    #[arg(long)]
    pub(crate) check: bool,
}

/// A generated file: its path from the workspace's root, and what it should hold.
struct Generated {
    path: &'static str,
    make: fn(&[Source]) -> Result<String>,
}

/// To add a generated file, add it here, or in `program.rs` if only the program can make it.
const FILES: &[Generated] = &[
    Generated { path: METRICS_PAGE, make: pages::metrics },
    Generated { path: REASONS_PAGE, make: pages::reasons },
];

/// Writes what changed, or with `check` only says what would.
pub(crate) fn run(workspace: &Workspace, check: bool) -> Result<()> {
    let sources = sources::read(workspace)?;
    // Everything is made before anything is written, so that an error leaves all files as they were.
    let made: Vec<(&str, String)> = FILES
        .iter()
        .map(|file| {
            Ok((file.path, (file.make)(&sources).with_context(|| format!("{} was not made", file.path))?))
        })
        .collect::<Result<_>>()?;
    let mut stale = settle(workspace, &made, "cargo xtask codegen", check)?;
    let mut files = made.len();
    // Last, since it needs a build, and what was written above may be needed for one.
    let of_program = program::files(workspace)?;
    files += of_program.len();
    stale += settle(workspace, &of_program, "cargo xtask codegen", check)?;
    if check && stale > 0 {
        bail!(
            "{stale} of {files} generated files are out of date; run `cargo xtask codegen` and commit them"
        );
    }
    if stale == 0 {
        say::line(format_args!("codegen: {files} files, all up to date"));
    }
    Ok(())
}

/// Writes those files that are not as they should be, or with `check` only shows how they differ. Gives their number.
pub(crate) fn settle(
    workspace: &Workspace,
    made: &[(impl AsRef<str>, String)],
    command: &str,
    check: bool,
) -> Result<usize> {
    let mut stale = 0;
    for (path, wanted) in made {
        let path = path.as_ref();
        let full = workspace.root.join(path);
        let present = read(&full)?;
        if present.as_deref() == Some(wanted) {
            continue;
        }
        stale += 1;
        if check {
            say::error(format_args!("{path} is not what `{command}` makes:"));
            say::error(difference::show(present.as_deref().unwrap_or_default(), wanted));
        } else {
            replace(&full, wanted)?;
            say::line(format_args!("wrote {path}"));
        }
    }
    Ok(stale)
}

fn read(path: &Path) -> Result<Option<String>> {
    match std::fs::read(path) {
        // A file that is not text is as wrong as one with other text.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// Puts a file in place whole or not at all: a full disk leaves the old one.
fn replace(path: &Path, text: &str) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let readable = std::fs::Permissions::from_mode(0o644);
        let mut file =
            tempfile::Builder::new().prefix(".codegen-").permissions(readable).tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("{} was not written and is as it was before", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn what_was_written_passes_the_check_and_what_was_edited_does_not() {
        let tree = Tree::workspace(&[], &[]);
        let workspace = tree.load();
        let error = run(&workspace, true).unwrap_err().to_string();
        assert!(error.starts_with("2 of 2 generated files are out of date"), "{error}");
        assert!(!tree.root().join("docs").exists(), "a check writes nothing");

        run(&workspace, false).unwrap();
        run(&workspace, true).unwrap();

        tree.write(REASONS_PAGE, "edited by hand");
        let error = run(&workspace, true).unwrap_err().to_string();
        assert!(error.starts_with("1 of 2 generated files are out of date"), "{error}");
        run(&workspace, false).unwrap();
        run(&workspace, true).unwrap();
    }

    #[test]
    fn a_table_that_cannot_be_read_leaves_all_files_alone() {
        let broken = "const METRICS: &[M] = &[(1)];";
        let tree = Tree::workspace(&[], &[("crates/csi/src/m.rs", broken), (REASONS_PAGE, "old")]);
        let error = format!("{:#}", run(&tree.load(), false).unwrap_err());
        assert!(
            error.starts_with("docs/metrics.md was not made: crates/csi/src/m.rs:1: the table"),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(tree.root().join(REASONS_PAGE)).unwrap(), "old");
    }

    #[test]
    fn a_file_that_cannot_be_written_stays_and_nothing_lies_about() {
        let tree = Tree::workspace(&[], &[]);
        // A folder in the file's place refuses the rename, even for root.
        tree.write("docs/reasons.md/in-the-way", "");
        let error = replace(&tree.root().join(REASONS_PAGE), "x").unwrap_err().to_string();
        assert!(error.ends_with("docs/reasons.md was not written and is as it was before"), "{error}");
        let left = std::fs::read_dir(tree.root().join("docs")).unwrap().count();
        assert_eq!(left, 1, "the temporary file is gone");
    }
}
