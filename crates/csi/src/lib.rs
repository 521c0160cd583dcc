//! Talks to CSI drivers over unix sockets, and survives whatever they answer.
//!
//! [`Driver`] keeps a connection for ever. While the driver is there it hands out a [`Session`]: its name, its
//! capabilities, and typed calls, each with a deadline. [`dialect`] chooses the calls, [`Pager`] walks the lists. What
//! comes back are facts from the wire in small types of our own; what they mean for a volume is judged elsewhere.
//!
//! Nothing here panics on what a driver sends, waits without a deadline, or holds more than a bounded amount of it.

mod address;
mod answer;
mod backoff;
mod calls;
pub mod dialect;
mod driver;
mod error;
mod features;
mod latency;
mod link;
mod method;
mod metrics;
mod oddity;
mod pages;
mod secrets;
mod session;
mod text;
mod wire;

pub use crate::address::{Address, AddressError};
pub use crate::answer::{
    Access, BackendHealth, Capability, Condition, Healed, ListedVolume, OldCondition, Stats, Usage,
    VolumeHealth,
};
pub use crate::backoff::Backoff;
pub use crate::calls::Heal;
pub use crate::driver::{Driver, Protocol, Settings, State};
pub use crate::error::{CallError, Duty, Kind};
pub use crate::features::{Addons, Features, HEALER_FIELD, Numbers};
pub use crate::latency::Latency;
pub use crate::method::Method;
pub use crate::metrics::{Described, METRICS, Metrics};
pub use crate::oddity::{Oddities, Oddity};
pub use crate::pages::{Broken, Counts, Limits, Listed, Pager, PassEnd, Visit};
pub use crate::secrets::Secrets;
pub use crate::session::Session;
