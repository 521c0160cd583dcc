//! How full a volume is, by any counter.

use volmedic_host::usage::{Space, Usage as Counted};

/// How full a volume is. What nobody counts is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub bytes: Option<Amount>,
    pub inodes: Option<Amount>,
}

/// How much there is, and how much of it is taken. A raw device has a size and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    pub total: u64,
    pub used: Option<u64>,
    pub available: Option<u64>,
}

impl Usage {
    /// A raw device.
    pub(crate) fn of_device(bytes: u64) -> Self {
        Self { bytes: Some(Amount { total: bytes, used: None, available: None }), inodes: None }
    }
}

impl From<Counted> for Usage {
    fn from(Counted { bytes, inodes }: Counted) -> Self {
        // File systems that count nothing say that there is nothing.
        let amount = |space: Space| {
            (space.total > 0).then_some(Amount {
                total: space.total,
                used: Some(space.used),
                available: Some(space.available),
            })
        };
        Self { bytes: amount(bytes), inodes: amount(inodes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_counted_is_absent() {
        let counted = Counted { bytes: Space::new(100, 40, 30), inodes: Space::default() };
        let amount = Amount { total: 100, used: Some(60), available: Some(30) };
        assert_eq!(Usage::from(counted), Usage { bytes: Some(amount), inodes: None });
        assert_eq!(Usage::of_device(7).bytes, Some(Amount { total: 7, used: None, available: None }));
    }
}
