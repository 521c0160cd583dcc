//! The rule for full volumes, applied to what a file system says of itself.

use volmedic_health::fullness::{Full, Thresholds, Used};
use volmedic_health::{Condition, Status};
use volmedic_host::usage::{Space, Usage};

/// Judges the usage and remembers the judgement.
pub(super) fn judge(full: &mut Full, thresholds: Thresholds, usage: Usage) -> Vec<Condition> {
    let used = |space: Space| space.used_share().map(|share| Used { share, total: space.total });
    let found = full.judge(thresholds, used(usage.bytes), used(usage.inodes));
    found.into_iter().map(|(reason, text)| Condition::new(Status::Degraded, reason.into(), &text)).collect()
}
