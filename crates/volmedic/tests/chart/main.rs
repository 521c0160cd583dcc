//! What is shipped to install Volmedic: the Helm chart, judged by Helm and by a real API server; the manifests made from
//! it; the alerts, judged by promtool; the dashboard. Needs Go for the first run, and promtool.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod alerts;
mod confined;
mod driver;
mod flags;
mod installed;
mod matrix;
mod rendered;
mod rights;
mod server;

#[path = "../../../heal/tests/api/kind.rs"]
mod kind;

use std::path::PathBuf;
use std::sync::OnceLock;

use volmedic_testkit::helm::Chart;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn chart() -> &'static Chart {
    static CHART: OnceLock<Chart> = OnceLock::new();
    CHART.get_or_init(|| Chart::of(&root()).unwrap())
}
