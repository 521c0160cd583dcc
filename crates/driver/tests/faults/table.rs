//! The table in the documentation, which is also what the tests expect.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};

use volmedic_driver::fault::{Fault, Kind};

/// What each call answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) controller_get_health: String,
    pub(crate) controller_list_health: String,
    pub(crate) node_get_health: String,
    pub(crate) controller_get: String,
    pub(crate) list: String,
    pub(crate) stats: String,
}

impl Row {
    pub(crate) fn healthy() -> Self {
        let none = || "-".to_owned();
        Self {
            controller_get_health: none(),
            controller_list_health: none(),
            node_get_health: none(),
            controller_get: "normal".to_owned(),
            list: "normal".to_owned(),
            stats: "usage, normal".to_owned(),
        }
    }

    fn cells(&self) -> [&str; 6] {
        let Self {
            controller_get_health,
            controller_list_health,
            node_get_health,
            controller_get,
            list,
            stats,
        } = self;
        [controller_get_health, controller_list_health, node_get_health, controller_get, list, stats]
    }
}

const BEGIN: &str =
    "<!-- the table: written by VOLMEDIC_BLESS=1 cargo test -p volmedic-driver --test faults -->";
const END: &str = "<!-- the end of the table -->";
const HEAD: &str = "| Fault | Volume | ControllerGetVolumeHealth | ControllerListVolumeHealth | NodeGetVolumeHealth | \
                    ControllerGetVolume | ListVolumes | NodeGetVolumeStats |\n|---|---|---|---|---|---|---|---|\n";

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/faults.md")
}

fn blessing() -> bool {
    std::env::var_os("VOLMEDIC_BLESS").is_some_and(|value| value == "1")
}

static TABLE: LazyLock<BTreeMap<(String, String), Row>> = LazyLock::new(|| {
    let text = std::fs::read_to_string(file()).unwrap_or_default();
    let rows = text.split(BEGIN).nth(1).and_then(|rest| rest.split(END).next()).unwrap_or_default();
    rows.lines().filter_map(parse).collect()
});

fn parse(line: &str) -> Option<((String, String), Row)> {
    let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
    let [_, fault, kind, get, listed, node, one, list, stats, _] = cells.as_slice() else { return None };
    let fault = fault.trim_matches('`').to_owned();
    fault.parse::<Fault>().ok()?;
    let row = Row {
        controller_get_health: get.clone(),
        controller_list_health: listed.clone(),
        node_get_health: node.clone(),
        controller_get: one.clone(),
        list: list.clone(),
        stats: stats.clone(),
    };
    Some(((fault, kind.clone()), row))
}

/// What the table says. `None` only when it is being written again.
pub(crate) fn expected(fault: Fault, kind: Kind) -> Option<Row> {
    if blessing() {
        return None;
    }
    let row = TABLE.get(&(fault.name().to_owned(), kind.name().to_owned())).cloned();
    Some(row.unwrap_or_else(|| panic!("docs/faults.md has no row for {fault} on {}", kind.name())))
}

static SEEN: Mutex<Vec<(Fault, Kind, Row)>> = Mutex::new(Vec::new());

pub(crate) fn record(fault: Fault, kind: Kind, row: Row) {
    SEEN.lock().unwrap().push((fault, kind, row));
}

/// Every fault of a volume has a row for each kind it can be done to, and there is no other row.
pub(crate) fn check_completeness() {
    if blessing() {
        return;
    }
    let mut wanted: Vec<(String, String)> = Vec::new();
    for fault in Fault::ALL {
        wanted.extend(fault.kinds().iter().map(|kind| (fault.name().to_owned(), kind.name().to_owned())));
    }
    wanted.sort();
    assert_eq!(TABLE.keys().cloned().collect::<Vec<_>>(), wanted);
    let text = std::fs::read_to_string(file()).unwrap();
    for fault in Fault::ALL {
        let line = format!("| `{fault}` | {} | {} |", fault.what(), fault.undone());
        assert!(text.contains(&line), "docs/faults.md does not say\n{line}");
    }
}

/// Writes what was seen, and keeps the rows of kinds that were not run.
pub(crate) fn bless() {
    let seen = SEEN.lock().unwrap();
    if !blessing() || seen.is_empty() {
        return;
    }
    let mut rows = TABLE.clone();
    rows.extend(
        seen.iter()
            .map(|(fault, kind, row)| ((fault.name().to_owned(), kind.name().to_owned()), row.clone())),
    );
    let mut table = HEAD.to_owned();
    for fault in Fault::ALL {
        for kind in Kind::ALL {
            if let Some(row) = rows.get(&(fault.name().to_owned(), kind.name().to_owned())) {
                writeln!(table, "| `{fault}` | {} | {} |", kind.name(), row.cells().join(" | ")).unwrap();
            }
        }
    }
    let text = std::fs::read_to_string(file()).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("docs/faults.md has the marks of the table");
    let (_, after) = rest.split_once(END).expect("docs/faults.md has the marks of the table");
    std::fs::write(file(), format!("{before}{BEGIN}\n{table}{END}{after}")).unwrap();
}
