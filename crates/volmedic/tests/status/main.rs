//! `volmedic status` and `volmedic explain` as processes on a real API server: what a person sees.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod explain;
mod input;
mod limited;
mod kubectl;
mod live;
mod screens;
mod proxied;
mod stage;
mod terminal;
mod told;
