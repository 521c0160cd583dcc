//! The number by which the kernel knows a block device.

use std::fmt;
use std::str::FromStr;

/// `major:minor`, as in mountinfo and sysfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

impl DeviceNumber {
    pub fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// From `st_dev` or `st_rdev` as the stat family gives it.
    pub fn from_raw(raw: u64) -> Self {
        Self { major: rustix::fs::major(raw), minor: rustix::fs::minor(raw) }
    }

    /// Whether no block device is behind it: file systems without one of their own (FUSE, NFS, tmpfs, and also
    /// btrfs, which may have several) get a number with major 0.
    pub fn is_anonymous(self) -> bool {
        self.major == 0
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The text is not `major:minor` with two decimal numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a device number is written major:minor, for example 7:0")]
pub struct BadDeviceNumber;

impl FromStr for DeviceNumber {
    type Err = BadDeviceNumber;

    fn from_str(text: &str) -> Result<Self, BadDeviceNumber> {
        let (major, minor) = text.trim_end().split_once(':').ok_or(BadDeviceNumber)?;
        let number = |digits: &str| -> Result<u32, BadDeviceNumber> {
            // `parse` alone would also take a plus sign.
            if digits.bytes().all(|byte| byte.is_ascii_digit()) {
                digits.parse().map_err(|_| BadDeviceNumber)
            } else {
                Err(BadDeviceNumber)
            }
        };
        Ok(Self { major: number(major)?, minor: number(minor)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_in_and_comes_out() {
        for text in ["7:0", "0:45", "259:1048575"] {
            assert_eq!(text.parse::<DeviceNumber>().unwrap().to_string(), text);
        }
        assert_eq!("8:16\n".parse(), Ok(DeviceNumber::new(8, 16)), "sysfs ends its lines");
        for text in ["", "7", ":", "7:", "+7:0", "7:-1", "7:0:1", "4294967296:0"] {
            assert_eq!(text.parse::<DeviceNumber>(), Err(BadDeviceNumber), "{text:?}");
        }
    }

    #[test]
    fn raw_numbers_are_taken_apart_as_the_kernel_does() {
        assert_eq!(DeviceNumber::from_raw(0x0703), DeviceNumber::new(7, 3));
        assert!(DeviceNumber::new(0, 31).is_anonymous());
    }
}
