//! What went into a program: a bill of materials in CycloneDX's JSON.

use serde_json::{Value, json};

use super::components::{Components, Package};

pub(super) fn of(components: &Components) -> Value {
    let Components { packages, uses, root } = components;
    let others = packages.iter().enumerate().filter(|(position, _)| position != root);
    let dependencies = packages.iter().zip(uses).map(|(package, uses)| {
        let uses: Vec<String> = uses.iter().map(|position| reference(&packages[*position])).collect();
        json!({"ref": reference(package), "dependsOn": uses})
    });
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(&packages[*root], "application")},
        "components": others.map(|(_, package)| component(package, "library")).collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    })
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
    use std::collections::BTreeSet;

    use super::super::components;
    use super::*;
    use crate::workspace::Workspace;

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
        let bill = of(&components::example());
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
        let workspace = Workspace::here().unwrap();
        let bill = of(&Components::of(&workspace, "volmedic", "x86_64-unknown-linux-gnu").unwrap());
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
