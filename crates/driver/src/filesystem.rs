//! The file systems a loop volume can carry: how small they can be, how they are made, recognised and grown.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{SeekFrom, seek};
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};

use crate::command;
use crate::error::{Error, Result};

const MIB: u64 = 1 << 20;
/// Making a file system writes little, whatever the size; a mkfs that takes longer is stuck.
const MKFS_DEADLINE: Duration = Duration::from_mins(2);
const GROW_DEADLINE: Duration = Duration::from_mins(2);
/// Only an image of up to this size is read to see whether it is all zero; a larger one never counts as blank.
const ZEROS_AT_MOST: u64 = 64 * MIB;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filesystem {
    Ext4,
    Xfs,
    Btrfs,
}

/// What is on an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Blank,
    Known(Filesystem),
    /// Data that no file system of ours explains. Never formatted over.
    Other,
}

impl Filesystem {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Ext4, Self::Xfs, Self::Btrfs].into_iter().find(|known| known.name() == text)
    }

    /// The smallest image that can be formatted and grown later: mkfs.xfs refuses less than 300 MiB, the kernel grows no
    /// btrfs to less than 256 MiB, and an ext4 much smaller than this has no journal.
    pub(crate) fn minimum_bytes(self) -> u64 {
        match self {
            Self::Ext4 => 8 * MIB,
            Self::Xfs => 300 * MIB,
            Self::Btrfs => 256 * MIB,
        }
    }

    /// Makes the file system on a device whose content is known to be worthless.
    pub(crate) fn make(self, device: &Path) -> Result<()> {
        match self {
            // No reserved blocks: a volume's whole size is the user's. Lazy tables keep this quick on sparse images.
            Self::Ext4 => command::run("mkfs.ext4", &["-q", "-F", "-m", "0"], device, MKFS_DEADLINE),
            Self::Xfs => command::run("mkfs.xfs", &["-q", "-f"], device, MKFS_DEADLINE),
            Self::Btrfs => command::run("mkfs.btrfs", &["-q", "-f"], device, MKFS_DEADLINE),
        }
    }

    /// Grows a mounted file system to its device. Does nothing when it has that size already.
    pub(crate) fn grow(self, volume: &str, device: &Path, mountpoint: &Path) -> Result<()> {
        match self {
            Self::Ext4 => command::run("resize2fs", &[], device, GROW_DEADLINE).map_err(|error| {
                if may_grow_ext4() {
                    return error;
                }
                let why = "growing a mounted ext4 needs CAP_SYS_RESOURCE, which the driver was not given; grant it, \
                           then call again";
                Error::precondition(volume, why)
            }),
            Self::Xfs => command::run("xfs_growfs", &["-d"], mountpoint, GROW_DEADLINE),
            Self::Btrfs => command::run("btrfs", &["filesystem", "resize", "max"], mountpoint, GROW_DEADLINE),
        }
    }

    /// Makes a copied image a volume of its own: distinguishable from its original where the kernel insists on it,
    /// and as large as its image where that can be done at rest. What was never formatted stays as it is.
    pub(crate) fn settle_copy(self, image: &Path, larger: bool) -> Result<()> {
        if content(image)? != Content::Known(self) {
            return Ok(());
        }
        match self {
            Self::Ext4 if larger => {
                // The tool insists on a check before it changes anything at rest.
                command::run_accepting("e2fsck", &["-f", "-p"], image, GROW_DEADLINE, &[0, 1])?;
                command::run("resize2fs", &[], image, GROW_DEADLINE)
            }
            // ext4 does not care about twins, and xfs is mounted with `nouuid`; xfs and btrfs grow once mounted.
            Self::Ext4 | Self::Xfs => Ok(()),
            Self::Btrfs => command::run("btrfstune", &["-f", "-m"], image, MKFS_DEADLINE),
        }
    }

    /// Whether a copy that is larger than its original has to be grown when it is mounted.
    pub(crate) fn grows_when_mounted(self) -> bool {
        match self {
            Self::Ext4 => false,
            Self::Xfs | Self::Btrfs => true,
        }
    }

    /// Options that every mount of ours carries.
    pub(crate) fn own_options(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 | Self::Btrfs => &[],
            Self::Xfs => &["nouuid"],
        }
    }
}

/// The kernel asks for this when a mounted ext4 is grown, and containers are often started without it.
fn may_grow_ext4() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE))
}

/// Reads an image's superblocks and, if there is none, whether it holds anything at all.
pub(crate) fn content(image: &Path) -> Result<Content> {
    let read = || -> io::Result<Content> {
        let file = File::open(image)?;
        let length = file.metadata()?.len();
        let has = |magic: &[u8], at: u64| -> io::Result<bool> {
            if length < at + magic.len() as u64 {
                return Ok(false);
            }
            let mut bytes = [0; 8];
            let bytes = &mut bytes[..magic.len()];
            file.read_exact_at(bytes, at)?;
            Ok(bytes == magic)
        };
        if has(b"XFSB", 0)? {
            Ok(Content::Known(Filesystem::Xfs))
        } else if has(b"_BHRfS_M", 0x1_0040)? {
            Ok(Content::Known(Filesystem::Btrfs))
        } else if has(&[0x53, 0xef], 0x438)? {
            Ok(Content::Known(Filesystem::Ext4))
        } else if is_zero(&file, length)? {
            Ok(Content::Blank)
        } else {
            Ok(Content::Other)
        }
    };
    read().map_err(Error::io(format_args!("read what is on the image {}", image.display())))
}

/// Holes are zero; allocated ranges are read, up to a limit.
fn is_zero(file: &File, length: u64) -> io::Result<bool> {
    let mut buffer = vec![0; 256 * 1024];
    let mut read = 0;
    let mut at = 0;
    while at < length {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?.min(length);
        at = start;
        while at < end {
            let want = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            let got = file.read_at(&mut buffer[..want], at)?;
            if got == 0 {
                return Ok(true);
            }
            if buffer[..got].iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            at += got as u64;
            read += got as u64;
            if read > ZEROS_AT_MOST {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    fn check(writes: &[(u64, &[u8])], expected: Content) {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        let file = OpenOptions::new().create_new(true).write(true).open(&image).unwrap();
        file.set_len(1 << 30).unwrap();
        for (at, bytes) in writes {
            file.write_all_at(bytes, *at).unwrap();
        }
        assert_eq!(content(&image).unwrap(), expected, "{writes:?}");
    }

    #[test]
    fn content_is_recognised_and_data_never_taken_for_blank() {
        check(&[], Content::Blank);
        check(&[(0, &[0; 4096])], Content::Blank);
        check(&[(0, b"XFSB")], Content::Known(Filesystem::Xfs));
        check(&[(0x438, &[0x53, 0xef])], Content::Known(Filesystem::Ext4));
        check(&[(0x1_0040, b"_BHRfS_M")], Content::Known(Filesystem::Btrfs));
        check(&[((1 << 30) - 1, b"x")], Content::Other);
        check(&[(5000, b"someone's partition table")], Content::Other);
    }
}
