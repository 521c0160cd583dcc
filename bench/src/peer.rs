//! Others that do the controller's work, built from their Go modules and kept outside of the checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use volmedic_testkit::cache;

use crate::say;

/// The release that is measured when none is named.
pub(crate) const DEFAULT: &str = "v0.18.0";
const MODULE: &str = "github.com/kubernetes-csi/external-health-monitor";
const PACKAGE: &str = "./cmd/csi-external-health-monitor-controller";
const DOWNLOAD_LIMIT: Duration = Duration::from_mins(10);
const BUILD_LIMIT: Duration = Duration::from_mins(45);

/// A program that takes external-health-monitor's flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
}

/// A peer that was built by somebody else, written as `name=file`.
pub(crate) fn given(text: &str) -> Result<Peer, String> {
    let split = text.split_once('=').filter(|(name, file)| is_plain(name) && !file.is_empty());
    let (name, file) =
        split.ok_or("write it as NAME=FILE; the name may have letters, digits, `.` and `-`")?;
    Ok(Peer { name: name.to_owned(), program: file.into() })
}

/// The name becomes part of a file's name.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
}

/// A release of external-health-monitor. Built first if need be, which takes minutes.
pub(crate) fn build(release: &str) -> Result<Peer> {
    if !is_plain(release) {
        bail!("`{release}` is no release; write it as {DEFAULT}");
    }
    let program = program(MODULE, release, PACKAGE)?;
    Ok(Peer { name: format!("external-health-monitor-{release}"), program })
}

/// A program of a Go module, from the cache or built into it.
fn program(module: &str, release: &str, package: &str) -> Result<PathBuf> {
    let folder = cache::folder()?.join("peers");
    let name = module.rsplit('/').next().unwrap_or(module);
    let kept = folder.join(format!("{name}-{release}"));
    if kept.is_file() {
        return Ok(kept);
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let scratch = tempfile::tempdir_in(&folder).context("cannot make a folder to build in")?;
    say::line(&format!("building {name} {release} from its Go module"));
    let source = download(module, release, scratch.path())?;
    // In the module's own folder, because only there its replacements count. It is read-only, and stays as it is.
    let built = scratch.path().join("program");
    let mut command = go(&source);
    command.args(["build", "-trimpath", "-o"]).arg(&built).arg(package);
    finish(command, BUILD_LIMIT)?;
    fs::rename(&built, &kept)
        .with_context(|| format!("cannot move the built program to {}", kept.display()))?;
    Ok(kept)
}

/// Where Go put the module's sources.
fn download(module: &str, release: &str, folder: &Path) -> Result<PathBuf> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        #[serde(default)]
        error: String,
        #[serde(default)]
        dir: PathBuf,
    }
    let output = folder.join("answer");
    let file = fs::File::create(&output).context("cannot write Go's answer")?;
    let mut command = go(folder);
    command.args(["mod", "download", "-json", &format!("{module}@{release}")]).stdout(file);
    let finished = finish(command, DOWNLOAD_LIMIT);
    let text = fs::read(&output).context("cannot read Go's answer")?;
    match (serde_json::from_slice::<Answer>(&text), finished) {
        (Ok(Answer { error, dir }), _) if error.is_empty() && dir.is_dir() => Ok(dir),
        // The rest of what Go says is which server it asked.
        (Ok(Answer { error, .. }), _) if !error.is_empty() => {
            bail!(
                "its Go module cannot be had here ({})",
                error.rsplit(": ").next().unwrap_or_default().trim()
            )
        }
        (_, Err(error)) => Err(error),
        (_, Ok(())) => bail!("`go mod download` gave no answer that can be read"),
    }
}

fn go(folder: &Path) -> Command {
    let usual = Path::new("/usr/local/go/bin/go");
    let mut command = Command::new(if usual.is_file() { usual } else { Path::new("go") });
    command
        .current_dir(folder)
        .env("GOFLAGS", "-mod=readonly -buildvcs=false")
        .env("GOWORK", "off")
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null());
    command
}

/// Runs Go to its end, never past the limit.
fn finish(mut command: Command, limit: Duration) -> Result<()> {
    let mut child = command.spawn().context("Go does not start; is it installed and in PATH?")?;
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait().context("cannot wait for Go")? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => bail!("Go failed ({status}); what it said is above"),
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("Go did not end within {} minutes and was stopped", limit.as_secs() / 60);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_a_name_and_a_file() {
        let peer = given("ehm-0.18=/usr/bin/ehm").unwrap();
        assert_eq!((peer.name.as_str(), peer.program.to_str()), ("ehm-0.18", Some("/usr/bin/ehm")));
        for bad in ["", "ehm", "=/usr/bin/ehm", "ehm=", "a/b=/usr/bin/ehm"] {
            assert!(given(bad).is_err(), "{bad}");
        }
        assert!(build("../v1").unwrap_err().to_string().starts_with("`../v1` is no release"));
    }
}
