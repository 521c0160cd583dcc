//! Connections that have shaken hands. One that is slow or speaks no TLS holds up nobody else.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::metrics::{Metrics, Refused};

/// One healer needs one connection, and a successor a second.
const MOST: usize = 64;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// After an accept that failed, such as for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// Accepts for as long as the stream is kept.
pub(super) fn connections(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    metrics: Metrics,
) -> ReceiverStream<io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(8);
    let acceptor = TlsAcceptor::from(config);
    let seats = Arc::new(Semaphore::new(MOST));
    tokio::spawn(async move {
        loop {
            let Ok(seat) = seats.clone().acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "the relay could not accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (acceptor, sender, metrics) = (acceptor.clone(), sender.clone(), metrics.clone());
            tokio::spawn(async move {
                match timeout(HANDSHAKE, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        // Nobody takes it any more when the relay stops.
                        let _ = sender.send(Ok(Connection { stream, peer, _seat: seat })).await;
                    }
                    Ok(Err(error)) => refuse(&metrics, peer, &error),
                    Err(_) => refuse(&metrics, peer, &io::Error::from(io::ErrorKind::TimedOut)),
                }
            });
        }
    });
    ReceiverStream::new(receiver)
}

fn refuse(metrics: &Metrics, peer: SocketAddr, error: &io::Error) {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let plain =
        matches!(cause, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)));
    let why = if plain { Refused::PlainText } else { Refused::Handshake };
    metrics.refuse(why);
    if plain {
        tracing::warn!(%peer, "a caller spoke plain text to the relay and was refused; it must use TLS");
    } else {
        tracing::warn!(%peer, %error, "a caller did not get through the TLS handshake with the relay");
    }
}

/// A connection with its seat among those that are allowed.
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    peer: SocketAddr,
    _seat: OwnedSemaphorePermit,
}

/// Where a call comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) SocketAddr);

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer(self.peer)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
