//! Who may come in: a token, checked by the API server, and a right, checked by the API server.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tonic::Status;
use tonic::metadata::MetadataMap;
use volmedic_api::addons::CsiAddonsNode;
use volmedic_listen::Peer;

use super::metrics::{Metrics, Refused};
use super::{API, Access, CSI_ADDONS_AUDIENCE};
use crate::tokens;

/// The verb that a caller needs on the relay's CSIAddonsNode.
const VERB: &str = "heal";
/// Tokens of service accounts have one or two KiB.
const LONGEST_TOKEN: usize = 16 * 1024;
/// A caller that was let in is not asked about again for so long. A withdrawn right counts after this time at the
/// latest; a thousand volumes do not cost two thousand reviews.
const REMEMBERED: Duration = Duration::from_secs(20);
const MOST_REMEMBERED: usize = 64;

/// The object that a caller must have the right to heal: namespace and name.
pub(super) type Registered = Option<(String, String)>;

pub(super) struct Door {
    client: Client,
    access: Access,
    registered: watch::Receiver<Registered>,
    metrics: Metrics,
    /// By the hash of the token, never the token.
    known: Mutex<HashMap<[u8; 32], (Instant, String)>>,
}

impl Door {
    pub(super) fn new(
        client: Client,
        access: Access,
        registered: watch::Receiver<Registered>,
        metrics: Metrics,
    ) -> Self {
        Self { client, access, registered, metrics, known: Mutex::default() }
    }

    /// The name of the caller, who may come in. The connection is kept from now on.
    pub(super) async fn admit(&self, metadata: &MetadataMap, peer: Option<&Peer>) -> Result<String, Status> {
        let admitted = self.check(metadata).await;
        if let (Ok(_), Some(peer)) = (&admitted, peer) {
            peer.trust();
        }
        admitted.map_err(|(why, status)| {
            self.metrics.refuse(why);
            tracing::warn!(why = why.label(), "the relay refused a caller: {}", status.message());
            status
        })
    }

    async fn check(&self, metadata: &MetadataMap) -> Result<String, (Refused, Status)> {
        let token = self.token(metadata)?;
        let hash = fingerprint(token);
        if let Some(name) = self.remembered(&hash) {
            return Ok(name);
        }
        let user = self.who(token).await?;
        let name = user.username.clone().unwrap_or_default();
        if let Access::Checked { .. } = self.access {
            self.may_heal(user, &name).await?;
        }
        self.remember(hash, &name);
        Ok(name)
    }

    fn token<'a>(&self, metadata: &'a MetadataMap) -> Result<&'a str, (Refused, Status)> {
        let none = |text: &str| (Refused::NoToken, Status::unauthenticated(text.to_owned()));
        let value = metadata
            .get("authorization")
            .ok_or_else(|| none("the call carries no token; send `authorization: Bearer <token>`"))?;
        let value = value.to_str().map_err(|_| none("the authorization header is not text"))?;
        let token = match (value.strip_prefix("Bearer "), &self.access) {
            (Some(token), _) => token.trim(),
            // csi-addons takes a bare token, too.
            (None, Access::CsiAddons) => value.trim(),
            (None, Access::Checked { .. }) => {
                return Err(none("the authorization header is no bearer token"));
            }
        };
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Err(none("the token is empty or longer than any token"));
        }
        Ok(token)
    }

    /// Whose token it is, if it is accepted and was made for us.
    async fn who(&self, token: &str) -> Result<UserInfo, (Refused, Status)> {
        let audience = match &self.access {
            Access::Checked { audience } => audience.as_str(),
            Access::CsiAddons => CSI_ADDONS_AUDIENCE,
        };
        let failed = |why: String| unreviewed("the token", &why);
        let mut status =
            tokens::review(&self.client, token, Some(vec![audience.to_owned()])).await.map_err(failed)?;
        let ours = status.audiences.iter().flatten().any(|made_for| made_for == audience);
        if status.authenticated.unwrap_or(false) && ours {
            return Ok(status.user.unwrap_or_default());
        }
        if let Access::CsiAddons = self.access {
            // A manager of csi-addons sends its token for the API server.
            status = tokens::review(&self.client, token, None).await.map_err(failed)?;
            if status.authenticated.unwrap_or(false) {
                return Ok(status.user.unwrap_or_default());
            }
        }
        if status.authenticated.unwrap_or(false) {
            // A server whose authenticators know nothing of audiences accepts the token and leaves this empty.
            let text = format!("the API server does not say that the token was made for {audience}");
            return Err((Refused::WrongAudience, Status::unauthenticated(text)));
        }
        // Its words tell the two apart; nothing but the words of the refusal depends on it.
        if status.error.as_ref().is_some_and(|why| why.contains("audience")) {
            let text = format!("the token was made for another audience than {audience}");
            return Err((Refused::WrongAudience, Status::unauthenticated(text)));
        }
        let text = "the API server does not take the token; it may be wrong or have run out";
        Err((Refused::BadToken, Status::unauthenticated(text)))
    }

    async fn may_heal(&self, user: UserInfo, name: &str) -> Result<(), (Refused, Status)> {
        let Some((namespace, object)) = self.registered.borrow().clone() else {
            return Err(unreviewed("the right", "this relay has not been registered yet"));
        };
        let attributes = ResourceAttributes {
            verb: Some(VERB.to_owned()),
            group: Some(CsiAddonsNode::GROUP.to_owned()),
            resource: Some(CsiAddonsNode::PLURAL.to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(object.clone()),
            ..ResourceAttributes::default()
        };
        let UserInfo { username, uid, groups, extra } = user;
        let spec = SubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            user: username,
            uid,
            groups,
            extra,
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let status = match timeout(API, reviews.create(&PostParams::default(), &review)).await {
            Ok(Ok(answer)) => answer.status.unwrap_or_default(),
            Ok(Err(error)) => return Err(unreviewed("the right", &error.to_string())),
            Err(_) => return Err(unreviewed("the right", "the API server did not answer in time")),
        };
        if status.allowed && status.denied != Some(true) {
            return Ok(());
        }
        let text = format!(
            "{name} may not {VERB} {} {namespace}/{object}; give it that verb in the group {}",
            CsiAddonsNode::PLURAL,
            CsiAddonsNode::GROUP
        );
        Err((Refused::NotAllowed, Status::permission_denied(text)))
    }

    fn remembered(&self, hash: &[u8; 32]) -> Option<String> {
        let known = self.known.lock();
        known.get(hash).filter(|(until, _)| *until > Instant::now()).map(|(_, name)| name.clone())
    }

    fn remember(&self, hash: [u8; 32], name: &str) {
        let mut known = self.known.lock();
        let now = Instant::now();
        known.retain(|_, (until, _)| *until > now);
        if known.len() < MOST_REMEMBERED {
            known.insert(hash, (now + REMEMBERED, name.to_owned()));
        }
    }
}

fn unreviewed(what: &str, why: &str) -> (Refused, Status) {
    let text = format!("{what} could not be checked: {why}; try again later");
    (Refused::ReviewFailed, Status::unavailable(text))
}

fn fingerprint(token: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}
