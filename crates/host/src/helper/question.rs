//! The questions to a helper, its answers, and the form in which both are passed.
//!
//! The question goes as arguments, so that `ps` shows what a stuck helper is stuck on. The answer comes back as
//! lines: `> open` before each step, then `= ...` with numbers, or `! open 5` with an error number.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::HelperError;
use crate::DeviceNumber;
use crate::usage::{Space, Usage};

/// The first argument of a helper.
pub(super) const MARK: &str = "__volmedic-helper";

/// Something that only the volume can answer. A path that is a link is never followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Which file system is it, how full is it, and can its directory be read?
    Directory {
        path: PathBuf,
        /// Read no more entries than this. Zero reads none.
        most: u32,
    },
    /// Can the device be opened, and how large is it?
    Device {
        path: PathBuf,
        /// Also read its first and last block, past the cache. The bytes go nowhere.
        read: bool,
    },
}

/// What a volume answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Directory(Directory),
    Device(Device),
}

/// A directory that could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directory {
    /// The file system it is on.
    pub device: DeviceNumber,
    pub usage: Usage,
    /// How many entries were read.
    pub entries: u32,
    /// There are more than were read.
    pub more: bool,
}

/// A block device that could be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    pub number: DeviceNumber,
    pub bytes: u64,
}

/// A directory of the host, which this process may have at another path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostDirectory {
    pub directory: Directory,
    /// Which directory of its file system it is.
    pub inode: u64,
    /// The mount that it is on, in this process' own mount table; zero where the kernel is older than 5.8.
    pub mount: u64,
}

/// Something to ask a helper, and what its answer means.
pub(crate) trait Ask {
    type Answer;

    fn path(&self) -> &Path;

    /// Which question it is, and its one detail.
    fn kind(&self) -> (&'static str, String);

    /// What the helper is handed beside the words.
    fn stdin(&self) -> io::Result<Stdio> {
        Ok(Stdio::null())
    }

    /// From the numbers that the helper wrote; `None` when they answer another question.
    fn answer_from(&self, numbers: &[u64]) -> Option<Self::Answer>;

    fn arguments(&self) -> [OsString; 4] {
        let (kind, detail) = self.kind();
        [MARK.into(), kind.into(), detail.into(), self.path().into()]
    }

    /// Reads what the helper wrote: its answer, or `None` when it had not got that far.
    fn read_answer(&self, said: &str) -> Option<Result<Self::Answer, HelperError>> {
        let last = said.strip_suffix('\n')?.lines().last()?;
        if let Some(failure) = last.strip_prefix("! ") {
            let (step, errno) = failure.rsplit_once(' ')?;
            let errno = errno.parse().ok()?;
            return Some(Err(HelperError::Failed {
                step: step.to_owned(),
                path: self.path().to_path_buf(),
                errno,
            }));
        }
        let numbers: Option<Vec<u64>> =
            last.strip_prefix("= ")?.split(' ').map(|number| number.parse().ok()).collect();
        self.answer_from(&numbers?).map(Ok)
    }
}

impl Question {
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory { path, .. } | Self::Device { path, .. } => path,
        }
    }
}

impl Ask for Question {
    type Answer = Answer;

    fn path(&self) -> &Path {
        self.path()
    }

    fn kind(&self) -> (&'static str, String) {
        match self {
            Self::Directory { most, .. } => ("directory", most.to_string()),
            Self::Device { read, .. } => ("device", u32::from(*read).to_string()),
        }
    }

    fn answer_from(&self, numbers: &[u64]) -> Option<Answer> {
        let narrow = |number: u64| u32::try_from(number).ok();
        match (self, numbers) {
            (Self::Directory { .. }, numbers) => Directory::from_numbers(numbers).map(Answer::Directory),
            (Self::Device { .. }, &[major, minor, bytes]) => Some(Answer::Device(Device {
                number: DeviceNumber::new(narrow(major)?, narrow(minor)?),
                bytes,
            })),
            _ => None,
        }
    }
}

/// The same as [`Question::Directory`] of a directory of the host. Links in the path are followed, and none leads out of
/// the host's root directory.
pub(super) struct InHost<'q> {
    /// Where this process has the host's root directory.
    pub(super) root: &'q Path,
    /// As the host has it.
    pub(super) path: &'q Path,
    pub(super) most: u32,
}

impl Ask for InHost<'_> {
    type Answer = HostDirectory;

    fn path(&self) -> &Path {
        self.path
    }

    fn kind(&self) -> (&'static str, String) {
        ("host-directory", format!("{} {}", self.most, self.root.display()))
    }

    fn answer_from(&self, numbers: &[u64]) -> Option<HostDirectory> {
        let [inode, mount, numbers @ ..] = numbers else { return None };
        let directory = Directory::from_numbers(numbers)?;
        Some(HostDirectory { directory, inode: *inode, mount: *mount })
    }
}

/// How large a file is.
pub(super) struct FileSize<'q>(pub(super) &'q Path);

impl Ask for FileSize<'_> {
    type Answer = u64;

    fn path(&self) -> &Path {
        self.0
    }

    fn kind(&self) -> (&'static str, String) {
        ("file", String::new())
    }

    fn answer_from(&self, numbers: &[u64]) -> Option<u64> {
        let &[bytes] = numbers else { return None };
        Some(bytes)
    }
}

impl Directory {
    fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let narrow = |number: u64| u32::try_from(number).ok();
        let &[major, minor, entries, more, bt, bu, ba, it, iu, ia] = numbers else { return None };
        let bytes = Space { total: bt, used: bu, available: ba };
        let inodes = Space { total: it, used: iu, available: ia };
        Some(Self {
            device: DeviceNumber::new(narrow(major)?, narrow(minor)?),
            usage: Usage { bytes, inodes },
            entries: narrow(entries)?,
            more: more != 0,
        })
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        let Self { device, usage: Usage { bytes, inodes }, entries, more } = self;
        vec![
            device.major.into(),
            device.minor.into(),
            (*entries).into(),
            (*more).into(),
            bytes.total,
            bytes.used,
            bytes.available,
            inodes.total,
            inodes.used,
            inodes.available,
        ]
    }
}

impl HostDirectory {
    pub(super) fn numbers(&self) -> Vec<u64> {
        let Self { directory, inode, mount } = self;
        [vec![*inode, *mount], directory.numbers()].concat()
    }
}

impl Device {
    pub(super) fn numbers(&self) -> Vec<u64> {
        let Self { number, bytes } = self;
        vec![number.major.into(), number.minor.into(), *bytes]
    }
}

/// An answer on its way.
pub(super) fn line(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("= {}\n", numbers.join(" "))
}

/// Instead of a step, for a helper that was not heard of: it did not get as far as the volume.
pub(super) const STARTING: &str = "starting the helper";

/// The step that a helper was at when it was last heard of.
pub(super) fn last_step(said: &str) -> Option<&str> {
    said.lines().rev().find_map(|line| line.strip_prefix("> "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_answer_is_survived(said in "(> [a-z]{0,3}\n)?[=!>]? ?([0-9a-z -]{0,30}\n?){0,3}") {
            let _ = (directory().read_answer(&said), FileSize(Path::new("/f")).read_answer(&said), last_step(&said));
        }
    }

    fn directory() -> Question {
        Question::Directory { path: "/a b\nc".into(), most: 7 }
    }

    #[test]
    fn answers_survive_the_way() {
        let found = Directory {
            device: DeviceNumber::new(7, 3),
            usage: Usage { bytes: Space::new(100, 40, 30), inodes: Space::new(u64::MAX, 1, 1) },
            entries: 5,
            more: true,
        };
        let said = format!("> open\n> list\n{}", line(&found.numbers()));
        assert_eq!(directory().read_answer(&said).unwrap().unwrap(), Answer::Directory(found));
        let place = HostDirectory { directory: found, inode: u64::MAX, mount: 28 };
        let question = InHost { root: Path::new("/host"), path: Path::new("/p"), most: 7 };
        assert_eq!(question.read_answer(&line(&place.numbers())).unwrap().unwrap(), place);
        let question = Question::Device { path: "/d".into(), read: false };
        assert!(question.read_answer(&said).is_none(), "an answer to another question");
        let device = Device { number: DeviceNumber::new(7, 3), bytes: 9 };
        assert_eq!(question.read_answer(&line(&device.numbers())).unwrap().unwrap(), Answer::Device(device));
    }

    #[test]
    fn errors_keep_their_number_and_say_where() {
        let error = directory().read_answer("> open\n! open 107\n").unwrap().unwrap_err();
        assert_eq!(error.errno(), Some(107));
        assert!(error.to_string().starts_with("open failed on /a b\nc: Transport endpoint"), "{error}");
    }

    #[test]
    fn half_an_answer_is_none() {
        for said in
            ["", "> open\n", "= 1 2", "= 1 2\n", "= a b c\n", "! open\n", "! open x\n", "\n", "noise\n"]
        {
            assert!(directory().read_answer(said).is_none(), "{said:?}");
        }
        assert_eq!(last_step("> open\n> list\n"), Some("list"));
        assert_eq!(last_step(""), None);
    }
}
