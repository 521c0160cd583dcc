//! One volume on one node: what is wanted for it, what was tried, and until when it waits.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use volmedic_health::{Reason, Remedy};

use crate::memory::{Last, Memory};
use crate::policy::Policy;
use crate::refusal::{LASTING, Refusal};
use crate::table::{After, Outcome};

use super::papers::Ticket;

/// Two clocks of one cluster differ by no more than this.
pub(super) const CLOCKS: SignedDuration = SignedDuration::from_mins(1);

#[derive(Debug, Clone)]
pub(super) struct Complaint {
    pub(super) reason: Reason,
    pub(super) since: Timestamp,
    /// When it first came to us. Debounce runs from here: the other time is from another clock.
    pub(super) seen: Timestamp,
}

/// What stands in the way until somebody changes something.
#[derive(Debug, Clone)]
pub(super) enum Hold {
    /// The request was wrong. The PersistentVolume must have another version than this.
    Change { version: Box<str>, why: Box<str> },
    /// A person must have read the driver's log.
    Person { why: Box<str> },
}

#[derive(Debug, Clone, Default)]
pub(super) struct Case {
    pub(super) opened: Option<Timestamp>,
    pub(super) unhealthy: Option<Complaint>,
    pub(super) check: bool,
    pub(super) person: bool,
    pub(super) in_flight: bool,
    pub(super) not_before: Option<Timestamp>,
    /// Since it was last well for long.
    pub(super) tries: u32,
    /// Times in a row that the driver could not be asked.
    unreached: u32,
    pub(super) hold: Option<Hold>,
    pub(super) verify: bool,
    pub(super) refused_secret: Option<Box<str>>,
    /// The last try repaired it, as far as the driver says. Whether it stayed so shows at the next look.
    pub(super) repaired: bool,
    well_since: Option<Timestamp>,
    /// Since when no relay serves the driver on the node.
    pub(super) no_relay_since: Option<Timestamp>,
    /// Of the PersistentVolume at the last try.
    pub(super) version: Box<str>,
    reported: BTreeSet<&'static str>,
}

impl Case {
    pub(super) fn opened(now: Timestamp) -> Self {
        Self { opened: Some(now), ..Self::default() }
    }

    /// As an earlier process left it.
    pub(super) fn restored(now: Timestamp, memory: &Memory) -> Self {
        let Memory { tries, last, at, not_before, unhealthy, reported } = memory;
        let hold = match last {
            Last::Unexplained { code } => Some(Hold::Person { why: code.clone() }),
            Last::None | Last::Healed | Last::Failed => None,
        };
        Self {
            tries: *tries,
            not_before: *not_before,
            repaired: *last == Last::Healed,
            hold,
            // Who is unhealthy has been so since the last try, as far as anybody knows.
            well_since: (!unhealthy).then_some(*at),
            reported: reported.clone(),
            ..Self::opened(now)
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.unhealthy.is_some() || self.check || self.person
    }

    /// Counts as unhealthy: reported so, or found so by a check.
    pub(super) fn is_unhealthy(&self) -> bool {
        !self.repaired && (self.unhealthy.is_some() || (self.check && self.tries > 0))
    }

    /// Since when there is something to do.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.unhealthy.as_ref().map(|complaint| complaint.since.min(complaint.seen)).or(self.opened)
    }

    pub(super) fn complaint(&self) -> Option<(Reason, Timestamp)> {
        self.unhealthy.as_ref().map(|complaint| (complaint.reason.clone(), complaint.since))
    }

    pub(super) fn complain(&mut self, now: Timestamp, complaint: Complaint, steady: SignedDuration) {
        if let Some(unhealthy) = &mut self.unhealthy {
            unhealthy.reason = complaint.reason;
            return;
        }
        if self.well_since.is_some_and(|since| now.duration_since(since) >= steady) {
            let Self { check, person, in_flight, version, .. } = std::mem::take(self);
            *self = Self { check, person, in_flight, version, ..Self::opened(now) };
        }
        self.well_since = None;
        self.repaired = false;
        self.unhealthy = Some(complaint);
    }

    pub(super) fn cleared(&mut self, now: Timestamp) {
        if self.unhealthy.take().is_some() {
            self.well_since = Some(now);
            self.reported.retain(|label| LASTING.contains(label));
        }
    }

    /// Whether a relay is away.
    pub(super) fn relay(&mut self, now: Timestamp, away: bool) {
        if away {
            self.no_relay_since.get_or_insert(now);
        } else {
            self.no_relay_since = None;
        }
    }

    /// The driver has restarted. What it failed to repair before, it may repair now; the pause after the last try stays.
    pub(super) fn check(&mut self) {
        self.check = true;
        if self.unhealthy.is_none() && !self.in_flight {
            self.tries = 0;
            self.hold = None;
        }
    }

    pub(super) fn person(&mut self) {
        self.person = true;
        self.tries = 0;
        self.unreached = 0;
        self.not_before = None;
        self.hold = None;
        self.reported.clear();
    }

    /// Nothing is wanted, and nothing is worth remembering. Whatever was tried is remembered for as long as the volume
    /// must stay healthy to start over, whichever caller asked for it.
    pub(super) fn is_over(&mut self, now: Timestamp, policy: &Policy) -> bool {
        if self.is_wanted() || self.in_flight {
            return false;
        }
        if self.tries == 0 && self.hold.is_none() {
            return true;
        }
        let since = *self.well_since.get_or_insert(now);
        now.duration_since(since) >= policy.steady
    }

    /// What only a person, a change or a long healthy time can overcome.
    pub(super) fn objection(&self, policy: &Policy) -> Option<Refusal> {
        if let Some(Hold::Person { why }) = &self.hold {
            return Some(Refusal::NeedsPerson { why: why.clone() });
        }
        (self.tries >= policy.tries && !self.repaired)
            .then_some(Refusal::GaveUp { tries: self.tries, remedy: Remedy::NodeHealer })
    }

    /// What time alone will overcome.
    pub(super) fn waits(&self, now: Timestamp, policy: &Policy) -> Option<Refusal> {
        if let Some(until) = self.not_before.filter(|until| *until > now) {
            return Some(Refusal::Pause { until, tries: self.tries });
        }
        let until = self.settled(policy)?;
        (until > now && !self.person && !self.check).then_some(Refusal::Debounce { until })
    }

    /// When it is due by time alone.
    pub(super) fn due(&self, policy: &Policy) -> Option<Timestamp> {
        let settled = if self.person || self.check { None } else { self.settled(policy) };
        self.not_before.max(settled).or(self.opened)
    }

    fn settled(&self, policy: &Policy) -> Option<Timestamp> {
        self.unhealthy.as_ref()?.seen.checked_add(policy.debounce).ok()
    }

    /// Whether this refusal is news. Each kind is reported once per episode, and only where something is known to be wrong.
    pub(super) fn is_news(&self, refusal: &Refusal) -> bool {
        let about_something = self.is_unhealthy() || self.person;
        refusal.is_reported() && about_something && !self.reported.contains(refusal.label())
    }

    /// As [`is_news`](Self::is_news), and from now on it is none.
    pub(super) fn tell_once(&mut self, refusal: &Refusal) -> bool {
        let news = self.is_news(refusal);
        if news {
            self.reported.insert(refusal.label());
        }
        news
    }

    /// Nothing was done.
    pub(super) fn refused(
        &mut self,
        now: Timestamp,
        pause: SignedDuration,
        refusal: &Refusal,
        by_person: bool,
    ) {
        // Who asked while it was under way has not been answered yet.
        self.person &= !by_person;
        self.not_before = if self.person { None } else { now.checked_add(pause).ok() };
        match refusal {
            // What may not be repaired need not be checked either.
            Refusal::Off { .. }
            | Refusal::Observe { .. }
            | Refusal::AwaitingApproval { .. }
            | Refusal::Filtered { .. }
            | Refusal::NotBound { .. } => self.check = false,
            _ => {}
        }
    }

    /// Its pods were recreated, or not. The pause after that is the volume's, not this node's.
    pub(super) fn recreated(&mut self, now: Timestamp, outcome: &Outcome, ticket: &Ticket) {
        self.person &= !ticket.by_person;
        self.not_before = None;
        if outcome.is_healthy() {
            self.repaired = true;
            self.well_since = self.unhealthy.is_none().then_some(now);
        }
    }

    pub(super) fn done(
        &mut self,
        now: Timestamp,
        policy: &Policy,
        outcome: &Outcome,
        after: After,
        ticket: &Ticket,
    ) {
        let Ticket { complaint, by_person, .. } = ticket;
        // A complaint may be cleared before the driver's answer arrives: the agent has seen the heal first.
        let only_checked = complaint.is_none() && self.unhealthy.is_none() && !by_person;
        self.person &= !by_person;
        match outcome {
            Outcome::Well { .. } if only_checked => {
                self.check = false;
                self.well_since.get_or_insert(now);
                return;
            }
            Outcome::Well { .. } => {
                self.check = false;
                self.repaired = true;
                self.tries = self.tries.saturating_add(1);
                self.unreached = 0;
                self.well_since = self.unhealthy.is_none().then_some(now);
                self.hold = None;
                self.verify = false;
                self.refused_secret = None;
            }
            // Nothing was tried.
            Outcome::NotReached { .. } | Outcome::SecretUnchanged => {
                self.unreached = self.unreached.saturating_add(1);
            }
            Outcome::StillUnhealthy { .. } | Outcome::Failed { .. } | Outcome::Lost { .. } => {
                self.repaired = false;
                self.tries = self.tries.saturating_add(1);
                self.unreached = 0;
            }
        }
        let steps = self.tries.saturating_add(self.unreached);
        let pause = match after {
            After::CoolDown => policy.pause(steps).max(policy.cooldown),
            After::WaitThenBackOff => policy.pause(steps.saturating_add(1)),
            _ => policy.pause(steps),
        };
        self.not_before = if self.person { None } else { now.checked_add(pause).ok() };
        self.verify = after == After::VerifyThenBackOff;
        let Outcome::Failed { kind: _, message, secret } = outcome else { return };
        let why: Box<str> = if message.is_empty() { outcome.label().into() } else { message.as_str().into() };
        match after {
            After::FixRequest => self.hold = Some(Hold::Change { version: self.version.clone(), why }),
            After::AskPerson => self.hold = Some(Hold::Person { why }),
            After::RefreshSecrets => self.refused_secret.clone_from(secret),
            _ => {}
        }
    }
}
