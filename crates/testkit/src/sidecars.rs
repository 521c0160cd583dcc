//! The programs that stand between a CSI driver and Kubernetes, and a way to run them beside a cluster.
//!
//! Provisioning is done by csi-provisioner itself, built from its Go module. csi-attacher and node-driver-registrar are
//! not used: drivers here ask for no attaching (`attachRequired: false`), and a small registrar of ours speaks the
//! kubelet's registration protocol.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::process;

mod companion;

pub use companion::Companion;

/// Free space that a first build needs: modules, build cache, linking.
const SPACE: u64 = 2 << 30;
/// A first build takes a few minutes on two cores and fetches modules before.
const BUILD_LIMIT: Duration = Duration::from_mins(30);
const PROVISIONER: &str = "github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner";
/// The module, by path and text.
const FILES: [(&str, &str); 3] = [
    ("go.mod", include_str!("../go-sidecars/go.mod")),
    ("go.sum", include_str!("../go-sidecars/go.sum")),
    ("registrar/main.go", include_str!("../go-sidecars/registrar/main.go")),
];

/// Where the built programs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecars {
    /// csi-provisioner: makes and deletes volumes as claims come and go.
    pub provisioner: PathBuf,
    /// Registers a driver with the kubelet: `registrar DRIVER-NAME DRIVER-SOCKET REGISTRATION-SOCKET`.
    pub registrar: PathBuf,
}

impl Sidecars {
    fn at(entry: &Path) -> Self {
        Self { provisioner: entry.join("csi-provisioner"), registrar: entry.join("registrar") }
    }
}

/// The programs of the committed module. Built first if need be, which takes minutes.
pub fn build() -> Result<Sidecars> {
    let folder = cache::folder()?.join("sidecars");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let entry = folder.join(fingerprint(&FILES));
    // Moved into place as a whole, so it is whole if it is there.
    if entry.is_dir() {
        return Ok(Sidecars::at(&entry));
    }
    let _lock =
        cache::lock(&folder.join("lock"), "another build of the CSI sidecars is under way", BUILD_LIMIT)?;
    // Whoever held the lock may have built just this.
    if !entry.is_dir() {
        make(&folder, &entry).context("the CSI sidecars could not be built")?;
    }
    Ok(Sidecars::at(&entry))
}

fn make(folder: &Path, entry: &Path) -> Result<()> {
    let start = Instant::now();
    cache::require_space(folder, SPACE)?;
    cache::say("building the CSI sidecars; the first time takes minutes");
    // Under the lock, so nobody else is in there: what an earlier build left is rubbish.
    let scratch = folder.join("scratch");
    cache::remove(&scratch)?;
    let built = compile(&scratch).and_then(|programs| {
        fs::rename(&programs, entry)
            .with_context(|| format!("cannot move the built programs to {}", entry.display()))
    });
    // Also after a failure, or a failing build would fill the disk.
    cache::remove(&scratch)?;
    built?;
    cache::say(&format!("CSI sidecars: built in {} s", start.elapsed().as_secs()));
    Ok(())
}

/// Builds the module in `scratch` and returns the folder with the programs.
fn compile(scratch: &Path) -> Result<PathBuf> {
    for (name, text) in FILES {
        let path = scratch.join(name);
        let parent = path.parent().unwrap_or(scratch);
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let programs = scratch.join("programs");
    fs::create_dir_all(&programs).with_context(|| format!("cannot make {}", programs.display()))?;
    let mut go = Command::new("go");
    go.current_dir(scratch)
        // Whatever the user set for work of their own must not change what is built here.
        .env_remove("GOOS")
        .env_remove("GOARCH")
        .env_remove("GOEXPERIMENT")
        .env("GOFLAGS", "-mod=readonly -buildvcs=false")
        .env("GOWORK", "off")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(&programs)
        .args([PROVISIONER, "./registrar"]);
    process::run(go, BUILD_LIMIT).context("is Go in PATH?")?.or_fail("`go build`")?;
    for program in [Sidecars::at(&programs).provisioner, Sidecars::at(&programs).registrar] {
        if !program.is_file() {
            bail!("`go build` succeeded but made no {}", program.display());
        }
        let synced = fs::File::open(&program).and_then(|file| file.sync_all());
        synced.with_context(|| format!("cannot write {} to the disk", program.display()))?;
    }
    Ok(programs)
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
