//! How full something is.

use rustix::fs::StatVfs;

/// How much of something there is, in bytes or in inodes. Never negative, and never more used than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    pub total: u64,
    pub used: u64,
    /// What an ordinary user may still take. With `used` it makes less than `total` where some is kept for root.
    pub available: u64,
}

impl Space {
    /// From what a file system says of itself. A lying one (more free than total) is taken at its total.
    pub fn new(total: u64, free: u64, available: u64) -> Self {
        Self { total, used: total.saturating_sub(free), available: available.min(total) }
    }

    /// The used share of what an ordinary user could ever have, from 0 to 1, as df counts it. `None` if that is
    /// nothing: btrfs, FUSE and network file systems often count no inodes at all.
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more precision than this")]
    pub fn used_share(self) -> Option<f64> {
        let reachable = self.used.saturating_add(self.available);
        (self.total > 0 && reachable > 0).then(|| self.used as f64 / reachable as f64)
    }
}

/// How full a file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub bytes: Space,
    pub inodes: Space,
}

impl From<&StatVfs> for Usage {
    fn from(stat: &StatVfs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Self {
            bytes: Space::new(bytes(stat.f_blocks), bytes(stat.f_bfree), bytes(stat.f_bavail)),
            inodes: Space::new(stat.f_files, stat.f_ffree, stat.f_favail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_root_is_neither_used_nor_available() {
        let space = Space::new(1000, 300, 250);
        assert_eq!(space, Space { total: 1000, used: 700, available: 250 });
        assert!((space.used_share().unwrap() - 700.0 / 950.0).abs() < 1e-9);
    }

    #[test]
    fn a_lying_file_system_never_makes_a_negative_number() {
        let space = Space::new(100, u64::MAX, u64::MAX);
        assert_eq!(space, Space { total: 100, used: 0, available: 100 });
        assert_eq!(space.used_share(), Some(0.0));
    }

    #[test]
    fn nothing_at_all_has_no_share() {
        assert_eq!(Space::default().used_share(), None);
        assert_eq!(Space::new(10, 0, 0).used_share(), Some(1.0));
    }

    #[test]
    fn the_usage_of_a_real_file_system_adds_up() {
        let stat = rustix::fs::statvfs("/").unwrap();
        let Usage { bytes, inodes } = Usage::from(&stat);
        assert!(bytes.total > 0 && bytes.used > 0 && bytes.used + bytes.available <= bytes.total);
        assert!(inodes.used + inodes.available <= inodes.total);
    }
}
