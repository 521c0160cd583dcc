//! Faults of what the volume is made of: image, loop device, bytes on the image, drive state.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};

use super::notes::Note;
use super::victim::Victim;
use super::{Fault, Kind, mounts};
use crate::error::{Error, Result};
use crate::health::DriveState;
use crate::store::{read_record, write_record};
use crate::sys;

const CUT: u64 = 4 << 20;
/// What metadata is overwritten with. Nothing that a file system writes is a whole sector of this.
const GARBAGE: u8 = 0xa5;
/// The smallest amount of one write.
const SECTOR: usize = 512;
const KEPT_IMAGE: &str = "disk.img";
const KEPT_STATE: &str = "drive.json";

fn image(victim: &Victim) -> Result<File> {
    let path = victim.directory.image();
    OpenOptions::new().read(true).write(true).open(path).map_err(victim.io("open the image"))
}

/// A second name keeps the data; the kernel sees the first one deleted all the same.
pub(super) fn delete_image(victim: &Victim, note: &Note) -> Result<()> {
    let (file, kept) = (victim.directory.image(), note.path(KEPT_IMAGE));
    fs::hard_link(&file, kept).and_then(|()| fs::remove_file(&file)).map_err(victim.io("delete the image"))
}

pub(super) fn restore_image(victim: &Victim, note: &Note) -> Result<()> {
    fs::rename(note.path(KEPT_IMAGE), victim.directory.image()).map_err(victim.io("put back the image"))
}

pub(super) fn truncate_image(victim: &Victim, note: &Note) -> Result<()> {
    let image = image(victim)?;
    let length = image.metadata().map_err(victim.io("measure the image"))?.len();
    let keep = length.saturating_sub(CUT);
    keep_bytes(victim, note, &image, keep, length - keep)?;
    image.set_len(keep).map_err(victim.io("cut the image"))
}

pub(super) fn restore_tail(victim: &Victim, note: &Note) -> Result<()> {
    let image = image(victim)?;
    for (offset, bytes) in note.kept()? {
        image.write_all_at(&bytes, offset).map_err(victim.io("put back the end of the image"))?;
    }
    Ok(())
}

/// While the device is in use the kernel only notes it down.
pub(super) fn detach(victim: &Victim) -> Result<()> {
    let device = File::open(victim.device()?.path()).map_err(victim.io("open the loop device"))?;
    sys::loop_clear(device).map_err(victim.io("detach the loop device"))
}

pub(super) fn attach_again(victim: &Victim) -> Result<()> {
    let attached = victim.attached()?;
    if attached.is_live() {
        return attached.device().stay().map(drop);
    }
    // A free number is taken by the first program that asks.
    match attached.device().attach_again(&victim.directory.image(), victim.staged()?.readonly)? {
        Some(_) => Ok(()),
        None => Err(Error::precondition(
            &victim.id,
            format_args!(
                "{} belongs to another program by now; unpublish and unstage the volume, stage and publish it again, and \
                 clear the fault then",
                attached.device().path().display()
            ),
        )),
    }
}

pub(super) fn shrink(victim: &Victim) -> Result<()> {
    limit(victim, 4096)
}

pub(super) fn restore_size(victim: &Victim) -> Result<()> {
    limit(victim, 0)?;
    // What failed meanwhile may have stopped the file system. ext4 also records that its journal failed, if it wrote to it
    // while the device was lost, until e2fsck has checked it.
    if victim.kind == Kind::Ext4 { mounts::repair_ext4(victim) } else { mounts::mount_again(victim) }
}

/// Zero is no limit.
fn limit(victim: &Victim, bytes: u64) -> Result<()> {
    let device = OpenOptions::new().read(true).write(true).open(victim.device()?.path());
    let device = device.map_err(victim.io("open the loop device"))?;
    sys::loop_change(device, |_, limit| *limit = bytes).map_err(victim.io("limit the loop device"))
}

pub(super) fn overwrite_superblock(victim: &Victim, note: &Note) -> Result<()> {
    let image = image(victim)?;
    let (at, length) = match victim.kind {
        Kind::Ext4 => (1024, 1024),
        Kind::Xfs => (0, 512),
        _ => (64 << 10, 4096),
    };
    flush(victim)?;
    overwrite(victim, note, &image, at, length)
}

pub(super) fn overwrite_metadata(victim: &Victim, note: &Note) -> Result<()> {
    let image = image(victim)?;
    flush(victim)?;
    match victim.kind {
        Kind::Ext4 => {
            // Group descriptors are in the block after the superblock's.
            let log_size = u32::from(read(victim, &image, 1024 + 24, 1)?[0].min(6));
            let block = 1024_u64 << log_size;
            overwrite(victim, note, &image, if block == 1024 { 2048 } else { block }, 1024)
        }
        // The free space and inode headers of the first group follow its superblock, a sector each.
        Kind::Xfs => overwrite(victim, note, &image, 512, 1024),
        _ => {
            // Every tree block bears the file system's id after its checksum.
            let id = read(victim, &image, (64 << 10) + 32, 16)?;
            for at in tree_blocks(&image, &id).map_err(victim.io("search the image"))? {
                overwrite(victim, note, &image, at, 32)?;
            }
            Ok(())
        }
    }
}

pub(super) fn restore_metadata(victim: &Victim, note: &Note) -> Result<()> {
    mounts::remounted(victim, || restore_bytes(victim, note))
}

/// Only where our garbage still is: what the kernel has written since is newer than what was kept.
pub(super) fn restore_bytes(victim: &Victim, note: &Note) -> Result<()> {
    let image = image(victim)?;
    for (offset, bytes) in note.kept()? {
        for (piece, at) in bytes.chunks(SECTOR).zip((offset..).step_by(SECTOR)) {
            if read(victim, &image, at, piece.len() as u64)?.iter().all(|byte| *byte == GARBAGE) {
                image.write_all_at(piece, at).map_err(victim.io("put back bytes"))?;
            }
        }
    }
    image.sync_all().map_err(victim.io("flush the image"))
}

/// What the kernel still has in memory would otherwise soon be written over the damage.
fn flush(victim: &Victim) -> Result<()> {
    let root = File::open(victim.staging()?).map_err(victim.io("open the root"))?;
    rustix::fs::syncfs(root).map_err(victim.io("flush the file system"))
}

fn overwrite(victim: &Victim, note: &Note, image: &File, at: u64, length: u64) -> Result<()> {
    keep_bytes(victim, note, image, at, length)?;
    let garbage = vec![GARBAGE; usize::try_from(length).unwrap_or(usize::MAX)];
    image.write_all_at(&garbage, at).map_err(victim.io("overwrite bytes"))
}

fn keep_bytes(victim: &Victim, note: &Note, image: &File, at: u64, length: u64) -> Result<()> {
    note.keep(&at.to_string(), &read(victim, image, at, length)?)
}

fn read(victim: &Victim, image: &File, at: u64, length: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    image.read_exact_at(&mut bytes, at).map_err(victim.io("read the image"))?;
    Ok(bytes)
}

/// Nodes are 16 KiB by default, and begin at multiples of 4 KiB.
fn tree_blocks(image: &File, id: &[u8]) -> io::Result<Vec<u64>> {
    const STEP: u64 = 4096;
    const MOST: usize = 4096;
    let length = image.metadata()?.len();
    let mut found = Vec::new();
    let mut at = 0;
    while at < length && found.len() < MOST {
        at = match seek(image, SeekFrom::Data(at)) {
            Ok(data) => data / STEP * STEP,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let mut head = [0; 56];
        if at + STEP > length {
            break;
        }
        image.read_exact_at(&mut head, at)?;
        // The superblock has the id in the same place; at 64 KiB and 64 MiB are its copies.
        let is_superblock = at == 64 << 10 || at == 64 << 20;
        if head[32..48] == *id && !is_superblock {
            found.push(at);
        }
        at += STEP;
    }
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no tree block was found"));
    }
    Ok(found)
}

pub(super) fn set_drive_state(fault: Fault, victim: &Victim, note: &Note) -> Result<()> {
    let path = victim.directory.drive_state();
    let before = read_record::<DriveState>(&path)?;
    write_record(&note.path(KEPT_STATE), &before)?;
    let state = fault.drive_state(before.unwrap_or_default());
    let state = state.ok_or_else(|| Error::Bug(format!("{fault} is no drive state")))?;
    write_record(&path, &state)
}

pub(super) fn restore_drive_state(victim: &Victim, note: &Note) -> Result<()> {
    let path = victim.directory.drive_state();
    match read_record::<Option<DriveState>>(&note.path(KEPT_STATE))?.flatten() {
        Some(before) => write_record(&path, &before),
        None => match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(victim.io("remove the drive state")),
        },
    }
}
