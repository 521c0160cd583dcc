//! For krew, kubectl's manager of plugins: an archive with the program under its name as a plugin, the license, and the
//! manifest that names it. Only for the platform that was built.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use volmedic_testkit::hex_digest;

use super::{PROGRAM, RUN_LIMIT};
use crate::child;

const PLUGIN: &str = "kubectl-volmedic";
/// The program asks itself for completions under this name.
const COMPLETION: &str = "kubectl_complete-volmedic";

/// What krew calls the machine that a compiler names as in `x86_64-unknown-linux-gnu`.
fn platform(target: &str) -> Result<(&'static str, &'static str)> {
    let os = if target.contains("-linux-") {
        "linux"
    } else {
        bail!("krew's name for the system of {target} is unknown")
    };
    let arch = match target.split('-').next() {
        Some("x86_64") => "amd64",
        Some("aarch64") => "arm64",
        _ => bail!("krew's name for the processor of {target} is unknown; add it in dist/krew.rs"),
    };
    Ok((os, arch))
}

/// Puts the archive and the manifest into the folder. The same program always gives the same bytes.
pub(super) fn write(
    folder: &Path,
    root: &Path,
    target: &str,
    version: &str,
    url: Option<&str>,
) -> Result<()> {
    let (os, arch) = platform(target)?;
    let room = tempfile::tempdir().context("no folder for the archive")?;
    let put = |from: &Path, name: &str| {
        let to = room.path().join(name);
        fs::copy(from, to).map(drop).with_context(|| format!("cannot copy {}", from.display()))
    };
    put(&folder.join(PROGRAM), PLUGIN)?;
    put(&root.join("LICENSE"), "LICENSE")?;
    std::os::unix::fs::symlink(PLUGIN, room.path().join(COMPLETION)).context("cannot link the program")?;
    let name = format!("{PLUGIN}-{version}-{os}-{arch}.tar.gz");
    let archive = folder.join(&name);
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.args(["--mode=u=rwX,go=rX", "--use-compress-program=gzip --no-name --best", "--file"]);
    tar.arg(&archive).arg("--directory").arg(room.path()).args(["LICENSE", PLUGIN, COMPLETION]);
    tar.stdin(Stdio::null());
    child::wait(tar, RUN_LIMIT).map_err(|why| anyhow!("the plugin cannot be packed: tar {why}"))?;
    let bytes = fs::read(&archive).with_context(|| format!("cannot read {}", archive.display()))?;
    let uri = url.map_or_else(|| name.clone(), |url| format!("{}/{name}", url.trim_end_matches('/')));
    let text = manifest(version, os, arch, &uri, &hex_digest(&bytes));
    let file = folder.join("volmedic.krew.yaml");
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn manifest(version: &str, os: &str, arch: &str, uri: &str, digest: &str) -> String {
    // Text of the caller, which JSON quotes as YAML reads it.
    let uri = serde_json::Value::from(uri);
    format!(
        "\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: volmedic
spec:
  version: v{version}
  shortDescription: Show, explain and heal unhealthy volumes
  description: |
    Shows every claim with the health of its volume, explains one claim with
    evidence, history and what to do, and asks the healer to heal it. It reads
    claims, volumes, pods, nodes and events, and needs nothing installed in the
    cluster; with Volmedic installed it shows what its agents and hub store.
  caveats: |
    kubectl completes claims, namespaces and reasons if {COMPLETION}
    is in PATH. It is a link to {PLUGIN}:
      ln -s \"$(command -v {PLUGIN})\" ~/.local/bin/{COMPLETION}
  platforms:
    - selector:
        matchLabels:
          os: {os}
          arch: {arch}
      uri: {uri}
      sha256: {digest}
      bin: {PLUGIN}
"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::workspace::Workspace;

    /// What krew itself checks of a manifest before it installs.
    #[test]
    fn the_manifest_names_the_archive_and_the_archive_has_the_license() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(PROGRAM), "#!/bin/sh\necho it runs\n").unwrap();
        let root = Workspace::here().unwrap().root;
        let made = |url| {
            write(folder.path(), &root, "x86_64-unknown-linux-gnu", "0.2.0", url).unwrap();
            fs::read(folder.path().join("kubectl-volmedic-0.2.0-linux-amd64.tar.gz")).unwrap()
        };
        let archive = made(Some("https://example.net/v0.2.0/"));
        let manifest = fs::read_to_string(folder.path().join("volmedic.krew.yaml")).unwrap();
        let manifest: Value = serde_saphyr::from_str(&manifest).unwrap();
        assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
        assert_eq!(
            (&manifest["kind"], &manifest["metadata"]["name"]),
            (&"Plugin".into(), &"volmedic".into())
        );
        let spec = &manifest["spec"];
        assert_eq!(spec["version"], "v0.2.0");
        let short = spec["shortDescription"].as_str().unwrap();
        assert!(short.len() <= 50 && !short.ends_with('.'), "{short}");
        let platforms = spec["platforms"].as_array().unwrap();
        assert_eq!(platforms.len(), 1, "only what was built");
        let platform = &platforms[0];
        assert_eq!(platform["selector"]["matchLabels"], serde_json::json!({"os": "linux", "arch": "amd64"}));
        assert_eq!(platform["uri"], "https://example.net/v0.2.0/kubectl-volmedic-0.2.0-linux-amd64.tar.gz");
        assert_eq!(platform["sha256"], hex_digest(&archive).as_str());
        assert_eq!(platform["bin"], PLUGIN);

        assert!(archive == made(None), "not reproducible");
        let manifest = fs::read_to_string(folder.path().join("volmedic.krew.yaml")).unwrap();
        let uri = "      uri: \"kubectl-volmedic-0.2.0-linux-amd64.tar.gz\"";
        assert!(manifest.lines().any(|line| line == uri), "{manifest}");

        let unpacked = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar");
        tar.arg("--extract")
            .arg("--file")
            .arg(folder.path().join("kubectl-volmedic-0.2.0-linux-amd64.tar.gz"));
        assert!(tar.arg("--directory").arg(unpacked.path()).status().unwrap().success());
        let license = fs::read(unpacked.path().join("LICENSE")).unwrap();
        assert_eq!(license, fs::read(root.join("LICENSE")).unwrap());
        assert_eq!(
            fs::read_link(unpacked.path().join(COMPLETION)).unwrap(),
            Path::new(PLUGIN),
            "the link must hold wherever it is unpacked"
        );
    }

    #[test]
    fn a_machine_that_krew_has_no_name_for_is_refused() {
        assert_eq!(platform("aarch64-unknown-linux-musl").unwrap(), ("linux", "arm64"));
        assert!(platform("x86_64-apple-darwin").unwrap_err().to_string().contains("the system of"));
        assert!(
            platform("riscv64gc-unknown-linux-gnu").unwrap_err().to_string().contains("the processor of")
        );
    }
}
