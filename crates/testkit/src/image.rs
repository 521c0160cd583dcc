//! Container images, put together without a container daemon: one layer, in an archive that holds an OCI layout and
//! beside it what `docker load` reads. The same files always give the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{hex_digest, process};

const LDD_LIMIT: Duration = Duration::from_secs(30);

/// An image to be.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// With its tag, such as `volmedic:0.1.0`.
    pub name: String,
    pub entrypoint: Vec<String>,
    pub command: Vec<String>,
    pub environment: Vec<String>,
    /// As `65532:65532`; the runtime's default if empty.
    pub user: String,
    pub labels: BTreeMap<String, String>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    path: String,
    mode: u32,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Folder,
    File(Vec<u8>),
    Link(String),
}

impl Image {
    /// Nothing in it yet.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// A folder, by its path without a leading slash.
    pub fn folder(&mut self, path: &str, mode: u32) {
        self.entries.push(Entry { path: format!("{path}/"), mode, what: What::Folder });
    }

    pub fn file(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        self.entries.push(Entry { path: path.to_owned(), mode, what: What::File(content) });
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.entries.push(Entry { path: path.to_owned(), mode: 0o777, what: What::Link(target.to_owned()) });
    }

    /// A program and, unless it is a static one, the shared libraries it is linked to, where it looks for them.
    pub fn program(&mut self, path: &str, program: &Path) -> Result<()> {
        let read = |file: &Path| fs::read(file).with_context(|| format!("cannot read {}", file.display()));
        self.file(path, 0o755, read(program)?);
        let mut ldd = Command::new("ldd");
        ldd.arg(program);
        let said = process::run(ldd, LDD_LIMIT)?;
        // Also what it prints for a static one.
        let lines = if said.success { said.stdout.as_str() } else { "" };
        for library in lines.lines().filter_map(shared_library) {
            let inside = library.trim_start_matches('/').to_owned();
            self.file(&inside, 0o755, read(Path::new(library))?);
        }
        Ok(())
    }

    /// The archive that `ctr images import`, `docker load`, `podman load` and `skopeo copy oci-archive:` take.
    pub fn archive(&self) -> Result<Vec<u8>> {
        let layer = self.layer()?;
        let config = json!({
            "architecture": architecture()?,
            "os": "linux",
            "config": {
                "User": self.user,
                "Env": self.environment,
                "Entrypoint": self.entrypoint,
                "Cmd": self.command,
                "Labels": self.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", hex_digest(&layer))]},
            "history": [{"created_by": "volmedic"}],
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": described("application/vnd.oci.image.config.v1+json", &config),
            "layers": [described("application/vnd.oci.image.layer.v1.tar", &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut of_index = described("application/vnd.oci.image.manifest.v1+json", &manifest);
        let name = full_name(&self.name);
        let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        of_index["annotations"] =
            json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag});
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [of_index],
        });
        let for_docker = json!([{"Config": blob(&config), "RepoTags": [name], "Layers": [blob(&layer)]}]);

        let mut tar = tar::Builder::new(Vec::new());
        // First, because readers decide by it what kind of archive this is.
        append(&mut tar, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        append(&mut tar, "index.json", 0o644, index.to_string().as_bytes())?;
        append(&mut tar, "manifest.json", 0o644, for_docker.to_string().as_bytes())?;
        for content in [&config, &manifest, &layer] {
            append(&mut tar, &blob(content), 0o644, content)?;
        }
        Ok(tar.into_inner()?)
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for entry in &self.entries {
            match &entry.what {
                What::File(content) => append(&mut tar, &entry.path, entry.mode, content)?,
                What::Folder => {
                    let mut header = header(entry.mode, 0);
                    header.set_entry_type(tar::EntryType::Directory);
                    tar.append_data(&mut header, &entry.path, std::io::empty())?;
                }
                What::Link(target) => {
                    let mut header = header(entry.mode, 0);
                    header.set_entry_type(tar::EntryType::Symlink);
                    tar.append_link(&mut header, &entry.path, target)?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }
}

/// The name under which the kubelet asks for an image: with the registry that every runtime adds when none is given.
/// containerd stores an imported image under exactly the name in the archive.
pub fn full_name(name: &str) -> String {
    match name.split_once('/') {
        None => format!("docker.io/library/{name}"),
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
    }
}

/// The file in a line of ldd: `name => /path (address)`, or `/path (address)` for the loader.
fn shared_library(line: &str) -> Option<&str> {
    line.split_whitespace().find(|word| word.starts_with('/'))
}

fn blob(content: &[u8]) -> String {
    format!("blobs/sha256/{}", hex_digest(content))
}

fn described(kind: &str, content: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": format!("sha256:{}", hex_digest(content)), "size": content.len()})
}

fn append<W: Write>(tar: &mut tar::Builder<W>, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = header(mode, content.len() as u64);
    Ok(tar.append_data(&mut header, path, content)?)
}

/// Without times and owners, so that the same files always give the same image.
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

    fn image() -> Image {
        let mut image = Image::new("some.where/thing:7");
        image.entrypoint = vec!["/bin/a".into()];
        image.folder("bin", 0o755);
        image.file("bin/a", 0o755, b"a program".to_vec());
        image.link("bin/b", "a");
        image
    }

    /// What a descriptor points to, if its digest and size are right.
    fn follow<'a>(all: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let content = &all[&format!("blobs/sha256/{digest}")];
        assert_eq!(
            (hex_digest(content).as_str(), json!(content.len())),
            (digest, descriptor["size"].clone())
        );
        content
    }

    #[test]
    fn the_index_leads_to_the_files_and_the_name() {
        let made = image().archive().unwrap();
        assert_eq!(made, image().archive().unwrap(), "not reproducible");
        let all = entries(&made);
        let read = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
        let index = read(&all["index.json"]);
        let names = &index["manifests"][0]["annotations"];
        assert_eq!(names["io.containerd.image.name"], "some.where/thing:7");
        assert_eq!(names["org.opencontainers.image.ref.name"], "7");
        let manifest = read(follow(&all, &index["manifests"][0]));
        let config = read(follow(&all, &manifest["config"]));
        assert_eq!(config["config"]["Entrypoint"][0], "/bin/a");
        let layer = follow(&all, &manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex_digest(layer)));
        let inner = entries(layer);
        assert_eq!((inner["bin/a"].as_slice(), inner["bin/b"].as_slice()), (&b"a program"[..], &b"a"[..]));
    }

    #[test]
    fn a_program_brings_its_libraries_along() {
        let mut image = Image::new("a:b");
        image.program("here", &std::env::current_exe().unwrap()).unwrap();
        let layer = image.layer().unwrap();
        let inner = entries(&layer);
        assert!(inner.keys().any(|path| path.contains("libc.so")), "{:?}", inner.keys());
        assert_eq!(shared_library("\tlibm.so.6 => /lib/libm.so.6 (0x0)"), Some("/lib/libm.so.6"));
        assert_eq!(shared_library("\tlinux-vdso.so.1 (0x0)"), None);
        assert_eq!(shared_library("\tstatically linked"), None);
    }

    #[test]
    fn a_name_without_a_registry_gets_the_one_that_every_runtime_adds() {
        for (name, full) in [
            ("volmedic:0.1.0", "docker.io/library/volmedic:0.1.0"),
            ("acme/volmedic:0.1.0", "docker.io/acme/volmedic:0.1.0"),
            ("registry.example.com/volmedic:1", "registry.example.com/volmedic:1"),
            ("registry:5000/volmedic:1", "registry:5000/volmedic:1"),
            ("localhost/volmedic:1", "localhost/volmedic:1"),
        ] {
            assert_eq!(full_name(name), full);
        }
    }

    #[test]
    fn what_docker_reads_is_the_same() {
        let all = entries(&image().archive().unwrap());
        let manifest: Value = serde_json::from_slice(&all["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "some.where/thing:7");
        let layer = &all[manifest[0]["Layers"][0].as_str().unwrap()];
        let config: Value = serde_json::from_slice(&all[manifest[0]["Config"].as_str().unwrap()]).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex_digest(layer)));
    }
}
