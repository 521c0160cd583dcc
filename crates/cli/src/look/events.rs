//! What events say of volumes, ours and external-health-monitor's, for where nothing else is stored.

use jiff::Timestamp;
use serde::Deserialize;
use volmedic_health::{Condition, Reason, Status, Vantage};

use super::shape::Event;

/// Where the events of a driver's controller come from: external-health-monitor's name for it, which ours keeps.
const CONTROLLER: &str = "csi-pv-monitor-controller-";

/// One piece of news about one thing. A later one about the same thing takes its place.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) vantage: Vantage,
    /// The driver and the handle, where the event says which volume it means.
    pub(crate) volume: Option<(Box<str>, Box<str>)>,
    /// What it is about, so that good news ends what bad news began.
    pub(crate) about: Box<str>,
    pub(crate) at: Timestamp,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Wrong(Condition, Timestamp),
    Blind(Timestamp),
    /// It is over.
    Over,
}

/// What our own events carry for machines.
#[derive(Debug, Deserialize)]
struct Story {
    driver: String,
    handle: Option<String>,
    vantage: String,
    about: String,
    status: Option<String>,
    reason: Option<String>,
    #[serde(default)]
    message: String,
    since: Timestamp,
    at: Timestamp,
    state: String,
}

impl Note {
    /// Nothing, if the event is not about the health of a volume.
    pub(crate) fn read(event: &Event) -> Option<Self> {
        let story = event.metadata.annotations.as_ref().and_then(|all| all.story.as_deref());
        match story.and_then(|text| serde_json::from_str::<Story>(text).ok()) {
            Some(story) => Self::from_story(story),
            None => Self::from_words(event),
        }
    }

    fn from_story(story: Story) -> Option<Self> {
        let vantage = story.vantage.parse().ok()?;
        let about =
            format!("{}/{}/{}", story.vantage, story.about, story.reason.as_deref().unwrap_or_default());
        let open = story.state == "open";
        let what = match (open, story.about.as_str(), story.status.as_deref()) {
            (true, "condition", Some(status)) => {
                let status = status.parse().ok()?;
                let reason = Reason::new(story.reason.as_deref().unwrap_or_default());
                What::Wrong(Condition::new(status, reason, &story.message), story.since)
            }
            (true, "blindness", _) => What::Blind(story.since), // tidy-ok: what events store
            // That it changes often says nothing of how it is.
            (true, ..) => return None,
            (false, ..) => What::Over,
        };
        let volume = story.handle.map(|handle| (story.driver.into(), handle.into()));
        Some(Self { vantage, volume, about: about.into(), at: story.at, what })
    }

    /// Events of external-health-monitor, which are made of words only.
    fn from_words(event: &Event) -> Option<Self> {
        let component = event.source.as_ref()?.component.as_deref()?;
        if !component.starts_with(CONTROLLER) {
            return None;
        }
        let at = event.at()?;
        let message = event.message.as_deref().unwrap_or_default();
        let wrong = |status, reason: &str| {
            What::Wrong(Condition::new(status, Reason::new(reason), message), event.since().unwrap_or(at))
        };
        let (vantage, about, what) = match event.reason.as_deref()? {
            "VolumeConditionAbnormal" => {
                (Vantage::Controller, "volume", wrong(Status::Degraded, "VolumeConditionAbnormal"))
            }
            "VolumeConditionNormal" => (Vantage::Controller, "volume", What::Over),
            "NodeFailed" => (Vantage::Cluster, "node", wrong(Status::Inaccessible, "NodeDown")),
            "NodeRecovered" => (Vantage::Cluster, "node", What::Over),
            _ => return None,
        };
        Some(Self { vantage, volume: None, about: about.into(), at, what })
    }
}

/// Of each thing the latest news; what is over is left out unless nothing else is said from there.
pub(crate) fn standing<'a>(notes: impl Iterator<Item = &'a Note>) -> Vec<&'a Note> {
    let mut latest: Vec<&Note> = Vec::new();
    for note in notes {
        match latest.iter_mut().find(|known| known.about == note.about && known.vantage == note.vantage) {
            Some(known) if known.at <= note.at => *known = note,
            Some(_) => {}
            None => latest.push(note),
        }
    }
    latest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event {
        serde_json::from_str(text).expect("an event")
    }

    #[test]
    fn our_own_story_and_the_words_of_others() {
        let story = r#"{\"driver\":\"d\",\"handle\":\"v\",\"vantage\":\"host/n\",\"about\":\"condition\",\"status\":\"Inaccessible\",
            \"reason\":\"IOHung\",\"kind\":\"appeared\",\"message\":\"no answer\",\"since\":\"2026-08-21T10:00:00Z\",
            \"at\":\"2026-08-21T10:00:01Z\",\"state\":\"open\"}"#
            .replace('\n', "");
        let ours = event(&format!(
            r#"{{"metadata":{{"annotations":{{"volmedic.dev/story":"{story}"}}}},"reason":"x"}}"#
        ));
        let note = Note::read(&ours).expect("it is ours");
        assert_eq!(note.vantage, Vantage::Host("n".into()));
        assert!(
            matches!(&note.what, What::Wrong(condition, _) if condition.to_string() == "Inaccessible/IOHung")
        );

        let theirs = |reason: &str, minute: u32| {
            event(&format!(
                r#"{{"reason":"{reason}","message":"disk is bad","source":{{"component":"csi-pv-monitor-controller-d"}},
                    "lastTimestamp":"2026-08-21T10:{minute:02}:00Z"}}"#
            ))
        };
        let bad = Note::read(&theirs("VolumeConditionAbnormal", 1)).expect("it is about health");
        let good = Note::read(&theirs("VolumeConditionNormal", 2)).expect("it is about health");
        assert!(matches!(standing([&bad, &good].into_iter())[..], [Note { what: What::Over, .. }]));
        assert!(matches!(standing([&good, &bad].into_iter())[..], [Note { what: What::Over, .. }]));
        assert!(Note::read(&theirs("Provisioning", 3)).is_none());
        assert!(
            Note::read(&event(r#"{"reason":"VolumeConditionAbnormal","source":{"component":"x"}}"#))
                .is_none()
        );
    }
}
