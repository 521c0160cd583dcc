//! What the kernel has counted against a mounted file system.
//!
//! The counters outlive a mount (ext4 and btrfs keep them on the disk), so a number alone is old news: a caller
//! compares it with the one it saw before. ext4 counts some milliseconds after the error. XFS keeps no such counters
//! in sysfs; it is judged by its answers.

use std::io;

use crate::block::{Sysfs, names, read_bytes, read_line, read_number};

/// What ext4 remembers of its errors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ext4Errors {
    /// Errors found since the file system was last checked by e2fsck.
    pub count: u64,
    pub first: Option<Ext4Error>,
    pub last: Option<Ext4Error>,
}

/// Where in ext4 an error was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ext4Error {
    /// The kernel function.
    pub function: String,
    pub line: u64,
    /// Seconds since 1970.
    pub time: u64,
    /// ext4's own number for the kind of error; 0 when it kept none.
    pub code: u64,
}

/// What btrfs counts for each of its devices, summed up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BtrfsErrors {
    pub write: u64,
    pub read: u64,
    pub flush: u64,
    pub corruption: u64,
    pub generation: u64,
    /// The numbers of the file system's devices that are missing. btrfs shows no name of a device that is not there.
    pub missing: Vec<u64>,
    /// The kernel's names of its devices that are there.
    pub members: Vec<String>,
}

impl BtrfsErrors {
    pub fn total(&self) -> u64 {
        let Self { write, read, flush, corruption, generation, missing: _, members: _ } = self;
        [write, read, flush, corruption, generation]
            .into_iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl Sysfs {
    /// The errors of the ext4 on the device with this kernel name; `None` when no ext4 is mounted from it.
    pub fn ext4_errors(&self, device: &str) -> io::Result<Option<Ext4Errors>> {
        let folder = self.path("fs/ext4").join(device);
        let Some(count) = read_number(&folder.join("errors_count"))? else { return Ok(None) };
        let error = |which: &str| -> io::Result<Option<Ext4Error>> {
            let number = |field: &str| -> io::Result<u64> {
                Ok(read_number(&folder.join(format!("{which}_error_{field}")))?.unwrap_or(0))
            };
            let function = read_line(&folder.join(format!("{which}_error_func")))?.unwrap_or_default();
            let time = number("time")?;
            if function.is_empty() && time == 0 {
                return Ok(None);
            }
            Ok(Some(Ext4Error { function, line: number("line")?, time, code: number("errcode")? }))
        };
        Ok(Some(Ext4Errors { count, first: error("first")?, last: error("last")? }))
    }

    /// The errors of the btrfs that has the device with this kernel name; `None` when none is mounted from it.
    pub fn btrfs_errors(&self, device: &str) -> io::Result<Option<BtrfsErrors>> {
        let all = self.path("fs/btrfs");
        for uuid in names(&all)? {
            let folder = all.join(uuid);
            let members = names(&folder.join("devices"))?;
            // Not by what the link leads to: that is gone with a device that was taken away.
            if !members.iter().any(|member| member == device) {
                continue;
            }
            let mut errors = BtrfsErrors { members, ..BtrfsErrors::default() };
            for id in names(&folder.join("devinfo"))? {
                let info = folder.join("devinfo").join(&id);
                if read_number(&info.join("missing"))? == Some(1) {
                    errors.missing.extend(id.parse::<u64>());
                }
                let text = read_bytes(&info.join("error_stats"))?.unwrap_or_default();
                errors.add(&String::from_utf8_lossy(&text));
            }
            return Ok(Some(errors));
        }
        Ok(None)
    }
}

impl BtrfsErrors {
    /// Adds lines like `write_errs 3`. Others are left alone.
    fn add(&mut self, text: &str) {
        for line in text.lines() {
            let Some((name, number)) = line.split_once(' ') else { continue };
            let Ok(number) = number.trim().parse::<u64>() else { continue };
            let sum = match name {
                "write_errs" => &mut self.write,
                "read_errs" => &mut self.read,
                "flush_errs" => &mut self.flush,
                "corruption_errs" => &mut self.corruption,
                "generation_errs" => &mut self.generation,
                _ => continue,
            };
            *sum = sum.saturating_add(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_counters_of_btrfs_are_survived(text in "((write|read|flush|corruption|generation)_errs [0-9]{1,21}\n|.{0,20}\n){0,20}") {
            let mut errors = BtrfsErrors::default();
            errors.add(&text);
            let _ = errors.total();
        }
    }

    #[test]
    fn ext4_errors_come_with_where_they_were_found() {
        let folder = tempfile::tempdir().unwrap();
        let ext4 = folder.path().join("fs/ext4/loop3");
        fs::create_dir_all(&ext4).unwrap();
        let sysfs = Sysfs::at(folder.path());
        assert_eq!(sysfs.ext4_errors("loop3").unwrap(), None);
        fs::write(ext4.join("errors_count"), "0\n").unwrap();
        assert_eq!(sysfs.ext4_errors("loop3").unwrap(), Some(Ext4Errors::default()));
        fs::write(ext4.join("errors_count"), "2\n").unwrap();
        for (field, text) in
            [("func", "ext4_lookup"), ("line", "17"), ("time", "1700000000"), ("errcode", "5")]
        {
            fs::write(ext4.join(format!("last_error_{field}")), format!("{text}\n")).unwrap();
        }
        let errors = sysfs.ext4_errors("loop3").unwrap().unwrap();
        let last = Ext4Error { function: "ext4_lookup".into(), line: 17, time: 1_700_000_000, code: 5 };
        assert_eq!(errors, Ext4Errors { count: 2, first: None, last: Some(last) });
    }

    #[test]
    fn btrfs_errors_are_summed_over_the_devices_of_the_right_file_system() {
        let folder = tempfile::tempdir().unwrap();
        for (uuid, device, stats) in
            [("u1", "loop1", "write_errs 9\n"), ("u2", "loop2", "read_errs 1\nodd\nread_errs x\n")]
        {
            let fs_folder = folder.path().join("fs/btrfs").join(uuid);
            for below in [format!("devices/{device}"), "devinfo/1".into(), "devinfo/2".into()] {
                fs::create_dir_all(fs_folder.join(below)).unwrap();
            }
            fs::write(fs_folder.join("devinfo/1/error_stats"), stats).unwrap();
            fs::write(fs_folder.join("devinfo/2/error_stats"), "corruption_errs 4\n").unwrap();
            fs::write(fs_folder.join("devinfo/2/missing"), "1\n").unwrap();
        }
        let errors = Sysfs::at(folder.path()).btrfs_errors("loop2").unwrap().unwrap();
        assert_eq!(
            errors,
            BtrfsErrors {
                read: 1,
                corruption: 4,
                missing: vec![2],
                members: vec!["loop2".into()],
                ..BtrfsErrors::default()
            }
        );
        assert_eq!(errors.total(), 5);
        assert_eq!(Sysfs::at(folder.path()).btrfs_errors("loop3").unwrap(), None);
    }
}
