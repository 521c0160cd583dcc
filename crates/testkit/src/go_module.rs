//! Programs that are built from a Go module, once, and kept outside of the checkout.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use serde::Deserialize;

use crate::{cache, process};

/// Free space that a first build needs: modules, build cache, linking.
const SPACE: u64 = 2 << 30;
/// A first build takes a few minutes on two cores and fetches modules before.
const BUILD_LIMIT: Duration = Duration::from_mins(30);

/// What is built, and where its sources are from.
#[derive(Debug)]
pub(crate) struct GoModule {
    /// Its folder in the cache.
    pub(crate) folder: &'static str,
    /// What it is, for messages: "the CSI sidecars".
    pub(crate) what: &'static str,
    pub(crate) source: Source,
    /// What is built.
    pub(crate) packages: &'static [&'static str],
    /// What must come of it.
    pub(crate) programs: &'static [&'static str],
}

/// Where the sources of a module are from.
#[derive(Debug)]
pub(crate) enum Source {
    /// This crate: files by path and text.
    Carried(&'static [(&'static str, &'static str)]),
    /// The Go module proxy.
    Published(Published),
}

/// A module as its authors published it. It is copied and built in its own folder, because its `replace` lines count only
/// there.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) module: &'static str,
    pub(crate) version: &'static str,
    /// What `go mod download -json` calls `Sum`. Anything else is refused.
    pub(crate) sum: &'static str,
    pub(crate) tags: &'static str,
    /// Whether parts of it are written in C.
    pub(crate) cgo: bool,
    /// The variable that a release build sets to the version, where the program does not start without.
    pub(crate) stamp: Option<&'static str>,
    /// Files and folders of the module that are kept beside the programs, such as its manifests.
    pub(crate) kept: &'static [&'static str],
}

impl GoModule {
    /// The folder with the programs. Built first if need be, which takes minutes.
    pub(crate) fn build(&self) -> Result<PathBuf> {
        let folder = cache::folder()?.join(self.folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let entry = folder.join(self.fingerprint());
        // Moved into place as a whole, so it is whole if it is there.
        if entry.is_dir() {
            return Ok(entry);
        }
        let busy = format!("another build of {} is under way", self.what);
        let _lock = cache::lock(&folder.join("lock"), &busy, BUILD_LIMIT)?;
        // The last holder of the lock may have built just this.
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
        let programs = scratch.join("programs");
        fs::create_dir_all(&programs).with_context(|| format!("cannot make {}", programs.display()))?;
        let sources = scratch.join("sources");
        let (tags, cgo, stamp) = match &self.source {
            Source::Carried(files) => {
                write(files, &sources)?;
                ("", false, String::new())
            }
            Source::Published(published) => {
                copy(&published.download(scratch)?, &sources)?;
                for kept in published.kept {
                    copy(&sources.join(kept), &programs.join(kept))?;
                }
                let stamp = published.stamp.map(|variable| format!(" -X {variable}={}", published.version));
                (published.tags, published.cgo, stamp.unwrap_or_default())
            }
        };
        if !self.packages.is_empty() {
            let mut go = command("go", &sources, "readonly");
            go.env("CGO_ENABLED", if cgo { "1" } else { "0" });
            go.args(["build", "-trimpath", "-ldflags", &format!("-s -w{stamp}"), "-tags", tags, "-o"])
                .arg(&programs);
            go.args(self.packages);
            process::run(go, BUILD_LIMIT).context("is Go in PATH?")?.or_fail("`go build`")?;
        }
        for program in self.programs.iter().map(|name| programs.join(name)) {
            if !program.is_file() {
                bail!("`go build` succeeded but made no {}", program.display());
            }
            let synced = fs::File::open(&program).and_then(|file| file.sync_all());
            synced.with_context(|| format!("cannot write {} to the disk", program.display()))?;
        }
        Ok(programs)
    }

    /// Changes whenever anything of the module changes, so that an old program is never taken for a new one.
    fn fingerprint(&self) -> String {
        let mut pieces = Vec::new();
        match &self.source {
            Source::Carried(files) => pieces.extend(files.iter().flat_map(|(name, text)| [*name, *text])),
            Source::Published(Published { module, version, sum, tags, cgo, stamp, kept }) => {
                pieces.extend([*module, *version, *sum, *tags, if *cgo { "cgo" } else { "" }]);
                pieces.extend(*stamp);
                pieces.extend_from_slice(kept);
                pieces.extend_from_slice(self.packages);
            }
        }
        fingerprint(&pieces)
    }
}

impl Published {
    /// The folder of the module in Go's own cache. Fetched first if need be.
    fn download(&self, scratch: &Path) -> Result<PathBuf> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Download {
            #[serde(default)]
            error: String,
            #[serde(default)]
            dir: PathBuf,
            #[serde(default)]
            sum: String,
        }
        let name = format!("{}@{}", self.module, self.version);
        let mut download = command("go", scratch, "mod");
        download.args(["mod", "download", "-json", &name]);
        // It says in JSON what failed, too.
        let said = process::run(download, BUILD_LIMIT).context("is Go in PATH?")?;
        let found: Download = serde_json::from_str(&said.stdout)
            .with_context(|| format!("`go mod download {name}` said: {} {}", said.stdout, said.stderr))?;
        if !found.error.is_empty() {
            bail!("{name} cannot be fetched: {}", found.error);
        }
        if found.sum != self.sum {
            bail!("{name} has the checksum {}, not {}: it is not what was tested", found.sum, self.sum);
        }
        Ok(found.dir)
    }
}

fn write(files: &[(&str, &str)], folder: &Path) -> Result<()> {
    for (name, text) in files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Copies a file or a folder, so that it can be changed and removed: Go's own cache is read-only.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let cannot = || format!("cannot copy {} to {}", from.display(), to.display());
    if !from.is_dir() {
        let parent = to.parent().unwrap_or(to);
        fs::create_dir_all(parent).with_context(cannot)?;
        let content = fs::read(from).with_context(cannot)?;
        return fs::write(to, content).with_context(cannot);
    }
    fs::create_dir_all(to).with_context(cannot)?;
    for entry in fs::read_dir(from).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        copy(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
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

/// Twelve letters that stand for these texts.
fn fingerprint(pieces: &[&str]) -> String {
    let mut all = Vec::new();
    for piece in pieces {
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
        let first = fingerprint(&["go.mod", "a", "go.sum", "b"]);
        assert_eq!(first, fingerprint(&["go.mod", "a", "go.sum", "b"]));
        for other in [["go.mod", "ab", "go.sum", ""], ["go.mod", "a", "go.su", "mb"]] {
            assert_ne!(first, fingerprint(&other), "{other:?}");
        }
    }

    #[test]
    fn another_version_tag_or_package_of_a_published_module_is_another_entry() {
        let of = |version, tags, packages| {
            let published = Published {
                module: "example.com/m",
                version,
                sum: "h1:x",
                tags,
                cgo: false,
                stamp: None,
                kept: &[],
            };
            let source = Source::Published(published);
            GoModule { folder: "m", what: "m", source, packages, programs: &[] }.fingerprint()
        };
        let first = of("v1", "a", &["./cmd"]);
        assert_eq!(first, of("v1", "a", &["./cmd"]));
        assert_ne!(first, of("v2", "a", &["./cmd"]));
        assert_ne!(first, of("v1", "b", &["./cmd"]));
        assert_ne!(first, of("v1", "a", &["."]));
    }

    #[test]
    fn a_copy_can_be_changed_although_its_original_is_read_only() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("deep")).unwrap();
        fs::write(from.join("deep/file"), "text").unwrap();
        let mut permissions = fs::metadata(from.join("deep/file")).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(from.join("deep/file"), permissions).unwrap();
        copy(&from, &to).unwrap();
        assert!(!fs::metadata(to.join("deep/file")).unwrap().permissions().readonly());
        assert_eq!(fs::read_to_string(to.join("deep/file")).unwrap(), "text");
        let error = copy(&from.join("none"), &to.join("none")).unwrap_err().to_string();
        assert!(error.starts_with("cannot copy "), "{error}");
    }
}
