//! Faults of space: no bytes left, no inodes left.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::victim::Victim;
use crate::error::Result;

const FILLER: &str = ".volmedic-filler";
const MANY: &str = ".volmedic-inodes";

/// More files than a volume that this is meant for has inodes.
const MOST_FILES: u32 = 2_000_000;

fn filler(victim: &Victim) -> Result<PathBuf> {
    Ok(victim.staging()?.join(FILLER))
}

pub(super) fn fill(victim: &Victim) -> Result<()> {
    let path = filler(victim)?;
    let bytes = victim.volume.bytes;
    let fill = || -> io::Result<()> {
        let mut file = File::create(&path)?;
        // In ever smaller pieces; what cannot be reserved is written.
        let mut end = 0;
        let mut piece = bytes;
        while piece >= 4096 && end < bytes {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), end, piece) {
                Ok(()) => end += piece,
                Err(Errno::NOSPC) => piece /= 2,
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let mut file_end = io::Seek::seek(&mut file, io::SeekFrom::Start(end))?;
        for size in [1 << 20, 4096] {
            let zeros = vec![0; size];
            // More than twice its size cannot go in.
            while file_end < bytes.saturating_mul(2) {
                match file.write(&zeros) {
                    Ok(0) => break,
                    Ok(count) => file_end += count as u64,
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error),
                }
            }
        }
        match file.sync_all() {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            other => other,
        }
    };
    fill().map_err(victim.io("fill the file system"))
}

pub(super) fn empty(victim: &Victim) -> Result<()> {
    let root = victim.staging()?;
    let path = filler(victim)?;
    let delete = || -> io::Result<()> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        // btrfs counts the space as free only once that is on the disk.
        Ok(rustix::fs::syncfs(File::open(root)?)?)
    };
    delete().map_err(victim.io("delete the file that fills the file system"))
}

pub(super) fn take_inodes(victim: &Victim) -> Result<()> {
    let folder = victim.staging()?.join(MANY);
    let take = || -> io::Result<()> {
        fs::create_dir_all(&folder)?;
        for name in 0..MOST_FILES {
            match File::create(folder.join(name.to_string())) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    take().map_err(victim.io("take the inodes"))
}

pub(super) fn give_inodes_back(victim: &Victim) -> Result<()> {
    match fs::remove_dir_all(victim.staging()?.join(MANY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(victim.io("delete the files that take the inodes")),
    }
}
