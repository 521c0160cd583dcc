//! Who reports, and on what they may: the API server decides both.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use volmedic_api::resource::GROUP;
use volmedic_hub::push::{AUDIENCE, VERB};
use volmedic_hub::{ClaimKey, Pace, Turns};

use super::refusal::Refusal;

/// How long the API server's word is taken without asking again.
const GOOD_FOR: Duration = Duration::from_secs(30);
const BAD_FOR: Duration = Duration::from_secs(5);
/// Answers remembered. Past that those go that are over, and if none is, all.
const REMEMBERED: usize = 16_384;
/// Accounts whose pace is known; past that all begin anew.
const ACCOUNTS: usize = 4096;
/// Longer ones are nobody's.
const LONGEST_TOKEN: usize = 16 * 1024;
/// So many times as many reports as an account may send a second, it may send at once.
const BURST: f64 = 5.0;
/// Questions of each kind to the API server, a second and at once. Whoever sends one token after the other that
/// nobody knows waits here, and does not bother the API server more than this.
const QUESTIONS: f64 = 300.0;
const QUESTIONS_AT_ONCE: u32 = 600;

/// Who a token belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct User {
    name: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

pub(super) struct Gatekeeper {
    client: Client,
    rate: f64,
    tokens: Memory<[u8; 32], Arc<User>>,
    rights: Memory<(Arc<User>, ClaimKey), ()>,
    paces: Mutex<HashMap<String, Pace>>,
    reviews: Turns,
    questions: Turns,
}

impl Gatekeeper {
    /// For accounts that may send so many reports a second each.
    pub(super) fn new(client: Client, rate: f64) -> Self {
        Self {
            client,
            rate,
            tokens: Memory::default(),
            rights: Memory::default(),
            paces: Mutex::default(),
            reviews: Turns::new(QUESTIONS, QUESTIONS_AT_ONCE),
            questions: Turns::new(QUESTIONS, QUESTIONS_AT_ONCE),
        }
    }

    pub(super) async fn authenticate(&self, token: Option<&str>) -> Result<Arc<User>, Refusal> {
        let token = token.ok_or(Refusal::NoToken)?;
        // Nobody has to be asked about what cannot be a token of a service account: three parts, none of them empty.
        if token.len() > LONGEST_TOKEN || token.split('.').filter(|part| !part.is_empty()).count() != 3 {
            return Err(not_valid());
        }
        // What is kept is a digest; the token itself is not.
        let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
        let mut key = [0; 32];
        key.copy_from_slice(digest.as_ref());
        if let Some(answer) = self.tokens.get(&key) {
            return answer;
        }
        let answer = self.review(token).await;
        self.tokens.put(key, &answer);
        answer
    }

    async fn review(&self, token: &str) -> Result<Arc<User>, Refusal> {
        self.reviews.turn().await;
        let spec =
            TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![AUDIENCE.to_owned()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await;
        // The error could hold what was sent.
        let answer = answer.map_err(|error| unanswered("who sent this", &error))?;
        let status = answer.status.unwrap_or_default();
        let meant_for_us = status.audiences.iter().flatten().any(|audience| audience == AUDIENCE);
        if status.authenticated != Some(true) || !meant_for_us {
            return Err(not_valid());
        }
        let user = status.user.unwrap_or_default();
        let Some(name) = user.username.filter(|name| !name.is_empty()) else {
            return Err(Refusal::BadToken("the token belongs to no user".to_owned()));
        };
        Ok(Arc::new(User {
            name,
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }

    pub(super) async fn authorize(&self, user: &Arc<User>, claim: &ClaimKey) -> Result<(), Refusal> {
        let key = (user.clone(), claim.clone());
        if let Some(answer) = self.rights.get(&key) {
            return answer;
        }
        let answer = self.ask(user, claim).await;
        self.rights.put(key, &answer);
        answer
    }

    async fn ask(&self, user: &User, claim: &ClaimKey) -> Result<(), Refusal> {
        self.questions.turn().await;
        let attributes = ResourceAttributes {
            group: Some(GROUP.to_owned()),
            resource: Some("volumehealths".to_owned()),
            verb: Some(VERB.to_owned()),
            namespace: Some(claim.namespace.to_string()),
            name: Some(claim.name.to_string()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| unanswered("what its sender may do", &error))?;
        if answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)) {
            return Ok(());
        }
        Err(Refusal::NotAllowed(format!(
            "{} may not report on {claim}; allow the verb {VERB} on volumehealths of {GROUP} named {} there",
            user.name, claim.name
        )))
    }

    /// Lets an account send one more report, unless it sends too many.
    pub(super) fn pace(&self, user: &User) -> Result<(), Refusal> {
        let now = Instant::now();
        let mut paces = self.paces.lock();
        if paces.len() >= ACCOUNTS && !paces.contains_key(&user.name) {
            paces.clear();
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is above 0 and kept small"
        )]
        let burst = (self.rate * BURST).clamp(1.0, 1e6) as u32;
        let pace = paces.entry(user.name.clone()).or_insert_with(|| Pace::new(self.rate, burst, now));
        match pace.wait(now) {
            None => {
                pace.take(1);
                Ok(())
            }
            Some(at) => Err(Refusal::TooFast(at.saturating_duration_since(now).as_secs() + 1)),
        }
    }
}

fn not_valid() -> Refusal {
    Refusal::BadToken(format!(
        "the token is not valid, has expired, or was not issued for the audience {AUDIENCE}"
    ))
}

fn unanswered(what: &str, error: &kube::Error) -> Refusal {
    let why = match error {
        kube::Error::Api(status) => format!("it answered {} {}", status.code, status.reason),
        _ => "it cannot be reached".to_owned(),
    };
    Refusal::ApiServer(format!("the API server cannot be asked {what}: {why}; try again"))
}

/// Answers that hold for a while.
struct Memory<K, T>(Mutex<HashMap<K, Remembered<T>>>);

/// What was answered, and until when that holds.
type Remembered<T> = (Result<T, Refusal>, Instant);

impl<K, T> Default for Memory<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, T: Clone> Memory<K, T> {
    fn get(&self, key: &K) -> Option<Result<T, Refusal>> {
        let known = self.0.lock();
        known.get(key).filter(|(_, until)| *until > Instant::now()).map(|(answer, _)| answer.clone())
    }

    fn put(&self, key: K, answer: &Result<T, Refusal>) {
        let good_for = match answer {
            Ok(_) => GOOD_FOR,
            // Nobody said anything.
            Err(Refusal::ApiServer(_)) => return,
            Err(_) => BAD_FOR,
        };
        let now = Instant::now();
        let mut known = self.0.lock();
        if known.len() >= REMEMBERED {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, (answer.clone(), now + good_for));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_an_outage_is_not_remembered() {
        let memory = Memory::default();
        for n in 0..=REMEMBERED {
            memory.put(n, &Ok(n));
        }
        assert!(memory.0.lock().len() <= REMEMBERED);
        assert_eq!(memory.get(&REMEMBERED), Some(Ok(REMEMBERED)));
        memory.put(1, &Err(Refusal::ApiServer("away".to_owned())));
        assert_ne!(memory.get(&1), Some(Err(Refusal::ApiServer("away".to_owned()))));
        memory.put(2, &Err(Refusal::NoToken));
        assert_eq!(memory.get(&2), Some(Err(Refusal::NoToken)));
    }
}
