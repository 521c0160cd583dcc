//! Programs that are built from a Go module of ours, once, and kept outside of the checkout.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{cache, process};

/// Free space that a first build needs: modules, build cache, linking.
const SPACE: u64 = 2 << 30;
/// A first build takes a few minutes on two cores and fetches modules before.
const BUILD_LIMIT: Duration = Duration::from_mins(30);

/// A module that is carried in this crate.
#[derive(Debug)]
pub(crate) struct GoModule {
    /// Its folder in the cache.
    pub(crate) folder: &'static str,
    /// What it is, for messages: "the CSI sidecars".
    pub(crate) what: &'static str,
    /// By path and text.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// What is built.
    pub(crate) packages: &'static [&'static str],
    /// What must come of it.
    pub(crate) programs: &'static [&'static str],
}

impl GoModule {
    /// The folder with the programs. Built first if need be, which takes minutes.
    pub(crate) fn build(&self) -> Result<PathBuf> {
        let folder = cache::folder()?.join(self.folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let entry = folder.join(fingerprint(self.files));
        // Moved into place as a whole, so it is whole if it is there.
        if entry.is_dir() {
            return Ok(entry);
        }
        let busy = format!("another build of {} is under way", self.what);
        let _lock = cache::lock(&folder.join("lock"), &busy, BUILD_LIMIT)?;
        // Whoever held the lock may have built just this.
        if !entry.is_dir() {
            self.make(&folder, &entry).with_context(|| format!("{} could not be built", self.what))?;
        }
        Ok(entry)
    }

    fn make(&self, folder: &Path, entry: &Path) -> Result<()> {
        let start = Instant::now();
        cache::require_space(folder, SPACE)?;
        cache::say(&format!("building {}; the first time takes minutes", self.what));
        // Under the lock, so nobody else is in there: what an earlier build left is rubbish.
        let scratch = folder.join("scratch");
        cache::remove(&scratch)?;
        let built = self.compile(&scratch).and_then(|programs| {
            fs::rename(&programs, entry)
                .with_context(|| format!("cannot move the built programs to {}", entry.display()))
        });
        // Also after a failure, or a failing build would fill the disk.
        cache::remove(&scratch)?;
        built?;
        cache::say(&format!("{}: built in {} s", self.what, start.elapsed().as_secs()));
        Ok(())
    }

    /// Builds the module in `scratch` and returns the folder with the programs.
    fn compile(&self, scratch: &Path) -> Result<PathBuf> {
        for (name, text) in self.files {
            let path = scratch.join(name);
            let parent = path.parent().unwrap_or(scratch);
            fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let programs = scratch.join("programs");
        fs::create_dir_all(&programs).with_context(|| format!("cannot make {}", programs.display()))?;
        let mut go = command("go", scratch, "readonly");
        go.args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]).arg(&programs).args(self.packages);
        process::run(go, BUILD_LIMIT).context("is Go in PATH?")?.or_fail("`go build`")?;
        for program in self.programs.iter().map(|name| programs.join(name)) {
            if !program.is_file() {
                bail!("`go build` succeeded but made no {}", program.display());
            }
            let synced = fs::File::open(&program).and_then(|file| file.sync_all());
            synced.with_context(|| format!("cannot write {} to the disk", program.display()))?;
        }
        Ok(programs)
    }
}

/// Go in a folder, with `-mod` as given. Settings that users have for their own work do not change what is built.
pub(crate) fn command(go: impl AsRef<OsStr>, folder: &Path, modules: &str) -> Command {
    let mut command = Command::new(go);
    command
        .current_dir(folder)
        .env_remove("GOOS")
        .env_remove("GOARCH")
        .env_remove("GOEXPERIMENT")
        .env("GOFLAGS", format!("-mod={modules} -buildvcs=false"))
        .env("GOWORK", "off")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0")
        // Compilers live for seconds, so they collect garbage rarely: helm took 87 s instead of 97 s, Kubernetes 448 s
        // instead of 476 s. The limit keeps a small machine from swapping.
        .env("GOGC", "800")
        .env("GOMEMLIMIT", "2GiB");
    command
}

/// Changes whenever anything of the module changes, so that an old program is never taken for a new one.
fn fingerprint(files: &[(&str, &str)]) -> String {
    let mut all = Vec::new();
    for piece in files.iter().flat_map(|(name, text)| [name, text]) {
        all.extend_from_slice(&(piece.len() as u64).to_le_bytes());
        all.extend_from_slice(piece.as_bytes());
    }
    let mut digest = crate::hex_digest(&all);
    digest.truncate(12);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_of_the_module_is_another_entry() {
        let first = fingerprint(&[("go.mod", "a"), ("go.sum", "b")]);
        assert_eq!(first, fingerprint(&[("go.mod", "a"), ("go.sum", "b")]));
        for other in [[("go.mod", "ab"), ("go.sum", "")], [("go.mod", "a"), ("go.su", "mb")]] {
            assert_ne!(first, fingerprint(&other), "{other:?}");
        }
    }
}
