//! How a person's wish reaches the healer, and how the answer comes back.
//!
//! The wish is a label on the claim: anyone who may change the claim may ask, as with the annotation that sets its mode. A
//! label and not an annotation, because then the healer need not watch all claims but those that have it. The answer is
//! an event on the claim, made the moment the wish is taken, under a name that both know: of several healers, or lives of
//! one, only one can make it, so a wish is carried out once.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

/// The label that holds a wish.
pub const LABEL: &str = "volmedic.dev/heal-now";
/// The annotation of the event that holds the answer.
pub const ANSWER: &str = "volmedic.dev/heal-answer";
/// The reason of the event.
pub const REASON: &str = "HealingRequested";
/// A wish that is older was left behind by somebody who has gone.
pub const FRESH: SignedDuration = SignedDuration::from_mins(5);
/// The longest name of an object is 253 bytes; this leaves room for the rest of the event's name.
const NAME_ROOM: usize = 200;

/// The kernel refused to give random numbers.
#[derive(Debug, thiserror::Error)]
#[error("this machine gives no random numbers")]
pub struct NoRandomNumbers;

/// What a person wants for a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wish {
    pub at: Timestamp,
    nonce: u64,
    pub dry_run: bool,
}

impl Wish {
    pub fn new(at: Timestamp, dry_run: bool) -> Result<Self, NoRandomNumbers> {
        let mut nonce = [0; 8];
        let filled = SystemRandom::new().fill(&mut nonce);
        filled.map_err(|_| NoRandomNumbers)?;
        Ok(Self { at, nonce: u64::from_be_bytes(nonce), dry_run })
    }

    /// The name of the event that answers it.
    pub fn event(&self, claim: &str) -> String {
        let short = &claim[..claim.floor_char_boundary(NAME_ROOM)];
        let short = short.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        format!("{short}.heal-{:016x}", self.nonce)
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.dry_run { "dry-run" } else { "heal" };
        write!(f, "{}.{:016x}.{how}", self.at.as_second(), self.nonce)
    }
}

impl FromStr for Wish {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "it was not written by `volmedic heal`";
        let mut parts = text.splitn(3, '.');
        let mut next = || parts.next().ok_or(wrong);
        let (second, nonce, how) = (next()?, next()?, next()?);
        let at = second.parse().ok().and_then(|second| Timestamp::from_second(second).ok()).ok_or(wrong)?;
        let nonce = u64::from_str_radix(nonce, 16).map_err(|_| wrong)?;
        let dry_run = match how {
            "heal" => false,
            "dry-run" => true,
            _ => return Err(wrong),
        };
        Ok(Self { at, nonce, dry_run })
    }
}

/// What became of it at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Word {
    /// The driver says that it is healthy.
    Well,
    #[serde(rename = "stillIll")] // tidy-ok: its public name
    StillUnhealthy,
    Failed,
    /// A guard stands in the way.
    Refused,
    /// Nothing stands in the way.
    #[serde(rename = "wouldBeMended")] // tidy-ok: its public name
    WouldBeHealed,
    /// It waits for its turn, or takes long.
    UnderWay,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaceReply {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub driver: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub volume_handle: String,
    pub outcome: Word,
    /// Sentences: what the driver said, or each guard that stands in the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<String>,
}

/// The whole answer: one for each node on which the volume is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    pub places: Vec<PlaceReply>,
    /// Places that found no room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_fits_into_a_label_and_comes_back() {
        for dry_run in [false, true] {
            let wish = Wish::new(Timestamp::from_second(1_794_787_200).unwrap(), dry_run).unwrap();
            let text = wish.to_string();
            assert!(text.len() <= 63 && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)));
            assert_eq!(text.parse::<Wish>().unwrap(), wish);
        }
        for wrong in
            ["", "1", "1.2", "1.zz.heal", "x.1.heal", "1.1.all", "1.1.heal.x", "99999999999999999999.1.heal"]
        {
            assert!(wrong.parse::<Wish>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_long_name_of_a_claim_leaves_room() {
        let wish = Wish::new(Timestamp::UNIX_EPOCH, false).unwrap();
        let name = wish.event(&format!("{}-{}", "a".repeat(199), "b".repeat(53)));
        assert!(name.len() <= 253 && name.contains("a.heal-"), "{name}");
        assert_ne!(wish.event("data"), Wish::new(Timestamp::UNIX_EPOCH, false).unwrap().event("data"));
    }
}
