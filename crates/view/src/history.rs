//! What changed, kept within bounds, and sent to all listeners.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::broadcast;
use volmedic_health::{
    Belief, Condition, Health, Held, Memo, Reason, Status, Subject, Transition, UnknownWord, Vantage, Volume,
};

/// A listener that is further behind than this many changes is informed that some were missed.
const BACKLOG: usize = 256;

/// One change, with what stood after it. Written and read as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    pub at: Timestamp,
    pub driver: Arc<str>,
    /// Absent where it is about the storage behind the driver as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Arc<str>>,
    /// What it is called where it is used, as in `shop/data`; absent where it has no other name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_as: Option<Box<str>>,
    /// About all vantages together; `vantage` is then who saw the worst.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    #[serde(serialize_with = "write_vantage", deserialize_with = "read_words")]
    pub vantage: Vantage,
    /// As [`Change::kind`](volmedic_health::Change::kind) has it.
    pub kind: Box<str>,
    pub warning: bool,
    /// How it was seen from this vantage after the change.
    #[serde(serialize_with = "write_words", deserialize_with = "read_words")]
    pub health: Health,
    /// What was wrong after the change, worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standing: Vec<Standing>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blind_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flapping_since: Option<Timestamp>,
    /// The sentence, as the log and the events have it.
    pub text: Box<str>,
}

/// A condition as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    #[serde(serialize_with = "write_words", deserialize_with = "read_words")]
    pub status: Status,
    pub reason: Box<str>,
    pub message: Box<str>,
    pub since: Timestamp,
}

impl Moment {
    /// `belief` is what the ledger says from this vantage after the change; absent if it forgot the subject.
    pub fn new(transition: &Transition, belief: Option<&Belief>) -> Self {
        let Transition { at, subject, vantage, change } = transition;
        let volume = match subject {
            Subject::Volume(volume) => Some(volume.handle.clone()),
            Subject::Backend(_) => None,
        };
        let standing = |Held { condition, since }: &Held| Standing {
            status: condition.status,
            reason: condition.reason.as_str().into(),
            message: (&*condition.message).into(),
            since: *since,
        };
        Self {
            at: *at,
            driver: subject.driver().clone(),
            volume,
            known_as: None,
            whole: false,
            vantage: vantage.clone(),
            kind: change.kind().into(),
            warning: change.is_warning(),
            health: belief.map_or(Health::Unknown, Belief::health),
            standing: belief.map_or_else(Vec::new, |belief| belief.conditions.iter().map(standing).collect()),
            blind_since: belief.and_then(|belief| belief.blind_since),
            flapping_since: belief.and_then(|belief| belief.flapping_since),
            text: transition.to_string().into(),
        }
    }

    pub fn subject(&self) -> Subject {
        match &self.volume {
            Some(handle) => Subject::Volume(Volume { driver: self.driver.clone(), handle: handle.clone() }),
            None => Subject::Backend(self.driver.clone()),
        }
    }

    /// What a ledger needs to go on from here without reporting it again; absent where no problem was open.
    pub fn memo(&self) -> Option<Memo> {
        let held = |standing: &Standing| Held {
            condition: Condition::new(standing.status, Reason::new(&standing.reason), &standing.message),
            since: standing.since,
        };
        let open: Vec<Held> = self.standing.iter().map(held).collect();
        if open.is_empty() && self.blind_since.is_none() && self.flapping_since.is_none() {
            return None;
        }
        Some(Memo {
            subject: self.subject(),
            vantage: self.vantage.clone(),
            reported: open,
            reported_at: self.at,
            blind_since: self.blind_since,
            flapping_since: self.flapping_since,
        })
    }

    /// When what stands after this change began.
    pub fn since(&self) -> Timestamp {
        self.standing
            .first()
            .map(|standing| standing.since)
            .or(self.blind_since)
            .unwrap_or(self.at)
            .min(self.at)
    }
}

/// The latest changes, oldest first, and never more than its limit.
#[derive(Debug)]
pub struct History {
    moments: Mutex<VecDeque<Arc<Moment>>>,
    limit: usize,
    news: broadcast::Sender<Arc<Moment>>,
}

impl History {
    pub fn new(limit: usize) -> Self {
        Self { moments: Mutex::default(), limit: limit.max(1), news: broadcast::channel(BACKLOG).0 }
    }

    /// Keeps it and sends it to all listeners.
    pub fn record(&self, moment: Moment) {
        let moment = Arc::new(moment);
        self.keep(moment.clone());
        // Without a listener there is nothing to send.
        let _ = self.news.send(moment);
    }

    /// Keeps what was reported before.
    pub fn recall(&self, moments: impl IntoIterator<Item = Moment>) {
        for moment in moments {
            self.keep(Arc::new(moment));
        }
    }

    fn keep(&self, moment: Arc<Moment>) {
        let mut moments = self.moments.lock();
        if moments.len() == self.limit {
            moments.pop_front();
        }
        moments.push_back(moment);
    }

    pub fn listen(&self) -> broadcast::Receiver<Arc<Moment>> {
        self.news.subscribe()
    }

    /// The latest, newest first.
    pub fn latest(&self, count: usize) -> Vec<Arc<Moment>> {
        self.moments.lock().iter().rev().take(count).cloned().collect()
    }

    /// All that is kept about a volume and about the storage behind it, oldest first.
    pub fn of(&self, driver: &str, volume: &str) -> Vec<Arc<Moment>> {
        let about = |moment: &&Arc<Moment>| {
            *moment.driver == *driver && moment.volume.as_deref().is_none_or(|v| v == volume)
        };
        self.moments.lock().iter().filter(about).cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.moments.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.moments.lock().is_empty()
    }
}

fn write_vantage<S: Serializer>(vantage: &Vantage, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&vantage.name())
}

fn write_words<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn read_words<'de, T: FromStr<Err = UnknownWord>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use volmedic_health::{Ledger, Policy, Sight};

    fn story() -> (Ledger, Vec<Moment>) {
        let mut ledger = Ledger::new(Policy::default());
        let subject = Subject::volume("d", "v");
        let bad = Sight::adverse([
            Condition::new(Status::Inaccessible, Reason::new("DiskFailure"), "gone"),
            Condition::new(Status::Unrecognized(9), Reason::new("Odd"), ""),
        ]);
        let at = Timestamp::from_second(600).unwrap();
        let mut moments = Vec::new();
        for transition in ledger.record(at, &subject, &Vantage::Controller, bad) {
            let beliefs = ledger.beliefs(&subject);
            let belief = beliefs.iter().find(|(vantage, _)| **vantage == transition.vantage);
            moments.push(Moment::new(&transition, belief.map(|(_, belief)| belief)));
        }
        (ledger, moments)
    }

    #[test]
    fn a_moment_survives_being_written_and_a_ledger_goes_on_from_it() {
        let (ledger, moments) = story();
        let last = moments.last().unwrap();
        let written = serde_json::to_string(last).unwrap();
        assert_eq!(serde_json::from_str::<Moment>(&written).unwrap(), *last, "{written}");
        assert_eq!(last.health, Health::Adverse(Status::Inaccessible));

        let mut again = Ledger::new(Policy::default());
        again.recall(last.memo().unwrap());
        assert_eq!(again.memos(), ledger.memos());
    }

    /// As version 0.1 stored it: detectors were called `reporter` then.
    #[test]
    fn a_moment_of_an_external_detector_that_an_earlier_version_wrote_is_read() {
        let (_, moments) = story();
        let vantage = Vantage::Pushed("scan".into());
        let moment = Moment { vantage, ..moments[0].clone() };
        let written = serde_json::to_string(&moment).unwrap();
        assert!(written.contains(r#""pushed/scan""#), "{written}");
        let old = written.replace("pushed/scan", "reporter/scan");
        assert_eq!(serde_json::from_str::<Moment>(&old).unwrap(), moment, "{old}");
    }

    #[test]
    fn only_the_latest_are_kept_and_each_volume_has_its_own() {
        let (_, moments) = story();
        let history = History::new(3);
        for number in 0..5 {
            history.record(Moment { volume: Some(format!("v{number}").into()), ..moments[0].clone() });
        }
        history.record(Moment { volume: None, ..moments[0].clone() });
        assert_eq!(history.len(), 3);
        let names: Vec<_> = history.latest(9).iter().map(|moment| moment.volume.clone()).collect();
        assert_eq!(names, [None, Some("v4".into()), Some("v3".into())]);
        assert_eq!(history.of("d", "v4").len(), 2, "its own, and that of the storage behind it");
        assert_eq!(history.of("d", "v0").len(), 1);
        assert_eq!(history.of("other", "v4").len(), 0);
    }
}
