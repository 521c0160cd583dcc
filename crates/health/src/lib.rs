//! What Volmedic believes about volumes, and how it changes its mind.
//!
//! Everything here is a pure function of its arguments: no I/O, no clock, no async runtime. Time comes in
//! as an argument, what was seen comes in as a [`Sight`], and what changed comes out as [`Transition`]s.
//!
//! ```
//! use jiff::Timestamp;
//! use volmedic_health::{Change, Condition, Ledger, Policy, Reason, Sight, Status, Subject, Vantage, WellKnown};
//!
//! let mut ledger = Ledger::new(Policy::default());
//! let volume = Subject::volume("disk.example.net", "vol-1");
//! let full = Condition::new(Status::Degraded, Reason::from(WellKnown::OutOfCapacity), "99 % used");
//! let noon: Timestamp = "2026-08-21T12:00:00Z".parse()?;
//!
//! let reported = ledger.record(noon, &volume, &Vantage::Controller, Sight::adverse([full]));
//! assert!(matches!(reported[0].change, Change::Appeared { .. }));
//! // The next probe finds it healthy again.
//! let reported = ledger.record(noon, &volume, &Vantage::Controller, Sight::Healthy);
//! assert!(matches!(reported[0].change, Change::Cleared { .. }));
//! # Ok::<(), jiff::Error>(())
//! ```

mod condition;
pub mod fullness;
mod headline;
mod ledger;
mod not_probed;
pub mod object;
mod policy;
mod reason;
mod remedy;
mod sanitize;
mod sight;
mod status;
mod subject;
mod transition;
mod word;

pub use condition::{Condition, Conditions, MAX_CONDITIONS};
pub use headline::{Headline, Tally};
pub use ledger::{Belief, Held, Ledger, Memo, Quiet};
pub use not_probed::NotProbed;
pub use policy::Policy;
pub use reason::{Reason, WellKnown};
pub use remedy::Remedy;
pub use sanitize::{
    MAX_MESSAGE_BYTES, MAX_REASON_BYTES, message as sanitize_message, reason as sanitize_reason,
};
pub use sight::{Sight, Why, WhyKind};
pub use status::{Class, Health, Status};
pub use subject::{Subject, Vantage, Volume};
pub use transition::{Change, Ending, Transition};
pub use word::UnknownWord;
