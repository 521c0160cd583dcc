//! Every profile unwinds: a panic in the work for one volume must not end the process (`crates/panics`).

use crate::workspace::Workspace;

use super::Finding;

/// Where cargo reads profiles from.
const FILES: &[&str] = &["Cargo.toml", ".cargo/config.toml"];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in FILES {
        let text = std::fs::read_to_string(workspace.root.join(file)).unwrap_or_default();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| aborts(line)) {
            let what = format!(
                "`{}` makes a panic in the work for one volume end the process; remove it, so that panics unwind",
                line.trim()
            );
            found.push(Finding::new(file, index + 1, what));
        }
    }
    found
}

/// As a key of a profile's table, in an inline table, or as a flag of the compiler.
fn aborts(line: &str) -> bool {
    let code: String = line.split('#').next().unwrap_or_default().replace([' ', '"', '\''], "");
    code.contains("panic=abort") || code.contains("panic=immediate-abort")
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;
    use crate::tree::Tree;

    fn findings(manifest: &str, config: &str) -> Vec<String> {
        let tree = Tree::workspace(&[("volmedic-health", "")], &[]);
        let path = tree.root().join("Cargo.toml");
        let before = std::fs::read_to_string(&path).unwrap();
        tree.write("Cargo.toml", &format!("{before}{manifest}"));
        let workspace = tree.load();
        tree.write(".cargo/config.toml", config);
        lines(&check(&workspace))
    }

    #[test]
    fn a_profile_that_aborts_is_found_with_its_line() {
        let found = findings("[profile.release]\npanic = \"abort\"\n", "");
        assert_eq!(
            found,
            [
                "Cargo.toml:6: `panic = \"abort\"` makes a panic in the work for one volume end the process; remove it, so \
              that panics unwind"
            ]
        );
        assert_eq!(findings("[profile]\nrelease = { panic = 'abort', strip = true }\n", "").len(), 1);
        for config in ["[profile.dist]\npanic=\"abort\"", "[build]\nrustflags = [\"-C\", \"panic=abort\"]"] {
            let found = findings("", config);
            assert_eq!(found.len(), 1, "{config}");
            assert!(found[0].starts_with(".cargo/config.toml:2: "), "{found:?}");
        }
    }

    #[test]
    fn profiles_that_unwind_pass() {
        let fine = "[profile.release]\nopt-level = \"s\"\n# Not panic = \"abort\".\npanic = \"unwind\"\n";
        assert_eq!(findings(fine, fine), [""; 0]);
    }
}
