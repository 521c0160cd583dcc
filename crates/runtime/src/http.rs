//! Health and metrics over HTTP, for kubelet and Prometheus.

mod scrape;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use volmedic_listen::{Limits, Listener};

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
    metrics_path: &str,
    registry: Arc<Registry>,
    health: Arc<Health>,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let listener = listen(address).await?;
    tracing::info!("serving health and metrics on http://{}{metrics_path}", listener.local_addr()?);
    let metrics = Router::new().route(metrics_path, get(scrape)).with_state(Arc::new(Scrapes::new(registry)));
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
    Ok(Listener::new(listener, None, LIMITS).serve(router))
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
