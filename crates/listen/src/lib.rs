//! The guarded listener that every network endpoint uses: metrics and health, page, push, relay.
//!
//! A peer needs no token to open a connection, so a connection must cost little and end soon. [`Places`] decides, purely,
//! which connection has a place and which one is dropped; [`Guarded`] is a stream that ends when its place is taken away;
//! [`Listener`] serves HTTP on such streams.

mod accept;
mod http;
mod metrics;
mod places;
mod stream;
mod tls;

pub use accept::{Accepted, Door};
pub use http::Listener;
pub use metrics::{METRICS, register};
pub use places::{Limits, Place, Places};
pub use stream::Guarded;
pub use tls::Tls;

use std::net::{IpAddr, SocketAddr};

/// The peer of a connection and its place, for a handler: in the extensions of every request.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    place: Place,
}

impl Peer {
    /// The peer has shown a valid token on this connection, which is not dropped for others from now on.
    pub fn trust(&self) {
        self.place.trust();
    }

    /// The address that limits go by: that of an IPv6 peer is its /64.
    pub fn network(&self) -> IpAddr {
        places::network(self.address.ip())
    }

    /// Ends the connection, if it still exists when this is called.
    pub fn closer(&self) -> impl Fn() + Send + Sync + use<> {
        self.place.closer()
    }
}
