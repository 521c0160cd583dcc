//! Whether a CSI driver reports the health of volumes as the specification demands.
//!
//! [`rules()`] lists what is judged, [`run`] judges a driver by its socket, and the [`Report`] says of every rule whether
//! it holds, is broken, or does not apply, with what was asked and answered.
//!
//! What must hold:
//! - every call has a deadline, and every list that is walked a bound;
//! - whatever is made is written down before it is asked for, and taken away at the end, also of a run that was stopped;
//! - nothing the driver says is believed or printed as it came: it is cut to one line.

mod baseline;
mod bench;
mod call;
mod clean;
mod listing;
mod offers;
mod render;
mod report;
mod rules;
mod run;
mod seen;
mod text;
mod volume;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

pub use baseline::{Baseline, Change};
pub use report::{Outcome, Report, Verdict};
pub use rules::names as rules;
pub use run::{Error, run};

/// Where the driver is and what its volumes need.
#[derive(Clone, Debug)]
pub struct Options {
    /// The socket of the driver.
    pub socket: PathBuf,
    /// The socket of its node service, where that is another one.
    pub node_socket: Option<PathBuf>,
    /// Parameters of the volumes that are made.
    pub parameters: HashMap<String, String>,
    /// Secrets that the driver needs. They are sent with every call that takes some, and must never come back.
    pub secrets: HashMap<String, String>,
    /// Volumes are staged and published in directories made below these two.
    pub staging_dir: PathBuf,
    pub target_dir: PathBuf,
    /// Make raw block volumes instead of mounted ones.
    pub block: bool,
    pub volume_bytes: i64,
    /// How long one call may take.
    pub deadline: Duration,
    /// How long a driver may take to notice that a volume was hurt, or has recovered.
    pub notice: Duration,
    /// Only these rules; all of them when empty.
    pub only: Vec<String>,
}

/// A way to hurt volumes, for drivers that have one. Each injury must be reported by the driver while it lasts.
pub trait Harm: Send + Sync {
    /// The injuries, by name.
    fn injuries(&self) -> Vec<String>;
    /// Does one to a volume. The error says why that failed.
    fn hurt(&self, injury: &str, volume_id: &str) -> Result<(), String>;
    /// Undoes it.
    fn heal(&self, injury: &str, volume_id: &str) -> Result<(), String>;
}
