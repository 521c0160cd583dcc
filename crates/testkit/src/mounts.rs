//! What is mounted, as the kernel reports it, and how to undo it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

/// An unmount waits for the disk; one that takes this long waits for one that is gone.
const LIMIT: Duration = Duration::from_secs(15);
/// Mounts may be stacked. More layers than this nobody makes.
const ROUNDS: usize = 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    /// The type of file system.
    pub(crate) kind: String,
}

/// All mounts that this process sees, in the order in which they were made.
pub(crate) fn all() -> Result<Vec<Mount>> {
    let text = fs::read("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The mounts at or below `folder`, the last made first.
pub(crate) fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let points = all()?.into_iter().map(|mount| mount.point).filter(|point| point.starts_with(folder));
    let mut points: Vec<PathBuf> = points.collect();
    points.reverse();
    Ok(points)
}

/// Undoes every mount at or below `folder`. One that is busy or hangs is cut off from the tree instead, and goes when
/// its last user does.
pub(crate) fn undo(folder: &Path) -> Result<()> {
    for _ in 0..ROUNDS {
        let points = below(folder)?;
        if points.is_empty() {
            return Ok(());
        }
        for point in points {
            // The way of the last resort may fail too, when the one above took this one along: the next round shows.
            if !unmount(&[], &point) {
                unmount(&["--lazy"], &point);
            }
        }
    }
    let left: Vec<String> = below(folder)?.iter().map(|point| point.display().to_string()).collect();
    if left.is_empty() {
        return Ok(());
    }
    bail!("still mounted after {ROUNDS} tries: {}; unmount by hand, then try again", left.join(", "))
}

/// In a process of its own: a hung disk must not hang this one.
fn unmount(options: &[&str], point: &Path) -> bool {
    let mut command = Command::new("umount");
    command.arg("--no-canonicalize").args(options).arg(point);
    process::run(command, LIMIT).is_ok_and(|said| said.success)
}

/// A line is: number, parent, device, root, mount point, options, any number of tags, `-`, type, source, options.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let point = unescape(fields.nth(4)?);
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount { point: OsString::from_vec(point).into(), kind: String::from_utf8_lossy(kind).into_owned() })
}

/// The kernel writes blank, tab, newline and backslash as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        if let Some(digits) = octal {
            plain.push(digits.iter().fold(0_u8, |sum, digit| sum.wrapping_mul(8).wrapping_add(digit - b'0')));
            rest = &tail[3..];
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_any_number_of_tags_and_with_odd_letters() {
        for (line, point, kind) in [
            ("412 29 8:17 /data /srv/x rw,relatime shared:7 master:1 - xfs /dev/sdb1 rw", "/srv/x", "xfs"),
            ("413 29 0:41 / /a\\040b\\134c rw - cgroup2 none rw", "/a b\\c", "cgroup2"),
            ("413 29 0:41 / /a\\9 rw - tmpfs none rw", "/a\\9", "tmpfs"),
        ] {
            let expected = Mount { point: point.into(), kind: kind.into() };
            assert_eq!(parse(line.as_bytes()), Some(expected), "{line}");
        }
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"413 29 0:41 / /x rw"), None);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(all().unwrap().iter().any(|mount| mount.point == Path::new("/")));
        assert!(below(Path::new("/no/such/folder")).unwrap().is_empty());
    }
}
