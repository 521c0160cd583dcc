//! One listener of a role, and connections to it from any loopback address.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{self, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::anyone::Anyone;

/// In the certificate of the push endpoint.
pub(crate) const HOST: &str = "volmedic-hub.default.svc";
/// For a connection of an attacker; an honest client has none but its own.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Metrics,
    Page,
    Push,
    Relay,
}

#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    tls: Option<TlsConnector>,
}

/// A connection, with or without TLS.
pub(crate) enum Line {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Door {
    pub(crate) fn plain(kind: Kind, address: SocketAddr) -> Self {
        Self { kind, address, tls: None }
    }

    /// Without an authority, every certificate is accepted.
    pub(crate) fn tls(kind: Kind, address: SocketAddr, authority: Option<&Path>) -> Self {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = match authority {
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
                config.with_root_certificates(roots)
            }
            None => config.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider))),
        };
        let mut config = config.with_no_client_auth();
        config.alpn_protocols = match kind {
            Kind::Relay => vec![b"h2".to_vec()],
            _ => Vec::new(),
        };
        // A client that resumes sessions saves the server most of the work.
        config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
        Self { kind, address, tls: Some(TlsConnector::from(Arc::new(config))) }
    }

    /// A TCP connection from this loopback address.
    pub(crate) async fn connect(&self, from: Ipv4Addr) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((from, 0).into())?;
        socket.connect(self.address).await
    }

    /// The same, after the TLS handshake where the listener has one.
    pub(crate) async fn line(&self, from: Ipv4Addr) -> io::Result<Line> {
        let stream = self.connect(from).await?;
        let Some(tls) = &self.tls else { return Ok(Line::Plain(stream)) };
        let name = ServerName::try_from(HOST).unwrap();
        Ok(Line::Tls(Box::new(tls.connect(name, stream).await?)))
    }

    /// For an attacker, who does not wait for ever.
    pub(crate) async fn line_soon(&self, from: Ipv4Addr) -> io::Result<Line> {
        tokio::time::timeout(LIMIT, self.line(from)).await?
    }
}

impl AsyncRead for Line {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
