//! What came of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    Pass,
    Fail,
    NotApplicable,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NotApplicable => "not applicable",
        })
    }
}

/// What one rule came to.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub rule: &'static str,
    /// What the rule demands.
    pub demands: &'static str,
    pub verdict: Verdict,
    /// What was asked and answered, or why the rule does not apply.
    pub evidence: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The name that the driver gives itself.
    pub driver: String,
    pub version: String,
    pub outcomes: Vec<Outcome>,
    /// What could not be taken away again, each with what is known of why.
    pub leftovers: Vec<String>,
    /// The run was stopped before every rule was judged.
    pub stopped: bool,
}

impl Report {
    pub fn count(&self, verdict: Verdict) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.verdict == verdict).count()
    }
}

/// Why a rule does not hold.
#[derive(Debug)]
pub(crate) enum Not {
    Kept(String),
    Applicable(String),
}

/// The evidence that a rule holds, or why not.
pub(crate) type Judged = Result<String, Not>;

pub(crate) fn broken<T>(evidence: impl Into<String>) -> Result<T, Not> {
    Err(Not::Kept(evidence.into()))
}

pub(crate) fn not_applicable<T>(why: impl Into<String>) -> Result<T, Not> {
    Err(Not::Applicable(why.into()))
}
