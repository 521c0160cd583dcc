//! `cargo xtask dependencies`: licences, sources and banned crates, from what cargo resolved and `deny.toml`. It needs no
//! network and knows no advisories; those are up to cargo-deny, which `cargo xtask deny` runs with the same file.

mod licence;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::say;
use crate::workspace::{self, Workspace};
use rules::Rules;

/// Check licences, sources and banned crates against deny.toml, offline
#[derive(Debug, clap::Args)]
#[command(after_help = "Advisories are checked by `cargo xtask deny`.\n\n\
                        Exit codes: 0 nothing to correct, 1 the findings are printed, 2 the command line is wrong.")]
pub(crate) struct Args {}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for a package of this workspace.
    source: Option<String>,
}

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let read = |name: &str| {
        let path = workspace.root.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let rules = Rules::read(&read("deny.toml")?)?;
    // The lock file also has what other machines need, which cargo describes only after it downloaded it.
    let locked = locked(&read("Cargo.lock")?);
    let linked = linked(workspace)?;
    let findings = [rules.check_locked(&locked), rules.check_licences(&linked)].concat();
    for finding in &findings {
        say::error(format_args!("{finding}"));
    }
    if !findings.is_empty() {
        bail!(
            "{} findings; replace the crate, or change deny.toml and say why in the commit",
            findings.len()
        );
    }
    say::line(format_args!(
        "{} packages in Cargo.lock and {} licences, nothing to correct; advisories are checked by `cargo xtask deny`",
        locked.len(),
        linked.len()
    ));
    Ok(())
}

/// What is compiled on this machine.
fn linked(workspace: &Workspace) -> Result<Vec<Package>> {
    let target = host()?;
    let mut command = workspace::cargo();
    command.args(["metadata", "--format-version=1", "--locked", "--offline", "--all-features"]);
    command.arg(format!("--filter-platform={target}"));
    let output = command.current_dir(&workspace.root).stdin(Stdio::null()).output();
    let output = output.context("cargo did not start")?;
    if !output.status.success() {
        bail!(
            "`cargo metadata --offline` failed; download the crates with `cargo fetch` first: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)
        .context("`cargo metadata` printed what this program cannot read")?;
    Ok(metadata.packages.into_iter().filter(|package| package.source.is_some()).collect())
}

fn host() -> Result<String> {
    let output = std::process::Command::new("rustc").arg("-vV").stdin(Stdio::null()).output();
    let output = output.context("rustc did not start; is it in PATH?")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned);
    host.with_context(|| format!("`rustc -vV` does not say what machine this is: {text}"))
}

/// The packages of a lock file. Each field is on a line of its own.
fn locked(text: &str) -> Vec<Package> {
    let package = |entry: &str| {
        let field = |name: &str| {
            let value = |line: &str| {
                line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"').map(str::to_owned)
            };
            entry.lines().find_map(value)
        };
        Some(Package {
            name: field("name")?,
            version: field("version")?,
            license: None,
            source: field("source"),
        })
    };
    text.split("[[package]]").filter_map(package).collect()
}

impl Rules {
    fn check_locked(&self, packages: &[Package]) -> Vec<String> {
        let mut versions = BTreeMap::<&str, BTreeSet<&str>>::new();
        let mut findings = Vec::new();
        for package in packages {
            versions.entry(&package.name).or_default().insert(&package.version);
            let Some(source) = &package.source else { continue };
            let registry = source.strip_prefix("registry+");
            if !registry.is_some_and(|registry| self.registries.iter().any(|known| known == registry)) {
                findings.push(format!(
                    "{} {} comes from {source}, which deny.toml does not allow",
                    package.name, package.version
                ));
            }
        }
        for (name, versions) in versions {
            if self.banned.iter().any(|banned| banned == name) {
                findings.push(format!(
                    "{name} is banned by deny.toml; `cargo tree --invert {name}` shows what needs it"
                ));
            }
            if versions.len() > 1 && self.single.iter().any(|single| single == name) {
                let versions = versions.into_iter().collect::<Vec<_>>().join(" and ");
                findings.push(format!("{name} is there in the versions {versions}; deny.toml allows one"));
            }
        }
        findings
    }

    fn check_licences(&self, packages: &[Package]) -> Vec<String> {
        let finding = |package: &Package| {
            let name = format!("{} {}", package.name, package.version);
            match &package.license {
                None => Some(format!("{name} names no licence")),
                Some(text) => match licence::allows(text, &self.licences) {
                    Some(true) => None,
                    Some(false) => {
                        Some(format!("{name} has the licence {text}, which deny.toml does not allow"))
                    }
                    None => Some(format!("{name} has the licence {text:?}, which cannot be read")),
                },
            }
        };
        packages.iter().filter_map(finding).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"version = 4

[[package]]
name = "ours"
version = "0.2.0"
dependencies = [
 "tokio 1.0.0",
]

[[package]]
name = "tokio"
version = "1.0.0"
source = "registry+https://registry.example/index"
checksum = "00"

[[package]]
name = "tokio"
version = "2.0.0"
source = "registry+https://registry.example/index"

[[package]]
name = "openssl"
version = "1.0.0"
source = "git+https://git.example/openssl#00"
"#;

    fn rules() -> Rules {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Rules {
            licences: words(&["MIT"]),
            registries: words(&["https://registry.example/index"]),
            banned: words(&["openssl"]),
            single: words(&["tokio"]),
        }
    }

    #[test]
    fn a_foreign_source_a_banned_crate_and_a_second_version_are_found() {
        let packages = locked(LOCK);
        assert_eq!(packages.len(), 4);
        assert_eq!(
            rules().check_locked(&packages),
            [
                "openssl 1.0.0 comes from git+https://git.example/openssl#00, which deny.toml does not allow",
                "openssl is banned by deny.toml; `cargo tree --invert openssl` shows what needs it",
                "tokio is there in the versions 1.0.0 and 2.0.0; deny.toml allows one",
            ]
        );
    }

    #[test]
    fn licences_that_are_missing_unknown_or_not_allowed_are_found() {
        let package = |license: Option<&str>| Package {
            name: "a".into(),
            version: "1.0.0".into(),
            license: license.map(str::to_owned),
            source: Some(String::new()),
        };
        let packages = [Some("MIT"), None, Some("AGPL-3.0"), Some("MIT OR (")].map(package);
        assert_eq!(
            rules().check_licences(&packages),
            [
                "a 1.0.0 names no licence",
                "a 1.0.0 has the licence AGPL-3.0, which deny.toml does not allow",
                "a 1.0.0 has the licence \"MIT OR (\", which cannot be read",
            ]
        );
    }

    #[test]
    fn this_workspace_is_read_whole() {
        let workspace = Workspace::here().unwrap();
        let text = fs::read_to_string(workspace.root.join("Cargo.lock")).unwrap();
        let packages = locked(&text);
        assert_eq!(packages.len(), text.matches("[[package]]").count());
        assert!(packages.iter().any(|package| package.name == "tokio" && package.source.is_some()));
        run(&workspace).unwrap();
    }
}
