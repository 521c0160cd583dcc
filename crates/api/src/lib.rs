//! Kubernetes objects as Volmedic sees them.

pub mod addons;
mod arrived;
mod controller_coverage;
pub mod resource;
pub mod slim;

pub use arrived::{Arrived, Malformed, Shape};
pub use controller_coverage::{
    CONTROLLER_COVERAGE, ControllerCoverage, Outage, Probed, REPORTS_HEALTH, Unreadable,
};
pub use volmedic_health::object::{Kind, ObjectRef};
