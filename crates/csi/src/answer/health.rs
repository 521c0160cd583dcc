//! The new dialect: lists of (status, reason, message), about a volume or about a backend.

use volmedic_proto::csi::{StorageHealthErrorType, VolumeHealthErrorType};

use super::{
    BackendHealth, Capability, Cleaner, Condition, Got, MAX_MESSAGE, MAX_REASON, Nameless, VolumeHealth,
};
use crate::oddity::{Oddities, Oddity};
use crate::wire::{Malformed, Report, fields};

/// What the API server takes, and more than a person reads.
const MAX_CONDITIONS: usize = 16;
const MAX_BACKENDS: usize = 64;

impl Cleaner<'_> {
    /// One entry of ControllerListVolumeHealth. An entry of which a part cannot be read is dropped whole:
    /// what is missing may be the worst of it.
    pub(crate) fn listed_health(&mut self, entry: &[u8]) -> Result<VolumeHealth, Nameless> {
        let Ok(raw) = Raw::read(entry, &mut self.oddities) else {
            self.oddities.note(Oddity::UnreadableEntry);
            return Err(Nameless);
        };
        let volume_id = self.id(raw.id)?;
        Ok(self.volume_health(volume_id, &raw.worst))
    }

    /// The answer of ControllerGetVolumeHealth and NodeGetVolumeHealth.
    pub(crate) fn got_health(&mut self, asked: &str, answer: &[u8]) -> Result<Got<VolumeHealth>, Malformed> {
        let mut health = None;
        for field in fields(answer) {
            if let (1, value) = field? {
                health = Some(value.bytes()?);
            }
        }
        let Some(health) = health else { return Ok(Got::Nothing) };
        let raw = Raw::read(health, &mut self.oddities)?;
        if let Some(other) = self.other_volume(asked, raw.id) {
            return Ok(Got::Other(other));
        }
        Ok(Got::Asked(self.volume_health(asked.to_owned(), &raw.worst)))
    }

    /// The answer of NodeGetStorageHealth.
    pub(crate) fn backends(&mut self, answer: &[u8]) -> Result<Vec<BackendHealth>, Malformed> {
        let mut worst = Worst::new(MAX_BACKENDS, storage_rank);
        for field in fields(answer) {
            if let (1, value) = field? {
                worst.add(Report::read(value.bytes()?)?, &mut self.oddities);
            }
        }
        let clean = |report: &Report<'_>| {
            Ok(BackendHealth {
                status: report.status,
                reason: self.text(report.reason, MAX_REASON),
                message: self.text(report.message, MAX_MESSAGE),
                capability: report.capability.map(Capability::read).transpose()?,
            })
        };
        worst.kept.iter().map(clean).collect()
    }

    fn volume_health(&mut self, volume_id: String, worst: &Worst<'_>) -> VolumeHealth {
        let clean = |report: &Report<'_>| Condition {
            status: report.status,
            reason: self.text(report.reason, MAX_REASON),
            message: self.text(report.message, MAX_MESSAGE),
        };
        let conditions = worst.kept.iter().map(clean).collect();
        VolumeHealth { volume_id, conditions, left_out: worst.left_out }
    }
}

/// A VolumeHealth message whose texts have not been read yet.
struct Raw<'a> {
    id: &'a [u8],
    worst: Worst<'a>,
}

impl<'a> Raw<'a> {
    fn read(message: &'a [u8], oddities: &mut Oddities) -> Result<Self, Malformed> {
        let mut raw = Self { id: &[], worst: Worst::new(MAX_CONDITIONS, volume_rank) };
        for field in fields(message) {
            match field? {
                (1, value) => raw.id = value.bytes()?,
                (2, value) => raw.worst.add(Report::read(value.bytes()?)?, oddities),
                _ => {}
            }
        }
        Ok(raw)
    }
}

/// Keeps the worst of any number of reports in little space, in the order in which they came.
struct Worst<'a> {
    kept: Vec<Report<'a>>,
    left_out: u64,
    max: usize,
    rank: fn(i32) -> Option<u8>,
}

impl<'a> Worst<'a> {
    fn new(max: usize, rank: fn(i32) -> Option<u8>) -> Self {
        Self { kept: Vec::new(), left_out: 0, max, rank }
    }

    fn add(&mut self, report: Report<'a>, oddities: &mut Oddities) {
        let same = |kept: &Report<'_>| {
            (kept.status, kept.reason, kept.capability) == (report.status, report.reason, report.capability)
        };
        if self.kept.iter().any(same) {
            oddities.note(Oddity::DuplicateCondition);
            return;
        }
        if (self.rank)(report.status).is_none() {
            oddities.note(Oddity::UnknownStatus);
        }
        if report.reason.is_empty() {
            oddities.note(Oddity::EmptyReason);
        }
        if self.kept.len() >= self.max {
            oddities.note(Oddity::ExcessCondition);
            self.left_out = self.left_out.saturating_add(1);
            let rank = |report: &Report<'_>| (self.rank)(report.status);
            // The last of the mildest makes room, if the new one is worse.
            let mildest = self.kept.iter().enumerate().rev().min_by_key(|(_, kept)| rank(kept));
            match mildest {
                Some((index, kept)) if rank(kept) < rank(&report) => self.kept.remove(index),
                _ => return,
            };
        }
        self.kept.push(report);
    }
}

/// Higher is worse. Not known: `None`, which gives way to all that is.
fn volume_rank(status: i32) -> Option<u8> {
    match VolumeHealthErrorType::try_from(status).ok()? {
        VolumeHealthErrorType::UnknownVolumeHealthType => None,
        VolumeHealthErrorType::Degraded => Some(1),
        VolumeHealthErrorType::Inaccessible => Some(2),
        VolumeHealthErrorType::DataLoss => Some(3),
    }
}

fn storage_rank(status: i32) -> Option<u8> {
    match StorageHealthErrorType::try_from(status).ok()? {
        StorageHealthErrorType::UnknownStorageHealthErrorType => None,
        StorageHealthErrorType::StorageDegraded => Some(1),
        StorageHealthErrorType::StorageUnreachable => Some(2),
    }
}
