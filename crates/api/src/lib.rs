//! Kubernetes objects as Volmedic sees them.

pub mod addons;
mod arrived;
pub mod resource;
pub mod slim;

pub use arrived::{Arrived, Malformed, Shape};
pub use volmedic_health::object::{Kind, ObjectRef};
