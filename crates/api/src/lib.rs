//! Kubernetes objects as Volmedic sees them.

mod arrived;
mod reference;
pub mod slim;

pub use arrived::{Arrived, Malformed, Shape};
pub use reference::{Kind, ObjectRef};
