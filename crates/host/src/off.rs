//! What cannot be seen from here.

/// One way of looking that is closed to us on this host, why, and what would open it. The others go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct Off {
    /// What is not done for that.
    pub what: &'static str,
    pub why: String,
    pub remedy: &'static str,
}
