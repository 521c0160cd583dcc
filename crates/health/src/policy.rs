//! How patient the ledger is.

use jiff::SignedDuration;

/// How patient the ledger is. The defaults suit looks that are minutes apart.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The number of [`Missing`](crate::Sight::Missing) sights in a row that make a volume gone.
    pub missing_after: u32,
    /// The number of [`Unlisted`](crate::Sight::Unlisted) sights in a row that make a volume recovered.
    pub unlisted_after: u32,
    /// The number of probes in a row that saw nothing, after which health is unknown.
    pub blind_after: u32,
    /// A condition that lasts is reported again this often; `None` never.
    pub remind_every: Option<SignedDuration>,
    /// New words for an old condition are reported at most this often.
    pub reword_every: SignedDuration,
    /// More changes than this within [`flap_window`](Self::flap_window) are flapping.
    pub flap_limit: u32,
    /// Flapping is counted within this time, and is over after this time without a change.
    pub flap_window: SignedDuration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            missing_after: 2,
            unlisted_after: 2,
            blind_after: 3,
            remind_every: Some(SignedDuration::from_mins(30)),
            reword_every: SignedDuration::from_mins(10),
            flap_limit: 6,
            flap_window: SignedDuration::from_hours(1),
        }
    }
}
