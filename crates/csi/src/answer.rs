//! What a driver said about one volume, one backend or one mount: cleaned and bounded, but not judged.

mod capability;
mod health;

pub use self::capability::{Access, Capability};

use crate::oddity::{Oddities, Oddity};
use crate::secrets::Secrets;
use crate::text::{self, Text};
use crate::wire::{self, Malformed, fields};

/// The specification allows 128 bytes and drivers take more. Nobody has an id of this length.
const MAX_ID: usize = 4096;
const MAX_MESSAGE: usize = 4096;
const MAX_REASON: usize = 1024;
/// How much of a message is searched for secrets before it is cut.
const MAX_SEARCHED: usize = 64 * 1024;
/// Bytes and inodes are known; a few more would do no harm.
const MAX_USAGES: usize = 8;

/// One adverse condition in the new dialect. The status is the number from the wire, known or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub status: i32,
    pub reason: String,
    pub message: String,
}

/// All that the driver knows to be wrong with a volume. No conditions: nothing adverse is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeHealth {
    pub volume_id: String,
    pub conditions: Vec<Condition>,
    /// How many further conditions the driver named that were not kept. Those kept are the worst.
    pub left_out: u64,
}

/// The one condition of the old dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldCondition {
    pub abnormal: bool,
    pub message: String,
}

/// A volume as ListVolumes and ControllerGetVolume report it. No condition: its health was not reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVolume {
    pub volume_id: String,
    pub capacity_bytes: i64,
    pub condition: Option<OldCondition>,
}

/// One adverse report about the storage behind a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendHealth {
    pub status: i32,
    pub reason: String,
    pub message: String,
    /// Which volumes it concerns; all of them if absent.
    pub capability: Option<Capability>,
}

/// How full a volume is, in one unit. The unit is the number from the wire: 1 bytes, 2 inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub unit: i32,
    pub total: i64,
    pub used: i64,
    pub available: i64,
}

/// NodeGetVolumeStats: usage, and in the old dialect a condition. No condition: the health was not reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    pub usage: Vec<Usage>,
    pub condition: Option<OldCondition>,
}

/// How a volume is after the driver tried to heal it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Healed {
    pub abnormal: bool,
    pub message: String,
}

/// Cleans the answers of one pass or one call and counts what was odd about them.
#[derive(Debug)]
pub(crate) struct Cleaner<'a> {
    pub(crate) oddities: Oddities,
    secrets: &'a Secrets,
}

/// Why an entry of a list is dropped. A pass that dropped one cannot say that a volume was absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nameless;

impl<'a> Cleaner<'a> {
    pub(crate) fn new(secrets: &'a Secrets) -> Self {
        Self { oddities: Oddities::default(), secrets }
    }

    /// The id of a listed volume. It is never cut or corrected, because it must match what Kubernetes knows.
    fn id(&mut self, bytes: &[u8]) -> Result<String, Nameless> {
        if bytes.is_empty() {
            self.oddities.note(Oddity::EmptyId);
            return Err(Nameless);
        }
        if let (true, Ok(id)) = (bytes.len() <= MAX_ID, std::str::from_utf8(bytes)) {
            return Ok(id.to_owned());
        }
        self.oddities.note(Oddity::UnreadableEntry);
        Err(Nameless)
    }

    fn text(&mut self, bytes: &[u8], max: usize) -> String {
        let Text { clean: mut text, mut cut, not_utf8 } = if self.secrets.is_empty() {
            text::read(bytes, max)
        } else {
            // A secret that the slice cut in two would not be found, so the tail that may hold a part of one goes.
            let mut searched = text::read(bytes, MAX_SEARCHED);
            if searched.cut {
                let safe = searched.clean.len().saturating_sub(self.secrets.longest());
                searched.clean.truncate(searched.clean.floor_char_boundary(safe));
            }
            searched.clean = self.secrets.hide(&searched.clean).into_owned();
            searched
        };
        if text.len() > max {
            text.truncate(text.floor_char_boundary(max));
            cut = true;
        }
        if cut {
            self.oddities.note(Oddity::CutText);
        }
        if not_utf8 {
            self.oddities.note(Oddity::NotUtf8);
        }
        text
    }

    fn old_condition(&mut self, condition: &wire::Condition<'_>) -> OldCondition {
        OldCondition { abnormal: condition.abnormal, message: self.text(condition.message, MAX_MESSAGE) }
    }

    /// One entry of ListVolumes.
    pub(crate) fn listed_volume(&mut self, entry: &[u8]) -> Result<ListedVolume, Nameless> {
        let Ok(volume) = wire::Volume::read(entry) else {
            self.oddities.note(Oddity::UnreadableEntry);
            return Err(Nameless);
        };
        let volume_id = self.id(volume.id)?;
        let condition = volume.condition.map(|condition| self.old_condition(&condition));
        Ok(ListedVolume { volume_id, capacity_bytes: volume.capacity_bytes, condition })
    }

    /// The answer of ControllerGetVolume.
    pub(crate) fn got_volume(&mut self, asked: &str, answer: &[u8]) -> Result<Got<ListedVolume>, Malformed> {
        let volume = wire::Volume::read(answer)?;
        if let Some(other) = self.other_volume(asked, volume.id) {
            return Ok(Got::Other(other));
        }
        let condition = volume.condition.map(|condition| self.old_condition(&condition));
        let capacity_bytes = volume.capacity_bytes;
        Ok(Got::Asked(ListedVolume { volume_id: asked.into(), capacity_bytes, condition }))
    }

    /// The id in the answer, if it is not the one that was asked for. An answer may leave the id out: there was
    /// only one volume to speak of.
    fn other_volume(&mut self, asked: &str, answered: &[u8]) -> Option<String> {
        if answered.is_empty() {
            self.oddities.note(Oddity::EmptyId);
            return None;
        }
        if answered == asked.as_bytes() {
            return None;
        }
        self.oddities.note(Oddity::WrongVolume);
        Some(self.text(answered, MAX_ID))
    }

    pub(crate) fn stats(&mut self, answer: &[u8]) -> Result<Stats, Malformed> {
        let mut stats = Stats { usage: Vec::new(), condition: None };
        let mut condition = None;
        for field in fields(answer) {
            match field? {
                (1, value) if stats.usage.len() < MAX_USAGES => stats.usage.push(usage(value.bytes()?)?),
                (2, value) => wire::Condition::merge(&mut condition, value.bytes()?)?,
                _ => {}
            }
        }
        stats.condition = condition.map(|condition| self.old_condition(&condition));
        Ok(stats)
    }

    pub(crate) fn healed(&mut self, answer: &[u8]) -> Result<Healed, Malformed> {
        let condition = wire::Condition::read(answer)?;
        let OldCondition { abnormal, message } = self.old_condition(&condition);
        Ok(Healed { abnormal, message })
    }
}

/// What came back when one volume was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got<T> {
    Asked(T),
    /// About another volume, of this id.
    Other(String),
    /// Well formed, but about no volume at all.
    Nothing,
}

fn usage(message: &[u8]) -> Result<Usage, Malformed> {
    let mut usage = Usage::default();
    for field in fields(message) {
        match field? {
            (1, value) => usage.available = value.i64()?,
            (2, value) => usage.total = value.i64()?,
            (3, value) => usage.used = value.i64()?,
            (4, value) => usage.unit = value.i32()?,
            _ => {}
        }
    }
    Ok(usage)
}

#[cfg(test)]
mod tests;
