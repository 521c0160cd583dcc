//! The slots as two files of one directory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::{HEADER, LONGEST, Medium};

const NAMES: [&str; 2] = ["journal-0", "journal-1"];

#[derive(Debug)]
pub(in super::super) struct Files {
    directory: PathBuf,
    /// That a file is there lasts.
    is_entered: [bool; NAMES.len()],
}

impl Files {
    pub(in super::super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), is_entered: [false; NAMES.len()] }
    }

    pub(in super::super) fn path(&self, slot: usize) -> PathBuf {
        self.directory.join(NAMES[slot])
    }

    /// Moves away what is in the way of a slot and is not a file: nothing else is read or written. Answers where to, the last
    /// if there were two.
    pub(in super::super) fn clear(&self, aside: &str) -> io::Result<Option<PathBuf>> {
        let mut moved = None;
        for (slot, name) in NAMES.into_iter().enumerate() {
            let path = self.path(slot);
            if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
                let aside = self.directory.join(format!("{name}{aside}"));
                fs::rename(&path, &aside)?;
                moved = Some(aside);
            }
        }
        Ok(moved)
    }

    fn open(&self, slot: usize, options: &mut fs::OpenOptions) -> io::Result<File> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = options.custom_flags(flags).open(self.path(slot))?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
    }

    fn writable(&self, slot: usize) -> io::Result<File> {
        self.open(slot, File::options().write(true).create(true).truncate(false).mode(0o600))
    }
}

impl Medium for Files {
    fn read(&mut self, slot: usize) -> io::Result<Vec<u8>> {
        let file = match self.open(slot, File::options().read(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut text = Vec::new();
        file.take(LONGEST + HEADER as u64).read_to_end(&mut text)?;
        Ok(text)
    }

    fn length(&mut self, slot: usize) -> io::Result<u64> {
        match fs::symlink_metadata(self.path(slot)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            found => Ok(found?.len()),
        }
    }

    fn write_at(&mut self, slot: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writable(slot)?.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, slot: usize, length: u64) -> io::Result<()> {
        self.writable(slot)?.set_len(length)
    }

    fn sync(&mut self, slot: usize) -> io::Result<()> {
        self.writable(slot)?.sync_all()?;
        if !self.is_entered[slot] {
            File::open(&self.directory)?.sync_all()?;
            self.is_entered[slot] = true;
        }
        Ok(())
    }
}
