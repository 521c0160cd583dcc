//! What was tried, as the claim's own object keeps it. Pure.
//!
//! A try is written down before the driver is asked, and its end takes the place of its beginning. So anyone who comes after
//! a healer that died finds out what was under way, waits until it must be over, and goes on counting. And of two healers
//! that both want to begin, the second finds the first.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use volmedic_api::resource::{Heal, HealOutcome, limit, time};
use volmedic_health::Remedy;

use crate::healer::{News, Record};
use crate::policy::Policy;
use crate::refusal::{LASTING, reported_label};

/// The code of a try whose end nobody knows.
const LOST: &str = "lost";
/// The code of a try in which nothing was done.
const NOT_REACHED: &str = "not_reached";
/// Stored times are cut to whole seconds: what they say is early by up to this much.
const STORED_TIME: SignedDuration = SignedDuration::from_secs(1);
/// Entries that are kept although nothing depends on them, as long as there are no more than this in all.
const USUAL: usize = 10;
/// Codes after which a person must read the driver's log.
const UNEXPLAINED: [&str; 2] = ["Unknown", "DataLoss"];

/// How long an attempt may take, by its remedy.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    pub node_healer: SignedDuration,
    pub recreate_pods: SignedDuration,
}

impl From<SignedDuration> for Deadlines {
    fn from(deadline: SignedDuration) -> Self {
        Self { node_healer: deadline, recreate_pods: deadline }
    }
}

impl Deadlines {
    fn of(self, heal: &Heal) -> SignedDuration {
        if recreates(heal) { self.recreate_pods } else { self.node_healer }
    }
}

/// Attempts that were stored before there was a second remedy are the node plugin's, whatever they say.
fn recreates(heal: &Heal) -> bool {
    heal.remedy == Remedy::RecreatePods.name()
}

/// How often an earlier process recreated the pods of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recreated {
    /// Since the volume was last healthy for long.
    pub tries: u32,
    pub not_before: Option<Timestamp>,
    pub nodes: BTreeSet<Arc<str>>,
}

/// What an earlier process knew of one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Since the volume was last well for long.
    pub tries: u32,
    pub last: Last,
    /// When something was last done or said.
    pub at: Timestamp,
    pub not_before: Option<Timestamp>,
    /// It is unhealthy now.
    pub unhealthy: bool,
    /// Labels of what was reported and need not be reported again.
    pub reported: BTreeSet<&'static str>,
}

/// How the last try ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Last {
    /// There was none.
    None,
    Healed,
    Failed,
    /// The driver does not say why, so a person must look.
    Unexplained {
        code: Box<str>,
    },
}

impl Record {
    /// What is kept of it in the claim's object. Volumes that were merely checked and are healthy leave no trace.
    pub fn entry(&self) -> Option<Heal> {
        let node = self.place.as_ref()?.node.to_string();
        let (outcome, code) = match &self.news {
            News::Started { .. } => (HealOutcome::Started, ""),
            News::Succeeded { .. } => (HealOutcome::Succeeded, "well"),
            News::Failed { code, .. } => (HealOutcome::Failed, *code),
            News::Skipped(refusal) => (HealOutcome::Skipped, refusal.label()),
            News::Braked(_) | News::Released(_) => return None,
        };
        let skipped = outcome == HealOutcome::Skipped;
        // Who did not get as far as to write down the beginning has no end to write down.
        let attempt = self.attempt.map_or(0, |attempt| attempt.nth);
        if !skipped && (attempt == 0 || (self.complaint.is_none() && !self.by_person)) {
            return None;
        }
        let mut message = self.text();
        message.truncate(message.floor_char_boundary(limit::MESSAGE));
        Some(Heal {
            time: time(self.at),
            outcome,
            remedy: self.remedy.unwrap_or(Remedy::NodeHealer).name().to_owned(),
            node: Some(node),
            message,
            code: code.to_owned(),
            attempt,
            not_before: self.not_before.map(time),
        })
    }
}

/// With a beginning. Refused while another attempt is open, on whatever node: what it may still do is not known.
pub fn begun(before: &[Heal], entry: &Heal, deadline: impl Into<Deadlines>) -> Result<Vec<Heal>, String> {
    if let Some((open, until)) = unfinished(before, deadline).next() {
        let node = open.node.as_deref().unwrap_or("a node");
        return Err(format!(
            "another actor began to heal it on {node} at {:.0}, and may be at it until {until:.0}",
            open.time.0
        ));
    }
    let heals = bounded(std::iter::once(entry).chain(before).cloned().collect());
    if heals.len() > limit::HEALS {
        return Err(format!(
            "the claim's VolumeHealth has the last attempts of {} nodes and no room for another; delete it when nothing is \
             being healed",
            limit::HEALS
        ));
    }
    Ok(heals)
}

/// Without the oldest entries. An attempt that has not ended, and the last attempt on each node, are always kept: the next
/// healer would otherwise not know that one is under way, and would count from 1 again.
fn bounded(heals: Vec<Heal>) -> Vec<Heal> {
    let mut nodes = BTreeSet::new();
    // Newest first.
    let needed: Vec<bool> = heals
        .iter()
        .map(|heal| match heal.outcome {
            HealOutcome::Started => {
                nodes.insert(heal.node.clone());
                true
            }
            HealOutcome::Succeeded | HealOutcome::Failed => nodes.insert(heal.node.clone()),
            HealOutcome::Skipped => false,
        })
        .collect();
    let mut room = USUAL.saturating_sub(needed.iter().filter(|needed| **needed).count());
    let kept = heals.into_iter().zip(needed).filter(|(_, needed)| {
        let fits = *needed || room > 0;
        if fits && !*needed {
            room -= 1;
        }
        fits
    });
    kept.map(|(heal, _)| heal).collect()
}

/// With an end, or with what was said. The same is not kept twice.
pub fn noted(before: &[Heal], entry: &Heal) -> Vec<Heal> {
    let replaces = |old: &&Heal| {
        let same_node = old.node == entry.node && recreates(old) == recreates(entry);
        match (old.outcome, entry.outcome) {
            (HealOutcome::Started, HealOutcome::Succeeded | HealOutcome::Failed) => {
                same_node && old.attempt == entry.attempt
            }
            (HealOutcome::Skipped, HealOutcome::Skipped) => same_node && old.code == entry.code,
            // Evictions may be refused for days, which must not push everything else out of the list.
            (HealOutcome::Failed, _) => {
                let same = same_node && old.attempt == entry.attempt;
                same && old.code == NOT_REACHED && recreates(old) && entry.outcome != HealOutcome::Skipped
            }
            _ => false,
        }
    };
    bounded(std::iter::once(entry).chain(before.iter().filter(|old| !replaces(old))).cloned().collect())
}

/// Tries that began and did not end, each with when it must be over.
pub fn unfinished(
    heals: &[Heal],
    deadline: impl Into<Deadlines>,
) -> impl Iterator<Item = (&Heal, Timestamp)> {
    let deadline = deadline.into();
    heals.iter().filter_map(move |heal| Some((heal, ends(heal, deadline)?)))
}

fn ends(heal: &Heal, deadline: Deadlines) -> Option<Timestamp> {
    let started = heal.outcome == HealOutcome::Started;
    let longest = deadline.of(heal).saturating_add(STORED_TIME);
    started.then(|| heal.time.0.checked_add(longest).unwrap_or(Timestamp::MAX))
}

/// A try whose end nobody will ever tell.
pub fn lost(heal: &Heal) -> Heal {
    Heal {
        outcome: HealOutcome::Failed,
        code: LOST.to_owned(),
        message: "nobody knows what became of it: the healer ended in the middle".to_owned(),
        ..heal.clone()
    }
}

/// What is to be remembered of a volume on a node that is unhealthy since a time, or healthy. `None` if nothing is.
pub fn remembered(
    heals: &[Heal],
    node: &str,
    unhealthy_since: Option<Timestamp>,
    now: Timestamp,
    policy: &Policy,
    deadline: impl Into<Deadlines>,
) -> Option<Memory> {
    let deadline = deadline.into();
    let here = || heals.iter().filter(|heal| heal.node.as_deref() == Some(node));
    let newest = here().max_by_key(|heal| heal.time.0)?;
    let at = newest.time.0;
    // Healthy for long since then: it starts over.
    let well_until = unhealthy_since.unwrap_or(now);
    if well_until.duration_since(at) >= policy.steady {
        return None;
    }
    let tries = here().filter(|heal| heal.outcome != HealOutcome::Skipped && !recreates(heal));
    let tried = tries.max_by_key(|heal| heal.time.0);
    let tries = tried.map_or(0, |heal| heal.attempt);
    let not_before = tried.and_then(|heal| match heal.outcome {
        // It may be under way until then; after that it counts as lost, and has the pause that those have.
        HealOutcome::Started => {
            let pause = heal.time.0.checked_add(policy.pause(tries.saturating_add(1))).ok();
            pause.max(ends(heal, deadline))
        }
        _ => heal.not_before.as_ref().map(|time| time.0),
    });
    let last = match tried {
        None => Last::None,
        Some(heal) if heal.outcome == HealOutcome::Succeeded => Last::Healed,
        Some(heal) if UNEXPLAINED.contains(&heal.code.as_str()) => {
            Last::Unexplained { code: heal.code.as_str().into() }
        }
        Some(_) => Last::Failed,
    };
    let reported = here().filter(|heal| heal.outcome == HealOutcome::Skipped).filter_map(|heal| {
        let label = reported_label(&heal.code)?;
        let of_this_episode =
            unhealthy_since.is_some_and(|since| heal.time.0.as_second() >= since.as_second());
        (of_this_episode || LASTING.contains(&label)).then_some(label)
    });
    let reported: BTreeSet<_> = reported.collect();
    let nothing = tries == 0 && reported.is_empty();
    (!nothing).then_some(Memory {
        tries,
        last,
        at,
        not_before,
        unhealthy: unhealthy_since.is_some(),
        reported,
    })
}

/// What is to be remembered of a volume whose pods were recreated, on whatever node. `None` if nothing is: it was healthy
/// for long since then.
pub fn recreated(
    heals: &[Heal],
    unhealthy_since: Option<Timestamp>,
    now: Timestamp,
    policy: &Policy,
    deadline: impl Into<Deadlines>,
) -> Option<Recreated> {
    let deadline = deadline.into();
    let tried = || heals.iter().filter(|heal| recreates(heal) && heal.outcome != HealOutcome::Skipped);
    let last = tried().max_by_key(|heal| heal.time.0)?;
    // An attempt that may still be under way is not over because nothing is reported of the volume meanwhile.
    let ends = ends(last, deadline);
    let over = last.not_before.as_ref().map(|time| time.0).max(ends).unwrap_or(last.time.0).max(last.time.0);
    if unhealthy_since.unwrap_or(now).duration_since(over) >= policy.steady {
        return None;
    }
    let nodes = tried().filter_map(|heal| heal.node.as_deref()).map(Into::into).collect();
    let paused = || {
        let pause = last.time.0.checked_add(policy.recreate_pause(last.attempt)).ok();
        pause.max(ends)
    };
    let not_before = match &last.not_before {
        Some(time) => Some(time.0),
        None if last.outcome == HealOutcome::Succeeded => None,
        // It is under way or was lost.
        None => paused(),
    };
    // An attempt that ended without an eviction is stored with its number, and the next one has the same.
    let refused = last.outcome == HealOutcome::Failed && last.code == NOT_REACHED;
    let tries = if refused { last.attempt.saturating_sub(1) } else { last.attempt };
    Some(Recreated { tries, not_before, nodes })
}

#[cfg(test)]
mod tests;
