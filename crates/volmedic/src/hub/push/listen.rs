//! Connections, with or without TLS.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Endpoint;

/// Connections at once.
const CONNECTIONS: usize = 256;
/// A connection that is not agreed upon by then is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Between two tries to accept when the system has no room.
const PAUSE: Duration = Duration::from_millis(200);

/// Hands out connections that are ready to be used.
pub(super) struct Listener {
    ready: mpsc::Receiver<(Connection, SocketAddr)>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Listener {
    pub(super) async fn open(endpoint: &Endpoint) -> anyhow::Result<Self> {
        let address = endpoint.address;
        if endpoint.tls.is_none() && !address.ip().is_loopback() {
            bail!(
                "will not take tokens over plain HTTP on {address}; give --push-tls-cert and --push-tls-key, or listen \
                 on 127.0.0.1"
            );
        }
        let tls = match &endpoint.tls {
            Some((cert, key)) => Some(Tls::load(cert, key)?),
            None => None,
        };
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("cannot take reports on {address}; choose another --push-endpoint or free the port")
        })?;
        let address = listener.local_addr()?;
        tracing::info!(
            "taking reports on {}://{address}/v1/reports",
            if tls.is_some() { "https" } else { "http" }
        );
        let (send, ready) = mpsc::channel(16);
        Ok(Self { ready, address, task: tokio::spawn(accept(listener, tls, send)) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl axum::serve::Listener for Listener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

async fn accept(listener: TcpListener, mut tls: Option<Tls>, send: mpsc::Sender<(Connection, SocketAddr)>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(tls) = &mut tls else {
            if send.send((Connection { stream: Stream::Plain(stream), _permit: permit }, peer)).await.is_err()
            {
                return;
            }
            continue;
        };
        // One slow peer must not keep the others waiting.
        let (acceptor, send) = (tls.current(), send.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let stream = Stream::Tls(Box::new(stream));
                    let _ = send.send((Connection { stream, _permit: permit }, peer)).await;
                }
                Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
                Err(_) => tracing::debug!(%peer, "no TLS in time"),
            }
        });
    }
}

/// Certificate and key, read again when their files change.
struct Tls {
    files: (Box<Path>, Box<Path>),
    changed: Option<SystemTime>,
    acceptor: TlsAcceptor,
}

impl Tls {
    fn load(cert: &Path, key: &Path) -> anyhow::Result<Self> {
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

/// A connection; there is room for another when it ends.
pub(super) struct Connection {
    stream: Stream,
    _permit: OwnedSemaphorePermit,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::server::TlsStream<TcpStream>>),
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(task, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(task, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Task<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(task, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(task, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(task),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(task),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(task),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(task),
        }
    }
}
