//! Reports what changed: events on the objects concerned, the claim's status, metrics and the log.
//!
//! A [`Notice`] goes in, a transition with the objects it concerns. [`Reporter::tell`] writes the log line, counts,
//! and queues the rest; it never waits. The sender behind it speaks to the API server: a bounded number of requests
//! at a time, at a bounded rate, again after a failure, in order for each object. What cannot be sent is kept within
//! a bound, and news of the same story replaces older news of it. While there is nothing to report, nothing is sent.
//!
//! After a restart [`Recall`] reads what had been reported, so that nothing is reported twice and every end is reported.

mod events;
mod failure;
mod healths;
mod heartbeat;
mod log;
mod metrics;
mod node_report;
mod note;
mod notice;
mod recall;
mod reporter;
mod sender;
mod status;
mod story;

pub use events::{EVENT_REASONS, EventReason, Voice};
pub use healths::{Beats, HealthOptions};
pub use metrics::{
    AgentPicture, ClaimDevice, ClaimUsage, Described, DriverPicture, HelperCounts, METRICS, Metrics, Picture,
    ProbeResult, Probes, Reports, Sick, View, register_agent, register_view,
};
pub use node_report::{
    NodeReporter, NodeReporterOptions, ProbeAnswers, Probing, Trouble, Whereabouts, coverage, node_report,
};
pub use note::{Note, Notes};
pub use notice::Notice;
pub use recall::{Recall, RecallError, Recalled};
pub use reporter::{Options, Reporter};
pub use sender::{Limits, Outlet, Verdict};
pub use status::{Stored, Support};
