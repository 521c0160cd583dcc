//! What was reported, kept on disk: the agent may write events but not read them all, so it has to remember by itself.
//!
//! Written as a whole into one of two slots, so that whenever the power goes there is one that makes sense, and a full disk
//! does not stop it. A change is in here before it is sent, as one that is still to be sent; after a restart it is sent again
//! as the very same change, which a reader that knows it already does not count twice.

mod slots;
mod words;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use volmedic_api::ObjectRef;
use volmedic_health::{Memo, Transition, Volume};
use volmedic_probe::host::{Baseline, Key};

use slots::{Files, Kept, LONGEST, Slots};
use words::{AudienceWords, MemoWords, ObjectWords, TransitionWords};

/// What earlier versions wrote, and what one of them left half done.
const OLD: [&str; 2] = ["agent.json", "agent.json.new"];
/// What could not be read is kept in a file with this behind its name; one of it, the latest.
const ASIDE: &str = ".unreadable";
const FORMAT: &str = "volmedic-agent/1";

/// All that must outlive a restart.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) memos: Vec<Memo>,
    /// The pods that were informed of the trouble of which volume.
    pub(crate) audiences: Vec<(Volume, Vec<ObjectRef>)>,
    /// What was not sent yet, as far as we know.
    pub(crate) unsent: Vec<Unsent>,
    /// With what the checks compare.
    pub(crate) baselines: Vec<(Key, Baseline)>,
}

/// A change on its way to the API server, and on whom it is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) transition: Transition,
    pub(crate) about: Vec<ObjectRef>,
    pub(crate) known_as: Option<Arc<str>>,
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
    /// Shared with the thread that writes; one at a time does.
    slots: Arc<Mutex<Slots<Files>>>,
}

impl Shelf {
    /// Makes the directory if need be, for our eyes only.
    pub(crate) fn open(directory: &Path, node: &str) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let slots = Arc::new(Mutex::new(Slots::new(Files::new(directory))));
        Ok(Self { directory: directory.to_owned(), node: node.to_owned(), slots })
    }

    /// Takes the place on disk that is written to later, when there may be none. After what is there was loaded.
    pub(crate) fn reserve(&self) -> io::Result<()> {
        self.slots.lock().reserve()
    }

    /// What was remembered, and a sentence if it could not be read. What cannot be read is kept aside, so that somebody
    /// can read it.
    pub(crate) fn load(&self) -> (Memory, Option<String>) {
        let mut slots = self.slots.lock();
        let cleared = slots.medium().clear(ASIDE);
        let kept = slots.load();
        if self.is_old_file_newer(slots.medium(), &kept) {
            return self.load_old();
        }
        let (slot, why) = match kept {
            Kept::Nothing => {
                let path = cleared.transpose().map(|moved| moved.map(|path| path.display().to_string()));
                let trouble = path.map(|moved| {
                    let put = moved.map(|path| format!("it was put aside as {path}"));
                    unusable(&self.directory, "what is there is not a regular file", put)
                });
                return (Memory::default(), trouble);
            }
            Kept::Damaged { slot, why } => (slot, why),
            Kept::Page { slot, text } => match self.parse(&text) {
                Ok(memory) => return (memory, None),
                Err(why) => (slot, why),
            },
        };
        let path = slots.medium().path(slot);
        // A copy: a slot that is moved away would take its place on disk with it.
        let aside = aside(&path);
        let copied = fs::copy(&path, &aside).map(|_| format!("a copy was put aside as {}", aside.display()));
        if copied.is_err() {
            // Part of one is of no use to anybody, and takes room where there is none.
            let _ = fs::remove_file(&aside);
        }
        (Memory::default(), Some(unusable(&path, &why, copied)))
    }

    /// The file of an earlier version goes away once a slot was written. It is there with a newer slot only if we were killed
    /// in between, and with an older one if the earlier version ran again.
    fn is_old_file_newer(&self, files: &Files, kept: &Kept) -> bool {
        let written =
            |path: &Path| -> Option<SystemTime> { fs::symlink_metadata(path).ok()?.modified().ok() };
        let Some(old) = written(&self.directory.join(OLD[0])) else { return false };
        match kept {
            Kept::Page { slot, .. } => written(&files.path(*slot)).is_none_or(|slot| slot < old),
            Kept::Nothing | Kept::Damaged { .. } => true,
        }
    }

    fn load_old(&self) -> (Memory, Option<String>) {
        let path = self.directory.join(OLD[0]);
        let why = match read(&path) {
            Ok(None) => return (Memory::default(), None),
            Ok(Some(text)) => match self.parse(&text) {
                Ok(memory) => return (memory, None),
                Err(why) => why,
            },
            Err(error) => error.to_string(),
        };
        let aside = aside(&path);
        let moved = fs::rename(&path, &aside).map(|()| format!("it was put aside as {}", aside.display()));
        (Memory::default(), Some(unusable(&path, &why, moved)))
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

    /// Puts a page in the place of the one before the last. When this returns, it lasts.
    pub(crate) fn save(&self, page: &[u8]) -> io::Result<()> {
        self.slots.lock().save(page)?;
        for old in OLD {
            // There is none but once; one that stays is older than the slot, and is not read.
            let _ = fs::remove_file(self.directory.join(old));
        }
        Ok(())
    }

    pub(crate) fn place(&self) -> &Path {
        &self.directory
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

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ASIDE);
    name.into()
}

fn unusable(path: &Path, why: &str, put: io::Result<String>) -> String {
    let put = put.unwrap_or_else(|error| format!("it could not be put aside either: {error}"));
    format!(
        "the reports kept in {} cannot be used: {why}; {put}, and what is wrong now is reported again",
        path.display()
    )
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
mod tests;
