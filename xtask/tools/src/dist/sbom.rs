//! What went into a program: a bill of materials in CycloneDX's JSON, made from what cargo resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::workspace::{self, Workspace};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    description: Option<String>,
    /// None for what lies in this workspace.
    source: Option<String>,
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

/// Of the package `program`, as it is built for `target`.
pub(super) fn of(workspace: &Workspace, program: &str, target: &str) -> Result<Value> {
    let mut command = workspace::cargo();
    command.args(["metadata", "--format-version=1", "--locked", &format!("--filter-platform={target}")]);
    let output = command.current_dir(&workspace.root).stdin(Stdio::null()).output();
    let output = output.context("cargo did not start")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    bill(&output.stdout, program)
}

fn bill(metadata: &[u8], program: &str) -> Result<Value> {
    let metadata: Metadata =
        serde_json::from_slice(metadata).context("`cargo metadata` printed what this program cannot read")?;
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let of_id = |id: &str| packages.get(id).copied().with_context(|| format!("cargo does not describe {id}"));
    let root = metadata.packages.iter().find(|package| package.name == program && package.source.is_none());
    let root = root.with_context(|| format!("there is no package {program} in this workspace"))?;

    let mut linked = BTreeSet::from([root.id.as_str()]);
    let mut open = vec![root.id.as_str()];
    let mut edges = Vec::new();
    while let Some(id) = open.pop() {
        let node = nodes.get(id).with_context(|| format!("cargo did not resolve {id}"))?;
        let is_linked =
            |dependency: &&Dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
        let below: BTreeSet<&str> =
            node.deps.iter().filter(is_linked).map(|dependency| dependency.pkg.as_str()).collect();
        let refs = below.iter().map(|id| of_id(id).map(reference)).collect::<Result<BTreeSet<_>>>()?;
        edges.push((reference(of_id(id)?), refs));
        open.extend(below.into_iter().filter(|id| linked.insert(id)));
    }
    edges.sort();
    linked.remove(root.id.as_str());
    let mut parts = linked.into_iter().map(of_id).collect::<Result<Vec<_>>>()?;
    parts.sort_by_key(|package| (&package.name, &package.version));
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(root, "application")},
        "components": parts.into_iter().map(|package| component(package, "library")).collect::<Vec<_>>(),
        "dependencies":
            edges.iter().map(|(name, below)| json!({"ref": name, "dependsOn": below})).collect::<Vec<_>>(),
    }))
}

/// A package URL, which identifies a component.
fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

fn component(package: &Package, kind: &str) -> Value {
    let reference = reference(package);
    let mut component = json!({
        "type": kind,
        "bom-ref": reference,
        "name": package.name,
        "version": package.version,
        "purl": reference,
    });
    if let Some(license) = &package.license {
        // Some older crates separate alternatives with a slash.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if let Some(description) = &package.description {
        component["description"] = json!(description.trim());
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the schema of CycloneDX 1.6 requires, and what ties the document together.
    fn check(bill: &Value) {
        assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&json!("CycloneDX"), &json!("1.6")));
        assert!(bill["version"].as_u64().unwrap() >= 1);
        let mut known = BTreeSet::from([bill["metadata"]["component"]["bom-ref"].as_str().unwrap()]);
        let components = bill["components"].as_array().unwrap();
        for component in components {
            assert_eq!(component["type"], "library");
            assert!(!component["name"].as_str().unwrap().is_empty());
            assert!(known.insert(component["bom-ref"].as_str().unwrap()), "{component} is there twice");
            for license in component["licenses"].as_array().into_iter().flatten() {
                let expression = license["expression"].as_str().unwrap();
                assert!(!expression.is_empty() && !expression.contains('/'), "{component}");
            }
        }
        let dependencies = bill["dependencies"].as_array().unwrap();
        let mut listed = BTreeSet::new();
        for dependency in dependencies {
            assert!(listed.insert(dependency["ref"].as_str().unwrap()), "{dependency} is there twice");
            for below in dependency["dependsOn"].as_array().unwrap() {
                assert!(known.contains(below.as_str().unwrap()), "{below} is no component");
            }
        }
        assert_eq!(listed, known, "every component says what it needs");
    }

    #[test]
    fn what_is_linked_is_listed_and_nothing_else() {
        let package = |name: &str, license: Value, source: Value| json!({"id": name, "name": name, "version": "1.0.0", "license": license, "source": source});
        let needs = |id: &str, deps: &[(&str, Value)]| {
            let deps = deps.iter().map(|(pkg, kind)| json!({"pkg": pkg, "dep_kinds": [{"kind": kind}]}));
            json!({"id": id, "deps": deps.collect::<Vec<_>>()})
        };
        let metadata = json!({
            "packages": [
                package("app", json!("Apache-2.0"), Value::Null),
                package("linked", json!("MIT/Apache-2.0"), json!("registry")),
                package("below", Value::Null, json!("registry")),
                package("tests", json!("MIT"), json!("registry")),
                package("builds", json!("MIT"), json!("registry")),
            ],
            "resolve": {"nodes": [
                needs("app", &[("linked", Value::Null), ("tests", json!("dev")), ("builds", json!("build"))]),
                needs("linked", &[("below", Value::Null)]),
                needs("below", &[]),
                needs("tests", &[]),
                needs("builds", &[]),
            ]},
        });
        let bill = bill(metadata.to_string().as_bytes(), "app").unwrap();
        check(&bill);
        let names: Vec<&Value> =
            bill["components"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["below", "linked"]);
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(
            bill["dependencies"][0],
            json!({"ref": "pkg:cargo/app@1.0.0", "dependsOn": ["pkg:cargo/linked@1.0.0"]})
        );
    }

    #[test]
    fn the_program_itself_has_a_complete_list() {
        let bill = of(&Workspace::here().unwrap(), "volmedic", "x86_64-unknown-linux-gnu").unwrap();
        check(&bill);
        let names: BTreeSet<&str> =
            bill["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        for linked in ["volmedic-health", "kube-client", "rustls", "tokio", "tonic"] {
            assert!(names.contains(linked), "{linked}");
        }
        for other in ["volmedic-testkit", "libtest-mimic", "protox", "xtask"] {
            assert!(!names.contains(other), "{other}");
        }
    }
}
