//! The pages of the documentation that are made from tables in the code.

use std::fmt::Write;

use anyhow::Result;
use volmedic_health::WellKnown;

use crate::metrics;
use crate::sources::Source;

pub(crate) const REASONS_PAGE: &str = "docs/reasons.md";
pub(crate) const METRICS_PAGE: &str = "docs/metrics.md";

const MARK: &str =
    "<!-- Made by `cargo xtask codegen` from the tables in the code. Edits here are overwritten. -->";

/// The line that starts the section of a reason. Events and runbooks link to it.
pub(crate) fn reason_heading(reason: WellKnown) -> String {
    format!("## {reason}")
}

/// How the row of a metric begins.
pub(crate) fn metric_row_start(name: &str) -> String {
    format!("| `{name}` |")
}

pub(super) fn reasons(_: &[Source]) -> Result<String> {
    let mut page = format!(
        "# Reasons\n\n{MARK}\n\n\
         A condition of a volume has a status (how severe it is), a reason (one CamelCase word that programs can act on)\n\
         and a message (the details). These are the reasons that Volmedic itself reports, each with the next step. A driver\n\
         may send other reasons; they are passed on, shortened to what the API server accepts.\n\n\
         The table has the usual status. The vantage that detected the condition may report another one.\n\n\
         | reason | usual status | what would help |\n|---|---|---|\n"
    );
    for reason in WellKnown::ALL {
        let anchor = reason.name().to_lowercase();
        let remedies: Vec<String> = reason.remedies().iter().map(ToString::to_string).collect();
        writeln!(
            page,
            "| [{reason}](#{anchor}) | {} | {} |",
            reason.usual_status(),
            remedies.join("; then ")
        )?;
    }
    for reason in WellKnown::ALL {
        let heading = reason_heading(*reason);
        write!(page, "\n{heading}\n\n{}\n\nNext step: {}\n", reason.meaning(), reason.advice())?;
        let automatic: Vec<String> = reason
            .remedies()
            .iter()
            .filter(|remedy| remedy.is_automatic())
            .map(|remedy| format!("{remedy} (`{}`)", remedy.name()))
            .collect();
        if !automatic.is_empty() {
            let list = automatic.join(", then ");
            write!(page, "\nWhere [healing](healing.md) is switched on, Volmedic may {list}.\n")?;
        }
    }
    Ok(page)
}

pub(super) fn metrics(sources: &[Source]) -> Result<String> {
    let mut page = format!(
        "# Metrics\n\n{MARK}\n\n\
         Every metric that Volmedic serves, in the Prometheus text format. The number of series is bounded.\n\n\
         | metric | type | labels | what it counts or measures |\n|---|---|---|---|\n"
    );
    for metric in metrics::read_all(sources)? {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "none".to_owned() } else { labels.join(", ") };
        let help = metric.help.trim_end_matches('.').replace('|', "\\|").replace('\n', " ");
        writeln!(page, "{} {} | {labels} | {help}. |", metric_row_start(&metric.name), metric.kind)?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_reasons_has_a_row_and_a_section_for_each() {
        let page = reasons(&[]).unwrap();
        for reason in WellKnown::ALL {
            assert!(
                page.contains(&format!("\n{}\n\n{}\n", reason_heading(*reason), reason.meaning())),
                "{reason}"
            );
            assert!(page.contains(&format!("| [{reason}](#")), "{reason}");
        }
        assert!(page.contains("| [VolumeNotFound](#volumenotfound) | Inaccessible | ask a person |\n"));
    }

    #[test]
    fn the_page_of_metrics_keeps_its_table_whole() {
        let table = "const METRICS: &[M] = &[(\"a\", \"gauge\", &[], \"One|two\\nthree.\"), \
                     (\"b\", \"counter\", &[\"x\", \"y\"], \"Four.\")];";
        let page = metrics(&[Source { path: "crates/csi/src/m.rs".into(), text: table.into() }]).unwrap();
        assert!(page.ends_with(
            "|---|---|---|---|\n| `a` | gauge | none | One\\|two three. |\n| `b` | counter | `x`, `y` | Four. |\n"
        ));
    }
}
