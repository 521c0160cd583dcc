//! How many connections there are, and which were dropped. Every label has a closed list of values.

use std::sync::LazyLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Described = (&'static str, &'static str, &'static [&'static str], &'static str);

const CONNECTIONS: Described =
    ("volmedic_listener_connections", "gauge", &["listener"], "Open connections, by listener");
const DROPPED: Described = (
    "volmedic_listener_dropped_total",
    "counter",
    &["listener", "why"],
    "Connections that were dropped or refused to protect the process, by listener and cause",
);

/// All metrics of listeners, for the documentation.
pub const METRICS: &[Described] = &[CONNECTIONS, DROPPED];

/// Why a connection was dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Why {
    /// The listener had no free place, and another peer connected.
    Full,
    /// The peer had its share, and connected again.
    PeerFull,
    /// No place could be freed: all were held by peers with a token.
    Refused,
    /// No TLS handshake or no whole request came in time.
    NoRequest,
    /// A request and its answer took too long.
    TooSlow,
    /// The peer did not accept the answer.
    NotReading,
}

impl Why {
    fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::PeerFull => "peer_full",
            Self::Refused => "refused",
            Self::NoRequest => "no_request",
            Self::TooSlow => "too_slow",
            Self::NotReading => "not_reading",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Of {
    listener: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Cause {
    listener: &'static str,
    why: &'static str,
}

/// Of all listeners of this process.
static OPEN: LazyLock<Family<Of, Gauge>> = LazyLock::new(Family::default);
static LOST: LazyLock<Family<Cause, Counter>> = LazyLock::new(Family::default);

/// Adds the metrics of all listeners of this process.
pub fn register(registry: &mut Registry) {
    registry.register(CONNECTIONS.0, CONNECTIONS.3, OPEN.clone());
    // The encoder adds `_total` to a counter's name.
    registry.register(DROPPED.0.trim_end_matches("_total"), DROPPED.3, LOST.clone());
}

pub(crate) fn opened(listener: &'static str) {
    OPEN.get_or_create(&Of { listener }).inc();
}

pub(crate) fn closed(listener: &'static str) {
    OPEN.get_or_create(&Of { listener }).dec();
}

pub(crate) fn count(listener: &'static str, why: Why) {
    LOST.get_or_create(&Cause { listener, why: why.label() }).inc();
}

/// Whether a connection was dropped for this cause.
#[cfg(test)]
pub(crate) fn dropped(listener: &'static str, why: Why) -> bool {
    LOST.get_or_create(&Cause { listener, why: why.label() }).get() > 0
}
