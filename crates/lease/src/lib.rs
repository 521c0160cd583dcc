//! Leader election on a Lease: of several replicas one leads, and the others wait and cost nothing.
//!
//! The record and the rules are client-go's, so that a sidecar written in Go and this one never lead at the same time.
//! Nobody's clock is trusted: a holder is judged by how long *we* have seen no change of its record, never by
//! the times written in it.
//!
//! [`Election`] is the rule, a pure function of time and of what the API server answered. [`Candidate`] carries
//! it out and speaks to the API server about this one Lease and nothing else.

mod candidate;
mod config;
mod election;
mod place;
mod record;

pub use candidate::Candidate;
pub use config::{Config, ConfigError, parse_labels};
pub use election::{Election, NotHealthy, State, Step};
pub use place::{hostname, lock_name, namespace, sanitize};
pub use record::Record;
