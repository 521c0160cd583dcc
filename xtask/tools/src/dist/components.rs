//! What is linked into a program, from what cargo resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::workspace::{self, Workspace};

/// The package of a program and everything that is linked into it.
#[derive(Debug)]
pub(super) struct Components {
    /// By name and version. The program's own package is one of them.
    pub(super) packages: Vec<Package>,
    /// For each package, by its position, those that it uses itself.
    pub(super) uses: Vec<BTreeSet<usize>>,
    /// The position of the program's own package.
    pub(super) root: usize,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Package {
    id: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    pub(super) description: Option<String>,
    /// None for a package of this workspace.
    pub(super) source: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `dev`, `build`, or nothing for what is linked in.
    kind: Option<String>,
}

impl Components {
    /// Of the package `program`, as it is built for `target`.
    pub(super) fn of(workspace: &Workspace, program: &str, target: &str) -> Result<Self> {
        let mut command = workspace::cargo();
        command.args(["metadata", "--format-version=1", "--locked", &format!("--filter-platform={target}")]);
        let output = command.current_dir(&workspace.root).stdin(Stdio::null()).output();
        let output = output.context("cargo did not start")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Self::read(&output.stdout, program)
    }

    /// From what `cargo metadata` printed.
    pub(super) fn read(metadata: &[u8], program: &str) -> Result<Self> {
        let metadata: Metadata = serde_json::from_slice(metadata)
            .context("`cargo metadata` printed what this program cannot read")?;
        let nodes: BTreeMap<&str, &Node> =
            metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let root =
            metadata.packages.iter().find(|package| package.name == program && package.source.is_none());
        let root = root.with_context(|| format!("there is no package {program} in this workspace"))?;

        let mut linked = BTreeSet::from([root.id.as_str()]);
        let mut open = vec![root.id.as_str()];
        let mut below = BTreeMap::new();
        while let Some(id) = open.pop() {
            let node = nodes.get(id).with_context(|| format!("cargo did not resolve {id}"))?;
            let is_linked =
                |dependency: &&Dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
            let ids: BTreeSet<&str> =
                node.deps.iter().filter(is_linked).map(|dependency| dependency.pkg.as_str()).collect();
            open.extend(ids.iter().copied().filter(|id| linked.insert(id)));
            below.insert(id, ids);
        }
        let mut packages: Vec<&Package> =
            metadata.packages.iter().filter(|package| linked.contains(package.id.as_str())).collect();
        packages.sort_by_key(|package| (&package.name, &package.version));
        let position: BTreeMap<&str, usize> =
            packages.iter().enumerate().map(|(position, package)| (package.id.as_str(), position)).collect();
        let find =
            |id: &str| position.get(id).copied().with_context(|| format!("cargo does not describe {id}"));
        let uses =
            packages.iter().map(|package| below[package.id.as_str()].iter().map(|id| find(id)).collect());
        Ok(Self {
            uses: uses.collect::<Result<_>>()?,
            root: find(&root.id)?,
            packages: packages.into_iter().cloned().collect(),
        })
    }
}

/// What `cargo metadata` could print: an app that links two crates, and needs two more to build and to test.
#[cfg(test)]
pub(super) fn example() -> Components {
    use serde_json::{Value, json};

    let package = |name: &str, license: Value, source: Value| json!({"id": name, "name": name, "version": "1.0.0", "license": license, "source": source});
    let needs = |id: &str, deps: &[(&str, Value)]| {
        let deps = deps.iter().map(|(pkg, kind)| json!({"pkg": pkg, "dep_kinds": [{"kind": kind}]}));
        json!({"id": id, "deps": deps.collect::<Vec<_>>()})
    };
    let registry = json!("registry+https://github.com/rust-lang/crates.io-index");
    let metadata = json!({
        "packages": [
            package("app", json!("Apache-2.0"), Value::Null),
            package("linked", json!("MIT/Apache-2.0"), registry.clone()),
            package("below", Value::Null, registry.clone()),
            package("tests", json!("MIT"), registry.clone()),
            package("builds", json!("MIT"), registry),
        ],
        "resolve": {"nodes": [
            needs("app", &[("linked", Value::Null), ("tests", json!("dev")), ("builds", json!("build"))]),
            needs("linked", &[("below", Value::Null)]),
            needs("below", &[]),
            needs("tests", &[]),
            needs("builds", &[]),
        ]},
    });
    Components::read(metadata.to_string().as_bytes(), "app").unwrap()
}
