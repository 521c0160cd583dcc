//! What was told, kept on disk: the agent may write events but not read them all, so it has to remember by itself.
//!
//! Written as a whole beside the old one, made to last, and put in its place, so that whenever the power goes there is
//! one that makes sense. A change is in here before it is sent, as one that is still to be sent; after a restart it is
//! sent again as the very same change, which whoever knows it already does not count twice.

mod words;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use volmedic_api::ObjectRef;
use volmedic_health::{Memo, Transition, Volume};
use volmedic_probe::host::{Baseline, Key};

use words::{AudienceWords, MemoWords, ObjectWords, TransitionWords};

const FILE: &str = "agent.json";
const NEW: &str = "agent.json.new";
/// What could not be read is kept here; one of it, the latest.
const ASIDE: &str = "agent.json.unreadable";
const FORMAT: &str = "volmedic-agent/1";
/// A longer file is not ours.
const LONGEST: u64 = 64 << 20;

/// All that must outlive a restart.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) memos: Vec<Memo>,
    /// Who was told of the trouble of which volume.
    pub(crate) audiences: Vec<(Volume, Vec<ObjectRef>)>,
    /// What was not sent yet, as far as we know.
    pub(crate) unsent: Vec<Unsent>,
    /// With what the checks compare.
    pub(crate) baselines: Vec<(Key, Baseline)>,
}

/// A change on its way to the API server, and on whom it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) transition: Transition,
    pub(crate) about: Vec<ObjectRef>,
    pub(crate) known_as: Option<std::sync::Arc<str>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Page {
    format: String,
    node: String,
    #[serde(default)]
    memos: Vec<MemoWords>,
    #[serde(default)]
    audiences: Vec<AudienceWords>,
    #[serde(default)]
    unsent: Vec<UnsentWords>,
    #[serde(default)]
    baselines: Vec<BaselineWords>,
}

#[derive(Debug, Serialize, Deserialize)]
struct BaselineWords {
    driver: String,
    handle: String,
    baseline: Baseline,
}

#[derive(Debug, Serialize, Deserialize)]
struct UnsentWords {
    #[serde(flatten)]
    transition: TransitionWords,
    about: Vec<ObjectWords>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    known_as: Option<String>,
}

impl BaselineWords {
    fn of((Key { driver, handle }, baseline): &(Key, Baseline)) -> Self {
        Self { driver: driver.to_string(), handle: handle.to_string(), baseline: baseline.clone() }
    }

    fn read(self) -> (Key, Baseline) {
        (Key { driver: self.driver.into(), handle: self.handle.into() }, self.baseline)
    }
}

/// Where it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Shelf {
    directory: PathBuf,
    node: String,
}

impl Shelf {
    /// Makes the directory if need be, for our eyes only.
    pub(crate) fn open(directory: &Path, node: &str) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self { directory: directory.to_owned(), node: node.to_owned() })
    }

    /// What was remembered, and a sentence if it could not be read. What cannot be read is put aside, so that somebody
    /// can look at it and the next start is not troubled by it again.
    pub(crate) fn load(&self) -> (Memory, Option<String>) {
        let path = self.directory.join(FILE);
        let why = match read(&path) {
            Ok(None) => return (Memory::default(), None),
            Ok(Some(text)) => match self.parse(&text) {
                Ok(memory) => return (memory, None),
                Err(why) => why,
            },
            Err(error) => error.to_string(),
        };
        let aside = self.directory.join(ASIDE);
        let put = match fs::rename(&path, &aside) {
            Ok(()) => format!("it was put aside as {}", aside.display()),
            Err(error) => format!("it could not be put aside either: {error}"),
        };
        let sentence = format!(
            "the reports kept in {} cannot be used: {why}; {put}, and what is wrong now is reported again",
            path.display()
        );
        (Memory::default(), Some(sentence))
    }

    /// What to write; made where the memory is consistent, written elsewhere.
    pub(crate) fn page(&self, memory: &Memory) -> serde_json::Result<Vec<u8>> {
        let Memory { memos, audiences, unsent, baselines } = memory;
        let unsent = unsent.iter().map(|Unsent { transition, about, known_as }| UnsentWords {
            transition: TransitionWords::of(transition),
            about: about.iter().map(ObjectWords::of).collect(),
            known_as: known_as.as_deref().map(str::to_owned),
        });
        serde_json::to_vec(&Page {
            format: FORMAT.to_owned(),
            node: self.node.clone(),
            memos: memos.iter().map(MemoWords::of).collect(),
            audiences: audiences.iter().map(AudienceWords::of).collect(),
            unsent: unsent.collect(),
            baselines: baselines.iter().map(BaselineWords::of).collect(),
        })
    }

    /// Puts a page in the place of the old one. When this returns, it lasts.
    pub(crate) fn save(&self, page: &[u8]) -> io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let (new, path) = (self.directory.join(NEW), self.directory.join(FILE));
        let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(page)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.directory)?.sync_all()
    }

    pub(crate) fn place(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    fn parse(&self, text: &[u8]) -> Result<Memory, String> {
        let page: Page =
            serde_json::from_slice(text).map_err(|error| format!("it makes no sense: {error}"))?;
        if page.format != FORMAT {
            return Err(format!("its format is {:?}, and this release reads {FORMAT:?}", page.format));
        }
        if page.node != self.node {
            return Err(format!("it is about node {:?}, and this is {:?}", page.node, self.node));
        }
        let unsent = page.unsent.into_iter().filter_map(|UnsentWords { transition, about, known_as }| {
            Some(Unsent {
                transition: transition.read()?,
                about: about.into_iter().filter_map(ObjectWords::read).collect(),
                known_as: known_as.map(Into::into),
            })
        });
        Ok(Memory {
            memos: page.memos.into_iter().filter_map(MemoWords::read).collect(),
            audiences: page.audiences.into_iter().filter_map(AudienceWords::read).collect(),
            unsent: unsent.collect(),
            baselines: page.baselines.into_iter().map(BaselineWords::read).collect(),
        })
    }
}

/// The file, if there is one. Nothing but a plain file is opened: not a pipe that would wait for a writer.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() && found.len() <= LONGEST => {}
        Ok(found) if found.is_file() => return Err(io::Error::other("it is far too long")),
        Ok(_) => return Err(io::Error::other("it is not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut text = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use volmedic_api::Kind;
    use volmedic_health::{Change, Condition, Held, Reason, Status, Subject, Vantage};

    use super::*;

    fn memory() -> Memory {
        let at: jiff::Timestamp = "2026-08-21T10:14:30Z".parse().unwrap();
        let condition = Condition::new(Status::Degraded, Reason::new("OutOfCapacity"), "99 % used");
        let pod = ObjectRef::new(Kind::Pod, "shop", "web-0", "uid");
        let vantage = Vantage::Host("n".into());
        Memory {
            memos: vec![Memo {
                subject: Subject::volume("d", "v"),
                vantage: vantage.clone(),
                told: vec![Held { condition: condition.clone(), since: at }],
                told_at: at,
                blind_since: None,
                flapping_since: Some(at),
            }],
            audiences: vec![(Volume { driver: "d".into(), handle: "v".into() }, vec![pod.clone()])],
            unsent: vec![Unsent {
                transition: Transition {
                    at,
                    subject: Subject::volume("d", "v"),
                    vantage,
                    change: Change::Appeared { condition, since: at },
                },
                about: vec![pod],
                known_as: Some("claim shop/data".into()),
            }],
            baselines: vec![(
                Key { driver: "d".into(), handle: "v".into() },
                Baseline { staged: Some("/k/globalmount".into()), answered: true, ..Baseline::default() },
            )],
        }
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(&dir.path().join("deep/state"), "n").unwrap();
        let (empty, trouble) = shelf.load();
        assert!(empty.memos.is_empty() && trouble.is_none());
        let memory = memory();
        for _ in 0..2 {
            shelf.save(&shelf.page(&memory).unwrap()).unwrap();
        }
        let (read, trouble) = shelf.load();
        assert_eq!(trouble, None);
        let Memory { memos, audiences, unsent, baselines } = read;
        assert_eq!((memos, audiences), (memory.memos, memory.audiences));
        assert_eq!((unsent, baselines), (memory.unsent, memory.baselines));
    }

    /// As version 0.1 wrote it, with one of everything that it could write.
    #[test]
    fn a_file_of_an_earlier_version_is_read_without_a_loss() {
        let text = include_str!("../../fixtures/agent-v0.1.json");
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(dir.path(), "worker-7").unwrap();
        fs::write(shelf.place(), text).unwrap();
        let (memory, trouble) = shelf.load();
        assert_eq!(trouble, None);
        let Memory { memos, audiences, unsent, baselines } = &memory;
        assert_eq!((memos.len(), audiences.len(), unsent.len(), baselines.len()), (3, 1, 2, 1));
        // Written again, it has what that version wrote, and what was added since at its default.
        let mut written: serde_json::Value = serde_json::from_slice(&shelf.page(&memory).unwrap()).unwrap();
        let device = written["baselines"][0]["baseline"]["device"].as_object_mut().unwrap();
        assert_eq!(device.remove("file"), Some(serde_json::Value::Null));
        assert_eq!(device.remove("detached"), Some(false.into()));
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(text).unwrap());
    }

    #[test]
    fn what_cannot_be_used_is_put_aside_with_a_sentence() {
        let check = |content: &str, expected: &str| {
            let dir = tempfile::tempdir().unwrap();
            let shelf = Shelf::open(dir.path(), "n").unwrap();
            fs::write(shelf.place(), content).unwrap();
            let (memory, trouble) = shelf.load();
            assert!(memory.memos.is_empty());
            let trouble = trouble.expect("a sentence");
            assert!(trouble.contains(expected), "{trouble}");
            assert_eq!(fs::read_to_string(dir.path().join(ASIDE)).unwrap(), content);
            assert_eq!(shelf.load().1, None, "told once");
        };
        check("", "makes no sense");
        check("{\"format\":\"volmedic-agent/1\",\"node\":\"n\",\"memos\":[{\"dri", "makes no sense");
        check("{\"format\":\"volmedic-agent/9\",\"node\":\"n\"}", "this release reads");
        check("{\"format\":\"volmedic-agent/1\",\"node\":\"other\"}", "it is about node \"other\"");
    }

    #[test]
    fn whatever_lies_there_is_survived() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(dir.path(), "n").unwrap();
        fs::create_dir(shelf.place()).unwrap();
        let (_, trouble) = shelf.load();
        assert!(trouble.is_some_and(|trouble| trouble.contains("not a regular file")));
        std::os::unix::fs::symlink("/etc/passwd", shelf.place()).unwrap();
        let (_, trouble) = shelf.load();
        assert!(trouble.is_some_and(|trouble| trouble.contains("not a regular file")));
        // A page cut off anywhere is no page.
        let page = shelf.page(&memory()).unwrap();
        for length in 0..page.len() {
            assert!(shelf.parse(&page[..length]).is_err(), "at {length}");
        }
    }

    #[test]
    fn a_new_page_that_was_not_finished_takes_nothing_from_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(dir.path(), "n").unwrap();
        shelf.save(&shelf.page(&memory()).unwrap()).unwrap();
        fs::write(dir.path().join(NEW), "{\"form").unwrap();
        let (read, trouble) = shelf.load();
        assert_eq!((read.memos.len(), trouble), (1, None));
    }
}
