//! The client against a real gRPC server on a real unix socket that misbehaves on purpose.

#![allow(clippy::unwrap_used, reason = "all of this is test code")]

mod calls;
mod connection;
mod fake;
mod hostile;
mod introduction;
mod large;
mod paging;
mod scale;
