//! Small files of sysfs, read whole.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Sysfs gives no more than a page; what is longer is not sysfs and is cut.
const LONGEST: u64 = 64 << 10;

/// More block devices than a node has, and more members than any RAID; a longer list is cut.
const MOST_NAMES: usize = 4096;

/// The names in a folder, sorted; none when the folder is not there.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(with_path(folder, &error)),
    };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .take(MOST_NAMES)
        .collect();
    names.sort();
    Ok(names)
}

/// The first line of a sysfs file, or `None` when it is not there.
pub(crate) fn read_line(file: &Path) -> io::Result<Option<String>> {
    Ok(read_bytes(file)?.map(|bytes| String::from_utf8_lossy(first_line(&bytes)).into_owned()))
}

pub(crate) fn read_number(file: &Path) -> io::Result<Option<u64>> {
    Ok(read_line(file)?.and_then(|text| text.trim().parse().ok()))
}

pub(crate) fn read_bytes(file: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match File::open(file).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(with_path(file, &error)),
    }
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// A device that goes away while we read answers in one of these ways.
fn is_gone(error: &io::Error) -> bool {
    const NO_SUCH_DEVICE: [i32; 2] = [libc::ENODEV, libc::ENXIO];
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error().is_some_and(|errno| NO_SUCH_DEVICE.contains(&errno))
}

pub(super) fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("reading {} failed: {error}", path.display()))
}
