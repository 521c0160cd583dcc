//! `volmedic demo` as a process, with real volumes: what it says, how honest it is, and that it leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod ends;
mod input;
mod rights;
mod stage;
mod story;
mod terminal;
