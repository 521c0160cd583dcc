//! The questions to a helper, its answers, and the form in which both are passed.
//!
//! A helper gets one question after the other on its standard input, each as a record of kind, detail and path. One that
//! gets something else there has its only question as arguments. The answer comes back on standard output as a line: `= ...`
//! with numbers, or `! open 5` with an error number. Standard error has a line like `> open` for each step on the way.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::HelperError;
use crate::DeviceNumber;
use crate::usage::{Space, Usage};

/// The first argument of a helper.
pub(super) const MARK: &str = "__volmedic-helper";

/// Its only other argument if its questions come on standard input.
pub(super) const SERVE: &str = "serve";

/// In bytes. The longest path that the kernel takes has 4096, and a pipe holds sixteen times as many.
pub(super) const LONGEST_QUESTION: usize = 16 << 10;

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

    /// What the helper is handed beside the words. A helper that gets anything is used for this question only.
    fn stdin(&self) -> io::Result<Option<Stdio>> {
        Ok(None)
    }

    /// From the numbers that the helper wrote; `None` when they answer another question.
    fn answer_from(&self, numbers: &[u64]) -> Option<Self::Answer>;

    /// The question as arguments.
    fn arguments(&self) -> [OsString; 3] {
        let (kind, detail) = self.kind();
        [kind.into(), detail.into(), self.path().into()]
    }

    /// The question as a record: its length, and three parts that are separated by zeros. A path has none.
    fn record(&self) -> Vec<u8> {
        let (kind, detail) = self.kind();
        let parts = [kind.as_bytes(), detail.as_bytes(), self.path().as_os_str().as_bytes()];
        let parts = parts.join(&0);
        let mut record = u32::try_from(parts.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
        record.extend(parts);
        record
    }

    /// Reads what the helper answered; `None` unless it is exactly one whole line that makes sense.
    fn read_answer(&self, said: &str) -> Option<Result<Self::Answer, HelperError>> {
        let line = said.strip_suffix('\n').filter(|line| !line.contains('\n'))?;
        if let Some(failure) = line.strip_prefix("! ") {
            let (step, errno) = failure.rsplit_once(' ')?;
            let errno = errno.parse().ok()?;
            return Some(Err(HelperError::Failed {
                step: step.to_owned(),
                path: self.path().to_path_buf(),
                errno,
            }));
        }
        let numbers: Option<Vec<u64>> =
            line.strip_prefix("= ")?.split(' ').map(|number| number.parse().ok()).collect();
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

/// Before a helper closes what it has opened of a volume.
pub(super) const LETTING_GO: &str = "letting go of the volume";

/// The step that a helper was at when it was last heard of. Something else may have written there, too.
pub(super) fn last_step(said: &[u8]) -> Option<&str> {
    let mut lines = said.rsplit(|byte| *byte == b'\n');
    lines.find_map(|line| std::str::from_utf8(line.strip_prefix(b"> ")?).ok())
}

/// Reads one question as [`Ask::record`] wrote it; `None` at the end, or when there is something else.
pub(super) fn read_record<'r>(
    from: &mut impl Read,
    buffer: &'r mut Vec<u8>,
) -> Option<(&'r str, &'r str, &'r Path)> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let length = usize::try_from(u32::from_le_bytes(length)).ok()?;
    if length > LONGEST_QUESTION {
        return None;
    }
    buffer.resize(length, 0);
    from.read_exact(buffer).ok()?;
    let mut parts = buffer.splitn(3, |byte| *byte == 0);
    let mut word = || std::str::from_utf8(parts.next()?).ok();
    let (kind, detail) = (word()?, word()?);
    Some((kind, detail, Path::new(OsStr::from_bytes(parts.next()?))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_answer_is_survived(said in "(> [a-z]{0,3}\n)?[=!>]? ?([0-9a-z -]{0,30}\n?){0,3}") {
            let _ = (directory().read_answer(&said), FileSize(Path::new("/f")).read_answer(&said));
            let _ = last_step(said.as_bytes());
        }

        #[test]
        fn any_path_survives_the_way(path in prop::collection::vec(1_u8.., 0..300), most: u32) {
            let question = Question::Directory { path: Path::new(OsStr::from_bytes(&path)).into(), most };
            let twice = [question.record(), question.record()].concat();
            let (mut from, mut buffer) = (&twice[..], Vec::new());
            for _ in 0..2 {
                let (kind, detail, found) = read_record(&mut from, &mut buffer).unwrap();
                prop_assert_eq!((kind, detail), ("directory", &*most.to_string()));
                prop_assert_eq!(found.as_os_str().as_bytes(), &path);
            }
            prop_assert!(read_record(&mut from, &mut buffer).is_none());
        }

        #[test]
        fn any_record_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..40), length in 0_u32..40) {
            let record = [&length.to_le_bytes()[..], &bytes].concat();
            for from in [&bytes, &record] {
                let _ = read_record(&mut from.as_slice(), &mut Vec::new());
            }
        }
    }

    #[test]
    fn a_record_that_is_too_long_is_refused_before_it_is_read() {
        let length = u32::try_from(LONGEST_QUESTION + 1).unwrap();
        let record = [&length.to_le_bytes()[..], &vec![0; LONGEST_QUESTION + 1]].concat();
        let mut buffer = Vec::new();
        assert!(read_record(&mut record.as_slice(), &mut buffer).is_none());
        assert_eq!(buffer.capacity(), 0);
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
        let said = line(&found.numbers());
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
        let error = directory().read_answer("! open 107\n").unwrap().unwrap_err();
        assert_eq!(error.errno(), Some(107));
        assert!(error.to_string().starts_with("open failed on /a b\nc: Transport endpoint"), "{error}");
    }

    #[test]
    fn half_an_answer_is_none_and_so_is_more_than_one() {
        for said in
            ["", "> open\n", "= 1 2", "= 1 2\n", "= a b c\n", "! open\n", "! open x\n", "\n", "noise\n"]
        {
            assert!(directory().read_answer(said).is_none(), "{said:?}");
        }
        let whole = "! open 5\n";
        assert!(directory().read_answer(whole).is_some());
        for more in ["= ", "\n", whole] {
            assert!(directory().read_answer(&format!("{whole}{more}")).is_none(), "{more:?} follows");
        }
    }

    #[test]
    fn the_last_step_is_the_last_line_of_its_kind() {
        assert_eq!(last_step(b"> open\n> list\n"), Some("list"));
        assert_eq!(last_step(b"> open\n\xff\nnoise\n"), Some("open"));
        assert_eq!(last_step(b""), None);
    }
}
