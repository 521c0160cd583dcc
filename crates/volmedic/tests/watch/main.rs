//! `volmedic watch` as a process, beside a simulated driver: what a person sees, and what is kept.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod history;
mod input;
mod live;
mod screens;
mod stage;
