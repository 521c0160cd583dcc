//! To whom a token belongs, and what that user may do: the API server decides both. What it answered holds for a while.
//!
//! How fast the API server is asked is up to the caller, which therefore looks up what is known first and asks second.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;

/// How long an answer holds that lets someone in.
const GOOD_FOR: Duration = Duration::from_secs(30);
const BAD_FOR: Duration = Duration::from_secs(5);
/// Maximum size of a token.
const LONGEST_TOKEN: usize = 16 * 1024;

/// The user that a token belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct User {
    pub name: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// What a user wants to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Access {
    Object {
        group: &'static str,
        resource: &'static str,
        verb: &'static str,
        namespace: Arc<str>,
        name: Arc<str>,
    },
    /// A path that is no resource of the API server, such as `/metrics`.
    Path { path: Arc<str>, verb: &'static str },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// Not a token, not valid, expired, or issued for another audience.
    BadToken,
    /// The token is valid and belongs to no user.
    NoUser,
    NotAllowed,
    /// The API server did not decide: a sentence that says why.
    Unanswered(String),
}

/// Asks the API server, and remembers a bounded number of answers.
pub struct Reviews {
    client: Client,
    /// The audience that a token has to be issued for. None: the API server's own.
    audience: Option<&'static str>,
    tokens: Memory<Digest, Arc<User>>,
    rights: Memory<(Arc<User>, Access), ()>,
}

impl std::fmt::Debug for Reviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviews").field("audience", &self.audience).finish_non_exhaustive()
    }
}

impl Reviews {
    /// Remembers at most this number of answers of each kind.
    pub fn new(client: Client, audience: Option<&'static str>, remembered: usize) -> Self {
        Self { client, audience, tokens: Memory::new(remembered), rights: Memory::new(remembered) }
    }

    /// What is known of a token without asking: the last answer while it holds, or that it cannot be a token.
    pub fn known_user(&self, token: &str) -> Option<Result<Arc<User>, Denied>> {
        // A token of a service account has three parts, none of them empty.
        if token.len() > LONGEST_TOKEN || token.split('.').filter(|part| !part.is_empty()).count() != 3 {
            return Some(Err(Denied::BadToken));
        }
        self.tokens.get(&digest(token))
    }

    /// Whether the last answer on this token was good, also if it no longer holds.
    pub fn was_valid(&self, token: &str) -> bool {
        self.tokens.was_good(&digest(token))
    }

    pub async fn ask_user(&self, token: &str) -> Result<Arc<User>, Denied> {
        let answer = self.review(token).await;
        self.tokens.put(digest(token), &answer);
        answer
    }

    async fn review(&self, token: &str) -> Result<Arc<User>, Denied> {
        let audiences = self.audience.map(|audience| vec![audience.to_owned()]);
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await;
        // The error could hold what was sent.
        let answer = answer.map_err(|error| unanswered("who sent this", &error))?;
        let status = answer.status.unwrap_or_default();
        let meant_for_us = self.audience.is_none_or(|audience| {
            status.audiences.iter().flatten().any(|audience_of_token| audience_of_token == audience)
        });
        if status.authenticated != Some(true) || !meant_for_us {
            return Err(Denied::BadToken);
        }
        let user = status.user.unwrap_or_default();
        let name = user.username.filter(|name| !name.is_empty()).ok_or(Denied::NoUser)?;
        let (groups, extra) = (user.groups.unwrap_or_default(), user.extra.unwrap_or_default());
        Ok(Arc::new(User { name, uid: user.uid, groups, extra }))
    }

    /// The last answer while it holds.
    pub fn known_right(&self, user: &Arc<User>, access: &Access) -> Option<Result<(), Denied>> {
        self.rights.get(&(user.clone(), access.clone()))
    }

    pub async fn ask_right(&self, user: &Arc<User>, access: Access) -> Result<(), Denied> {
        let answer = self.review_right(user, &access).await;
        self.rights.put((user.clone(), access), &answer);
        answer
    }

    async fn review_right(&self, user: &User, access: &Access) -> Result<(), Denied> {
        let mut spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        match access {
            Access::Object { group, resource, verb, namespace, name } => {
                spec.resource_attributes = Some(ResourceAttributes {
                    group: Some((*group).to_owned()),
                    resource: Some((*resource).to_owned()),
                    verb: Some((*verb).to_owned()),
                    namespace: Some(namespace.to_string()),
                    name: Some(name.to_string()),
                    ..ResourceAttributes::default()
                });
            }
            Access::Path { path, verb } => {
                let (path, verb) = (Some(path.to_string()), Some((*verb).to_owned()));
                spec.non_resource_attributes = Some(NonResourceAttributes { path, verb });
            }
        }
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| unanswered("what its sender may do", &error))?;
        let allowed = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        if allowed { Ok(()) } else { Err(Denied::NotAllowed) }
    }
}

fn unanswered(what: &str, error: &kube::Error) -> Denied {
    let why = match error {
        kube::Error::Api(status) => format!("it answered {} {}", status.code, status.reason),
        _ => "it cannot be reached".to_owned(),
    };
    Denied::Unanswered(format!("the API server cannot be asked {what}: {why}; try again"))
}

/// What is kept of a token; the token itself is not.
type Digest = [u8; 32];

fn digest(token: &str) -> Digest {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    let mut key = [0; 32];
    key.copy_from_slice(digest.as_ref());
    key
}

/// Answers that hold for a while. Where there is no room, those go that no longer hold, and if all do, all.
struct Memory<K, T> {
    most: usize,
    known: Mutex<HashMap<K, Remembered<T>>>,
}

/// What was answered, and until when that holds.
type Remembered<T> = (Result<T, Denied>, Instant);

impl<K: Eq + Hash, T: Clone> Memory<K, T> {
    fn new(most: usize) -> Self {
        Self { most, known: Mutex::default() }
    }

    fn get(&self, key: &K) -> Option<Result<T, Denied>> {
        let known = self.known.lock();
        known.get(key).filter(|(_, until)| *until > Instant::now()).map(|(answer, _)| answer.clone())
    }

    fn was_good(&self, key: &K) -> bool {
        self.known.lock().get(key).is_some_and(|(answer, _)| answer.is_ok())
    }

    fn put(&self, key: K, answer: &Result<T, Denied>) {
        let good_for = match answer {
            Ok(_) => GOOD_FOR,
            // The API server decided nothing.
            Err(Denied::Unanswered(_)) => return,
            Err(_) => BAD_FOR,
        };
        let now = Instant::now();
        let mut known = self.known.lock();
        if known.len() >= self.most {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() >= self.most {
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
        const MOST: usize = 100;
        let memory = Memory::new(MOST);
        for n in 0..=MOST {
            memory.put(n, &Ok(n));
        }
        assert!(memory.known.lock().len() <= MOST);
        assert_eq!(memory.get(&MOST), Some(Ok(MOST)));
        memory.put(1, &Err(Denied::Unanswered("away".to_owned())));
        assert_eq!(memory.get(&1), None);
        memory.put(2, &Err(Denied::BadToken));
        assert_eq!(memory.get(&2), Some(Err(Denied::BadToken)));
        assert!(memory.was_good(&MOST) && !memory.was_good(&2) && !memory.was_good(&1));
    }
}
