//! The service that takes reports of others' detectors, over HTTP.

mod auth;
mod listen;
mod refusal;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;
use volmedic_hub::push::{MAX_BODY, OPENAPI, Report, ReportCounts};
use volmedic_hub::{ClaimKey, Keeper, World};
use volmedic_listen::Peer;
use volmedic_runtime::http::bearer;
use volmedic_runtime::reviews::User;

use auth::Gatekeeper;
use refusal::{Refusal, problem};

/// No report takes longer, whatever its sender or the API server do.
const LIMIT: Duration = Duration::from_secs(20);
/// Nor its way here.
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// Claims that one report may concern.
const MOST_CLAIMS: usize = 16;

/// Where to listen, and how.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// Certificate and key. Without them, plain HTTP.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    /// Reports a second that one account may send.
    pub(crate) rate: f64,
}

/// What serves reports while this replica leads.
pub(super) type Desk = Arc<Mutex<Option<(Arc<Keeper>, Arc<Mutex<World>>)>>>;

struct Service {
    gate: Gatekeeper,
    desk: Desk,
    counts: ReportCounts,
}

/// Listens now, so that a busy port is an error at the start; serves until dropped.
pub(super) async fn serve(
    endpoint: Endpoint,
    client: Client,
    desk: Desk,
    counts: ReportCounts,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let listener = listen::open(&endpoint).await?;
    let service = Arc::new(Service { gate: Gatekeeper::new(client, endpoint.rate), desk, counts });
    let describe = || async { ([(header::CONTENT_TYPE, "application/json")], OPENAPI) };
    let router = Router::new()
        .route("/v1/reports", post(take))
        .route("/v1/openapi.json", get(describe))
        .method_not_allowed_fallback(|| async {
            let why = "nothing is done in this way here; reports are sent with POST to /v1/reports";
            problem(StatusCode::METHOD_NOT_ALLOWED, why)
        })
        .fallback(|| async {
            problem(StatusCode::NOT_FOUND, "there is nothing here; reports go to /v1/reports")
        })
        .with_state(service);
    Ok(listener.serve(router))
}

async fn take(State(service): State<Arc<Service>>, request: Request) -> Response {
    let outcome = tokio::time::timeout(LIMIT, service.handle(request)).await.unwrap_or(Err(Refusal::Late));
    service.counts.count(outcome.as_ref().map_or_else(Refusal::word, |_| "stored"));
    outcome.into_response()
}

impl Service {
    async fn handle(&self, request: Request) -> Result<Response, Refusal> {
        let (parts, body) = request.into_parts();
        let user = self.gate.authenticate(bearer(&parts.headers)).await?;
        if let Some(peer) = parts.extensions.get::<Peer>() {
            peer.trust();
        }
        self.gate.pace(&user)?;
        let kind =
            parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().is_none_or(|kind| !kind.trim().eq_ignore_ascii_case("application/json")) {
            return Err(Refusal::NotJson);
        }
        let body = read(&parts.headers, body).await?;
        let report = Report::read(&body).map_err(Refusal::Invalid)?;
        let desk = self.desk.lock().clone();
        let (keeper, world) = desk.ok_or(Refusal::NotLeading)?;
        let claims = self.claims(&user, &report, &world).await?;
        let pushed = report.pushed(Timestamp::now());
        for claim in &claims {
            keeper.push(claim, &pushed).await.map_err(|error| Refusal::not_stored(claim, error))?;
        }
        let answer = json!({"claims": claims.len(), "expires": format!("{:.0}", pushed.expires)});
        Ok(([(header::CONTENT_TYPE, "application/json")], answer.to_string()).into_response())
    }

    /// The claims that a report is about, all of which its sender may report on.
    async fn claims(
        &self,
        user: &Arc<User>,
        report: &Report,
        world: &Mutex<World>,
    ) -> Result<Vec<ClaimKey>, Refusal> {
        if let Some(claim) = &report.claim {
            let key = ClaimKey::new(&claim.namespace, &claim.name);
            self.gate.authorize(user, &key).await?;
            if !world.lock().has_claim(&key) {
                return Err(Refusal::UnknownClaim(format!("there is no {key}")));
            }
            return Ok(vec![key]);
        }
        let mut claims = match &report.volume {
            Some(volume) => world.lock().claims_of(&volume.driver, &volume.volume_handle),
            None => Vec::new(),
        };
        claims.truncate(MOST_CLAIMS);
        // Who may not report on a volume does not learn either whether there is one.
        let unknown = || {
            let why = "no claim is bound to such a volume, or this account may not report on it";
            Refusal::UnknownClaim(why.to_owned())
        };
        for key in &claims {
            match self.gate.authorize(user, key).await {
                Ok(()) => {}
                Err(Refusal::NotAllowed(_)) => return Err(unknown()),
                Err(refusal) => return Err(refusal),
            }
        }
        if claims.is_empty() { Err(unknown()) } else { Ok(claims) }
    }
}

/// A body that is too long, or does not come, is not waited for.
async fn read(headers: &HeaderMap, body: Body) -> Result<axum::body::Bytes, Refusal> {
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_BODY) {
        return Err(Refusal::TooLong);
    }
    match tokio::time::timeout(BODY_LIMIT, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) if length.is_some() => Err(Refusal::BrokeOff),
        Ok(Err(_)) => Err(Refusal::TooLong),
        Err(_) => Err(Refusal::TooSlow),
    }
}
