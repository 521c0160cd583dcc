//! The figures, as a table for the terminal and a page for the documentation.

use std::fmt::Write as _;
use std::time::Duration;

use crate::controller::measure::{INTERVAL, Reach};
use crate::controller::{Mode, Outcome, Row};
use crate::{audit, bare};

/// What the controller is meant to keep with this many volumes.
const BUDGET_VOLUMES: usize = 100_000;
const BUDGET_RESIDENT: u64 = 48 << 20;
const BUDGET_PASS: f64 = 1.5;
const BUDGET_REPORTED: Duration = Duration::from_secs(10);
const BUDGET_RECOVERED: Duration = Duration::from_secs(8);

const COLUMNS: [&str; 10] = [
    "volumes",
    "driver's list",
    "program",
    "resident MiB",
    "peak MiB",
    "CPU ms/pass",
    "pass ms",
    "× bare client",
    "failures reported s",
    "recoveries reported s",
];

/// A table that reads well as it is and in Markdown.
pub(crate) fn table(outcome: &Outcome) -> String {
    let mut lines: Vec<Vec<String>> = vec![COLUMNS.map(str::to_owned).to_vec()];
    lines.extend(outcome.rows.iter().map(cells));
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        text.push('|');
        for (column, cell) in line.iter().enumerate() {
            // Figures to the right, words to the left. Writing to a string cannot fail.
            let width = widths[column];
            let _ = if is_word(column) {
                write!(text, " {cell:<width$} |")
            } else {
                write!(text, " {cell:>width$} |")
            };
        }
        text.push('\n');
        if index == 0 {
            for (column, width) in widths.iter().enumerate() {
                let _ = write!(text, "|{}{}", "-".repeat(width + 1), if is_word(column) { "-" } else { ":" });
            }
            text.push_str("|\n");
        }
    }
    let _ = write!(text, "\n{}{}{}", rest(outcome), against_peers(outcome), budgets(outcome));
    for missing in &outcome.missing {
        let _ = writeln!(text, "- {missing}");
    }
    text
}

/// One program's figures, for who waits for the others.
pub(crate) fn line(row: &Row) -> String {
    let each: Vec<String> =
        COLUMNS.iter().zip(cells(row)).map(|(column, cell)| format!("{column}: {cell}")).collect();
    format!("{}; asked at rest: {}", each.join("; "), audit::show(&row.measured.at_rest))
}

fn is_word(column: usize) -> bool {
    column == 1 || column == 2
}

fn cells(row: &Row) -> Vec<String> {
    let measured = &row.measured;
    vec![
        row.volumes.to_string(),
        row.mode.name().to_owned(),
        row.name().to_owned(),
        mib(measured.resident),
        mib(measured.peak_of_all),
        milliseconds(measured.cpu_per_pass),
        milliseconds(measured.pass),
        against_bare(row),
        measured.reported.to_string(),
        measured.took_back.to_string(),
    ]
}

/// A list of one page is over for the driver before anybody has read it: there is nothing to compare.
fn against_bare(row: &Row) -> String {
    let healthy_only = row.mode == Mode::Health;
    if healthy_only || row.volumes <= usize::try_from(bare::PAGE).unwrap_or_default() {
        return "one page".to_owned();
    }
    format!("{:.2} ({})", ratio(row.measured.pass, row.bare), milliseconds(row.bare))
}

/// What was asked of the API server while nothing changed.
fn rest(outcome: &Outcome) -> String {
    let mut text = String::from("Asked of the API server while nothing changed:\n\n");
    for row in &outcome.rows {
        let Row { volumes, mode, measured, .. } = row;
        let name = row.name();
        let (passes, asked) = (measured.quiet_passes, audit::show(&measured.at_rest));
        let first = measured.first_pass.as_secs_f64();
        let _ = writeln!(
            text,
            "- {name}, {volumes} volumes, {}: {asked} in {passes} passes; its first pass ended {first:.1} s after its \
             start, and its peak up to then and at rest was {} MiB",
            mode.name(),
            mib(measured.peak)
        );
    }
    text.push('\n');
    text
}

/// How many times as much the peers take.
fn against_peers(outcome: &Outcome) -> String {
    let mut text = String::new();
    for theirs in outcome.rows.iter().filter(|row| row.peer.is_some()) {
        let same =
            |row: &&Row| row.peer.is_none() && row.volumes == theirs.volumes && row.mode == theirs.mode;
        let (Some(ours), Some(name)) = (outcome.rows.iter().find(same), &theirs.peer) else { continue };
        let (a, b) = (&theirs.measured, &ours.measured);
        let _ = writeln!(
            text,
            "- {name} with {} volumes, as a multiple of volmedic: memory {:.1}, CPU per pass {:.1}, pass {:.1}, \
             failures reported {}, recoveries reported {}",
            theirs.volumes,
            of(a.resident, b.resident),
            ratio(a.cpu_per_pass, b.cpu_per_pass),
            ratio(a.pass, b.pass),
            multiple(&a.reported, &b.reported),
            multiple(&a.took_back, &b.took_back)
        );
    }
    if text.is_empty() { text } else { format!("Beside each other:\n\n{text}\n") }
}

/// How many times as long one took as the other, where both came to their end.
fn multiple(one: &Reach, other: &Reach) -> String {
    match one.time().zip(other.time()) {
        Some((one, other)) => format!("{:.1}", ratio(one, other)),
        None => format!("{one} s against {other} s"),
    }
}

fn budgets(outcome: &Outcome) -> String {
    let mut text = String::new();
    for row in outcome.rows.iter().filter(|row| row.peer.is_none() && row.volumes == BUDGET_VOLUMES) {
        let measured = &row.measured;
        let writes = audit::writes(&measured.at_rest);
        let pass = ratio(measured.pass, row.bare);
        let mut kept = vec![
            (
                measured.resident <= BUDGET_RESIDENT,
                format!("{} MiB resident, at most 48", mib(measured.resident)),
            ),
            (writes == 0, format!("{writes} writes at rest beside the lease, at most 0")),
        ];
        // That a volume is absent from a list of the unhealthy counts when the second list lacks it, too.
        let recovered = match row.mode {
            Mode::Volumes => BUDGET_RECOVERED,
            Mode::Health => BUDGET_RECOVERED + INTERVAL,
        };
        for (what, reach, most) in [
            ("failures", &measured.reported, BUDGET_REPORTED),
            ("recoveries", &measured.took_back, recovered),
        ] {
            let text =
                format!("{} {what} reported in {reach} s, at most {}", measured.failures, most.as_secs());
            kept.push((reach.time().is_some_and(|time| time <= most), text));
        }
        // A list of the unhealthy is empty at rest.
        if row.mode == Mode::Volumes {
            let what = format!("a pass takes {pass:.2} times as long as a bare client's, at most 1.5");
            kept.push((pass <= BUDGET_PASS, what));
        }
        for (kept, what) in kept {
            let _ = writeln!(text, "- {}: {}: {what}", row.mode.name(), if kept { "kept" } else { "MISSED" });
        }
    }
    if text.is_empty() {
        text
    } else {
        format!("What is meant to be kept with {BUDGET_VOLUMES} volumes:\n\n{text}\n")
    }
}

/// The page for the documentation.
pub(crate) fn page(outcome: &Outcome) -> String {
    format!(
        "# What the controller takes\n\n\
         Made by `{}` on a machine with {}, with a real API server and a simulated CSI driver on the same machine. Do \
         not edit; run it again.\n\n\
         Every program runs as a process of its own with a list every 3 s, and is measured after the first lists. \
         *Resident* is at rest; *peak* is the most it ever had, with 1,000 failures reported and cleared. *Pass* is the \
         time from the driver's first page asked for to its last page given, in the middle of ten; beside it stands how \
         many times as long that is as a bare client takes, which drains the same list from a process of its own and does \
         nothing with it (and its time in ms). *Reported* is the time from the list that shows the change of 1,000 volumes, \
         or of all where there are fewer, to the last claim's event. Requests are from the API server's audit log.\n\n{}",
        outcome.made_by,
        outcome.machine,
        table(outcome)
    )
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", of(bytes, 1 << 20))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1000.0)
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64().max(1e-9)
}

#[expect(clippy::cast_precision_loss, reason = "figures for a person, with one decimal")]
fn of(a: u64, b: u64) -> f64 {
    a as f64 / (b as f64).max(1.0)
}
