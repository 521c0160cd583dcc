//! Every reason and every metric that a user can see is in the documentation.

use volmedic_health::WellKnown;

use crate::codegen::{METRICS_PAGE, REASONS_PAGE, metric_row_start, reason_heading};
use crate::metrics;
use crate::sources::Source;
use crate::workspace::{Package, Workspace};

use super::Finding;

pub(super) fn check(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    let mut found = Vec::new();
    let has_line = |page: &str, start: &str| {
        let source = sources.iter().find(|source| source.path.as_os_str() == page);
        source.is_some_and(|source| source.text.lines().any(|line| line.starts_with(start)))
    };
    for reason in WellKnown::ALL {
        if !has_line(REASONS_PAGE, &reason_heading(*reason)) {
            let what =
                format!("the well-known reason `{reason}` is not documented; run `cargo xtask codegen`");
            found.push(Finding::new(REASONS_PAGE, 1, what));
        }
    }
    match metrics::read_all(sources) {
        Ok(metrics) => {
            for metric in &metrics {
                if !has_line(METRICS_PAGE, &metric_row_start(&metric.name)) {
                    let name = &metric.name;
                    let what =
                        format!("the metric `{name}` is not in {METRICS_PAGE}; run `cargo xtask codegen`");
                    found.push(Finding::new(&metric.file, metric.line, what));
                }
            }
            let without = workspace.packages.iter().filter(|package| {
                let folder = workspace.relative(package.folder());
                let makes = sources.iter().any(|source| {
                    source.is_rust() && source.path.starts_with(folder.join("src")) && makes_metrics(source)
                });
                makes && !metrics.iter().any(|metric| metric.file.starts_with(folder))
            });
            found.extend(without.map(|package| no_table(workspace, package)));
        }
        // The error names file and line itself.
        Err(error) => found.push(Finding::new(METRICS_PAGE, 1, format!("cannot be checked: {error}"))),
    }
    found
}

/// Only a crate that creates a metric must list it; the binary serves what the others registered.
fn makes_metrics(source: &Source) -> bool {
    let imports = ["use prometheus_client::metrics", "use prometheus_client::collector"];
    source.text.lines().any(|line| imports.iter().any(|import| line.trim_start().starts_with(import)))
}

fn no_table(workspace: &Workspace, package: &Package) -> Finding {
    let what = format!(
        "`{}` creates metrics but has no table of its metrics; add `pub const METRICS` with a row \
         (name, kind, labels, help) for each, so that {METRICS_PAGE} lists them",
        package.name
    );
    Finding::new(workspace.relative(&package.manifest), 1, what)
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;
    use crate::codegen;
    use crate::tree::Tree;

    const TABLE: &str = "const METRICS: &[M] = &[\n(\"a_total\", \"counter\", &[\"x\"], \"All.\"),\n];";

    fn found_in(tree: &Tree) -> Vec<String> {
        lines(&check(&tree.load(), &tree.sources()))
    }

    #[test]
    fn generated_pages_are_complete_and_a_missing_line_is_found() {
        let tree = Tree::workspace(&[("volmedic-csi", "")], &[("crates/csi/src/metrics.rs", TABLE)]);
        codegen::run(&tree.load(), false).unwrap();
        assert_eq!(found_in(&tree), [""; 0]);

        let reasons = std::fs::read_to_string(tree.root().join(REASONS_PAGE)).unwrap();
        tree.write(REASONS_PAGE, &reasons.replace("## NodeDown\n", "## NodeUp\n"));
        tree.write(METRICS_PAGE, "`a_total_of_something` and a_total");
        assert_eq!(
            found_in(&tree),
            [
                "docs/reasons.md:1: the well-known reason `NodeDown` is not documented; run `cargo xtask codegen`",
                "crates/csi/src/metrics.rs:2: the metric `a_total` is not in docs/metrics.md; run `cargo xtask codegen`",
            ]
        );
    }

    #[test]
    fn missing_pages_list_nothing() {
        let tree = Tree::workspace(&[("volmedic-csi", "")], &[("crates/csi/src/metrics.rs", TABLE)]);
        assert_eq!(found_in(&tree).len(), WellKnown::ALL.len() + 1);
    }

    #[test]
    fn a_crate_with_metrics_and_no_table_is_found() {
        let counts = "use prometheus_client::metrics::counter::Counter;";
        let serves = "use prometheus_client::registry::Registry;";
        let files = [("crates/csi/src/count.rs", counts), ("crates/volmedic/src/http.rs", serves)];
        let tree = Tree::workspace(&[("volmedic-csi", ""), ("volmedic", "")], &files);
        codegen::run(&tree.load(), false).unwrap();
        let found = found_in(&tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/csi/Cargo.toml:1: `volmedic-csi` creates metrics"), "{found:?}");
    }

    #[test]
    fn a_table_that_cannot_be_read_is_a_finding() {
        let broken = "const METRICS: &[M] = &[(1, 2)];";
        let tree = Tree::workspace(&[("volmedic-csi", "")], &[("crates/csi/src/metrics.rs", broken)]);
        let found = found_in(&tree);
        assert!(
            found.last().unwrap().contains("cannot be checked: crates/csi/src/metrics.rs:1:"),
            "{found:?}"
        );
    }
}
