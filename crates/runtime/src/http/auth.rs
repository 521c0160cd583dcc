//! Who may read the metrics, for `--metrics-auth`: the API server decides, and a flood of bad tokens does not reach it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use volmedic_listen::Peer;

use crate::reviews::{Access, Denied, Reviews, User};

/// Time for both questions to the API server, with the wait for a turn.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of concurrent questions.
const CONCURRENT: usize = 4;
/// Maximum number of answers that are remembered, of each kind.
const REMEMBERED: usize = 1024;
/// Tokens not seen valid before that the API server is asked about, per second, and the burst: of one peer, and of all. A
/// token that was valid when it was last asked about does not count, so a flood does not lock out those who read already.
const OF_PEER: (f64, f64) = (1.0, 10.0);
const OF_ALL: (f64, f64) = (5.0, 20.0);
/// Maximum number of peers whose allowance is known. Beyond that, all start again; the allowance of all peers holds on.
const PEERS: usize = 1024;

#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    NoToken,
    BadToken,
    NotAllowed(String),
    TooFast,
    ApiServer(String),
}

pub(super) struct Guard {
    reviews: Reviews,
    access: Access,
    path: String,
    turns: Semaphore,
    allowances: Mutex<Allowances>,
}

impl Guard {
    /// Lets in who may `get` this path.
    pub(super) fn new(client: Client, path: &str) -> Self {
        Self {
            reviews: Reviews::new(client, None, REMEMBERED),
            access: Access::Path { path: path.into(), verb: "get" },
            path: path.to_owned(),
            turns: Semaphore::new(CONCURRENT),
            allowances: Mutex::new(Allowances::new(Instant::now())),
        }
    }

    async fn check(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Result<(), Refusal> {
        let token = bearer(headers).ok_or(Refusal::NoToken)?;
        let late = || "the API server did not decide in time who may read the metrics; try again".to_owned();
        timeout(LIMIT, self.decide(token, peer)).await.unwrap_or_else(|_| Err(Refusal::ApiServer(late())))
    }

    async fn decide(&self, token: &str, peer: Option<IpAddr>) -> Result<(), Refusal> {
        let user = self.user(token, peer).await?.map_err(|denied| self.refusal(denied, ""))?;
        let answer = match self.reviews.known_right(&user, &self.access) {
            Some(answer) => answer,
            None => {
                let _turn = self.turns.acquire().await;
                match self.reviews.known_right(&user, &self.access) {
                    Some(answer) => answer,
                    None => self.reviews.ask_right(&user, self.access.clone()).await,
                }
            }
        };
        answer.map_err(|denied| self.refusal(denied, &user.name))
    }

    async fn user(&self, token: &str, peer: Option<IpAddr>) -> Result<Result<Arc<User>, Denied>, Refusal> {
        if let Some(answer) = self.reviews.known_user(token) {
            return Ok(answer);
        }
        if !self.reviews.was_valid(token) && !self.allowances.lock().take(peer, Instant::now()) {
            return Err(Refusal::TooFast);
        }
        let _turn = self.turns.acquire().await;
        // Another request with this token may have been answered meanwhile.
        match self.reviews.known_user(token) {
            Some(answer) => Ok(answer),
            None => Ok(self.reviews.ask_user(token).await),
        }
    }

    fn refusal(&self, denied: Denied, user: &str) -> Refusal {
        match denied {
            Denied::BadToken | Denied::NoUser => Refusal::BadToken,
            Denied::Unanswered(why) => Refusal::ApiServer(why),
            Denied::NotAllowed => Refusal::NotAllowed(format!(
                "{user} may not read the metrics; allow it the verb get on the nonResourceURL {}",
                self.path
            )),
        }
    }
}

/// Passes a request on if the API server allows it.
pub(super) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let address = peer.as_ref().map(Peer::network);
    match guard.check(request.headers(), address).await {
        Ok(()) => {
            if let Some(peer) = peer {
                peer.trust();
            }
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, why) = match self {
            Self::NoToken => (
                StatusCode::UNAUTHORIZED,
                "send the token of a Kubernetes account as `Authorization: Bearer ...`".to_owned(),
            ),
            Self::BadToken => (
                StatusCode::UNAUTHORIZED,
                "the token is not valid, has expired, or was not issued for the API server".to_owned(),
            ),
            Self::NotAllowed(why) => (StatusCode::FORBIDDEN, why),
            Self::TooFast => (
                StatusCode::TOO_MANY_REQUESTS,
                "too many tokens that were not seen valid before; try again in 1 s".to_owned(),
            ),
            Self::ApiServer(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
        };
        let header = match status {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Some((header::RETRY_AFTER, "1"))
            }
            _ => None,
        };
        let mut response = (status, why).into_response();
        response.headers_mut().extend(header.map(|(name, value)| (name, HeaderValue::from_static(value))));
        response
    }
}

/// The token that a request carries.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// How many more unknown tokens the API server may be asked about. Pure: time is an argument.
struct Allowances {
    all: Allowance,
    peers: HashMap<IpAddr, Allowance>,
}

struct Allowance {
    left: f64,
    at: Instant,
}

impl Allowances {
    fn new(now: Instant) -> Self {
        Self { all: Allowance { left: OF_ALL.1, at: now }, peers: HashMap::new() }
    }

    fn take(&mut self, peer: Option<IpAddr>, now: Instant) -> bool {
        if let Some(peer) = peer {
            if self.peers.len() >= PEERS && !self.peers.contains_key(&peer) {
                self.peers.clear();
            }
            let of_peer = self.peers.entry(peer).or_insert(Allowance { left: OF_PEER.1, at: now });
            if !of_peer.take(OF_PEER, now) {
                return false;
            }
        }
        self.all.take(OF_ALL, now)
    }
}

impl Allowance {
    fn take(&mut self, (per_second, burst): (f64, f64), now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * per_second;
        (self.left, self.at) = ((self.left + gained).min(burst), now);
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_has_its_share_all_together_have_theirs_and_both_are_regained() {
        let start = Instant::now();
        let peer = |n: u8| Some(IpAddr::from([10, 0, 0, n]));
        let mut allowances = Allowances::new(start);
        let mut taken = |peer, at| (0..100).filter(|_| allowances.take(peer, at)).count();
        assert_eq!(taken(peer(1), start), 10);
        assert_eq!(taken(peer(2), start), 10);
        assert_eq!(taken(peer(3), start), 0, "nothing is left of the allowance of all");
        assert_eq!(taken(peer(1), start + Duration::from_secs(2)), 2);
        assert_eq!(taken(peer(4), start + Duration::from_secs(2)), 8);
        assert_eq!(taken(peer(1), start + Duration::from_hours(1)), 10, "no more than the burst");
    }

    #[test]
    fn many_peers_take_bounded_memory() {
        let start = Instant::now();
        let mut allowances = Allowances::new(start);
        for n in 0..3 * u32::try_from(PEERS).unwrap() {
            allowances.take(Some(IpAddr::from(n.to_be_bytes())), start);
        }
        assert!(allowances.peers.len() <= PEERS);
    }
}
