//! Wishes of people: taken from claims, carried out once, answered by an event.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout};
use volmedic_api::{Arrived, Shape};
use volmedic_heal::Place;
use volmedic_heal::healer::{Answer, Handle};

use volmedic_heal::wish::{ANSWER, FRESH, LABEL, PlaceReply, REASON, Reply, Wish, Word};
use volmedic_panics::caught;

use super::turns::{Key, Turns};

const CALL: Duration = Duration::from_secs(15);
/// Beyond the healer's own patience.
const GRACE: Duration = Duration::from_secs(45);
/// Wishes are remembered for so long after they were last seen.
const REMEMBERED: Duration = Duration::from_mins(15);
/// Places that one answer names, and how much each may say.
const MOST_PLACES: usize = 50;
const LONGEST: usize = 1024;
const TRIES: u32 = 4;
const COMPONENT: &str = "volmedic-healer";

/// What is read of a claim that may have a wish.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Claim {
    metadata: Labels,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    labels: Option<BTreeMap<String, String>>,
}

impl Shape for Claim {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "PersistentVolumeClaim";
    const PLURAL: &'static str = "persistentvolumeclaims";
}

#[derive(Clone)]
pub(super) struct Desk {
    pub(super) client: Client,
    pub(super) handle: Handle,
    pub(super) deadline: Duration,
    pub(super) instance: String,
}

impl Desk {
    pub(super) async fn run(self) -> Infallible {
        let claims = Api::<Arrived<Claim>>::all(self.client.clone());
        // Few ever have it, so this costs next to nothing however many claims there are.
        let config = watcher::Config::default().labels(LABEL);
        let mut events = pin!(watcher(claims, config).default_backoff().applied_objects());
        // By claim: the same label on another claim is another request.
        let mut seen: HashMap<(Key, Wish), Instant> = HashMap::new();
        let (mut turns, mut reported) = (Turns::default(), false);
        let mut work = tokio::task::JoinSet::new();
        let mut running: HashMap<tokio::task::Id, Key> = HashMap::new();
        loop {
            while let Some((key, (claim, wish))) = turns.next() {
                running.insert(work.spawn(caught(self.clone().carry_out(claim, wish))).id(), key);
            }
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(claim)) => {
                        reported = false;
                        let now = Instant::now();
                        seen.retain(|_, last| now.duration_since(*last) < REMEMBERED);
                        let Some(wish) = wish(&claim) else { continue };
                        let key = (claim.namespace().to_owned(), claim.name().to_owned());
                        if seen.insert((key.clone(), wish.clone()), now).is_none()
                            && !turns.add(key.clone(), (claim, wish))
                        {
                            let (namespace, name) = key;
                            tracing::warn!(namespace, name, "too many claims of this namespace wait to be healed; a request is dropped");
                        }
                    }
                    Some(Err(error)) => if !std::mem::replace(&mut reported, true) {
                        tracing::warn!(%error, "the healer cannot see who asks for healing");
                    },
                    None => std::future::pending().await,
                },
                Some(Ok((id, done))) = work.join_next_with_id() => {
                    if let Some(key) = running.remove(&id) {
                        turns.done(&key);
                    }
                    match done {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tracing::warn!("a request for healing was not answered: {error:#}"),
                        Err(panic) => {
                            tracing::error!(panic, "internal error (bug): answering a request for healing panicked");
                        }
                    }
                },
            }
        }
    }

    async fn carry_out(self, claim: Arrived<Claim>, wish: Wish) -> anyhow::Result<()> {
        let (namespace, name) = (claim.namespace().to_owned(), claim.name().to_owned());
        let events = Api::<Event>::namespaced(self.client.clone(), &namespace);
        if !self.take(&events, &claim, &wish).await? {
            return Ok(());
        }
        let age = Timestamp::now().duration_since(wish.at);
        let reply = if age < -FRESH {
            let why = format!(
                "the wish is from {} in the future; the clocks of who asks and of the hub differ",
                -age
            );
            nowhere(Word::Failed, why)
        } else {
            let asked = self.handle.person(&namespace, &name, wish.dry_run);
            match timeout(self.deadline + GRACE, asked).await {
                Ok(Some(answers)) => reply(answers),
                Ok(None) => {
                    nowhere(Word::Failed, "the healer ended; another replica may lead now".to_owned())
                }
                Err(_) => nowhere(Word::UnderWay, "it takes longer than it should".to_owned()),
            }
        };
        let text = serde_json::to_string(&reply).context("the answer cannot be written as JSON")?;
        let message = sentence(&reply);
        let patch = Patch::Merge(json!({
            "metadata": {"annotations": {ANSWER: text}},
            "message": message,
            "lastTimestamp": Time(Timestamp::now()),
        }));
        let (event, params) = (wish.event(&name), PatchParams::default());
        retried(|| events.patch(&event, &params, &patch)).await.map(drop)
    }

    /// Answers whether it is ours to carry out: only one can make the event.
    async fn take(&self, events: &Api<Event>, claim: &Arrived<Claim>, wish: &Wish) -> anyhow::Result<bool> {
        let at = Some(Time(Timestamp::now()));
        let how =
            if wish.dry_run { "what healing its volume would come to" } else { "healing of its volume" };
        let event = Event {
            metadata: ObjectMeta {
                name: Some(wish.event(claim.name())),
                namespace: Some(claim.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                namespace: Some(claim.namespace().to_owned()),
                name: Some(claim.name().to_owned()),
                uid: Some(claim.uid().to_owned()),
                ..ObjectReference::default()
            },
            type_: Some("Normal".to_owned()),
            reason: Some(REASON.to_owned()),
            message: Some(format!("A person asked for {how}")),
            count: Some(1),
            first_timestamp: at.clone(),
            last_timestamp: at,
            source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        };
        let mut unsure = false;
        for attempt in 1..=TRIES {
            match timeout(CALL, events.create(&PostParams::default(), &event)).await {
                Ok(Ok(_)) => return Ok(true),
                // Ours, perhaps, if an answer was lost on the way. Who asked gets no answer then, and asks again.
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                    if unsure {
                        tracing::warn!("{}: a wish may have been lost", claim.name());
                    }
                    return Ok(false);
                }
                Ok(Err(kube::Error::Api(status))) if status.code < 500 && status.code != 429 => {
                    anyhow::bail!("no event could be made for it: {status}");
                }
                _ if attempt == TRIES => anyhow::bail!("the API server did not take an event for it"),
                _ => unsure = true,
            }
            tokio::time::sleep(Duration::from_secs(attempt.into())).await;
        }
        Ok(false)
    }
}

/// A wish that is worth taking. What somebody left behind long ago is not.
fn wish(claim: &Arrived<Claim>) -> Option<Wish> {
    let labels = claim.body.as_ref().ok()?.metadata.labels.as_ref()?;
    let wish: Wish = labels.get(LABEL)?.parse().ok()?;
    (Timestamp::now().duration_since(wish.at) <= FRESH).then_some(wish)
}

async fn retried<T, F: Future<Output = Result<T, kube::Error>>>(
    request: impl Fn() -> F,
) -> anyhow::Result<T> {
    let mut last = anyhow::anyhow!("the API server did not answer");
    for attempt in 1..=TRIES {
        match timeout(CALL, request()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => last = error.into(),
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_secs(attempt.into())).await;
    }
    Err(last)
}

fn nowhere(outcome: Word, why: String) -> Reply {
    let (node, driver, volume_handle) = Default::default();
    Reply { places: vec![PlaceReply { node, driver, volume_handle, outcome, why: vec![why] }], omitted: 0 }
}

fn reply(answers: Vec<(Place, Answer)>) -> Reply {
    if answers.is_empty() {
        return nowhere(
            Word::Refused,
            "no pod uses the claim, so there is no node on which its volume could be healed".to_owned(),
        );
    }
    let omitted = answers.len().saturating_sub(MOST_PLACES);
    let reported = |(place, answer): (Place, Answer)| {
        let (outcome, why) = match answer {
            Answer::Healed(said) => (Word::Well, vec![said]),
            Answer::StillUnhealthy(said) => (Word::StillUnhealthy, vec![said]),
            Answer::Failed(why) => (Word::Failed, vec![why]),
            Answer::Refused(guards) => (Word::Refused, guards),
            Answer::WouldHeal(how) => (Word::WouldBeHealed, vec![how]),
            Answer::Waiting => (Word::UnderWay, vec!["it waits for its turn, or takes long".to_owned()]),
        };
        let cut = |mut text: String| {
            text.truncate(text.floor_char_boundary(LONGEST));
            text
        };
        PlaceReply {
            node: place.node.to_string(),
            driver: place.driver.to_string(),
            volume_handle: cut(place.handle.to_string()),
            outcome,
            why: why.into_iter().filter(|text| !text.is_empty()).map(cut).collect(),
        }
    };
    Reply { places: answers.into_iter().take(MOST_PLACES).map(reported).collect(), omitted }
}

/// For readers of events.
fn sentence(reply: &Reply) -> String {
    let each = reply.places.iter().map(|reported| {
        let word = match reported.outcome {
            Word::Well => "well",
            Word::StillUnhealthy => "still unhealthy",
            Word::Failed => "failed",
            Word::Refused => "refused",
            Word::WouldBeHealed => "would be healed",
            Word::UnderWay => "under way",
        };
        let on = if reported.node.is_empty() { String::new() } else { format!("on {}: ", reported.node) };
        format!("{on}{word}{}{}", if reported.why.is_empty() { "" } else { ", " }, reported.why.join("; "))
    });
    let mut text = format!("A person asked for healing: {}", each.collect::<Vec<_>>().join(" | "));
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}
