//! What goes in and out of the triage.

use jiff::Timestamp;
use volmedic_health::{Reason, Remedy};

#[cfg(doc)]
use super::Triage;
use super::brake::Brake;
use crate::mode::Ruling;
use crate::place::Place;
use crate::refusal::Refusal;

/// The right to check a volume and maybe to act on it. Nobody else has one for the same volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    pub place: Place,
    pub(super) number: u64,
    /// Somebody reported it unhealthy, so it must be seen again before anything is done.
    pub ask_again: bool,
    /// The driver did not know the volume at the last try, so its existence must be made sure of.
    pub verify: bool,
    /// A person asked for it.
    pub by_person: bool,
    /// What was reported, for the record. `None` if it is merely checked.
    pub complaint: Option<(Reason, Timestamp)>,
    /// The secret that the driver did not accept at the last try.
    pub refused_secret: Option<Box<str>>,
    /// Attempt number of the node plugin, starting at 1.
    pub nth: u32,
}

impl Ticket {
    /// Whether what was reported when it was issued is something that the remedy helps against.
    pub fn concerns(&self, remedy: Remedy) -> bool {
        self.complaint.as_ref().is_some_and(|(reason, _)| reason.remedies().contains(&remedy))
    }

    /// The volume is only checked: nothing is known to be wrong with it, and no person asked for it.
    pub fn is_check(&self) -> bool {
        self.complaint.is_none() && !self.by_person && self.nth <= 1
    }
}

/// A decision not to act, to be reported to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalReport {
    pub place: Place,
    pub refusal: Refusal,
    pub complaint: Option<(Reason, Timestamp)>,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Check it again, then hand what was seen to [`Triage::examined`].
    Examine(Ticket),
    /// Nothing is done, which was not reported yet in this episode.
    Skip(RefusalReport),
    /// Too many are unhealthy at the same time; nothing is done from now on.
    Braked(Brake),
    /// Few enough are unhealthy again.
    Released(Brake),
}

/// What was seen right before acting.
#[derive(Debug, Clone)]
pub struct Exam {
    pub ruling: Ruling,
    pub approval: Approval,
    /// Whether the volume is there, bound, and the one we mean; else why not.
    pub bound: Result<(), Box<str>>,
    /// Why the operator's filters leave it out.
    pub filtered: Option<Box<str>>,
    /// Of the PersistentVolume, so that a request that was refused is not sent again unchanged.
    pub version: Box<str>,
    pub again: Again,
    /// The same for recreating pods; `None` where that was not asked about.
    pub recreate: Option<Standing>,
}

/// What is known of one more remedy right before acting.
#[derive(Debug, Clone)]
pub struct Standing {
    pub ruling: Ruling,
    pub approval: Approval,
    /// Why it cannot be used now.
    pub obstacle: Option<Refusal>,
}

/// A person's consent, as the claim carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    None,
    Given(Timestamp),
}

/// Whether the volume is still unhealthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Again {
    StillUnhealthy,
    Well,
    NotSeen(Box<str>),
    /// Nobody reported it unhealthy; the driver will check it.
    NotAsked,
}

/// What follows from an exam.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Act now with this remedy, for which it is the attempt of this number; then hand the outcome to [`Triage::done`]. What
    /// somebody reported is probed again before; if that does not confirm it, [`Triage::not_confirmed`] ends this.
    Act { remedy: Remedy, nth: u32 },
    /// It is healthy by now. Nothing to do.
    Well,
    /// Nothing is done. `tell` says whether that is news.
    Skip { refusal: Refusal, tell: bool },
}
