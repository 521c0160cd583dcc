//! The page with what came of the conformance rules with a driver of another project.

use std::fmt::Write;

use serde::Deserialize;

use super::table::cell;

#[derive(Debug, Deserialize)]
pub(super) struct Report {
    driver: String,
    version: String,
    outcomes: Vec<Outcome>,
}

#[derive(Debug, Deserialize)]
struct Outcome {
    rule: String,
    demands: String,
    verdict: String,
    evidence: String,
}

pub(super) fn page(report: &Report) -> String {
    let count = |verdict: &str| report.outcomes.iter().filter(|outcome| outcome.verdict == verdict).count();
    let mut text = format!(
        "<!-- Made by `cargo xtask world` from docs/conformance-hostpath.json. Edits here are overwritten. -->\n\n# \
         Conformance of {} {}\n\n`volmedic conformance` with this driver: {} rules hold, {} are broken, {} are not \
         applicable. [conformance.md](conformance.md) has all rules.\n\n",
        report.driver,
        report.version,
        count("pass"),
        count("fail"),
        count("notApplicable"),
    );
    text.push_str("| broken rule | it demands | what the driver did |\n|---|---|---|\n");
    // Writing to a string cannot fail.
    for outcome in report.outcomes.iter().filter(|outcome| outcome.verdict == "fail") {
        let (demands, evidence) = (cell(&outcome.demands), cell(&outcome.evidence));
        let _ = writeln!(text, "| `{}` | {demands} | {evidence} |", outcome.rule);
    }
    for (verdict, heading) in [("pass", "Rules that hold"), ("notApplicable", "Not applicable")] {
        let rules = report.outcomes.iter().filter(|outcome| outcome.verdict == verdict);
        let rules = rules.map(|outcome| format!("`{}`", outcome.rule)).collect::<Vec<_>>().join(", ");
        let _ = write!(text, "\n{heading}: {rules}.\n");
    }
    text.push_str(
        "\nThe JSON file is also a baseline: `volmedic conformance --baseline docs/conformance-hostpath.json` with a newer release \
         of the driver shows only what changed.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_rules_come_first_with_what_the_driver_did() {
        let report = serde_json::from_str(
            r#"{"driver":"d","version":"v1","outcomes":[
                {"rule":"a","demands":"A.","verdict":"pass","evidence":""},
                {"rule":"b","demands":"B.","verdict":"fail","evidence":"x|y"},
                {"rule":"c","demands":"C.","verdict":"notApplicable","evidence":""}]}"#,
        )
        .unwrap();
        let page = page(&report);
        for part in [
            "# Conformance of d v1\n",
            "1 rules hold, 1 are broken, 1 are not applicable",
            "| `b` | B. | x\\|y |\n",
            "Rules that hold: `a`.\n",
            "Not applicable: `c`.\n",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
