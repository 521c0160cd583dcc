//! Healing: whatever can be put right without touching a byte of the volume.
//!
//! Nothing here formats, repairs or deletes, and mounts of other programs stay where they are. A step that fails
//! is reported and does not keep the others from being tried. What was planned but never done is not healed, it is for the
//! caller of the CSI call to finish.

mod device;
mod mounts;

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use volmedic_health::{Condition, WellKnown};

use super::Node;
use crate::assess::{Assessor, seen};
use crate::error::{Error, Result};
use crate::paths::Place;
use crate::record::{Access, Kind, NodeRecord, Staged, VolumeRecord};
use crate::request::Capability;

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Patient {
    pub(crate) id: String,
    /// Where it is published, or staged.
    pub(crate) path: Place,
    pub(crate) staging: Option<Place>,
    pub(crate) capability: Option<Capability>,
    /// A file system that an error made read-only may be made writable again.
    pub(crate) remount_writable: bool,
}

/// How it is afterwards, and what was done.
#[derive(Debug)]
pub(crate) struct Healed {
    pub(crate) abnormal: bool,
    pub(crate) message: String,
}

/// How long a volume may take to be healthy after it was healed: a check that began earlier is waited for.
const RECOVERY: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);
/// As much as Kubernetes takes of a message.
const MESSAGE: usize = 1024;

impl Node {
    pub(crate) fn heal(&self, patient: &Patient, assessor: &Assessor) -> Result<Healed> {
        let (_lock, volume, mut record) = self.take(&patient.id)?;
        let staged = check(patient, &record)?.clone();
        let before = look(assessor, &volume)?;
        if before.is_empty() {
            let message = "the volume was checked and is healthy; nothing was done".to_owned();
            return Ok(Healed { abnormal: false, message });
        }
        let mut notes = Notes::default();
        let stuck = before.iter().any(|condition| condition.reason == WellKnown::IOHung.into());
        match volume.kind {
            Kind::Fuse => self.heal_mounter(&volume, &record, &staged, stuck, &mut notes),
            Kind::Loop => self.heal_device(&volume, &mut record, &staged, &mut notes),
        }
        self.heal_mounts(&volume, &record, &staged, &mut notes);
        self.heal_read_only(&volume, &record, &staged, patient.remount_writable, &mut notes);
        let after = if notes.done.is_empty() { before } else { recovered(assessor, &volume)? };
        Ok(notes.outcome(&after))
    }

    fn place(&self, path: &std::path::Path) -> Result<Place> {
        let text = path.to_str().ok_or_else(|| Error::invalid("volume_path", "it is not valid UTF-8"))?;
        self.roots.place("volume_path", text)
    }
}

/// Whether this is about a volume that is in use here, in the way that the caller believes.
fn check<'r>(patient: &Patient, record: &'r NodeRecord) -> Result<&'r Staged> {
    let elsewhere = |place: &Place| Error::NotAtPath {
        volume: patient.id.clone(),
        path: place.path().display().to_string(),
    };
    let staged =
        record.staged.as_ref().filter(|staged| staged.done).ok_or_else(|| elsewhere(&patient.path))?;
    if !record.is_at(patient.path.path()) {
        return Err(elsewhere(&patient.path));
    }
    if let Some(staging) = patient.staging.as_ref().filter(|staging| staging.path() != staged.path) {
        return Err(elsewhere(staging));
    }
    match &patient.capability {
        Some(capability) if capability.block() != (staged.access == Access::Block) => {
            Err(Error::invalid("volume_capability", "the volume is staged for the other access type"))
        }
        _ => Ok(staged),
    }
}

fn look(assessor: &Assessor, volume: &std::sync::Arc<VolumeRecord>) -> Result<Vec<Condition>> {
    let report = assessor.look(std::slice::from_ref(volume))?.pop().flatten();
    Ok(seen(volume, report)?.conditions())
}

/// Checks until the volume is healthy or its time is over.
fn recovered(assessor: &Assessor, volume: &std::sync::Arc<VolumeRecord>) -> Result<Vec<Condition>> {
    let end = Instant::now() + RECOVERY;
    loop {
        let seen = look(assessor, volume);
        match &seen {
            Ok(conditions) if conditions.is_empty() => return seen,
            _ if Instant::now() >= end => return seen,
            _ => sleep(PAUSE),
        }
    }
}

/// What was done, and what could not be, in sentences.
#[derive(Debug, Default)]
pub(super) struct Notes {
    done: Vec<String>,
    failed: Vec<String>,
}

impl Notes {
    fn done(&mut self, what: impl Into<String>) {
        self.done.push(what.into());
    }

    fn failed(&mut self, why: impl std::fmt::Display) {
        self.failed.push(why.to_string());
    }

    fn outcome(&self, after: &[Condition]) -> Healed {
        let mut message = if self.done.is_empty() {
            "nothing that could be healed safely was found".to_owned()
        } else {
            self.done.join("; ")
        };
        for why in &self.failed {
            let _ = write!(message, "; {why}");
        }
        if after.is_empty() {
            message.push_str("; the volume is healthy now");
        } else {
            let _ = write!(message, "; still wrong:");
            for condition in after {
                let _ = write!(message, " {condition} ({})", condition.message);
            }
        }
        if message.len() > MESSAGE {
            message.truncate(message.floor_char_boundary(MESSAGE - 3));
            message.push_str("...");
        }
        Healed { abnormal: !after.is_empty(), message }
    }
}

#[cfg(test)]
mod tests {
    use volmedic_health::Status;

    use super::*;

    #[test]
    fn the_outcome_is_a_sentence_of_bounded_length() {
        let mut notes = Notes::default();
        assert_eq!(
            notes.outcome(&[]).message,
            "nothing that could be healed safely was found; the volume is healthy now"
        );
        notes.done("the mounter was started again");
        let outcome = notes.outcome(&[]);
        assert!(!outcome.abnormal);
        assert_eq!(outcome.message, "the mounter was started again; the volume is healthy now");
        notes.failed("ä".repeat(2000));
        let unhealthy = Condition::new(Status::Inaccessible, WellKnown::IOHung.into(), "it hangs");
        let outcome = notes.outcome(&[unhealthy]);
        assert!(outcome.abnormal && outcome.message.len() <= MESSAGE && outcome.message.ends_with("..."));
    }
}
