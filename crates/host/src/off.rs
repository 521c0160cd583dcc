//! Checks that are off on this host.

/// One check that cannot run on this host, why, and what would make it possible. The others go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct Off {
    /// What is not done for that.
    pub what: &'static str,
    pub why: String,
    pub remedy: &'static str,
}
