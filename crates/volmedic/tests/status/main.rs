//! `volmedic status` and `volmedic explain` as processes on a real API server: what a person sees.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod complete;
mod explain;
mod input;
mod kubectl;
mod limited;
mod live;
mod proxied;
mod reported;
mod screens;
mod stage;
mod terminal;
