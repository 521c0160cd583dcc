//! Our Go module: carried inside this crate, written out where it is built.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Version;

const KUBERNETES: &str = "k8s.io/kubernetes";
const GO_MOD: &str = include_str!("../../go/go.mod");
const GO_SUM: &str = include_str!("../../go/go.sum");
const SOURCES: [(&str, &str); 3] = [
    ("await.go", include_str!("../../go/await.go")),
    ("forward.go", include_str!("../../go/forward.go")),
    ("main.go", include_str!("../../go/main.go")),
];

/// Changes whenever anything of the module changes, so that an old program is never taken for a new one.
pub(super) fn fingerprint() -> String {
    let mut all = Vec::new();
    for (name, text) in SOURCES.iter().copied().chain([("go.mod", GO_MOD), ("go.sum", GO_SUM)]) {
        for piece in [name, text] {
            all.extend_from_slice(&(piece.len() as u64).to_le_bytes());
            all.extend_from_slice(piece.as_bytes());
        }
    }
    let mut digest = crate::hex_digest(&all);
    digest.truncate(12);
    digest
}

/// Writes the committed module, which is pinned to [`Version::DEFAULT`].
pub(super) fn write_pinned(folder: &Path) -> Result<()> {
    write(folder, GO_MOD, Some(GO_SUM))
}

/// Writes the module for another release, given that release's own module file as `go mod edit -json` shows it.
pub(super) fn write_derived(folder: &Path, version: Version, upstream: &str) -> Result<()> {
    write(folder, &derive(version, upstream)?, None)
}

/// The Go release that the module file in `text` asks for.
pub(super) fn needed_go(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("go ")).map(str::trim)
}

/// As [`needed_go`], for the committed module.
pub(super) fn pinned_needs_go() -> &'static str {
    needed_go(GO_MOD).unwrap_or("1.0")
}

fn write(folder: &Path, go_mod: &str, go_sum: Option<&str>) -> Result<()> {
    let files =
        SOURCES.iter().copied().chain([("go.mod", go_mod)]).chain(go_sum.map(|text| ("go.sum", text)));
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Upstream {
    go: String,
    require: Vec<Requirement>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Requirement {
    path: String,
    version: String,
}

/// Kubernetes requires its own libraries at v0.0.0 and replaces them with folders of its tree. Outside of that tree
/// each has to be replaced with its published release, which is v0.N.P for v1.N.P.
fn derive(version: Version, upstream: &str) -> Result<String> {
    let upstream: Upstream = serde_json::from_str(upstream)
        .with_context(|| format!("cannot read the module file of {KUBERNETES} {version}"))?;
    let required: BTreeMap<&str, &str> =
        upstream.require.iter().map(|one| (one.path.as_str(), one.version.as_str())).collect();
    let needs = |path: &str| {
        required.get(path).copied().with_context(|| format!("{KUBERNETES} {version} does not require {path}"))
    };
    let published = format!("v0.{}.{}", version.minor, version.patch);
    // The server must speak what the release's own client speaks.
    let etcd = needs("go.etcd.io/etcd/client/v3")?;
    let cobra = needs("github.com/spf13/cobra")?;
    let mut text = format!(
        "module volmedic.dev/cluster\n\ngo {}\n\nrequire (\n\tgithub.com/spf13/cobra {cobra}\n\tgo.etcd.io/etcd/server/v3 \
         {etcd}\n\tk8s.io/component-base {published}\n\tk8s.io/kubectl {published}\n\t{KUBERNETES} {version}\n)\n\nreplace (\n",
        upstream.go
    );
    for (path, _) in
        required.iter().filter(|(path, version)| path.starts_with("k8s.io/") && **version == "v0.0.0")
    {
        let _ = writeln!(text, "\t{path} => {path} {published}");
    }
    text.push_str(")\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_gets_its_own_libraries_and_etcd() {
        let upstream = r#"{"Module": {"Path": "k8s.io/kubernetes"}, "Go": "1.27.0", "Require": [
            {"Path": "github.com/spf13/cobra", "Version": "v1.11.0"},
            {"Path": "go.etcd.io/etcd/client/v3", "Version": "v3.8.0"},
            {"Path": "k8s.io/api", "Version": "v0.0.0"},
            {"Path": "k8s.io/kubectl", "Version": "v0.0.0"},
            {"Path": "k8s.io/klog/v2", "Version": "v2.140.0"}]}"#;
        let expected = "module volmedic.dev/cluster\n\ngo 1.27.0\n\nrequire (\n\tgithub.com/spf13/cobra v1.11.0\n\t\
            go.etcd.io/etcd/server/v3 v3.8.0\n\tk8s.io/component-base v0.38.2\n\tk8s.io/kubectl v0.38.2\n\t\
            k8s.io/kubernetes v1.38.2\n)\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.38.2\n\t\
            k8s.io/kubectl => k8s.io/kubectl v0.38.2\n)\n";
        let version = "v1.38.2".parse().unwrap();
        assert_eq!(derive(version, upstream).unwrap(), expected);
        assert_eq!(needed_go(expected), Some("1.27.0"));

        let error = derive(version, r#"{"Go": "1.27.0", "Require": []}"#).unwrap_err().to_string();
        assert_eq!(error, "k8s.io/kubernetes v1.38.2 does not require go.etcd.io/etcd/client/v3");
    }

    #[test]
    fn the_committed_module_is_pinned_to_the_default_release() {
        assert!(
            GO_MOD.contains(&format!("{KUBERNETES} {}\n", Version::DEFAULT)),
            "go.mod and Version::DEFAULT differ"
        );
        assert_eq!(fingerprint().len(), 12);
    }
}
