//! What is remembered, as it is written: plain words that a later release can still read.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{
    Change, Condition, Conditions, Ending, Held, Memo, Reason, Subject, Transition, Volume, Why, WhyKind,
};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConditionWords {
    status: String,
    reason: String,
    #[serde(default)]
    message: String,
}

impl ConditionWords {
    fn of(condition: &Condition) -> Self {
        Self {
            status: condition.status.to_string(),
            reason: condition.reason.to_string(),
            message: condition.message.to_string(),
        }
    }

    fn read(self) -> Option<Condition> {
        Some(Condition::new(self.status.parse().ok()?, Reason::new(&self.reason), &self.message))
    }
}

/// A driver's volume, or all of its storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubjectWords {
    driver: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
}

impl SubjectWords {
    fn of(subject: &Subject) -> Self {
        let handle = match subject {
            Subject::Volume(volume) => Some(volume.handle.to_string()),
            Subject::Backend(_) => None,
        };
        Self { driver: subject.driver().to_string(), handle }
    }

    fn read(self) -> Subject {
        match self.handle {
            Some(handle) => Subject::volume(self.driver, handle),
            None => Subject::backend(self.driver),
        }
    }
}

/// What was reported of one subject from one vantage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoWords {
    #[serde(flatten)]
    subject: SubjectWords,
    vantage: String,
    #[serde(rename = "told")]
    reported: Vec<HeldWords>,
    #[serde(rename = "told_at")]
    reported_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blind_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flapping_since: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HeldWords {
    #[serde(flatten)]
    condition: ConditionWords,
    since: Timestamp,
}

impl MemoWords {
    pub(crate) fn of(memo: &Memo) -> Self {
        let Memo { subject, vantage, reported, reported_at, blind_since, flapping_since } = memo;
        let held =
            |held: &Held| HeldWords { condition: ConditionWords::of(&held.condition), since: held.since };
        Self {
            subject: SubjectWords::of(subject),
            vantage: vantage.name(),
            reported: reported.iter().map(held).collect(),
            reported_at: *reported_at,
            blind_since: *blind_since,
            flapping_since: *flapping_since,
        }
    }

    /// `None` for what a later release wrote and this one has no word for.
    pub(crate) fn read(self) -> Option<Memo> {
        let Self { subject, vantage, reported, reported_at, blind_since, flapping_since } = self;
        let held = |HeldWords { condition, since }| Some(Held { condition: condition.read()?, since });
        Some(Memo {
            subject: subject.read(),
            vantage: vantage.parse().ok()?,
            reported: reported.into_iter().map(held).collect::<Option<_>>()?,
            reported_at,
            blind_since,
            flapping_since,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectWords {
    kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    uid: String,
}

impl ObjectWords {
    pub(crate) fn of(object: &ObjectRef) -> Self {
        let ObjectRef { kind, namespace, name, uid } = object;
        Self {
            kind: kind.as_str().to_owned(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            uid: uid.to_string(),
        }
    }

    pub(crate) fn read(self) -> Option<ObjectRef> {
        let kinds = [Kind::Pod, Kind::Node, Kind::PersistentVolumeClaim];
        let kind = kinds.into_iter().find(|kind| kind.as_str() == self.kind)?;
        Some(ObjectRef::new(kind, &self.namespace, &self.name, &self.uid))
    }
}

/// The pods that were informed of the trouble of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AudienceWords {
    driver: String,
    handle: String,
    #[serde(rename = "told")]
    reported: Vec<ObjectWords>,
}

impl AudienceWords {
    pub(crate) fn of((volume, reported): &(Volume, Vec<ObjectRef>)) -> Self {
        Self {
            driver: volume.driver.to_string(),
            handle: volume.handle.to_string(),
            reported: reported.iter().map(ObjectWords::of).collect(),
        }
    }

    pub(crate) fn read(self) -> Option<(Volume, Vec<ObjectRef>)> {
        let reported = self.reported.into_iter().map(ObjectWords::read).collect::<Option<_>>()?;
        Some((Volume { driver: self.driver.into(), handle: self.handle.into() }, reported))
    }
}

/// A change that is still on its way to the API server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TransitionWords {
    at: Timestamp,
    #[serde(flatten)]
    subject: SubjectWords,
    vantage: String,
    since: Timestamp,
    #[serde(flatten)]
    change: ChangeWords,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
enum ChangeWords {
    Appeared { condition: ConditionWords },
    Changed { from: ConditionWords, condition: ConditionWords },
    Reworded { condition: ConditionWords },
    Reminder { condition: ConditionWords },
    Cleared { condition: ConditionWords, ending: EndingWord },
    Flapping { changes: u32, now: Vec<ConditionWords> },
    Settled { ending: EndingWord },
    WentBlind { why: WhyWord, detail: String, looks: u32 },
    SeesAgain { ending: EndingWord },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EndingWord {
    Recovered,
    LeftInventory,
    VantageGone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WhyWord {
    Unreachable,
    TimedOut,
    Failed,
    NoAnswer,
    Incomplete,
    Malformed,
    Silent,
}

impl TransitionWords {
    pub(crate) fn of(transition: &Transition) -> Self {
        use ConditionWords as C;
        let Transition { at, subject, vantage, change } = transition;
        let (since, change) = match change {
            Change::Appeared { condition, since } => {
                (since, ChangeWords::Appeared { condition: C::of(condition) })
            }
            Change::Changed { from, to, since } => {
                (since, ChangeWords::Changed { from: C::of(from), condition: C::of(to) })
            }
            Change::Reworded { condition, since } => {
                (since, ChangeWords::Reworded { condition: C::of(condition) })
            }
            Change::Reminder { condition, since } => {
                (since, ChangeWords::Reminder { condition: C::of(condition) })
            }
            Change::Cleared { condition, since, ending } => {
                (since, ChangeWords::Cleared { condition: C::of(condition), ending: (*ending).into() })
            }
            Change::Flapping { changes, since, now } => {
                (since, ChangeWords::Flapping { changes: *changes, now: now.iter().map(C::of).collect() })
            }
            Change::Settled { since, ending } => (since, ChangeWords::Settled { ending: (*ending).into() }),
            Change::WentBlind { why, since, looks } => (
                since,
                ChangeWords::WentBlind {
                    why: why.kind.into(),
                    detail: why.detail.to_string(),
                    looks: *looks,
                },
            ),
            Change::SeesAgain { since, ending } => {
                (since, ChangeWords::SeesAgain { ending: (*ending).into() })
            }
        };
        Self { at: *at, subject: SubjectWords::of(subject), vantage: vantage.name(), since: *since, change }
    }

    pub(crate) fn read(self) -> Option<Transition> {
        let Self { at, subject, vantage, since, change } = self;
        let change = match change {
            ChangeWords::Appeared { condition } => Change::Appeared { condition: condition.read()?, since },
            ChangeWords::Changed { from, condition } => {
                Change::Changed { from: from.read()?, to: condition.read()?, since }
            }
            ChangeWords::Reworded { condition } => Change::Reworded { condition: condition.read()?, since },
            ChangeWords::Reminder { condition } => Change::Reminder { condition: condition.read()?, since },
            ChangeWords::Cleared { condition, ending } => {
                Change::Cleared { condition: condition.read()?, since, ending: ending.into() }
            }
            ChangeWords::Flapping { changes, now } => {
                let now: Vec<Condition> = now.into_iter().map(ConditionWords::read).collect::<Option<_>>()?;
                Change::Flapping { changes, since, now: Conditions::new(now) }
            }
            ChangeWords::Settled { ending } => Change::Settled { since, ending: ending.into() },
            ChangeWords::WentBlind { why, detail, looks } => {
                Change::WentBlind { why: Why::new(why.into(), &detail), since, looks }
            }
            ChangeWords::SeesAgain { ending } => Change::SeesAgain { since, ending: ending.into() },
        };
        Some(Transition { at, subject: subject.read(), vantage: vantage.parse().ok()?, change })
    }
}

/// Two enums with the same names, turned into each other without a default.
macro_rules! same_words {
    ($ours:ident, $theirs:ident: $($name:ident),+) => {
        impl From<$theirs> for $ours {
            fn from(theirs: $theirs) -> Self {
                match theirs { $($theirs::$name => Self::$name),+ }
            }
        }
        impl From<$ours> for $theirs {
            fn from(ours: $ours) -> Self {
                match ours { $($ours::$name => Self::$name),+ }
            }
        }
    };
}

same_words!(EndingWord, Ending: Recovered, LeftInventory, VantageGone);
same_words!(WhyWord, WhyKind: Unreachable, TimedOut, Failed, NoAnswer, Incomplete, Malformed, Silent);

#[cfg(test)]
mod tests {
    use volmedic_health::{Status, Vantage};

    use super::*;

    fn condition(reason: &str) -> Condition {
        Condition::new(Status::Inaccessible, Reason::new(reason), "a \"quoted\" text\u{0} with ünicode")
    }

    /// A line of the journal as version 0.1 wrote it: detectors were called `reporter` then.
    #[test]
    fn a_journal_line_that_an_earlier_version_wrote_is_read() {
        let at = "2026-08-21T10:14:30Z".parse().unwrap();
        let change = Change::Appeared { condition: condition("SlowIO"), since: at };
        let vantage = Vantage::Pushed("scan".into());
        let transition = Transition { at, subject: Subject::volume("d", "h"), vantage, change };
        let written = serde_json::to_string(&TransitionWords::of(&transition)).unwrap();
        assert!(written.contains(r#""pushed/scan""#), "{written}");
        let old = written.replace("pushed/scan", "reporter/scan");
        let read: TransitionWords = serde_json::from_str(&old).unwrap();
        assert_eq!(read.read(), Some(transition), "{old}");
    }

    #[test]
    fn every_change_is_read_as_it_was_written() {
        let (since, ending) = ("2026-08-21T10:02:00.5Z".parse().unwrap(), Ending::LeftInventory);
        let c = || condition("VolumeUnmounted");
        for change in [
            Change::Appeared { condition: c(), since },
            Change::Changed { from: condition("X"), to: c(), since },
            Change::Reworded { condition: c(), since },
            Change::Reminder { condition: c(), since },
            Change::Cleared { condition: c(), since, ending },
            Change::Flapping { changes: 9, since, now: Conditions::new([c(), condition("Odd_Reason")]) },
            Change::Settled { since, ending: Ending::Recovered },
            Change::WentBlind { why: Why::new(WhyKind::TimedOut, "10 s"), since, looks: 3 },
            Change::SeesAgain { since, ending: Ending::VantageGone },
        ] {
            for subject in [Subject::volume("d", "h\n\"x"), Subject::backend("d")] {
                let at = "2026-08-21T10:14:30.123456789Z".parse().unwrap();
                let vantage = Vantage::Host("worker-7".into());
                let reported = Transition { at, subject, vantage, change: change.clone() };
                let text = serde_json::to_string(&TransitionWords::of(&reported)).unwrap();
                let read: TransitionWords = serde_json::from_str(&text).unwrap();
                assert_eq!(read.read().as_ref(), Some(&reported), "{text}");
            }
        }
    }

    #[test]
    fn what_this_release_has_no_word_for_is_left_out() {
        let text =
            r#"{"driver":"d","handle":"h","vantage":"moon/1","told":[],"told_at":"2026-08-21T10:14:30Z"}"#;
        let words: MemoWords = serde_json::from_str(text).unwrap();
        assert_eq!(words.read(), None);
        let text = r#"{"kind":"Spaceship","name":"x","uid":"y"}"#;
        let words: ObjectWords = serde_json::from_str(text).unwrap();
        assert_eq!(words.read(), None);
    }
}
