//! Health and metrics over HTTP, for kubelet and Prometheus.

mod auth;
mod scrape;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kube::Client;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use volmedic_listen::{Limits, Listener, Tls};

pub use self::auth::bearer;
use self::auth::{Guard, guard};
use self::scrape::{Scrapes, scrape};
use crate::flags::{http_path, listen as address};

/// Kubelet and Prometheus need a few connections each. A request without a body has a short head.
const LIMITS: Limits = Limits { head: 16 * 1024, ..Limits::new("metrics", 128, 32) };

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "HTTP")]
pub struct HttpArgs {
    /// Address for metrics and health checks, as :8080 or 127.0.0.1:8080. Off if not given.
    #[arg(long, value_parser = address, value_name = "ADDRESS")]
    pub http_endpoint: Option<SocketAddr>,
    /// Path of the metrics.
    #[arg(long, default_value = "/metrics", value_parser = http_path, value_name = "PATH")]
    pub metrics_path: String,
    /// Serve metrics only to requests with a bearer token whose user may `get` the path of the metrics, by TokenReview and
    /// SubjectAccessReview. Metrics and health checks are then served over HTTPS; health checks need no token.
    #[arg(long, requires = "http_endpoint")]
    pub metrics_auth: bool,
    /// Certificate for --metrics-auth. Default: a self-signed one that is made at each start.
    #[arg(long, requires_all = ["metrics_auth", "metrics_tls_key"], value_name = "FILE")]
    pub metrics_tls_cert: Option<PathBuf>,
    /// Key of --metrics-tls-cert.
    #[arg(long, requires = "metrics_tls_cert", value_name = "FILE")]
    pub metrics_tls_key: Option<PathBuf>,
}

impl HttpArgs {
    /// A token must not be readable on its way, so it needs TLS.
    fn tls(&self) -> anyhow::Result<Option<Tls>> {
        match (&self.metrics_tls_cert, &self.metrics_tls_key) {
            _ if !self.metrics_auth => Ok(None),
            (Some(cert), Some(key)) => Tls::load(cert, key).map(Some),
            _ => Tls::self_signed("volmedic").map(Some),
        }
    }
}

/// Whether something is healthy; if not, why not, in a sentence.
pub type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What is served. Checks are added as the process comes up.
#[derive(Default)]
pub struct Health {
    ready: Mutex<Option<Check>>,
    leader: Mutex<Option<Check>>,
}

impl Health {
    pub fn set_ready(&self, check: Check) {
        *self.ready.lock() = Some(check);
    }

    pub fn set_leader(&self, check: Check) {
        *self.leader.lock() = Some(check);
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

/// Listens now, so that a busy port is an error at the start; serves until dropped.
pub async fn serve(
    address: SocketAddr,
    args: &HttpArgs,
    registry: Arc<Registry>,
    health: Arc<Health>,
    client: &Client,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let listener = listen(address).await?;
    let listener = Listener::new(listener, args.tls()?, LIMITS);
    let path = &args.metrics_path;
    tracing::info!("serving health and metrics on {}://{}{path}", listener.scheme(), listener.address()?);
    let mut metrics = Router::new()
        .route(path, get(scrape))
        .fallback(|| async { StatusCode::NOT_FOUND })
        .with_state(Arc::new(Scrapes::new(registry)));
    if args.metrics_auth {
        let state = Arc::new(Guard::new(client.clone(), path));
        metrics = metrics.layer(from_fn_with_state(state, guard));
    }
    let checks = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route(
            "/readyz",
            get(|State(health): State<Arc<Health>>| async move { answer(&health.ready, "starting") }),
        )
        .route(
            "/healthz/leader-election",
            get(|State(health): State<Arc<Health>>| async move { answer(&health.leader, "") }),
        )
        .with_state(health);
    let router = metrics.merge(checks);
    Ok(listener.serve(router))
}

/// Where the machine has no IPv6, all addresses means all IPv4 addresses.
async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        Err(_) if address.ip().is_unspecified() => TcpListener::bind(("0.0.0.0", address.port())).await,
        bound => bound,
    };
    bound.with_context(|| {
        format!("cannot serve HTTP on {address}; choose another --http-endpoint or free the port")
    })
}

fn answer(check: &Mutex<Option<Check>>, absent: &str) -> Response {
    let check = check.lock();
    match check.as_ref().map(|check| check()) {
        Some(Ok(())) => "ok".into_response(),
        Some(Err(why)) => (StatusCode::INTERNAL_SERVER_ERROR, why).into_response(),
        None if absent.is_empty() => "ok".into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, absent.to_owned()).into_response(),
    }
}
