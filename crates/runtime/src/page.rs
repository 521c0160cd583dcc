//! Serving the page, alike in every role that has one.

mod chronicle;
mod late;
pub mod stored;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use tokio::net::TcpListener;
use volmedic_csi::Metrics;
use volmedic_inventory::{NodeSight, ReadyStatus};
use volmedic_view::page::Guard;
use volmedic_view::{Call, NodeState, Source};

use crate::flags::listen;
pub use chronicle::Chronicle;
pub use late::Late;
use volmedic_listen::{Limits, Listener, Peer, Tls};

/// A browser needs several connections, and a proxy has one address for all readers.
const LIMITS: Limits = Limits { serving: None, ..Limits::new("page", 256, 96) };
/// A shorter token could be guessed.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 16..=4096;

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "The page")]
#[allow(clippy::struct_field_names, reason = "the fields are the flags, and these begin alike")]
pub struct PageArgs {
    /// Address of the page, as 127.0.0.1:8090. Port 0 takes any that is free.
    #[arg(long = "page", value_parser = listen, value_name = "ADDRESS")]
    address: Option<SocketAddr>,
    /// File with the token that readers of the page must have. Needed where the address is not a loopback address.
    #[arg(long, requires = "address", value_name = "FILE")]
    page_token_file: Option<PathBuf>,
    /// Certificate of the page, for HTTPS; read again when it changes.
    #[arg(long, requires_all = ["address", "page_tls_key"], value_name = "FILE")]
    page_tls_cert: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, requires = "page_tls_cert", value_name = "FILE")]
    page_tls_key: Option<PathBuf>,
}

/// The page, ready to be served.
#[derive(Debug)]
pub struct PageServer {
    listener: Listener,
    guard: Guard,
    /// Where to point a browser.
    pub url: String,
}

impl PageArgs {
    /// Listens now, so that a busy port is an error at the start. Nothing if no page is wanted.
    pub async fn open(&self) -> anyhow::Result<Option<PageServer>> {
        let Some(address) = self.address else { return Ok(None) };
        let guard = match &self.page_token_file {
            Some(file) => Guard::token(&token(file)?),
            None if address.ip().is_loopback() => Guard::Loopback,
            None => bail!(
                "--page {address} can be reached from other machines, so readers must have a token: give one with \
                 --page-token-file, or serve on 127.0.0.1 and reach it over `kubectl port-forward` or `ssh -L`"
            ),
        };
        let tls = match self.page_tls_cert.as_ref().zip(self.page_tls_key.as_ref()) {
            Some((cert, key)) => Some(Tls::load(cert, key)?),
            None => None,
        };
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("cannot serve the page on {address}; free the port or give another --page")
        })?;
        let listener = Listener::new(listener, tls, LIMITS);
        let url = format!("{}://{}/", listener.scheme(), listener.address()?);
        Ok(Some(PageServer { listener, guard, url }))
    }

    /// For a role that always has a page: at the given address, or on this port of loopback, or, if that is in use, on
    /// any that is free; then also answers why. A given address that is in use is an error.
    pub async fn open_or_any(&self, usual: u16) -> anyhow::Result<(PageServer, Option<String>)> {
        if let Some(server) = self.open().await? {
            return Ok((server, None));
        }
        let open = |port| {
            let here = Self { address: Some((Ipv4Addr::LOCALHOST, port).into()), ..self.clone() };
            async move { here.open().await?.context("internal error (bug): no address") }
        };
        match open(usual).await {
            Ok(server) => Ok((server, None)),
            Err(why) => {
                Ok((open(0).await?, Some(format!("port {usual} cannot be used ({})", why.root_cause()))))
            }
        }
    }
}

impl PageServer {
    /// Serves until dropped. Says where, for the log of a role that has no screen.
    pub async fn serve_and_log<S: Source>(self, source: Arc<S>) {
        tracing::info!("serving the page on {}", self.url);
        self.serve(source).await;
    }

    /// Serves until dropped.
    pub async fn serve<S: Source>(self, source: Arc<S>) {
        let needs_token = matches!(self.guard, Guard::Token(_));
        let mut router = volmedic_view::page::router(source, self.guard);
        if needs_token {
            router = router.layer(from_fn(trust));
        }
        self.listener.serve(router).await;
    }
}

/// Behind a token, everything but a refusal was for a reader with the token.
async fn trust(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let answer = next.run(request).await;
    if let Some(peer) = peer.filter(|_| answer.status() != StatusCode::UNAUTHORIZED) {
        peer.trust();
    }
    answer
}

/// How the calls to a driver went.
pub fn calls(metrics: &Metrics) -> Vec<Call> {
    let call = |latency: volmedic_csi::Latency| {
        let volmedic_csi::Latency { method, count, failed, median, slowest } = latency;
        Call { name: method.name(), count, failed, median, slowest }
    };
    metrics.latencies().into_iter().map(call).collect()
}

/// What the cluster says of a node.
pub fn node_state(node: &NodeSight) -> NodeState {
    let ready = node.ready.as_ref();
    let (state, well) = match ready.map(|ready| ready.status) {
        _ if node.out_of_service => ("out of service", false),
        _ if node.unreachable => ("unreachable", false),
        Some(ReadyStatus::True) => ("ready", true),
        Some(ReadyStatus::False) => ("not ready", false),
        Some(ReadyStatus::Unknown) => ("not heard of", false),
        None => ("not ready yet", true),
    };
    NodeState {
        name: (&*node.name).into(),
        state: state.to_owned(),
        well,
        since: ready.and_then(|ready| ready.since).filter(|_| !well),
        agent: None,
    }
}

fn token(file: &Path) -> anyhow::Result<String> {
    let what = || format!("cannot read the page's token from {}", file.display());
    let token = std::fs::read_to_string(file).with_context(what)?.trim().to_owned();
    if !TOKEN_BYTES.contains(&token.len()) {
        bail!(
            "the token in {} has {} bytes, but {} to {} are needed; make one with `openssl rand -hex 32`",
            file.display(),
            token.len(),
            TOKEN_BYTES.start(),
            TOKEN_BYTES.end()
        );
    }
    Ok(token)
}
