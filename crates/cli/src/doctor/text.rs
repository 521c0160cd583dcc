//! The findings, for people.

use std::fmt::Write as _;

use volmedic_view::Grade;
use volmedic_view::render::{Paint, Table};
use volmedic_view::text::plain;

use super::findings::{Area, Level, Report, many};

pub(super) fn compose(report: &Report, paint: Paint) -> String {
    let mut out = String::new();
    let server = report.server.as_deref().map(|server| format!(", Kubernetes {server}")).unwrap_or_default();
    let _ = writeln!(out, "{}", paint.strong(&format!("{}{server}", plain(&report.cluster))));
    for area in Area::ALL {
        let found: Vec<_> = report.findings.iter().filter(|finding| finding.area == area).collect();
        if found.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{}", paint.strong(&format!("{area:?}")));
        for finding in found {
            let (sign, grade) = match finding.level {
                Level::Good => ("✔", Grade::Healthy),
                Level::Note => ("•", Grade::Unknown),
                Level::Problem => ("✖", Grade::Inaccessible),
            };
            let _ = writeln!(out, "  {} {}", paint.grade(grade, sign), plain(&finding.what));
            if let Some(fix) = &finding.fix {
                let _ = writeln!(out, "    {}", paint.faint(&format!("→ {}", plain(fix))));
            }
        }
    }
    if !report.drivers.is_empty() {
        let _ = writeln!(out, "\n{}", paint.strong("Drivers"));
        let lines = report.drivers.iter().map(|driver| {
            let vantages =
                if driver.reported_by.is_empty() { "none".to_owned() } else { driver.reported_by.join(",") };
            [
                driver.name.clone(),
                driver.nodes.to_string(),
                driver.claims.to_string(),
                driver.unknown.to_string(),
                driver.controller.clone(),
                vantages,
            ]
        });
        let table = Table::of_lines(["DRIVER", "NODES", "CLAIMS", "UNKNOWN", "CONTROLLER", "SEEN-BY"], lines);
        for line in table.render(paint).lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
    let count = |level| report.findings.iter().filter(|finding| finding.level == level).count();
    let verdict = match (count(Level::Problem), count(Level::Note)) {
        (0, notes) if report.partial => {
            format!(
                "No problem found, but too little could be read to be sure; {}.",
                many(notes, "note", "notes")
            )
        }
        (0, 0) => "No problems.".to_owned(),
        (0, notes) => format!("No problems; {}.", many(notes, "note", "notes")),
        (problems, notes) => {
            format!("{}, {}.", many(problems, "problem", "problems"), many(notes, "note", "notes"))
        }
    };
    let _ = writeln!(out, "\n{}", paint.strong(&verdict));
    out
}
