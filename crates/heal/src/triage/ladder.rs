//! Which remedy is used: the first of the reason's remedies that is switched on and that nothing stands in the way of. The
//! next one has its turn only when the one before it cannot help, and not while that only has to wait.

use std::sync::Arc;

use jiff::Timestamp;
use volmedic_health::Remedy;

use super::case::{Case, Hold};
use super::papers::{Approval, Exam, Standing};
use super::{Triage, World, case};
use crate::mode::{Mode, Ruling};
use crate::place::Place;
use crate::policy::{Policy, Recreate};
use crate::refusal::Refusal;

/// A remedy that cannot be used, and why.
pub(super) type Closed = (Remedy, Refusal);

impl Triage {
    /// The remedies for a case that are switched on, in their order.
    pub(super) fn ladder(&self, case: &Case) -> impl Iterator<Item = Remedy> {
        let of_reason = case.unhealthy.as_ref().map_or(&[][..], |complaint| complaint.reason.remedies());
        let asked = case.check || case.person;
        let first = (asked && !of_reason.contains(&Remedy::NodeHealer)).then_some(Remedy::NodeHealer);
        let has = |remedy: &Remedy| self.policy.has(*remedy);
        first.into_iter().chain(of_reason.iter().copied()).filter(has)
    }

    /// Climbs the ladder. What is refused is what people should read: where all remedies are closed, why the last one is
    /// that they can do something about.
    pub(super) fn climb(
        &self,
        case: &Case,
        objection: impl Fn(Remedy) -> Option<Refusal>,
    ) -> Result<Remedy, Refusal> {
        let mut closed: Option<Closed> = None;
        for remedy in self.ladder(case) {
            let Some(refusal) = objection(remedy) else { return Ok(remedy) };
            if refusal.holds_ladder() {
                return Err(refusal);
            }
            let keeps =
                closed.as_ref().is_some_and(|(_, before)| before.is_reported() && !refusal.is_reported());
            // A remedy that nobody switched on is the least interesting of all.
            let off = closed.is_some() && matches!(refusal, Refusal::Off { .. });
            if !keeps && !off {
                closed = Some((remedy, refusal));
            }
        }
        Err(closed.map_or_else(nothing_to_heal, |(_, refusal)| refusal))
    }

    /// What stands in the way of a remedy, as far as is known without asking anybody.
    pub(super) fn rung(
        &self,
        now: Timestamp,
        place: &Place,
        case: &Case,
        world: &impl World,
        remedy: Remedy,
    ) -> Option<Refusal> {
        match (remedy, &self.policy.recreate) {
            (Remedy::NodeHealer, _) => self
                .node_plugin(place, case)
                .or_else(|| (!world.has_relay(&place.driver, &place.node)).then_some(Refusal::NoRelay)),
            (Remedy::RecreatePods, Some(recreate)) => self.pods(now, place, case, recreate),
            _ => Some(Refusal::NotReady { why: "it is not switched on".into() }),
        }
    }

    /// What the driver itself answered so far.
    pub(super) fn node_plugin(&self, place: &Place, case: &Case) -> Option<Refusal> {
        let driver: (Arc<str>, Arc<str>) = (place.driver.clone(), place.node.clone());
        let barred = self.barred.contains(&driver).then_some(Refusal::NotImplemented);
        barred.or_else(|| case.objection(&self.policy))
    }

    fn pods(&self, now: Timestamp, place: &Place, case: &Case, recreate: &Recreate) -> Option<Refusal> {
        if let Some(refusal) = self.recreations.objection(now, place, recreate) {
            return Some(refusal);
        }
        // A relay that is away for a moment, as while its agent restarts, may still help.
        let began = case.unhealthy.as_ref().map(|complaint| complaint.seen).max(case.no_relay_since);
        let until = began.and_then(|began| began.checked_add(recreate.debounce).ok());
        if let Some(until) = until.filter(|until| *until > now && !case.person) {
            return Some(Refusal::Debounce { until });
        }
        (self.flights.acting(Remedy::RecreatePods) >= recreate.budget)
            .then_some(Refusal::ClusterBudget { limit: recreate.budget })
    }

    /// What an exam says against a remedy.
    pub(super) fn ruled(
        &self,
        now: Timestamp,
        case: &Case,
        exam: &Exam,
        remedy: Remedy,
        by_person: bool,
    ) -> Option<Refusal> {
        match (remedy, &exam.recreate) {
            (Remedy::NodeHealer, _) => {
                let ruled = self.mode(now, case, remedy, &exam.ruling, exam.approval, by_person);
                ruled.or_else(|| match &case.hold {
                    Some(Hold::Change { version: refused, why })
                        if *refused == exam.version && !by_person =>
                    {
                        Some(Refusal::NeedsChange { why: why.clone() })
                    }
                    _ => None,
                })
            }
            (_, Some(Standing { ruling, approval, obstacle })) => {
                self.mode(now, case, remedy, ruling, *approval, by_person).or_else(|| obstacle.clone())
            }
            (_, None) => Some(Refusal::NotReady { why: "the pods that use it were not read".into() }),
        }
    }

    fn mode(
        &self,
        now: Timestamp,
        case: &Case,
        remedy: Remedy,
        Ruling { mode, source }: &Ruling,
        approval: Approval,
        by_person: bool,
    ) -> Option<Refusal> {
        let by = || source.clone();
        match mode {
            Mode::Off => Some(Refusal::Off { by: by(), remedy }),
            Mode::Observe if !by_person => Some(Refusal::Observe { by: by(), remedy }),
            Mode::Approve if !by_person && !self.is_approved(now, case, approval) => {
                Some(Refusal::AwaitingApproval { by: by(), remedy })
            }
            Mode::Observe | Mode::Approve | Mode::Auto => None,
        }
    }

    fn is_approved(&self, now: Timestamp, case: &Case, approval: Approval) -> bool {
        // Nobody can have agreed to a mere check.
        let since = case.unhealthy.as_ref().and_then(|_| case.since());
        since.is_some_and(|since| consents(&self.policy, now, since, approval))
    }
}

/// No remedy that is switched on helps against what is reported, if anything is.
pub(super) fn nothing_to_heal() -> Refusal {
    Refusal::NotBound { why: "nothing is wrong with it that could be healed".into() }
}

/// Consent is valid for the problem that began at this time: given after that, not too long ago, and not in the future beyond
/// what two clocks may differ.
fn consents(policy: &Policy, now: Timestamp, since: Timestamp, approval: Approval) -> bool {
    let Approval::Given(at) = approval else { return false };
    let age = now.duration_since(at);
    at >= since && age <= policy.approval && age >= -policy.debounce.max(case::CLOCKS)
}

/// What the rules and the claim say against the next eviction of an attempt that they allowed when it began. Pods are
/// recreated; a person who asked for that overrides everything but `off`.
pub(crate) fn withdrawn(
    policy: &Policy,
    now: Timestamp,
    since: Option<Timestamp>,
    began: &Standing,
    standing: &Standing,
    by_person: bool,
) -> Option<Refusal> {
    let Standing { ruling: Ruling { mode, source }, approval, obstacle: _ } = standing;
    let (by, remedy) = (source.clone(), Remedy::RecreatePods);
    match mode {
        Mode::Off => Some(Refusal::Off { by, remedy }),
        _ if by_person => None,
        Mode::Observe => Some(Refusal::Observe { by, remedy }),
        Mode::Approve => {
            // The attempt may last longer than the consent that began it.
            let same = began.ruling.mode == Mode::Approve
                && *approval != Approval::None
                && *approval == began.approval;
            let valid = same || since.is_some_and(|since| consents(policy, now, since, *approval));
            (!valid).then_some(Refusal::AwaitingApproval { by, remedy })
        }
        Mode::Auto => None,
    }
}
