//! A transition, and whom it concerns.

use std::sync::Arc;

use volmedic_api::ObjectRef;
use volmedic_health::{Held, Transition};

/// One thing to report.
#[derive(Debug, Clone)]
pub struct Notice {
    pub transition: Transition,
    /// The objects it is reported on: the claims of the volume, or the pods that use it. Without any, it goes to the log
    /// and the metrics only.
    pub about: Vec<ObjectRef>,
    /// What the volume is called where it is used, such as the claim, for the text of events.
    pub known_as: Option<Arc<str>>,
    /// Everything that is wrong with the volume once this transition has happened, for the claim's durable status.
    pub standing: Vec<Held>,
}
