//! What is kept of each claim and each PersistentVolume: compact, because a cluster has a hundred thousand of them.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::judged::Judged;
use crate::ClaimKey;
use crate::facts::VolumeId;
use crate::shape::{self, KubeletHealth};

/// Texts that many records have in common, each kept once.
#[derive(Debug, Default)]
pub(super) struct Words {
    known: HashSet<Arc<str>>,
    /// At this number, those that no record uses any more are dropped.
    most: usize,
}

impl Words {
    const AT_LEAST: usize = 1024;

    pub(super) fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        if self.known.len() >= self.most.max(Self::AT_LEAST) {
            self.known.retain(|word| Arc::strong_count(word) > 1);
            self.most = self.known.len() * 2;
        }
        let new: Arc<str> = text.into();
        self.known.insert(new.clone());
        new
    }
}

/// The uid of an object. Nearly all are UUIDs, and take 16 bytes; as two numbers, because one would be aligned to 16.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Uid {
    Uuid(u64, u64),
    Text(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let digits = text.replace('-', "");
        let half = |range| u64::from_str_radix(digits.get(range)?, 16).ok();
        let uuid = half(0..16).zip(half(16..32)).map(|(high, low)| Self::Uuid(high, low));
        uuid.filter(|uid| uid.to_string() == text).unwrap_or_else(|| Self::Text(text.into()))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Uuid(high, low) => {
                let digits = format!("{high:016x}{low:016x}");
                let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
                f.write_str(&parts.join("-"))
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Bound,
    Lost,
}

/// How a claim may be accessed, as a set of the API's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct AccessModes(u8);

impl AccessModes {
    fn of<'a>(words: impl IntoIterator<Item = &'a String>) -> Self {
        let bit = |word: &String| match word.as_str() {
            "ReadWriteOnce" => 1,
            "ReadOnlyMany" => 2,
            "ReadWriteMany" => 4,
            "ReadWriteOncePod" => 8,
            _ => 0,
        };
        Self(words.into_iter().map(bit).fold(0, |all, one| all | one))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claim {
    pub(super) uid: Uid,
    pub(super) phase: Phase,
    is_block: bool,
    access: AccessModes,
    /// The PersistentVolume; empty where it has none.
    pub(super) volume: Arc<str>,
    /// The driver that was asked to make the volume.
    pub(super) provisioner: Option<Arc<str>>,
    pub(super) class: Option<Arc<str>>,
    /// What the driver's controller said, where the API server keeps that.
    pub(super) kept: Option<Box<KubeletHealth>>,
    /// How it was judged last; no part of what was read.
    pub(super) judged: Option<Judged>,
}

impl Claim {
    /// `share` gives the name of a PersistentVolume that is known already.
    pub(super) fn new(
        uid: &str,
        body: &shape::Claim,
        words: &mut Words,
        share: impl FnOnce(&str) -> Option<Arc<str>>,
    ) -> Self {
        let shape::Claim { metadata, spec, status } = body;
        let provisioner = metadata.annotations.as_ref().and_then(|all| all.provisioner.as_deref());
        Self {
            uid: uid.into(),
            phase: match status.phase.as_str() {
                "Bound" => Phase::Bound,
                "Lost" => Phase::Lost,
                "" if spec.volume_name.is_some() => Phase::Bound,
                _ => Phase::Pending,
            },
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            access: AccessModes::of(spec.access_modes.iter().flatten()),
            volume: match spec.volume_name.as_deref() {
                Some(name) => share(name).unwrap_or_else(|| name.into()),
                None => words.get(""),
            },
            provisioner: provisioner.map(|name| words.get(name)),
            class: spec.storage_class_name.as_deref().map(|name| words.get(name)),
            kept: status.health_status.clone().map(Box::new),
            judged: None,
        }
    }

    /// Whether trouble of a backend concerns this claim: it may be about some kinds of volume only.
    pub(super) fn is_concerned_by(&self, reported: &shape::KubeletCondition) -> bool {
        let mode = if self.is_block { "Block" } else { "Filesystem" };
        let access = AccessModes::of(&reported.access_mode);
        reported.volume_mode.as_deref().is_none_or(|reported| reported == mode)
            && (reported.access_mode.is_none() || self.access.0 & access.0 != 0)
    }
}

/// What one PersistentVolume is marked with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Marks {
    pub(crate) label: Option<Box<str>>,
    pub(crate) message: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Volume {
    pub(super) id: VolumeId,
    pub(super) claim: Option<Box<(ClaimKey, Uid)>>,
    marks: Option<Box<Marks>>,
}

impl Volume {
    pub(super) fn new(id: VolumeId, claim: Option<(ClaimKey, Uid)>, marks: Marks) -> Self {
        let marks = (marks != Marks::default()).then(|| Box::new(marks));
        Self { id, claim: claim.map(Box::new), marks }
    }

    pub(super) fn marks(&self) -> Marks {
        self.marks.as_deref().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_uid_is_given_back_as_it_was() {
        for text in [
            "3f0b2c1e-7d7e-4b64-9f0e-000000000001",
            "00000000-0000-0000-0000-000000000000",
            "3F0B2C1E-7D7E-4B64-9F0E-000000000001",
            "3f0b2c1e7d7e4b649f0e000000000001",
            "uid-1",
            "",
        ] {
            assert_eq!(Uid::from(text).to_string(), text);
        }
    }

    #[test]
    fn words_that_nothing_uses_do_not_pile_up() {
        let mut words = Words::default();
        let kept: Vec<Arc<str>> = (0..10).map(|n| words.get(&format!("kept-{n}"))).collect();
        for n in 0..100_000 {
            words.get(&n.to_string());
        }
        assert!(words.known.len() <= 2 * Words::AT_LEAST, "{}", words.known.len());
        assert!(kept.iter().enumerate().all(|(n, word)| Arc::ptr_eq(word, &words.get(&format!("kept-{n}")))));
    }

    #[test]
    fn a_record_of_a_claim_and_of_a_volume_is_small() {
        assert!(size_of::<Claim>() <= 88, "{}", size_of::<Claim>());
        assert!(size_of::<Volume>() <= 64, "{}", size_of::<Volume>());
    }
}
