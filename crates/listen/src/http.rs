//! HTTP/1.1 on guarded connections, with or without TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use volmedic_panics::caught;

use crate::accept::{Accepted, Door};
use crate::places::{Limits, Serving};
use crate::{Peer, Tls};

/// Listens, and is ready to serve.
#[derive(Debug)]
pub struct Listener {
    door: Door,
    tls: Option<Tls>,
}

impl Listener {
    /// Without certificate and key, plain HTTP.
    pub fn new(listener: TcpListener, tls: Option<Tls>, limits: Limits) -> Self {
        Self { door: Door::new(listener, limits), tls }
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.door.address()
    }

    /// As a browser writes it.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Serves until dropped, and so do its connections. Every request has its [`Peer`] as an extension.
    pub async fn serve(mut self, router: Router) {
        let limits = *self.door.limits();
        let mut connections = JoinSet::new();
        loop {
            let Accepted { stream, peer } = self.door.accept().await;
            while connections.try_join_next().is_some() {}
            // One slow peer must not keep the others waiting.
            let (acceptor, router) = (self.tls.as_mut().map(Tls::current), router.clone());
            connections.spawn(async move {
                let (place, address) = (peer.place.clone(), peer.address);
                let serve = async {
                    let Some(acceptor) = acceptor else { return talk(stream, peer, router, limits).await };
                    match acceptor.accept(stream).await {
                        Ok(stream) => talk(stream, peer, router, limits).await,
                        Err(error) => tracing::debug!(peer = %peer.address, %error, "no TLS"),
                    }
                };
                let served = caught(async {
                    tokio::select! {
                        () = serve => {}
                        () = place.over() => {}
                    }
                });
                if let Err(panic) = served.await {
                    tracing::error!(%address, panic, "internal error (bug): a request panicked; its connection is closed");
                }
            });
        }
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    peer: Peer,
    router: Router,
    limits: Limits,
) {
    let address = peer.address;
    let router = router.layer(from_fn_with_state(peer, count));
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.waiting).max_buf_size(limits.head);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
    if let Err(error) = served {
        tracing::debug!(peer = %address, %error, "a connection ended");
    }
}

async fn count(State(peer): State<Peer>, mut request: Request, next: Next) -> Response {
    let serving = peer.place.serve(Instant::now());
    request.extensions_mut().insert(peer);
    next.run(request).await.map(|body| Body::new(Answer { body, _serving: serving }))
}

/// An answer that is being sent. The request is over when it is dropped.
struct Answer {
    body: Body,
    _serving: Serving,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
