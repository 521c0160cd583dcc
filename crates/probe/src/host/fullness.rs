//! The rule for full volumes, applied to what a file system says of itself.

use volmedic_health::fullness::{self, Thresholds, Used};
use volmedic_host::usage::{Space, Usage};

use super::findings::Finding;
use super::memory::Full;

/// Judges the usage and remembers the judgement.
pub(super) fn check(thresholds: Thresholds, usage: Usage, full: &mut Full) -> Vec<Finding> {
    let used = |space: Space| space.used_share().map(|share| Used { share, total: space.total });
    let mut judged = fullness::Full { bytes: full.bytes, inodes: full.inodes };
    let found = judged.judge(thresholds, used(usage.bytes), used(usage.inodes));
    let fullness::Full { bytes, inodes } = judged;
    *full = Full { bytes, inodes };
    found.into_iter().map(|(reason, text)| Finding::degraded(reason, text)).collect()
}
