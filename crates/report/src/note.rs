//! Things that happen once and are reported once: each is one event, whose name is made of what happened. A process that reports it again,
//! after a restart or in another replica, finds it there and leaves it alone.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, PostParams};
use volmedic_api::ObjectRef;
use volmedic_health::Transition;

use crate::events::{cut, involved, name, namespace, text};
use crate::failure::{Failure, call};
use crate::metrics::Reports;
use crate::sender::{Courier, Gate, Job, Limits, Outcome, Outlet, Sender};
use crate::story::fingerprint;
use crate::{Verdict, Voice};

/// One thing that happened to an object.
#[derive(Debug, Clone)]
pub struct Note {
    pub object: ObjectRef,
    pub reason: &'static str,
    pub warning: bool,
    pub message: String,
    pub at: Timestamp,
    /// What distinguishes it from everything else that happens to the object.
    pub which: String,
}

impl Note {
    /// A transition as one event; `None` if it is not worth one.
    pub fn of(object: ObjectRef, transition: &Transition, which: String) -> Option<Self> {
        let (reason, warning, _) = text::reason(transition)?;
        let message = text::message(transition, None);
        Some(Self { object, reason, warning, message, at: transition.at, which })
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(&[&self.object.uid, self.reason, &self.which])
    }

    fn event(&self, voice: &Voice) -> Event {
        let at = Some(Time(self.at));
        Event {
            metadata: ObjectMeta {
                name: Some(name(&self.object, self.fingerprint())),
                namespace: Some(namespace(&self.object).to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: involved(&self.object),
            type_: Some(if self.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(self.reason.to_owned()),
            message: Some(cut(self.message.clone())),
            count: Some(1),
            first_timestamp: at.clone(),
            last_timestamp: at,
            source: Some(EventSource { component: Some(voice.component.clone()), host: voice.host.clone() }),
            reporting_component: Some(voice.component.clone()),
            reporting_instance: Some(voice.instance.clone()),
            ..Event::default()
        }
    }
}

/// Sends notes: bounded, paced, again after a failure, in order for each object. Dropping it forgets what waits.
#[derive(Debug)]
pub struct Notes {
    sender: Sender<Clerk>,
}

impl Notes {
    /// Give it a client that does not try again by itself.
    pub fn start(client: &Client, voice: Voice, limits: &Limits, reports: Reports) -> Self {
        let clerk = Arc::new(Clerk { client: client.clone(), voice });
        Self { sender: Sender::start(clerk, limits, reports) }
    }

    /// Does not wait.
    pub fn tell(&self, note: Note) {
        self.sender.push(Letter::of(note));
    }

    /// Returns when the API server has it, or will not take it. An error is a sentence: it could not be sent at this
    /// moment, nothing is kept of it, and the caller may try again.
    pub async fn deliver(&self, note: Note) -> Result<Verdict, String> {
        let letter = Letter::of(note);
        match self.sender.send_now(&letter).await {
            Outcome::Done(verdict) => Ok(verdict),
            Outcome::Failed(Failure::Away(why) | Failure::Busy { why, .. }) => Err(why),
            // Whether it is forbidden for good, and who hears of that, is decided where all others are.
            Outcome::Failed(_) => {
                self.sender.push(letter);
                Ok(Verdict::Retried)
            }
        }
    }

    /// Waits until all is sent, but no longer than `limit`; answers how much is left.
    pub async fn flush(&self, limit: Duration) -> usize {
        self.sender.flush(limit).await
    }
}

struct Clerk {
    client: Client,
    voice: Voice,
}

impl std::fmt::Debug for Clerk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clerk").field("voice", &self.voice).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Letter {
    lane: Arc<str>,
    note: Note,
}

impl Letter {
    fn of(note: Note) -> Self {
        Self { lane: (&*note.object.uid).into(), note }
    }
}

impl Job for Letter {
    fn object(&self) -> &Arc<str> {
        &self.lane
    }

    fn is_same_story(&self, other: &Self) -> bool {
        self.note.fingerprint() == other.note.fingerprint()
    }

    fn absorb(&mut self, _: Self) {}

    fn is_minor(&self) -> bool {
        false
    }
}

impl Courier for Clerk {
    type Job = Letter;

    fn outlet(_: &Letter) -> Outlet {
        Outlet::Event
    }

    fn describe(job: &Letter) -> String {
        format!("an event on {}", job.note.object)
    }

    fn reconnected(&self) {}

    fn forbidden(&self, _: Outlet) {}

    async fn send(&self, job: &Letter, gate: &Gate) -> Outcome {
        let api = Api::<Event>::namespaced(self.client.clone(), namespace(&job.note.object));
        gate.pass().await;
        match call(api.create(&PostParams::default(), &job.note.event(&self.voice))).await {
            Ok(_) => Outcome::Done(Verdict::Sent),
            Err(Failure::Exists) => Outcome::Done(Verdict::Already),
            Err(failure) => Outcome::Failed(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use volmedic_api::Kind;

    use super::*;

    #[test]
    fn the_same_happening_has_the_same_name_whenever_it_is_reported() {
        let note = |uid: &str, reason: &'static str, which: &str, second: i64| Note {
            object: ObjectRef::new(Kind::Pod, "shop", "web-0", uid),
            reason,
            warning: false,
            message: "ü".repeat(2000),
            at: Timestamp::from_second(second).unwrap(),
            which: which.to_owned(),
        };
        let voice = Voice::of_healer("me");
        let name = |note: &Note| note.event(&voice).metadata.name.unwrap();
        let first = note("1", "HealingStarted", "a", 1);
        assert_eq!(name(&first), name(&note("1", "HealingStarted", "a", 2)));
        for other in [
            note("2", "HealingStarted", "a", 1),
            note("1", "HealingFailed", "a", 1),
            note("1", "HealingStarted", "b", 1),
        ] {
            assert_ne!(name(&first), name(&other));
        }
        let event = first.event(&voice);
        assert!(event.message.unwrap().len() <= 1024);
        assert_eq!(event.source.unwrap().component.as_deref(), Some("volmedic-healer"));
    }
}
