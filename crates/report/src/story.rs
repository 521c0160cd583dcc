//! What an event says for machines: enough to know, after a restart, what had been reported and whether it is over.

use std::collections::BTreeMap;
use std::hash::Hasher;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use volmedic_health::{Change, Condition, Held, Reason, Subject, Transition};

/// The annotation that carries a [`Story`].
pub(crate) const ANNOTATION: &str = "volmedic.dev/story";
/// Statuses whose end one story remembers; there are three, and what newer drivers may add.
const MAX_REPLACED: usize = 8;
/// A story with a longer handle is reported without the annotation. The CSI specification allows 128 bytes.
const MAX_HANDLE: usize = 2048;

/// One line of news about one thread, as JSON in an annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Story {
    #[serde(flatten)]
    pub(crate) thread: Thread,
    pub(crate) kind: String,
    /// What the condition says of itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    pub(crate) since: Timestamp,
    /// When the transition happened: a process that finds its own time here has reported it already.
    pub(crate) at: Timestamp,
    pub(crate) state: Open,
    /// Which statuses this one took the place of under the same reason, and when it last did.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) replaces: BTreeMap<String, Timestamp>,
}

/// What news can be about; all news with the same thread are one story.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Thread {
    pub(crate) driver: String,
    /// Absent for a backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handle: Option<String>,
    pub(crate) vantage: String,
    pub(crate) about: About,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum About {
    Condition,
    #[serde(rename = "blindness")] // tidy-ok: what events store
    Unseen,
    Flapping,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Open {
    Open,
    Closed,
}

impl Story {
    pub(crate) fn of(transition: &Transition) -> Self {
        let Transition { at, subject, vantage, change } = transition;
        let (about, condition, since, state) = match change {
            Change::Appeared { condition, since }
            | Change::Reworded { condition, since }
            | Change::Reminder { condition, since }
            | Change::Changed { to: condition, since, from: _ } => {
                (About::Condition, Some(condition), since, Open::Open)
            }
            Change::Cleared { condition, since, ending: _ } => {
                (About::Condition, Some(condition), since, Open::Closed)
            }
            Change::Flapping { since, changes: _, now: _ } => (About::Flapping, None, since, Open::Open),
            Change::Settled { since, ending: _ } => (About::Flapping, None, since, Open::Closed),
            Change::WentBlind { since, why: _, looks: _ } => (About::Unseen, None, since, Open::Open),
            Change::SeesAgain { since, ending: _ } => (About::Unseen, None, since, Open::Closed),
        };
        let replaces = match change {
            Change::Changed { from, .. } => BTreeMap::from([(from.status.to_string(), *at)]),
            _ => BTreeMap::new(),
        };
        Self {
            thread: Thread {
                driver: subject.driver().to_string(),
                handle: match subject {
                    Subject::Volume(volume) => Some(volume.handle.to_string()),
                    Subject::Backend(_) => None,
                },
                vantage: vantage.name(),
                about,
                status: condition.map(|condition| condition.status.to_string()),
                reason: condition.map(|condition| condition.reason.to_string()),
            },
            kind: change.kind().to_owned(),
            message: condition.map(|condition| condition.message.to_string()).unwrap_or_default(),
            since: *since,
            at: *at,
            state,
            replaces,
        }
    }

    /// Keeps what the event knew that this news takes the place of: which other statuses had ended in this one.
    pub(crate) fn after(mut self, older: Option<Self>) -> Self {
        for (status, at) in older.into_iter().flat_map(|older| older.replaces) {
            if self.replaces.len() < MAX_REPLACED {
                self.replaces.entry(status).or_insert(at);
            }
        }
        self
    }

    /// As an annotation, unless that would be unreasonably long.
    pub(crate) fn write(&self) -> Option<String> {
        let short = self.thread.handle.as_ref().is_none_or(|handle| handle.len() <= MAX_HANDLE);
        if short { serde_json::to_string(self).ok() } else { None }
    }

    pub(crate) fn read(annotation: &str) -> Option<Self> {
        serde_json::from_str(annotation).ok()
    }

    pub(crate) fn held(&self) -> Option<Held> {
        let condition = Condition::new(
            self.thread.status.as_deref()?.parse().ok()?,
            Reason::new(self.thread.reason.as_deref()?),
            &self.message,
        );
        Some(Held { condition, since: self.since })
    }
}

impl Thread {
    pub(crate) fn subject(&self) -> Subject {
        match &self.handle {
            Some(handle) => Subject::volume(self.driver.as_str(), handle.as_str()),
            None => Subject::backend(self.driver.as_str()),
        }
    }

    /// The same on every run and in every release: event names are made of it.
    pub(crate) fn fingerprint(&self, uid: &str, good_news: bool) -> u64 {
        let Self { driver, handle, vantage, about, status, reason } = self;
        let about = match about {
            About::Condition => "condition",
            About::Unseen => "blindness", // tidy-ok: what events store
            About::Flapping => "flapping",
        };
        let optional = |text: &Option<String>| text.clone().unwrap_or_default();
        let ending = if good_news { "end" } else { "trouble" };
        fingerprint(&[
            uid,
            driver,
            &optional(handle),
            vantage,
            about,
            &optional(status),
            &optional(reason),
            ending,
        ])
    }
}

/// The same on every run and in every release.
pub(crate) fn fingerprint(parts: &[&str]) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    for part in parts {
        hash.write(part.as_bytes());
        // No text holds this byte, so no two lists of parts look alike.
        hash.write(&[0xff]);
    }
    hash.finish()
}

/// FNV-1a, because the standard hashers promise nothing across builds.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use volmedic_health::{Conditions, Ending, Status, Vantage, Why, WhyKind};

    use super::*;

    fn transition(change: Change) -> Transition {
        Transition {
            at: "2026-08-21T10:14:30.123456789Z".parse().unwrap(),
            subject: Subject::volume("disk.example.net", "vol-1"),
            vantage: Vantage::Pushed("smart/d".into()),
            change,
        }
    }

    /// An account that may create events may write anything there.
    #[test]
    fn fuzz_event_story() {
        volmedic_testkit::fuzz("event-story", |bytes| {
            let Some(story) = std::str::from_utf8(bytes).ok().and_then(Story::read) else { return false };
            let _ = (story.held(), story.thread.subject(), story.thread.fingerprint("uid", true));
            if let Some(written) = story.write() {
                let read = Story::read(&written).expect("what was written is read");
                assert_eq!(read.write(), Some(written), "and nothing of it is lost");
            }
            true
        });
    }

    /// As version 0.1 wrote it on an event. A controller of this version that starts finds there what was reported, and
    /// by the event's name that it is the same event.
    #[test]
    fn an_event_of_an_earlier_version_is_read() {
        let annotation = r#"{"driver":"disk.example.net","handle":"vol-1","vantage":"controller","about":"condition","status":"Inaccessible","reason":"VolumeNotFound","kind":"Appeared","message":"the driver does not know the volume","since":"2026-10-30T08:00:00Z","at":"2026-10-30T08:00:05.5Z","state":"open","replaces":{"Degraded":"2026-10-30T07:59:00Z"}}"#;
        let story = Story::read(annotation).expect("it is read");
        assert_eq!(story.write().as_deref(), Some(annotation), "and nothing of it is lost");
        assert_eq!(story.thread.subject(), Subject::volume("disk.example.net", "vol-1"));
        assert_eq!(story.thread.vantage.parse(), Ok(Vantage::Controller));
        let held = story.held().expect("it tells of a condition");
        assert_eq!(
            (held.condition.status, held.condition.reason.as_str()),
            (Status::Inaccessible, "VolumeNotFound")
        );
        assert_eq!((story.state, story.thread.about), (Open::Open, About::Condition));
        assert_eq!(story.thread.fingerprint("b1ff", false), 0x796e_bb09_922e_dab9);
        assert_eq!(story.thread.fingerprint("b1ff", true), 0xfefc_e86c_90aa_2433);
    }

    #[test]
    fn every_kind_of_news_survives_the_annotation() {
        let since = "2026-08-21T10:02:00Z".parse().unwrap();
        let condition = Condition::new(Status::Unrecognized(7), Reason::new("Haunted"), "boo \"quoted\"");
        let other = Condition::new(Status::Degraded, Reason::new("Haunted"), "");
        let (c, ending) = (|| condition.clone(), Ending::Recovered);
        for (change, state) in [
            (Change::Appeared { condition: c(), since }, Open::Open),
            (Change::Changed { from: other, to: c(), since }, Open::Open),
            (Change::Reminder { condition: c(), since }, Open::Open),
            (Change::Cleared { condition: c(), since, ending }, Open::Closed),
            (Change::Flapping { changes: 3, since, now: Conditions::default() }, Open::Open),
            (Change::Settled { since, ending }, Open::Closed),
            (Change::WentBlind { why: Why::new(WhyKind::Silent, ""), since, looks: 3 }, Open::Open),
            (Change::SeesAgain { since, ending }, Open::Closed),
        ] {
            let story = Story::of(&transition(change.clone()));
            let again = Story::read(&story.write().unwrap()).unwrap();
            assert_eq!(again, story);
            assert_eq!(again.state, state, "{}", again.kind);
            assert_eq!(again.at, transition(change.clone()).at, "to the nanosecond");
            assert_eq!(again.thread.vantage.parse(), Ok(Vantage::Pushed("smart/d".into())));
            if story.thread.about == About::Condition {
                assert_eq!(again.held(), Some(Held { condition: c(), since }));
            }
            assert_eq!(again.replaces.len() == 1, matches!(change, Change::Changed { .. }));
        }
    }

    #[test]
    fn each_part_of_a_thread_makes_another_name_and_names_never_change() {
        let base = Thread {
            driver: "d".to_owned(),
            handle: Some("h".to_owned()),
            vantage: "controller".to_owned(),
            about: About::Condition,
            status: Some("Degraded".to_owned()),
            reason: Some("X".to_owned()),
        };
        // Written down once: a release that names events otherwise would repeat everything.
        assert_eq!(format!("{:016x}", base.fingerprint("uid", false)), "fedd22dd536d2e51");
        let mut seen =
            vec![base.fingerprint("uid", false), base.fingerprint("uid", true), base.fingerprint("u", false)];
        let others: [fn(&mut Thread); 6] = [
            |t| t.driver = "e".to_owned(),
            |t| t.handle = None,
            |t| t.vantage = "cluster".to_owned(),
            |t| t.about = About::Flapping,
            |t| t.status = Some("DataLoss".to_owned()),
            |t| t.reason = Some("Y".to_owned()),
        ];
        for change in others {
            let mut thread = base.clone();
            change(&mut thread);
            seen.push(thread.fingerprint("uid", false));
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn what_an_event_knew_of_other_statuses_outlives_its_reminders() {
        let since = "2026-08-21T10:02:00Z".parse().unwrap();
        let of = |status| Condition::new(status, Reason::new("X"), "");
        let (from, to) = (of(Status::Degraded), of(Status::DataLoss));
        let changed = Story::of(&transition(Change::Changed { from, to: to.clone(), since }));
        let reminder =
            Story::of(&transition(Change::Reminder { condition: to, since })).after(Some(changed.clone()));
        assert_eq!(reminder.replaces, changed.replaces);
        assert_eq!(reminder.replaces.keys().collect::<Vec<_>>(), ["Degraded"]);
    }

    #[test]
    fn a_handle_without_measure_is_reported_without_the_annotation() {
        let mut story = Story::of(&transition(Change::Settled {
            since: Timestamp::UNIX_EPOCH,
            ending: Ending::Recovered,
        }));
        story.thread.handle = Some("x".repeat(MAX_HANDLE + 1));
        assert_eq!(story.write(), None);
    }
}
