//! The history in a file: one JSON object on each line, and never more than a bounded number of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use volmedic_view::Moment;

/// More than this at the end of a file is not read, whatever is in it.
const MOST_READ: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    file: File,
    lines: usize,
    limit: usize,
    /// A disk that is full is reported once.
    failed: bool,
}

/// What a file had in it.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Oldest first.
    pub(super) moments: Vec<Moment>,
    /// Lines that could not be read, such as one that was being written when the power went.
    pub(super) unreadable: usize,
}

impl Store {
    /// Opens or makes the file, for this process alone, and reads what is in it.
    pub(super) fn open(path: &Path, limit: usize) -> anyhow::Result<(Self, Past)> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).with_context(|| {
            format!("cannot open the history {}, whose directory must exist and be writable", path.display())
        })?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "another process keeps its history in {}; give each its own file with --history",
                path.display()
            );
        }
        let past =
            read_from(&file, limit).with_context(|| format!("cannot read the history {}", path.display()))?;
        let lines = past.moments.len() + past.unreadable;
        let mut store = Self { path: path.to_owned(), file, lines, limit, failed: false };
        if past.unreadable > 0 || lines > limit {
            store
                .rewrite(&past.moments)
                .with_context(|| format!("cannot compact the history {}", path.display()))?;
        }
        Ok((store, past))
    }

    /// Reads without a claim to the file; somebody may be writing it.
    pub(super) fn read(path: &Path) -> anyhow::Result<Past> {
        let file = File::open(path).with_context(|| {
            format!("cannot read the history {}; `volmedic watch --history` makes one", path.display())
        })?;
        read_from(&file, usize::MAX).with_context(|| format!("cannot read the history {}", path.display()))
    }

    /// Adds what changed. A failure is logged once; to watch goes on without it.
    pub(super) fn append(&mut self, moment: &Moment, latest: impl FnOnce(usize) -> Vec<Moment>) {
        let written = self.try_append(moment, latest);
        match written {
            Ok(()) => self.failed = false,
            Err(error) if !self.failed => {
                self.failed = true;
                tracing::warn!(%error, "the history {} cannot be written; what changes now is only in memory", self.path.display());
            }
            Err(_) => {}
        }
    }

    fn try_append(&mut self, moment: &Moment, latest: impl FnOnce(usize) -> Vec<Moment>) -> io::Result<()> {
        let mut line = serde_json::to_vec(moment)?;
        line.push(b'\n');
        // In one piece, so that a line is whole or not there, but for the power going.
        self.file.write_all(&line)?;
        self.lines += 1;
        // Twice as long as wanted is when it is worth writing again.
        if self.lines >= self.limit.saturating_mul(2) {
            self.rewrite(&latest(self.limit))?;
        }
        Ok(())
    }

    /// The file is the old one or the new one, whenever the process ends.
    fn rewrite(&mut self, moments: &[Moment]) -> io::Result<()> {
        let fresh = self.path.with_extension("new");
        let mut out = BufWriter::new(File::create(&fresh)?);
        for moment in moments {
            serde_json::to_writer(&mut out, moment)?;
            out.write_all(b"\n")?;
        }
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()?;
        fs::rename(&fresh, &self.path)?;
        self.file = OpenOptions::new().read(true).append(true).open(&self.path)?;
        flock(&self.file, FlockOperation::NonBlockingLockExclusive)?;
        self.lines = moments.len();
        Ok(())
    }
}

fn read_from(mut file: &File, limit: usize) -> io::Result<Past> {
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(MOST_READ);
    file.seek(SeekFrom::Start(skipped))?;
    let mut past = Past::default();
    for (number, line) in BufReader::new(file.take(MOST_READ)).split(b'\n').enumerate() {
        let line = line?;
        match serde_json::from_slice(&line) {
            Ok(moment) => past.moments.push(moment),
            // The first line of a part is a part of a line.
            Err(_) if number == 0 && skipped > 0 => {}
            Err(_) => past.unreadable += 1,
        }
    }
    let surplus = past.moments.len().saturating_sub(limit);
    past.moments.drain(..surplus);
    Ok(past)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use volmedic_health::{Health, Vantage};

    fn moment(number: i64) -> Moment {
        Moment {
            at: Timestamp::from_second(number).unwrap(),
            driver: "d".into(),
            volume: Some("v".into()),
            known_as: None,
            whole: false,
            vantage: Vantage::Controller,
            kind: "appeared".into(),
            warning: true,
            health: Health::Healthy,
            standing: Vec::new(),
            blind_since: None,
            flapping_since: None,
            text: "it changed".into(),
        }
    }

    fn seconds(past: &Past) -> Vec<i64> {
        past.moments.iter().map(|moment| moment.at.as_second()).collect()
    }

    #[test]
    fn only_the_latest_are_kept_however_many_come() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("history");
        let (mut store, past) = Store::open(&path, 3).unwrap();
        assert!(past.moments.is_empty());
        for number in 0..100 {
            let latest = |count| {
                let mut all: Vec<Moment> = (0..=number).map(moment).collect();
                all.split_off(all.len().saturating_sub(count))
            };
            store.append(&moment(number), latest);
        }
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!((3..6).contains(&lines), "{lines} lines");
        drop(store);
        let (_store, past) = Store::open(&path, 3).unwrap();
        assert_eq!(seconds(&past), [97, 98, 99]);
    }

    #[test]
    fn a_torn_line_is_left_out_and_repaired() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("history");
        let whole = serde_json::to_string(&moment(7)).unwrap();
        fs::write(&path, format!("{whole}\n\u{0}nonsense\n{}", &whole[..20])).unwrap();
        let (mut store, past) = Store::open(&path, 10).unwrap();
        assert_eq!((seconds(&past), past.unreadable), (vec![7], 2));
        store.append(&moment(8), |_| Vec::new());
        let past = Store::read(&path).unwrap();
        assert_eq!((seconds(&past), past.unreadable), (vec![7, 8], 0));
    }

    #[test]
    fn two_do_not_write_one_file_and_a_missing_one_is_named() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("history");
        let first = Store::open(&path, 10).unwrap();
        let reported = Store::open(&path, 10).unwrap_err().to_string();
        assert!(reported.contains("another process keeps its history"), "{reported}");
        drop(first);
        Store::open(&path, 10).unwrap();
        let reported = Store::read(&room.path().join("none")).unwrap_err().to_string();
        assert!(reported.contains("cannot read the history") && reported.contains("none"), "{reported}");
    }
}
