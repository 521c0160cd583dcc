//! A volume's past as stretches of time, one lane for each vantage.

use std::sync::Arc;

use jiff::Timestamp;
use volmedic_health::{Health, Vantage};

use crate::{Moment, Sighting};

/// How something was seen from one vantage, stretch by stretch, oldest first, up to now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    pub vantage: Vantage,
    /// What is worst of all vantages together; `vantage` then means nothing.
    pub whole: bool,
    /// Whether it is about the storage behind the driver, not about the volume.
    pub backend: bool,
    pub spans: Vec<Span>,
}

/// One stretch of time in which nothing changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub from: Timestamp,
    pub to: Timestamp,
    pub health: Health,
    /// What was wrong.
    pub reason: Box<str>,
    /// It lasts until now.
    pub open: bool,
}

/// From what changed, oldest first, to lanes. What was before the first change is not known and has no span.
pub fn lanes(moments: &[Arc<Moment>], now: Timestamp) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = Vec::new();
    for moment in moments {
        let backend = moment.volume.is_none();
        let is_its = |lane: &&mut Lane| {
            lane.whole == moment.whole
                && lane.backend == backend
                && (lane.whole || lane.vantage == moment.vantage)
        };
        let lane = match lanes.iter_mut().find(is_its) {
            Some(lane) => lane,
            None => {
                let vantage = moment.vantage.clone();
                lanes.push(Lane { vantage, whole: moment.whole, backend, spans: Vec::new() });
                lanes.last_mut().expect("pushed above")
            }
        };
        let reason: Box<str> = match moment.standing.first() {
            Some(standing) => standing.reason.clone(),
            None if moment.blind_since.is_some() => NOT_SEEN.into(),
            None => Box::default(),
        };
        let mut from = moment.since();
        if let Some(last) = lane.spans.last_mut() {
            if last.health == moment.health && last.reason == reason {
                continue;
            }
            from = from.max(last.from);
            last.to = from;
            last.open = false;
        }
        lane.spans.push(Span { from, to: now.max(from), health: moment.health, reason, open: true });
    }
    order(&mut lanes);
    lanes
}

/// The same, with what stands from vantages of which no change is known: it began before anybody kept count here.
pub fn lanes_with(moments: &[Arc<Moment>], seen_by: &[Sighting], now: Timestamp) -> Vec<Lane> {
    let mut lanes = lanes(moments, now);
    for sighting in seen_by {
        let known = |lane: &Lane| !lane.whole && !lane.backend && lane.vantage == sighting.vantage;
        let Some(from) = sighting.since().filter(|_| !lanes.iter().any(known)) else { continue };
        let reason = match sighting.conditions.first() {
            Some(held) => held.condition.reason.as_str().into(),
            None => NOT_SEEN.into(),
        };
        let span = Span { from, to: now.max(from), health: sighting.health, reason, open: true };
        let vantage = sighting.vantage.clone();
        lanes.push(Lane { vantage, whole: false, backend: false, spans: vec![span] });
    }
    order(&mut lanes);
    lanes
}

/// What is said where a reason would be.
const NOT_SEEN: &str = "not seen";

fn order(lanes: &mut [Lane]) {
    lanes.sort_by(|a, b| (a.backend, !a.whole, &a.vantage).cmp(&(b.backend, !b.whole, &b.vantage)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use volmedic_health::{Condition, Ledger, Policy, Reason, Sight, Status, Subject, WhyKind};

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    fn shown(lanes: &[Lane]) -> Vec<String> {
        let minutes = |time: Timestamp| time.as_second() / 60;
        let span = |span: &Span| {
            let open = if span.open { "…" } else { "" };
            format!("{}-{}{open} {} {}", minutes(span.from), minutes(span.to), span.health, span.reason)
        };
        lanes.iter().map(|lane| lane.spans.iter().map(span).collect::<Vec<_>>().join(", ")).collect()
    }

    #[test]
    fn each_vantage_has_a_lane_of_stretches_without_gaps() {
        let mut ledger = Ledger::new(Policy { blind_after: 1, ..Policy::default() });
        let volume = Subject::volume("d", "v");
        let sick = |status, reason: &str| Sight::adverse([Condition::new(status, Reason::new(reason), "")]);
        let node = Vantage::Node("w".into());
        let mut moments = Vec::new();
        for (minute, subject, vantage, sight) in [
            (1, &volume, &Vantage::Controller, sick(Status::Degraded, "SlowIO")),
            (3, &volume, &node, sick(Status::Inaccessible, "VolumeUnmounted")),
            (4, &volume, &Vantage::Controller, sick(Status::Inaccessible, "DiskFailure")),
            (6, &volume, &Vantage::Controller, Sight::Healthy),
            (7, &Subject::backend("d"), &Vantage::Controller, Sight::not_seen(WhyKind::Unreachable, "")),
        ] {
            for transition in ledger.record(at(minute), subject, vantage, sight) {
                let beliefs = ledger.beliefs(subject);
                let belief =
                    beliefs.iter().find(|(v, _)| **v == transition.vantage).map(|(_, belief)| belief);
                moments.push(Arc::new(Moment::new(&transition, belief)));
            }
        }
        assert_eq!(
            shown(&lanes(&moments, at(9))),
            [
                "1-4 Degraded SlowIO, 4-6 Inaccessible DiskFailure, 6-9… Healthy ",
                "3-9… Inaccessible VolumeUnmounted",
                "7-9… Unknown not seen"
            ]
        );
        assert_eq!(lanes(&[], at(9)), []);

        // What began before the first change that is known has a lane too, and no vantage has two.
        let seen_by: Vec<Sighting> = ledger.beliefs(&volume).into_iter().map(Into::into).collect();
        let late = &moments[..1];
        assert_eq!(
            shown(&lanes_with(late, &seen_by, at(9))),
            ["1-9… Degraded SlowIO", "3-9… Inaccessible VolumeUnmounted"]
        );
    }

    #[test]
    fn the_worst_of_all_vantages_is_one_lane() {
        let moment = |minute, node: &str, health: Health| {
            let transition = volmedic_health::Transition {
                at: at(minute),
                subject: Subject::volume("d", "v"),
                vantage: Vantage::Host(node.into()),
                change: volmedic_health::Change::SeesAgain {
                    since: at(minute),
                    ending: volmedic_health::Ending::Recovered,
                },
            };
            Arc::new(Moment { whole: true, health, ..Moment::new(&transition, None) })
        };
        let moments = [moment(1, "a", Health::Adverse(Status::Degraded)), moment(4, "b", Health::Healthy)];
        assert_eq!(shown(&lanes(&moments, at(9))), ["1-4 Degraded , 4-9… Healthy "]);
    }
}
