//! What the kernel knows about its FUSE connections. Reading it waits for no server.

use std::io;
use std::path::{Path, PathBuf};

use crate::block::read_number;
use crate::{DeviceNumber, Off};

/// `statfs` gives this number for a mounted fusectl.
const FUSECTL_MAGIC: u64 = 0x6573_5543;

/// The FUSE connections of this kernel, as fusectl shows them.
#[derive(Debug, Clone)]
pub struct Connections {
    folder: PathBuf,
}

impl Connections {
    /// Where fusectl is usually mounted. It is never mounted by us: that would change the host.
    pub fn open() -> Result<Self, Off> {
        Self::open_at("/sys/fs/fuse/connections")
    }

    /// As [`open`](Self::open), for a host whose `/sys` is elsewhere in our tree.
    pub fn open_at(folder: impl Into<PathBuf>) -> Result<Self, Off> {
        let folder = folder.into();
        let off = |why: String| Off {
            what: "FUSE connections are not checked",
            why,
            remedy: "mount fusectl there on the host to see requests that no FUSE server answers",
        };
        match rustix::fs::statfs(&folder) {
            Ok(found) if u64::try_from(found.f_type) == Ok(FUSECTL_MAGIC) => Ok(Self::at(folder)),
            Ok(_) => Err(off(format!("fusectl is not mounted on {}", folder.display()))),
            Err(errno) => {
                Err(off(format!("searching for {} failed: {}", folder.display(), io::Error::from(errno))))
            }
        }
    }

    /// Any folder with the same structure.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// How many requests the server behind this file system has not answered yet, or `None` when the kernel has
    /// no such connection. The number alone is no trouble; one that does not fall is.
    pub fn waiting(&self, device: DeviceNumber) -> io::Result<Option<u64>> {
        read_number(&self.connection(device).join("waiting"))
    }

    /// The folder bears the number of the mount's device as the kernel keeps it inside.
    fn connection(&self, device: DeviceNumber) -> PathBuf {
        let number = u64::from(device.major) << 20 | u64::from(device.minor);
        Path::new(&self.folder).join(number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn connections_are_found_by_their_device() {
        let folder = tempfile::tempdir().unwrap();
        // 7:3 in the kernel's own form, as for fuseblk.
        for (name, text) in [("44", "3\n"), ("7340035", "1\n"), ("45", "odd\n"), ("46", "-1\n")] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("waiting"), text).unwrap();
        }
        let connections = Connections::at(folder.path());
        let waiting = |major, minor| connections.waiting(DeviceNumber::new(major, minor)).unwrap();
        assert_eq!((waiting(0, 44), waiting(7, 3)), (Some(3), Some(1)));
        assert_eq!((waiting(0, 45), waiting(0, 46), waiting(0, 47)), (None, None, None));
    }

    #[test]
    fn a_folder_that_is_no_fusectl_is_off_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let off = Connections::open_at(folder.path()).unwrap_err();
        assert!(off.to_string().contains("fusectl is not mounted on"), "{off}");
        let off = Connections::open_at(folder.path().join("nothing")).unwrap_err();
        assert!(off.to_string().contains("No such file"), "{off}");
    }
}
