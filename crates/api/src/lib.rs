//! Kubernetes objects as Volmedic sees them.

pub mod addons;
mod arrived;
mod reference;
pub mod resource;
pub mod slim;

pub use arrived::{Arrived, Malformed, Shape};
pub use reference::{Kind, ObjectRef};
