//! Who reports, and on what they may: the API server decides both.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use volmedic_api::resource::GROUP;
use volmedic_hub::ClaimKey;
use volmedic_hub::push::{AUDIENCE, VERB};

/// How long the API server's word is taken without asking again.
const GOOD_FOR: Duration = Duration::from_secs(30);
const BAD_FOR: Duration = Duration::from_secs(5);
/// Answers remembered; past that all are forgotten, and asked for anew.
const REMEMBERED: usize = 4096;
/// Longer ones are nobody's.
const LONGEST_TOKEN: usize = 16 * 1024;
/// Reports that one account may send at once, and then a second.
const BURST: f64 = 500.0;
const RATE: f64 = 100.0;

/// Why somebody is not let in.
#[derive(Debug, Clone)]
pub(super) enum Denied {
    Unknown(String),
    Forbidden(String),
    /// Nobody could say.
    Unanswered(String),
}

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
    tokens: Memory<[u8; 32], Result<User, Denied>>,
    rights: Memory<(User, ClaimKey), Result<(), Denied>>,
    paces: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Gatekeeper {
    pub(super) fn new(client: Client) -> Self {
        Self { client, tokens: Memory::default(), rights: Memory::default(), paces: Mutex::default() }
    }

    pub(super) async fn authenticate(&self, token: Option<&str>) -> Result<User, Denied> {
        let Some(token) = token.filter(|token| token.len() <= LONGEST_TOKEN) else {
            return Err(Denied::Unknown(
                "send a service-account token as `Authorization: Bearer ...`".to_owned(),
            ));
        };
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

    async fn review(&self, token: &str) -> Result<User, Denied> {
        let spec =
            TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![AUDIENCE.to_owned()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await;
        // The error could hold what was sent.
        let answer = answer.map_err(|error| Denied::Unanswered(refusal("who sent this", &error)))?;
        let status = answer.status.unwrap_or_default();
        let meant_for_us = status.audiences.iter().flatten().any(|audience| audience == AUDIENCE);
        if status.authenticated != Some(true) || !meant_for_us {
            let why =
                format!("the token is not valid, has expired, or was not issued for the audience {AUDIENCE}");
            return Err(Denied::Unknown(why));
        }
        let user = status.user.unwrap_or_default();
        let Some(name) = user.username.filter(|name| !name.is_empty()) else {
            return Err(Denied::Unknown("the token belongs to nobody".to_owned()));
        };
        Ok(User {
            name,
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        })
    }

    pub(super) async fn authorize(&self, user: &User, claim: &ClaimKey) -> Result<(), Denied> {
        let key = (user.clone(), claim.clone());
        if let Some(answer) = self.rights.get(&key) {
            return answer;
        }
        let answer = self.ask(user, claim).await;
        self.rights.put(key, &answer);
        answer
    }

    async fn ask(&self, user: &User, claim: &ClaimKey) -> Result<(), Denied> {
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
        let answer = answer.map_err(|error| Denied::Unanswered(refusal("what its sender may do", &error)))?;
        if answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)) {
            return Ok(());
        }
        Err(Denied::Forbidden(format!(
            "{} may not report on {claim}; allow the verb {VERB} on volumehealths of {GROUP} named {} there",
            user.name, claim.name
        )))
    }

    /// Whether an account may send one more report right now.
    pub(super) fn may_hurry(&self, user: &User) -> bool {
        let now = Instant::now();
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        if paces.len() > REMEMBERED {
            paces.clear();
        }
        let (tokens, at) = paces.entry(user.name.clone()).or_insert((BURST, now));
        *tokens = (*tokens + now.duration_since(*at).as_secs_f64() * RATE).min(BURST);
        *at = now;
        let may = *tokens >= 1.0;
        if may {
            *tokens -= 1.0;
        }
        may
    }
}

fn refusal(what: &str, error: &kube::Error) -> String {
    let why = match error {
        kube::Error::Api(status) => format!("it answered {} {}", status.code, status.reason),
        _ => "it cannot be reached".to_owned(),
    };
    format!("the API server cannot be asked {what}: {why}; try again")
}

/// Answers that hold for a while.
struct Memory<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, T: Clone> Memory<K, Result<T, Denied>> {
    fn get(&self, key: &K) -> Option<Result<T, Denied>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(_, until)| *until > Instant::now()).map(|(answer, _)| answer.clone())
    }

    fn put(&self, key: K, answer: &Result<T, Denied>) {
        let good_for = match answer {
            Ok(_) => GOOD_FOR,
            Err(Denied::Unanswered(_)) => return,
            Err(_) => BAD_FOR,
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, (answer.clone(), Instant::now() + good_for));
    }
}
