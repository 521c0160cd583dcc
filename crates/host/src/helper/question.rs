//! What a helper is asked and what it answers, and how both look on their way.
//!
//! The question goes as arguments, so that `ps` shows what a stuck helper is stuck on. The answer comes back as
//! lines: `> open` before each step, then `= ...` with numbers, or `! open 5` with an error number.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

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

impl Question {
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory { path, .. } | Self::Device { path, .. } => path,
        }
    }

    pub(super) fn arguments(&self) -> [OsString; 4] {
        let (kind, detail) = match self {
            Self::Directory { most, .. } => ("directory", most.to_string()),
            Self::Device { read, .. } => ("device", u32::from(*read).to_string()),
        };
        [MARK.into(), kind.into(), detail.into(), self.path().into()]
    }

    /// From the arguments after the mark.
    pub(super) fn from_arguments(arguments: &[OsString]) -> Option<Self> {
        let [kind, detail, path] = arguments else { return None };
        let detail: u32 = detail.to_str()?.parse().ok()?;
        let path = PathBuf::from(path);
        match kind.as_os_str() {
            kind if kind == OsStr::new("directory") => Some(Self::Directory { path, most: detail }),
            kind if kind == OsStr::new("device") => Some(Self::Device { path, read: detail != 0 }),
            _ => None,
        }
    }

    /// Reads what the helper wrote: its answer, or `None` when it had not got that far.
    pub(super) fn read_answer(&self, said: &str) -> Option<Result<Answer, HelperError>> {
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

    fn answer_from(&self, numbers: &[u64]) -> Option<Answer> {
        let narrow = |number: u64| u32::try_from(number).ok();
        match (self, numbers) {
            (Self::Directory { .. }, &[major, minor, entries, more, bt, bu, ba, it, iu, ia]) => {
                let bytes = Space { total: bt, used: bu, available: ba };
                let inodes = Space { total: it, used: iu, available: ia };
                Some(Answer::Directory(Directory {
                    device: DeviceNumber::new(narrow(major)?, narrow(minor)?),
                    usage: Usage { bytes, inodes },
                    entries: narrow(entries)?,
                    more: more != 0,
                }))
            }
            (Self::Device { .. }, &[major, minor, bytes]) => Some(Answer::Device(Device {
                number: DeviceNumber::new(narrow(major)?, narrow(minor)?),
                bytes,
            })),
            _ => None,
        }
    }
}

impl Answer {
    pub(super) fn line(&self) -> String {
        let numbers = match self {
            Self::Directory(Directory { device, usage: Usage { bytes, inodes }, entries, more }) => vec![
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
            ],
            Self::Device(Device { number, bytes }) => vec![number.major.into(), number.minor.into(), *bytes],
        };
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        format!("= {}\n", numbers.join(" "))
    }
}

/// The step that a helper was at when it was last heard of.
pub(super) fn last_step(said: &str) -> &str {
    said.lines().rev().find_map(|line| line.strip_prefix("> ")).unwrap_or("starting the helper")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> Question {
        Question::Directory { path: "/a b\nc".into(), most: 7 }
    }

    #[test]
    fn questions_survive_the_way() {
        for question in [directory(), Question::Device { path: "/dev/x".into(), read: true }] {
            assert_eq!(Question::from_arguments(&question.arguments()[1..]), Some(question));
        }
        for bad in [&["directory", "x", "/p"][..], &["other", "1", "/p"], &["device", "1"], &[]] {
            let arguments: Vec<OsString> = bad.iter().map(Into::into).collect();
            assert_eq!(Question::from_arguments(&arguments), None, "{bad:?}");
        }
    }

    #[test]
    fn answers_survive_the_way() {
        let answer = Answer::Directory(Directory {
            device: DeviceNumber::new(7, 3),
            usage: Usage { bytes: Space::new(100, 40, 30), inodes: Space::new(u64::MAX, 1, 1) },
            entries: 5,
            more: true,
        });
        let said = format!("> open\n> list\n{}", answer.line());
        assert_eq!(directory().read_answer(&said).unwrap().unwrap(), answer);
        let device = Question::Device { path: "/d".into(), read: false };
        assert!(device.read_answer(&said).is_none(), "an answer to another question");
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
        assert_eq!(last_step("> open\n> list\n"), "list");
        assert_eq!(last_step(""), "starting the helper");
    }
}
