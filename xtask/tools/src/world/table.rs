//! The table of the driver matrix, made from what a run measured.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Result, bail};
use serde::Deserialize;

const BEGIN: &str = "<!-- Made by `cargo xtask world` from docs/driver-results.json. Edits between these lines are overwritten. -->";
const END: &str = "<!-- The end of what is made. -->";
/// The fault that is none: what is reported of a healthy volume.
const NONE: &str = "none";

#[derive(Debug, Deserialize)]
pub(super) struct Row {
    driver: String,
    version: String,
    scenario: String,
    how: String,
    /// By vantage.
    reports: BTreeMap<String, Vec<Report>>,
    headline: String,
    status: String,
    of_the_driver: Vec<String>,
    recovered_seconds: Option<f32>,
    undone: bool,
}

#[derive(Debug, Deserialize)]
struct Report {
    status: String,
    reason: String,
    message: String,
    after_seconds: f32,
}

/// The page, with the table between its two marks.
pub(super) fn insert(page: &str, rows: &[Row]) -> Result<String> {
    let (Some((before, rest)), Some((_, after))) = (page.split_once(BEGIN), page.split_once(END)) else {
        bail!("docs/driver-matrix.md lacks the lines between which the table is put: {BEGIN} and {END}");
    };
    if !rest.contains(END) {
        bail!("docs/driver-matrix.md has the lines between which the table is put in the wrong order");
    }
    Ok(format!("{before}{BEGIN}\n\n{}{END}{after}", table(rows)))
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| driver | fault | detected | by the driver | by host checks | by the cluster | recovery reported |\n|---|---|---|---|---|---|---|\n",
    );
    // Writing to a string cannot fail.
    for row in rows.iter().filter(|row| row.scenario != NONE) {
        let _ = writeln!(
            text,
            "| {} {} | {}: {} | {} | {} | {} | {} | {} |",
            cell(&row.driver),
            cell(&row.version),
            cell(&row.scenario),
            cell(&row.how),
            row.verdict(),
            row.by(&["controller", "node", "kubelet"]),
            row.by(&["host"]),
            row.by(&["cluster"]),
            row.recovery(),
        );
    }
    text.push_str("\nOf a healthy volume with a pod that writes, the same runs reported:\n\n");
    for row in rows.iter().filter(|row| row.scenario == NONE) {
        let what = row.by(&["controller", "node", "kubelet", "host", "cluster"]);
        let what = if what == "-" { "nothing".to_owned() } else { what };
        let _ = writeln!(text, "- {} {}: {what}; `{}`", cell(&row.driver), cell(&row.version), row.status);
    }
    let _ = writeln!(
        text,
        "\nWhat `volmedic status` showed during each fault, and the first message of each vantage:\n"
    );
    for row in rows.iter().filter(|row| row.scenario != NONE) {
        let _ = writeln!(text, "- {}, {}: `{}`", cell(&row.driver), cell(&row.scenario), row.status);
        for (vantage, reports) in &row.reports {
            for report in reports.iter().filter(|report| !report.message.is_empty()) {
                let _ = writeln!(text, "  - {vantage}, {}: {}", report.reason, cell(&report.message));
            }
        }
        for line in row.of_the_driver() {
            let _ = writeln!(text, "  - log: {}", cell(sentence(line)));
        }
    }
    text.push('\n');
    text
}

impl Row {
    /// In the words of the page; only from what was measured.
    fn verdict(&self) -> String {
        let unhealthy = |vantages: &[&str]| {
            let all = vantages.iter().filter_map(|vantage| self.reports.get(*vantage)).flatten();
            all.into_iter().any(|report| !report.status.is_empty())
        };
        let found = [
            (unhealthy(&["controller", "node", "kubelet"]), "by the driver"),
            (unhealthy(&["host"]), "by host checks"),
            (unhealthy(&["cluster"]), "by the cluster"),
        ];
        let by: Vec<&str> = found.iter().filter(|(found, _)| *found).map(|(_, by)| *by).collect();
        if !by.is_empty() {
            return by.join(", ");
        }
        if self.headline.contains("HealthUnknown") {
            "as unknown".to_owned()
        } else if self.of_the_driver().next().is_some() {
            "for the driver, not for the volume".to_owned()
        } else {
            "not detected".to_owned()
        }
    }

    /// Log lines that are not about single volumes.
    fn of_the_driver(&self) -> impl Iterator<Item = &String> {
        self.of_the_driver.iter().filter(|line| !line.starts_with("volume "))
    }

    fn by(&self, vantages: &[&str]) -> String {
        let mut all = Vec::new();
        for vantage in vantages {
            for report in self.reports.get(*vantage).into_iter().flatten() {
                let what = if report.status.is_empty() {
                    format!("unknown, {}", report.reason)
                } else {
                    format!("{}/{}", report.status, report.reason)
                };
                let from = if vantages.len() > 1 { format!("{vantage}: ") } else { String::new() };
                // What was there from the beginning has no time.
                let after = if self.scenario == NONE {
                    format!(": {}", report.message)
                } else {
                    format!(" after {:.1} s", report.after_seconds)
                };
                all.push(format!("{from}{what}{after}"));
            }
        }
        if all.is_empty() { "-".to_owned() } else { all.join("<br>") }
    }

    fn recovery(&self) -> String {
        match (self.undone, self.recovered_seconds) {
            (false, _) => "not undone".to_owned(),
            (true, _) if self.reports.is_empty() => "-".to_owned(),
            (true, Some(seconds)) => format!("after {seconds:.1} s"),
            (true, None) => "not within the time".to_owned(),
        }
    }
}

/// The first sentence of a log line; the rest is advice.
fn sentence(line: &str) -> &str {
    line.split_once(". ").map_or(line, |(first, _)| first)
}

/// Text that does not end the cell it is in.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let text = r#"[
            {"driver":"d","version":"v1","scenario":"none","how":"a pod writes","reports":{},"headline":"",
             "status":"default a Healthy","of_the_driver":[],"recovered_seconds":null,"undone":false},
            {"driver":"d","version":"v1","scenario":"Full","how":"filled","headline":"HealthWarning OutOfCapacity",
             "reports":{"host":[{"status":"Degraded","reason":"OutOfCapacity","message":"a|b","after_seconds":4.25}],
                        "controller":[{"status":"Degraded","reason":"Odd","message":"","after_seconds":7.0}]},
             "status":"default a Degraded","of_the_driver":[],"recovered_seconds":3.0,"undone":true},
            {"driver":"d","version":"v1","scenario":"hung","how":"stopped","headline":"HealthUnknown NotSeen",
             "reports":{"controller":[{"status":"","reason":"NotSeen","message":"m","after_seconds":9.0}]},
             "status":"default a Unknown","of_the_driver":["no answer"],"recovered_seconds":null,"undone":true},
            {"driver":"d","version":"v1","scenario":"lost","how":"removed","headline":"","reports":{},
             "status":"default a Healthy","of_the_driver":["volume v is well"],"recovered_seconds":null,"undone":false},
            {"driver":"d","version":"v1","scenario":"driver hung","how":"stopped","headline":"","reports":{},
             "status":"default a Healthy","of_the_driver":["backend not seen"],"recovered_seconds":1.0,"undone":true}
        ]"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn each_cell_says_what_was_measured() {
        let made = table(&rows());
        for line in [
            "| d v1 | Full: filled | by the driver, by host checks | controller: Degraded/Odd after 7.0 s | \
             Degraded/OutOfCapacity after 4.2 s | - | after 3.0 s |",
            "| d v1 | hung: stopped | as unknown | controller: unknown, NotSeen after 9.0 s | - | - | not within the time |",
            "| d v1 | lost: removed | not detected | - | - | - | not undone |",
            "| d v1 | driver hung: stopped | for the driver, not for the volume | - | - | - | - |",
            "- d v1: nothing; `default a Healthy`",
            "  - host, OutOfCapacity: a\\|b",
            "  - log: no answer",
        ] {
            assert!(made.lines().any(|made| made == line), "{line}\nis not in\n{made}");
        }
    }

    #[test]
    fn the_page_around_the_table_stays() {
        let page = format!("# Title\n\n{BEGIN}\nold\n{END}\n\nend\n");
        let made = insert(&page, &rows()).unwrap();
        assert!(made.starts_with("# Title\n\n<!-- Made by") && made.ends_with("-->\n\nend\n"), "{made}");
        assert!(!made.contains("old"));
        assert_eq!(insert(&made, &rows()).unwrap(), made);
        assert!(insert("# Title\n", &rows()).unwrap_err().to_string().contains("lacks the lines"));
    }
}
