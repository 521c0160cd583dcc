//! The driver as a real process, with real mounts, loop devices and mounters. Needs root.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod calls;
mod crash;
mod ground;
mod input;
mod lifecycle;
mod many;
mod passthrough;
mod register;
mod restart;
