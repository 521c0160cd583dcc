//! Who was let in, who was not, and what drivers answered. Every label has a closed list of values.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Described = (&'static str, &'static str, &'static [&'static str], &'static str);

const REFUSED: Described =
    ("volmedic_relay_refused_total", "counter", &["why"], "Callers that the relay did not let in, by why");
const HEALS: Described = (
    "volmedic_relay_heals_total",
    "counter",
    &["result"],
    "Heals that the relay handed to the driver, by the driver's answer: well, still_ill or a gRPC status",
);

const UNDER_WAY: Described = (
    "volmedic_relay_heals_under_way",
    "gauge",
    &[],
    "Heals that the relay has handed to the driver and that were not answered yet",
);

/// All metrics of the relay, for the documentation.
pub const METRICS: &[Described] = &[REFUSED, HEALS, UNDER_WAY];

/// Why a caller was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    PlainText,
    Handshake,
    NoToken,
    BadToken,
    WrongAudience,
    NotAllowed,
    /// Nobody could say whether the caller may come in.
    ReviewFailed,
}

impl Refused {
    pub fn label(self) -> &'static str {
        match self {
            Self::PlainText => "plain_text",
            Self::Handshake => "handshake",
            Self::NoToken => "no_token",
            Self::BadToken => "bad_token",
            Self::WrongAudience => "wrong_audience",
            Self::NotAllowed => "not_allowed",
            Self::ReviewFailed => "review_failed",
        }
    }
}

/// The metrics of all relays of this process. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    refused: Family<Why, Counter<u64, AtomicU64>>,
    heals: Family<Ended, Counter<u64, AtomicU64>>,
    under_way: Gauge,
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        // The encoder adds `_total` to a counter's name.
        registry.register(REFUSED.0.trim_end_matches("_total"), REFUSED.3, self.refused.clone());
        registry.register(HEALS.0.trim_end_matches("_total"), HEALS.3, self.heals.clone());
        registry.register(UNDER_WAY.0, UNDER_WAY.3, self.under_way.clone());
    }

    pub fn refused(&self, why: Refused) -> u64 {
        self.refused.get_or_create(&Why { why: why.label() }).get()
    }

    pub(super) fn refuse(&self, why: Refused) {
        self.refused.get_or_create(&Why { why: why.label() }).inc();
    }

    /// Counts one more heal for as long as the answer is kept.
    pub(super) fn heals(&self) -> UnderWay {
        self.under_way.inc();
        UnderWay(self.under_way.clone())
    }

    pub(super) fn healed(&self, result: &'static str) {
        self.heals.get_or_create(&Ended { result }).inc();
    }
}

/// A heal that the driver was asked for.
pub(super) struct UnderWay(Gauge);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Why {
    why: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ended {
    result: &'static str,
}
