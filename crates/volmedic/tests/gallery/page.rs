//! The table: shown after a run, and the generated part of the page.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use volmedic_driver::fault::Fault;

use crate::others;
use crate::rows::{Eyes, Row};

/// What was reported about a row from one vantage.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) reported: Vec<String>,
    /// From when the fault was done.
    pub(crate) after: Duration,
    /// From when it was undone to when everything was reported to be over.
    pub(crate) over: Duration,
}

/// How soon things were reported while the driver had a fault.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    pub(crate) blind: Option<Duration>,
    pub(crate) volume_reported: Duration,
    pub(crate) over: Option<Duration>,
}

#[derive(Debug, Default)]
struct Run {
    seen: BTreeMap<(String, Eyes), Seen>,
    outages: BTreeMap<&'static str, Outage>,
    healthy: Option<String>,
}

static RUN: Mutex<Option<Run>> = Mutex::new(None);

fn with(work: impl FnOnce(&mut Run)) {
    work(RUN.lock().unwrap().get_or_insert_default());
}

pub(crate) fn record(row: Row, eyes: Eyes, seen: Seen) {
    with(|run| {
        run.seen.insert((row.name(), eyes), seen);
    });
}

pub(crate) fn record_outage(fault: Fault, outage: Outage) {
    with(|run| {
        run.outages.insert(fault.name(), outage);
    });
}

pub(crate) fn record_healthy(sentence: String) {
    with(|run| run.healthy = Some(sentence));
}

const BEGIN: &str = "<!-- written by `cargo xtask gallery --write` -->";
const END: &str = "<!-- the end of what is written -->";
const HEAD: &str = "| Fault | Volume | Host's own eyes | Reported after | Over after | Driver, health calls | Reported after | \
                    Over after | Driver, older dialect | Reported after | Over after | kubelet (gate CSIVolumeHealth) | \
                    external-health-monitor |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
const DRIVER_HEAD: &str = "| Fault | Reported on the node after | A fault of a volume meanwhile is reported after | Over after | \
                           kubelet (gate CSIVolumeHealth) | external-health-monitor |\n|---|---|---|---|---|---|\n";

fn to_be_written() -> Option<OsString> {
    std::env::var_os("VOLMEDIC_GALLERY_PAGE")
}

/// Whether the figures of this run are for the page.
pub(crate) fn is_measured() -> bool {
    to_be_written().is_some()
}

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/gallery.md")
}

/// Shows what was found, and writes the page if somebody wants that and all is as it should be.
#[allow(clippy::print_stdout, reason = "the table is what the run is for")]
pub(crate) fn show(all_well: bool) {
    let run = RUN.lock().unwrap();
    let Some(run) = &*run else { return };
    let text = text(run);
    println!("{text}");
    if let Some(file) = to_be_written().filter(|_| all_well) {
        let old = std::fs::read_to_string(&file).unwrap();
        let (before, rest) = old.split_once(BEGIN).expect("the page has the marks of what is written");
        let (_, after) = rest.split_once(END).expect("the page has the marks of what is written");
        std::fs::write(&file, format!("{before}{BEGIN}\n{text}{END}{after}")).unwrap();
    }
}

fn text(run: &Run) -> String {
    let mut text = "## Faults of volumes\n\n".to_owned() + HEAD;
    let is_run = |row: &Row| run.seen.keys().any(|(name, _)| *name == row.name());
    for row in Row::all().filter(is_run) {
        let cells: Vec<String> = [Eyes::Host, Eyes::Health, Eyes::Older]
            .into_iter()
            .flat_map(|eyes| cells(run, row, eyes))
            .collect();
        let (kubelet, monitor) = (others::kubelet(row), others::monitor(row));
        let (fault, kind) = (row.fault, row.kind.name());
        writeln!(text, "| `{fault}` | {kind} | {} | {kubelet} | {monitor} |", cells.join(" | ")).unwrap();
    }
    text += "\n## Faults of the driver\n\n";
    text += DRIVER_HEAD;
    for fault in Fault::ALL.iter().filter(|fault| fault.is_of_the_driver()) {
        let [kubelet, monitor] = others::of_the_driver(*fault);
        let outage = run.outages.get(fault.name());
        let figure = |figure: Option<Duration>| figure.map_or_else(|| "-".to_owned(), seconds);
        let cells = match outage {
            None => ["not run"; 3].map(str::to_owned),
            Some(outage) => [outage.blind, Some(outage.volume_reported), outage.over].map(figure),
        };
        writeln!(text, "| `{fault}` | {} | {kubelet} | {monitor} |", cells.join(" | ")).unwrap();
    }
    text += "\n## What is healthy\n\n";
    text += run.healthy.as_deref().unwrap_or("Not run.");
    text + "\n"
}

fn cells(run: &Run, row: Row, eyes: Eyes) -> [String; 3] {
    let words = |what: &str| [what.to_owned(), "-".to_owned(), "-".to_owned()];
    match run.seen.get(&(row.name(), eyes)) {
        Some(Seen { reported, after, over }) => [reported.join(", "), seconds(*after), seconds(*over)],
        None if eyes == Eyes::Host && row.only_the_driver_knows() => words("driver only"),
        None if eyes == Eyes::Host && row.only_a_check_finds_it() => words("when the kernel reads it"),
        None => words("not run"),
    }
}

fn seconds(duration: Duration) -> String {
    let tenths = duration.as_millis() / 100;
    if tenths == 0 { "< 0.1 s".to_owned() } else { format!("{:.1} s", duration.as_secs_f64()) }
}

/// Every row is on the page with what was reported when it was written: what is expected now.
pub(crate) fn check_completeness() {
    if is_measured() {
        return;
    }
    let text = std::fs::read_to_string(page()).unwrap();
    let (_, rest) = text.split_once(BEGIN).expect("the page has the marks of what is written");
    let (written, _) = rest.split_once(END).expect("the page has the marks of what is written");
    let mut lines: Vec<&str> = written.lines().filter(|line| line.starts_with("| `")).collect();
    for row in Row::all() {
        let start = format!("| `{}` | {} |", row.fault, row.kind.name());
        let at = lines.iter().position(|line| line.starts_with(&start));
        let line = lines.remove(at.unwrap_or_else(|| panic!("the page has no row for {}", row.name())));
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        for (eyes, column) in [(Eyes::Host, 3), (Eyes::Health, 6), (Eyes::Older, 9)] {
            // A check finds damage in the driver only.
            let expected = row.expected(eyes).filter(|_| eyes != Eyes::Host || !row.only_a_check_finds_it());
            if let Some(expected) = expected {
                assert!(
                    cells[column].split(", ").any(|reported| reported == expected),
                    "{expected} is not in {line}"
                );
            }
        }
        assert_eq!(cells[12], others::kubelet(row), "{line}");
        assert_eq!(cells[13], others::monitor(row), "{line}");
    }
    for fault in Fault::ALL.iter().filter(|fault| fault.is_of_the_driver()) {
        let start = format!("| `{fault}` |");
        let at = lines.iter().position(|line| line.starts_with(&start));
        lines.remove(at.unwrap_or_else(|| panic!("the page has no row for {fault}")));
    }
    assert!(lines.is_empty(), "rows of nothing: {lines:#?}");
}
