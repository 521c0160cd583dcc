//! Kubernetes objects as Volmedic sees them.

pub mod addons;
mod arrived;
mod controller_coverage;
mod fresh_probe;
mod readable;
pub mod resource;
pub mod slim;

pub use arrived::{Arrived, Malformed, Shape};
pub use controller_coverage::{
    CONTROLLER_COVERAGE, ControllerCoverage, Outage, Probed, REPORTS_HEALTH, Unreadable,
};
pub use fresh_probe::{
    Found, PROBE_ANSWERS, PROBE_REQUESTS, ProbeAnswer, ProbeRequest, answers_text, probe_answers,
    probe_requests, requests_text,
};
pub use readable::Readable;
pub use volmedic_health::object::{Kind, ObjectRef};
