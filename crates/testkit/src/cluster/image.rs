//! The one image of a node, made of busybox: the archive that `ctr images import` takes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::process;

/// Ends at once when it is told to, which a bare `sleep` does not: the kernel keeps signals without a handler from
/// the first process of a container. So pods and their sandboxes stop in no time.
const WAIT: &str = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done";

/// Writes the archive to `path`.
pub(super) fn write(path: &Path) -> Result<()> {
    let busybox = find()?;
    let list = {
        let mut command = Command::new(&busybox);
        command.arg("--list");
        process::run(command, Duration::from_secs(20))?.or_fail("`busybox --list`")?
    };
    let program = fs::read(&busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
    let archive =
        archive(&program, list.split_whitespace()).context("cannot put the node's image together")?;
    fs::write(path, archive).with_context(|| format!("cannot write {}", path.display()))
}

fn find() -> Result<PathBuf> {
    let places = ["/usr/bin/busybox.static", "/bin/busybox.static", "/usr/bin/busybox", "/bin/busybox"];
    let found = places.into_iter().map(PathBuf::from).find(|place| place.is_file());
    found.with_context(|| format!("busybox is not in any of {}; install busybox-static", places.join(", ")))
}

/// One layer, its configuration, and the list that ties both to a name.
fn archive<'a>(program: &[u8], applets: impl Iterator<Item = &'a str>) -> Result<Vec<u8>> {
    let layer = layer(program, applets)?;
    let config = json!({
        "architecture": architecture()?,
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh", "-c", WAIT]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", crate::hex_digest(&layer))]},
        "history": [{"created_by": "volmedic"}],
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [crate::IMAGE], "Layers": ["layer.tar"]}]);
    let mut tar = tar::Builder::new(Vec::new());
    file(&mut tar, "layer.tar", 0o644, &layer)?;
    file(&mut tar, "config.json", 0o644, config.to_string().as_bytes())?;
    file(&mut tar, "manifest.json", 0o644, manifest.to_string().as_bytes())?;
    Ok(tar.into_inner()?)
}

fn layer<'a>(program: &[u8], applets: impl Iterator<Item = &'a str>) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (folder, mode) in [("bin/", 0o755), ("etc/", 0o755), ("root/", 0o700), ("tmp/", 0o1777)] {
        let mut header = header(mode, 0);
        header.set_entry_type(tar::EntryType::Directory);
        tar.append_data(&mut header, folder, std::io::empty())?;
    }
    file(&mut tar, "bin/busybox", 0o755, program)?;
    file(
        &mut tar,
        "etc/passwd",
        0o644,
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    )?;
    file(&mut tar, "etc/group", 0o644, b"root:x:0:\nnobody:x:65534:\n")?;
    for applet in applets.filter(|applet| *applet != "busybox") {
        let mut header = header(0o777, 0);
        header.set_entry_type(tar::EntryType::Symlink);
        tar.append_link(&mut header, format!("bin/{applet}"), "busybox")?;
    }
    Ok(tar.into_inner()?)
}

fn file<W: Write>(tar: &mut tar::Builder<W>, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = header(mode, content.len() as u64);
    Ok(tar.append_data(&mut header, path, content)?)
}

/// Without times and owners, so that the same busybox always gives the same image.
fn header(mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Go's name for this machine.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no image can be made for {other} machines"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    fn entries(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut tar = tar::Archive::new(archive);
        let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            if let Some(target) = entry.link_name().unwrap() {
                content = target.to_string_lossy().into_owned().into_bytes();
            }
            (entry.path().unwrap().display().to_string(), content)
        };
        tar.entries().unwrap().map(read).collect()
    }

    #[test]
    fn the_archive_ties_name_configuration_and_layer_together() {
        let made = archive(b"a program", ["busybox", "sh", "cat"].into_iter()).unwrap();
        assert_eq!(
            made,
            archive(b"a program", ["busybox", "sh", "cat"].into_iter()).unwrap(),
            "not reproducible"
        );
        let outer = entries(&made);
        let manifest: serde_json::Value = serde_json::from_slice(&outer["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], crate::IMAGE);
        let layer = &outer[manifest[0]["Layers"][0].as_str().unwrap()];
        let config: serde_json::Value = serde_json::from_slice(&outer["config.json"]).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", crate::hex_digest(layer)));

        let inner = entries(layer);
        assert_eq!(inner["bin/busybox"], b"a program");
        assert_eq!(
            (inner["bin/sh"].as_slice(), inner["bin/cat"].as_slice()),
            (&b"busybox"[..], &b"busybox"[..])
        );
    }
}
