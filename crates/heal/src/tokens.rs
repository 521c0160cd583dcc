//! What the API server says about a token, and tokens that it makes for one relay.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{
    BoundObjectReference, SelfSubjectReview, TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec,
    TokenReviewStatus, UserInfo,
};
use kube::api::{PostParams, Request};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::relay::audience_of;

const API: Duration = Duration::from_secs(15);

/// Asks about a token. Without audiences: whether the API server itself accepts it.
pub(crate) async fn review(
    client: &Client,
    token: &str,
    audiences: Option<Vec<String>>,
) -> Result<TokenReviewStatus, String> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences };
    let review = TokenReview { spec, ..TokenReview::default() };
    let body = serde_json::to_vec(&review).map_err(|_| "it cannot be written as JSON".to_owned())?;
    let request = Request::new(TokenReview::url_path(&(), None)).create(&PostParams::default(), body);
    let request = request.map_err(|error| error.to_string())?;
    // As text: the client would print an answer that it cannot read, and the token is in it.
    let text = match timeout(API, client.request_text(request)).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err("the API server did not answer in time".to_owned()),
    };
    let answer: TokenReview =
        serde_json::from_str(&text).map_err(|_| "the API server's answer makes no sense".to_owned())?;
    Ok(answer.status.unwrap_or_default())
}

/// Whether a server that gets this token can act at the API server as the account that it belongs to.
pub(crate) async fn is_accepted_by_the_api_server(client: &Client, token: &str) -> Result<bool, String> {
    Ok(review(client, token, None).await?.authenticated.unwrap_or(false))
}

/// The shortest time for which the API server makes a token.
const LIFETIME: i64 = 600;
/// A token is replaced this long before it ends, so that it is valid for the call that it is sent with.
const MARGIN: SignedDuration = SignedDuration::from_mins(4);
/// More nodes than any cluster has.
const MOST: usize = 50_000;

/// Tokens of this process's own service account, each for the relay on one node. A relay that keeps its token cannot use it
/// at another node's relay.
pub(crate) struct PerNode {
    client: Client,
    known: Mutex<HashMap<String, (String, Timestamp)>>,
}

impl PerNode {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    pub(crate) async fn token(&self, node: &str) -> Result<String, String> {
        let now = Timestamp::now();
        if let Some((token, until)) = self.known.lock().get(node)
            && until.duration_since(now) > MARGIN
        {
            return Ok(token.clone());
        }
        let (token, until) = self.request(node).await?;
        let mut known = self.known.lock();
        known.retain(|_, (_, until)| *until > now);
        if known.len() < MOST {
            known.insert(node.to_owned(), (token.clone(), until));
        }
        Ok(token)
    }

    async fn request(&self, node: &str) -> Result<(String, Timestamp), String> {
        let reviews = Api::<SelfSubjectReview>::all(self.client.clone());
        let who = timeout(API, reviews.create(&PostParams::default(), &SelfSubjectReview::default())).await;
        let who = who.map_err(|_| "the API server did not answer in time".to_owned())?;
        let who = who.map_err(|error| format!("this process's account is unknown: {error}"))?;
        let user = who.status.and_then(|status| status.user_info).unwrap_or_default();
        let account = user.username.as_deref().and_then(|name| name.strip_prefix("system:serviceaccount:"));
        let (namespace, name) = account.and_then(|account| account.split_once(':')).ok_or_else(|| {
            let name = user.username.as_deref().unwrap_or_default();
            format!(
                "this process runs as {name}, which is not a service account; give --heal-relay-token-file"
            )
        })?;
        let spec = TokenRequestSpec {
            audiences: vec![audience_of(node)],
            expiration_seconds: Some(LIFETIME),
            bound_object_ref: own_pod(&user),
        };
        let body = serde_json::to_vec(&TokenRequest { spec, ..TokenRequest::default() });
        let body = body.map_err(|_| "it cannot be written as JSON".to_owned())?;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = http::Request::post(path).header("Content-Type", "application/json").body(body);
        let request = request.map_err(|error| error.to_string())?;
        // As text: the client would print an answer that it cannot read, and the token is in it.
        let text = match timeout(API, self.client.request_text(request)).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("the API server did not answer in time".to_owned()),
        };
        let made: TokenRequest =
            serde_json::from_str(&text).map_err(|_| "the API server's answer makes no sense".to_owned())?;
        let status = made.status.ok_or_else(|| "the API server's answer has no token".to_owned())?;
        Ok((status.token, status.expiration_timestamp.0))
    }
}

/// The pod in this process's own token: what it requests ends with the pod.
fn own_pod(user: &UserInfo) -> Option<BoundObjectReference> {
    let extra = |key: &str| {
        user.extra.as_ref()?.get(&format!("authentication.kubernetes.io/{key}"))?.first().cloned()
    };
    Some(BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(extra("pod-name")?),
        uid: Some(extra("pod-uid")?),
    })
}
