//! Accepting connections, each with a place, and dropping those that are overdue.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use tokio::net::TcpListener;

use crate::Peer;
use crate::places::{Limits, Places};
use crate::stream::Guarded;

/// Pause after an accept that failed, such as for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(200);
/// Time between two checks for connections that are overdue.
const SWEEP: Duration = Duration::from_millis(500);
/// What the kernel buffers for one connection in each direction. It counts towards the memory of the container.
const KERNEL_BUFFER: usize = 64 * 1024;

/// A socket that listens, and the places of its connections.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    places: Places,
}

/// A new connection.
#[derive(Debug)]
pub struct Accepted {
    pub stream: Guarded,
    pub peer: Peer,
}

impl Door {
    pub fn new(listener: TcpListener, limits: Limits) -> Self {
        // Connections inherit it. Without it they work too, with more memory.
        let set = set_socket_recv_buffer_size(&listener, KERNEL_BUFFER)
            .and_then(|()| set_socket_send_buffer_size(&listener, KERNEL_BUFFER));
        if let Err(error) = set {
            tracing::debug!(%error, listener = limits.name, "the buffers of connections keep their size");
        }
        Self { listener, places: Places::new(limits) }
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub fn limits(&self) -> &Limits {
        self.places.limits()
    }

    /// The next connection that has a place. Cancel safe. Overdue connections are dropped only while this is awaited.
    pub async fn accept(&self) -> Accepted {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = tokio::time::sleep(SWEEP), if !self.places.is_empty() => {
                    self.places.sweep(Instant::now());
                    continue;
                }
            };
            let now = Instant::now();
            match accepted {
                Ok((stream, address)) => {
                    // A flood of connections must not put off the deadlines of those that are there.
                    self.places.sweep(now);
                    let Some(place) = self.places.take(address.ip(), now) else { continue };
                    let stream = Guarded::new(stream, place.clone());
                    return Accepted { stream, peer: Peer { address, place } };
                }
                Err(error) => {
                    tracing::warn!(%error, listener = self.limits().name, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}
