//! Connections that have shaken hands. One that is slow or speaks no TLS holds up nobody else.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use volmedic_listen::{Accepted, Door, Guarded, Limits, Peer};
use volmedic_panics::caught;

use super::metrics::{Metrics, Refused};

/// One healer needs one connection, and a successor a second. A caller that shows no token in time is dropped; one that did
/// is kept, because a heal may take long.
const LIMITS: Limits = Limits::new("relay", 64, 16);

/// Callers without a token can fail as often as they like. Each failure is counted, and one in this time is logged.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// When a refusal was last logged, and how many were not since then.
#[derive(Debug, Default)]
struct Logged(Mutex<(Option<Instant>, u64)>);

impl Logged {
    /// If this refusal is to be logged: how many before it were not.
    fn turn(&self, now: Instant) -> Option<u64> {
        let (last, unlogged) = &mut *self.0.lock();
        if last.is_some_and(|last| now.saturating_duration_since(last) < LOG_EVERY) {
            *unlogged += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(unlogged))
    }
}

/// Accepts for as long as the stream is kept.
pub(super) fn connections(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    metrics: Metrics,
) -> ReceiverStream<io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(8);
    let acceptor = TlsAcceptor::from(config);
    let door = Door::new(listener, LIMITS);
    let logged = Arc::<Logged>::default();
    tokio::spawn(async move {
        loop {
            let Accepted { stream, peer } = tokio::select! {
                accepted = door.accept() => accepted,
                () = sender.closed() => return,
            };
            let (acceptor, sender, metrics) = (acceptor.clone(), sender.clone(), metrics.clone());
            let logged = logged.clone();
            tokio::spawn(caught(async move {
                match acceptor.accept(stream).await {
                    Ok(stream) => {
                        // Nobody takes it any more when the relay stops.
                        let _ = sender.send(Ok(Connection { stream, peer })).await;
                    }
                    Err(error) => refuse(&metrics, &logged, peer.address, &error),
                }
            }));
        }
    });
    ReceiverStream::new(receiver)
}

fn refuse(metrics: &Metrics, logged: &Logged, peer: SocketAddr, error: &io::Error) {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let plain =
        matches!(cause, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)));
    let why = if plain { Refused::PlainText } else { Refused::Handshake };
    metrics.refuse(why);
    let Some(more) = logged.turn(Instant::now()) else { return };
    if plain {
        tracing::warn!(%peer, more, "a caller spoke plain text to the relay and was refused; it must use TLS");
    } else {
        tracing::warn!(%peer, %error, more, "a caller did not get through the TLS handshake with the relay");
    }
}

/// A connection that has shaken hands.
pub(super) struct Connection {
    stream: TlsStream<Guarded>,
    peer: Peer,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_refusal_in_a_while_is_logged_and_says_how_many_were_not() {
        let (logged, begin) = (Logged::default(), Instant::now());
        assert_eq!(logged.turn(begin), Some(0));
        for millis in 0..500 {
            assert_eq!(logged.turn(begin + Duration::from_millis(millis)), None);
        }
        assert_eq!(logged.turn(begin + LOG_EVERY), Some(500));
        assert_eq!(logged.turn(begin + LOG_EVERY), None);
        assert_eq!(logged.turn(begin + LOG_EVERY * 2), Some(1));
    }
}
