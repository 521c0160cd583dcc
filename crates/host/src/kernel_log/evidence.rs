//! The last few lines about each device or server.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::about::{Subject, subjects};
use super::record::Record;
use crate::block::Device;

/// Lines per subject; the oldest makes room.
const MOST_LINES: usize = 8;

/// Maximum number of subjects; the one with the oldest last line makes room.
const MOST_SUBJECTS: usize = 512;

/// Maximum bytes of a line; enough to see what happened.
const LONGEST_LINE: usize = 400;

/// Warnings and worse.
const WARNING: u8 = 4;

/// NFS says that a server does not answer with less emphasis than that.
const NOTICE: u8 = 5;

/// Something the kernel said about a device or server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub sequence: u64,
    /// See [`since_boot`](super::since_boot).
    pub since_boot: Duration,
    pub level: u8,
    pub text: Box<str>,
}

/// What the kernel said lately that could explain a finding. Takes some 2 MiB at the very most.
#[derive(Debug, Default)]
pub struct Evidence {
    lines: HashMap<Subject, VecDeque<Arc<Line>>>,
}

impl Evidence {
    /// Keeps the record if it is the kernel's, is a warning or worse, and is about something. Answers about what.
    pub fn add(&mut self, record: &Record) -> Vec<Subject> {
        if !record.from_kernel || record.level > NOTICE {
            return Vec::new();
        }
        let mut about = subjects(record);
        about.retain(|subject| record.level <= WARNING || matches!(subject, Subject::Server(_)));
        if about.is_empty() {
            return about;
        }
        let end = record.text.floor_char_boundary(LONGEST_LINE);
        let line = Arc::new(Line {
            sequence: record.sequence,
            since_boot: record.since_boot,
            level: record.level,
            text: record.text[..end].into(),
        });
        for subject in &about {
            if self.lines.len() >= MOST_SUBJECTS && !self.lines.contains_key(subject) {
                self.make_room();
            }
            let lines = self.lines.entry(subject.clone()).or_default();
            if lines.len() >= MOST_LINES {
                lines.pop_front();
            }
            lines.push_back(Arc::clone(&line));
        }
        about
    }

    fn make_room(&mut self) {
        let last = |lines: &VecDeque<Arc<Line>>| lines.back().map(|line| line.sequence);
        let oldest =
            self.lines.iter().min_by_key(|(_, lines)| last(lines)).map(|(subject, _)| subject.clone());
        if let Some(oldest) = oldest {
            self.lines.remove(&oldest);
        }
    }

    /// What was said about this device under any of its names, or about what it is made of; the oldest first.
    ///
    /// A name like `loop3` is given to other devices later. How old a line may be to count is the asker's to judge.
    pub fn of(&self, device: &Device) -> Vec<Arc<Line>> {
        let names = device.names().map(|name| Subject::Device(name.into()));
        self.gather(names.chain([Subject::Number(device.number)]))
    }

    /// What was said about this server; the oldest first.
    pub fn of_server(&self, name: &str) -> Vec<Arc<Line>> {
        self.gather([Subject::Server(name.into())])
    }

    fn gather(&self, subjects: impl IntoIterator<Item = Subject>) -> Vec<Arc<Line>> {
        let lines = subjects.into_iter().filter_map(|subject| self.lines.get(&subject)).flatten();
        let ordered: BTreeMap<u64, &Arc<Line>> = lines.map(|line| (line.sequence, line)).collect();
        ordered.into_values().cloned().collect()
    }
}
