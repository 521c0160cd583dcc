//! The service that takes reports of others' detectors, over HTTP.

mod auth;
mod listen;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use jiff::Timestamp;
use kube::Client;
use serde_json::json;
use tokio::sync::Semaphore;
use volmedic_hub::push::{MAX_BODY, OPENAPI, Report};
use volmedic_hub::{ClaimKey, Keeper, PushError, World};

use auth::{Denied, Gatekeeper, User};

/// No report takes longer, whatever its sender or the API server do.
const LIMIT: Duration = Duration::from_secs(20);
/// Reports that are worked on at once.
const AT_ONCE: usize = 64;
/// Claims that one report may concern.
const MOST_CLAIMS: usize = 16;

/// Where to listen, and how.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// Certificate and key. Without them, plain HTTP.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
}

/// What serves reports while this replica leads.
pub(super) type Desk = Arc<Mutex<Option<(Arc<Keeper>, Arc<Mutex<World>>)>>>;

struct Service {
    gate: Gatekeeper,
    desk: Desk,
    room: Semaphore,
}

/// Listens now, so that a busy port is an error at the start; serves until dropped.
pub(super) async fn serve(
    endpoint: Endpoint,
    client: Client,
    desk: Desk,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let listener = listen::Listener::open(&endpoint).await?;
    let service = Arc::new(Service { gate: Gatekeeper::new(client), desk, room: Semaphore::new(AT_ONCE) });
    let describe = || async { ([(header::CONTENT_TYPE, "application/json")], OPENAPI) };
    let router = Router::new()
        .route("/v1/reports", post(take))
        .route("/v1/openapi.json", get(describe))
        .fallback(|| async {
            problem(StatusCode::NOT_FOUND, "there is nothing here; reports go to /v1/reports")
        })
        .with_state(service);
    Ok(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "reports are no longer taken");
        }
    })
}

async fn take(State(service): State<Arc<Service>>, request: Request) -> Response {
    let Ok(_room) = service.room.try_acquire() else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "too many reports come in at once; try again");
    };
    match tokio::time::timeout(LIMIT, service.handle(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(refusal)) => refusal,
        Err(_) => problem(StatusCode::SERVICE_UNAVAILABLE, "it took too long; try again"),
    }
}

impl Service {
    async fn handle(&self, request: Request) -> Result<Response, Response> {
        let (parts, body) = request.into_parts();
        let user =
            self.gate.authenticate(bearer(&parts.headers)).await.map_err(|denied| denied_because(&denied))?;
        if !self.gate.may_hurry(&user) {
            return Err(problem(
                StatusCode::TOO_MANY_REQUESTS,
                "this account reports too fast; try again in a second",
            ));
        }
        let kind =
            parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().is_none_or(|kind| !kind.trim().eq_ignore_ascii_case("application/json")) {
            return Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a report is application/json"));
        }
        let too_long =
            || problem(StatusCode::PAYLOAD_TOO_LARGE, &format!("a report has at most {MAX_BODY} bytes"));
        let body = to_bytes(body, MAX_BODY).await.map_err(|_| too_long())?;
        let report =
            Report::read(&body).map_err(|wrong| problem(StatusCode::BAD_REQUEST, &wrong.to_string()))?;
        let desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((keeper, world)) = desk else {
            return Err(problem(
                StatusCode::SERVICE_UNAVAILABLE,
                "another replica of the hub leads; try again",
            ));
        };
        let claims = self.claims(&user, &report, &world).await?;
        let pushed = report.pushed(Timestamp::now());
        for claim in &claims {
            keeper.push(claim, &pushed).await.map_err(|error| not_stored(claim, error))?;
        }
        let answer = json!({"claims": claims.len(), "expires": format!("{:.0}", pushed.expires)});
        Ok(([(header::CONTENT_TYPE, "application/json")], answer.to_string()).into_response())
    }

    /// The claims that a report is about, all of which its sender may report on.
    async fn claims(
        &self,
        user: &User,
        report: &Report,
        world: &Mutex<World>,
    ) -> Result<Vec<ClaimKey>, Response> {
        if let Some(claim) = &report.claim {
            let key = ClaimKey::new(&claim.namespace, &claim.name);
            self.gate.authorize(user, &key).await.map_err(|denied| denied_because(&denied))?;
            if !super::watches::lock(world).has_claim(&key) {
                return Err(problem(StatusCode::NOT_FOUND, &format!("there is no {key}")));
            }
            return Ok(vec![key]);
        }
        let mut claims = match &report.volume {
            Some(volume) => super::watches::lock(world).claims_of(&volume.driver, &volume.volume_handle),
            None => Vec::new(),
        };
        claims.truncate(MOST_CLAIMS);
        // Who may not report on a volume does not learn either whether there is one.
        let unknown = || {
            problem(
                StatusCode::NOT_FOUND,
                "no claim is bound to such a volume, or this account may not report on it",
            )
        };
        for key in &claims {
            match self.gate.authorize(user, key).await {
                Ok(()) => {}
                Err(Denied::Forbidden(_)) => return Err(unknown()),
                Err(denied) => return Err(denied_because(&denied)),
            }
        }
        if claims.is_empty() { Err(unknown()) } else { Ok(claims) }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn denied_because(denied: &Denied) -> Response {
    match denied {
        Denied::Unknown(why) => {
            let mut answer = problem(StatusCode::UNAUTHORIZED, why);
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
            answer
        }
        Denied::Forbidden(why) => problem(StatusCode::FORBIDDEN, why),
        Denied::Unanswered(why) => problem(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

fn not_stored(claim: &ClaimKey, error: PushError) -> Response {
    match error {
        PushError::NoClaim => problem(StatusCode::NOT_FOUND, &format!("there is no {claim}")),
        PushError::Later(why) => {
            problem(StatusCode::SERVICE_UNAVAILABLE, &format!("the report on {claim} was not stored: {why}"))
        }
    }
}

/// Why a report was refused, as RFC 9457 has it.
fn problem(status: StatusCode, detail: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Refused");
    let body = json!({"title": title, "status": status.as_u16(), "detail": detail}).to_string();
    let mut answer = (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    answer
}
