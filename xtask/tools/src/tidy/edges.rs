//! Which crate may use which, and that each has the common lints. This table is the architecture; everything else in here only
//! reads it.

use crate::workspace::{Dependency, Package, Workspace};

use super::Finding;

/// A crate, the crates that it may use, and those that its tests may use in addition.
struct Room {
    name: &'static str,
    may_use: &'static [&'static str],
    tests_may_use: &'static [&'static str],
}

const TESTKIT: &str = "volmedic-testkit";

/// The real neighbours that a crate's own tests may start.
const NEIGHBOURS: &[&str] = &[TESTKIT, "volmedic-driver"];

#[rustfmt::skip]
const ROOMS: &[Room] = &[
    // The base: these use no other crate of the workspace.
    Room { name: "volmedic-health", may_use: &[], tests_may_use: &[] },
    Room { name: "volmedic-proto", may_use: &[], tests_may_use: &[TESTKIT] },
    Room { name: "volmedic-host", may_use: &[], tests_may_use: NEIGHBOURS },
    Room { name: "volmedic-lease", may_use: &[], tests_may_use: &[TESTKIT] },
    Room { name: "volmedic-panics", may_use: &[], tests_may_use: &[] },
    Room { name: "volmedic-listen", may_use: &["volmedic-panics"], tests_may_use: &[] },
    // Crates that use one of them.
    Room { name: "volmedic-conformance", may_use: &["volmedic-proto"], tests_may_use: NEIGHBOURS },
    Room { name: "volmedic-csi", may_use: &["volmedic-panics", "volmedic-proto"], tests_may_use: NEIGHBOURS },
    Room { name: "volmedic-api", may_use: &["volmedic-health"], tests_may_use: NEIGHBOURS },
    // The pipe: it owns the ports, which others implement, and knows neither kube nor any driver.
    Room { name: "volmedic-monitor", may_use: &["volmedic-health", "volmedic-panics"], tests_may_use: NEIGHBOURS },
    // Siblings: none may import another; they meet in `volmedic-roles` and below.
    Room { name: "volmedic-inventory", may_use: &["volmedic-health", "volmedic-api"], tests_may_use: NEIGHBOURS },
    Room { name: "volmedic-probe", may_use: &["volmedic-health", "volmedic-monitor", "volmedic-csi", "volmedic-proto", "volmedic-host"], tests_may_use: NEIGHBOURS },
    Room { name: "volmedic-report", may_use: &["volmedic-health", "volmedic-api", "volmedic-panics"], tests_may_use: NEIGHBOURS },
    Room { name: "volmedic-heal", may_use: &["volmedic-health", "volmedic-api", "volmedic-csi", "volmedic-listen", "volmedic-panics", "volmedic-proto"], tests_may_use: NEIGHBOURS },
    Room { name: "volmedic-hub", may_use: &["volmedic-health", "volmedic-api", "volmedic-panics"], tests_may_use: NEIGHBOURS },
    Room { name: "volmedic-driver", may_use: &["volmedic-health", "volmedic-proto", "volmedic-host", "volmedic-panics"], tests_may_use: &[TESTKIT, "volmedic-csi"] },
    Room { name: "volmedic-view", may_use: &["volmedic-health", "volmedic-api", "volmedic-panics"], tests_may_use: NEIGHBOURS },
    // Where they meet.
    Room {
        name: "volmedic-runtime",
        may_use: &["volmedic-health", "volmedic-api", "volmedic-csi", "volmedic-inventory", "volmedic-lease", "volmedic-listen", "volmedic-monitor", "volmedic-panics", "volmedic-view"],
        tests_may_use: NEIGHBOURS,
    },
    Room {
        name: "volmedic-roles",
        may_use: &[
            "volmedic-runtime", "volmedic-health", "volmedic-csi", "volmedic-api", "volmedic-inventory", "volmedic-probe", "volmedic-report",
            "volmedic-monitor", "volmedic-heal", "volmedic-hub", "volmedic-driver", "volmedic-view", "volmedic-host", "volmedic-lease", "volmedic-listen",
            "volmedic-panics",
        ],
        tests_may_use: NEIGHBOURS,
    },
    Room {
        name: "volmedic-cli",
        may_use: &[
            "volmedic-runtime", "volmedic-roles", "volmedic-health", "volmedic-api", "volmedic-inventory", "volmedic-report", "volmedic-heal",
            "volmedic-hub", "volmedic-driver", "volmedic-view", "volmedic-lease", "volmedic-conformance",
        ],
        tests_may_use: NEIGHBOURS,
    },
    Room {
        name: "volmedic-demo",
        may_use: &[
            "volmedic-runtime", "volmedic-roles", "volmedic-cli", "volmedic-health", "volmedic-proto", "volmedic-csi", "volmedic-api",
            "volmedic-probe", "volmedic-monitor", "volmedic-heal", "volmedic-driver", "volmedic-view", "volmedic-host", "volmedic-panics",
        ],
        tests_may_use: NEIGHBOURS,
    },
    Room {
        name: "volmedic",
        may_use: &["volmedic-roles", "volmedic-cli", "volmedic-demo", "volmedic-runtime", "volmedic-api", "volmedic-host", "volmedic-panics", "volmedic-view"],
        tests_may_use: &[TESTKIT, "volmedic-csi", "volmedic-driver", "volmedic-heal", "volmedic-hub", "volmedic-inventory", "volmedic-proto", "volmedic-report"],
    },
    // Tools, never part of the product.
    Room { name: "volmedic-packages", may_use: &[], tests_may_use: &[] },
    Room { name: TESTKIT, may_use: &["volmedic-host", "volmedic-packages", "volmedic-proto"], tests_may_use: &[] },
    // Runs roles against modelled neighbours.
    Room { name: "volmedic-sim", may_use: &["volmedic-roles", "volmedic-health", "volmedic-lease", "volmedic-monitor"], tests_may_use: &[TESTKIT] },
    Room { name: "volmedic-bench", may_use: &["volmedic-proto", TESTKIT], tests_may_use: &[] },
    Room { name: "xtask", may_use: &["volmedic-packages"], tests_may_use: &[] },
    Room { name: "xtask-tools", may_use: &["volmedic-health", TESTKIT, "xtask"], tests_may_use: &[] },
];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    workspace.packages.iter().flat_map(|package| check_package(workspace, package)).collect()
}

fn check_package(workspace: &Workspace, package: &Package) -> Vec<Finding> {
    let manifest = workspace.relative(&package.manifest);
    let name = &package.name;
    let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
        let what = format!(
            "the crate `{name}` is not in the architecture; add it with what it may use to ROOMS in \
             xtask/tools/src/tidy/edges.rs, and a paragraph to ARCHITECTURE.md"
        );
        return vec![Finding::new(manifest, 1, what)];
    };
    let mut found = Vec::new();
    let text = std::fs::read_to_string(&package.manifest).unwrap_or_default();
    if !inherits_lints(&text) {
        let what =
            "the workspace's lints are not switched on for this crate; add `[lints]` with `workspace = true`";
        found.push(Finding::new(manifest, 1, what));
    }
    let ours = package.dependencies.iter().filter(|dependency| workspace.has(&dependency.name));
    let against = ours.filter(|dependency| !allowed(room, dependency));
    found.extend(
        against
            .map(|dependency| Finding::new(manifest, line_of(&text, dependency), explain(room, dependency))),
    );
    found
}

/// Cargo's metadata does not have this, and a crate without the lints would not be checked at all.
fn inherits_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    lines
        .by_ref()
        .take_while(|line| !line.starts_with('['))
        .any(|line| line.replace(' ', "") == "workspace=true")
        || manifest.lines().any(|line| line.replace(' ', "") == "lints.workspace=true")
}

fn allowed(room: &Room, dependency: &Dependency) -> bool {
    let name = dependency.name.as_str();
    // A crate that names itself switches on features for its own tests.
    let in_tests = name == room.name || room.tests_may_use.contains(&name);
    room.may_use.contains(&name) || dependency.for_tests_only() && in_tests
}

fn explain(room: &Room, dependency: &Dependency) -> String {
    let (from, to) = (room.name, &dependency.name);
    if !dependency.for_tests_only() && room.tests_may_use.contains(&to.as_str()) {
        return format!("`{from}` may use `{to}` in its tests only; move the line to [dev-dependencies]");
    }
    let may = match room.may_use {
        [] => "no other crate of the workspace".to_owned(),
        some => some.join(", "),
    };
    format!(
        "`{from}` must not depend on `{to}`, it may use {may}; let the two meet in the crate above them, or change \
         ROOMS in xtask/tools/src/tidy/edges.rs if the architecture itself changes"
    )
}

/// The line of a manifest that names the dependency in the table of its kind, or else the first line.
fn line_of(manifest: &str, dependency: &Dependency) -> usize {
    let table = match dependency.kind.as_deref() {
        Some(kind) => format!("{kind}-dependencies"),
        None => "dependencies".to_owned(),
    };
    let mut inside = false;
    for (index, line) in manifest.lines().enumerate() {
        if let Some(header) = line.trim().strip_prefix('[') {
            let header = header.trim_end_matches(']');
            // Either the table of all, as in `[target.'cfg(unix)'.dependencies]`, or one of its own.
            inside = header == table || header.ends_with(&format!(".{table}"));
            if header.ends_with(&format!("{table}.{}", dependency.name)) {
                return index + 1;
            }
        } else if inside && line.split(['=', '.']).next().is_some_and(|key| key.trim() == dependency.name) {
            return index + 1;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;
    use crate::tree::Tree;

    const CSI: (&str, &str) =
        ("volmedic-csi", "[dependencies]\n# the wire\nvolmedic-proto = { path = \"../proto\" }\n");
    const PROTO: (&str, &str) = ("volmedic-proto", "");

    fn findings(packages: &[(&str, &str)]) -> Vec<String> {
        lines(&check(&Tree::workspace(packages, &[]).load()))
    }

    #[test]
    fn edges_along_the_direction_pass() {
        let health = ("volmedic-health", "");
        let probe = (
            "volmedic-probe",
            "[dependencies]\nvolmedic-csi = { path = \"../csi\" }\nvolmedic-health = { path = \"../health\" }\n\
             [dev-dependencies]\nvolmedic-testkit = { path = \"../testkit\" }\n",
        );
        let testkit = (TESTKIT, "[dev-dependencies]\nvolmedic-testkit = { path = \".\" }\n");
        assert_eq!(findings(&[CSI, PROTO, health, probe, testkit]), [""; 0]);
    }

    #[test]
    fn an_edge_against_the_direction_is_found_with_its_line() {
        let upwards = ("volmedic-proto", "\n[dependencies]\nvolmedic-csi = { path = \"../csi\" }\n");
        assert_eq!(
            findings(&[("volmedic-csi", ""), upwards]),
            [
                "crates/proto/Cargo.toml:6: `volmedic-proto` must not depend on `volmedic-csi`, it may use no other \
              crate of the workspace; let the two meet in the crate above them, or change ROOMS in \
              xtask/tools/src/tidy/edges.rs if the architecture itself changes"
            ]
        );
    }

    #[test]
    fn siblings_do_not_import_siblings_not_even_in_tests() {
        let view = ("volmedic-view", "[dev-dependencies]\nvolmedic-report.path = \"../report\"\n");
        let found = findings(&[view, ("volmedic-report", "")]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/view/Cargo.toml:5: `volmedic-view` must not depend on"),
            "{found:?}"
        );
    }

    #[test]
    fn testkit_outside_of_tests_is_sent_to_the_tests() {
        let csi = ("volmedic-csi", "[dependencies.volmedic-testkit]\npath = \"../testkit\"\n");
        assert_eq!(
            findings(&[csi, (TESTKIT, "")]),
            [
                "crates/csi/Cargo.toml:4: `volmedic-csi` may use `volmedic-testkit` in its tests only; move the line to \
              [dev-dependencies]"
            ]
        );
    }

    #[test]
    fn a_build_dependency_counts_like_any_other() {
        let health = ("volmedic-health", "[build-dependencies]\nvolmedic-proto = { path = \"../proto\" }\n");
        let found = findings(&[health, PROTO]);
        assert!(
            found[0].starts_with("crates/health/Cargo.toml:5: `volmedic-health` must not depend"),
            "{found:?}"
        );
    }

    #[test]
    fn a_crate_without_the_lints_of_the_workspace_is_found() {
        let tree = Tree::workspace(&[PROTO], &[]);
        tree.write("crates/proto/Cargo.toml", "[package]\nname = \"volmedic-proto\"\n");
        let found = lines(&check(&tree.load()));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/proto/Cargo.toml:1: the workspace's lints are not"),
            "{found:?}"
        );
        assert!(inherits_lints("[package]\nlints.workspace = true\n"));
    }

    #[test]
    fn an_unknown_crate_is_reported_with_where_to_add_it() {
        let found = findings(&[("volmedic-surprise", "")]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/surprise/Cargo.toml:1: the crate `volmedic-surprise` is not in")
        );
        assert!(found[0].contains("xtask/tools/src/tidy/edges.rs"));
    }

    #[test]
    fn the_table_has_no_circle_and_no_unknown_name() {
        fn walk<'a>(name: &'a str, above: &mut Vec<&'a str>) {
            assert!(!above.contains(&name), "a circle: {above:?} and {name} again");
            let room = ROOMS.iter().find(|room| room.name == name).expect(name);
            above.push(name);
            for below in room.may_use {
                walk(below, above);
            }
            above.pop();
        }
        for room in ROOMS {
            walk(room.name, &mut Vec::new());
            assert_eq!(ROOMS.iter().filter(|other| other.name == room.name).count(), 1, "{}", room.name);
        }
    }
}
