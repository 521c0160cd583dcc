//! An HTTP listener with or without TLS, with a maximum number of connections and deadlines.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Maximum number of concurrent connections, each with one request at a time. Further ones wait until one ends.
const CONNECTIONS: usize = 256;
/// A connection that is not agreed upon by then is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// So is one on which no whole request begins, be it the first or the next one.
const HEAD: Duration = Duration::from_secs(10);
/// What a connection may send before it says where its head ends.
const LONGEST_HEAD: usize = 32 * 1024;
/// Pause between two attempts to accept when the system has no room.
const PAUSE: Duration = Duration::from_millis(200);

/// Listens, and is ready to serve.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    tls: Option<Tls>,
}

impl Listener {
    /// Without certificate and key, plain HTTP.
    pub fn new(listener: TcpListener, tls: Option<Tls>) -> Self {
        Self { listener, tls }
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// As a browser writes it.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Serves until dropped, and so do its connections.
    pub async fn serve(mut self, router: Router) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            while connections.try_join_next().is_some() {}
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // One slow peer must not keep the others waiting.
            let (acceptor, router) = (self.tls.as_mut().map(Tls::current), router.clone());
            connections.spawn(async move {
                let _permit = permit;
                let Some(acceptor) = acceptor else { return talk(stream, peer, router).await };
                match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => talk(stream, peer, router).await,
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
                    Err(_) => tracing::debug!(%peer, "no TLS in time"),
                }
            });
        }
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, peer: SocketAddr, router: Router) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LONGEST_HEAD);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "a connection ended");
    }
}

/// Certificate and key, read again when their files change.
pub struct Tls {
    files: (Box<Path>, Box<Path>),
    changed: Option<SystemTime>,
    acceptor: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    pub fn load(cert: &Path, key: &Path) -> anyhow::Result<Self> {
        let acceptor = read(cert, key)?;
        Ok(Self { files: (cert.into(), key.into()), changed: modified(cert), acceptor })
    }

    fn current(&mut self) -> TlsAcceptor {
        let (cert, key) = &self.files;
        let changed = modified(cert);
        if changed != self.changed {
            match read(cert, key) {
                Ok(acceptor) => {
                    tracing::info!("the certificate was replaced");
                    (self.acceptor, self.changed) = (acceptor, changed);
                }
                Err(error) => tracing::warn!("the old certificate stays in use: {error:#}"),
            }
        }
        self.acceptor.clone()
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|data| data.modified()).ok()
}

fn read(cert: &Path, key: &Path) -> anyhow::Result<TlsAcceptor> {
    let certs = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read the certificate {}", cert.display()))?;
    let private = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read the key {}", key.display()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certs, private)
        .with_context(|| format!("{} and {} do not fit together", cert.display(), key.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
