//! The driver as a real process, with real mounts, loop devices and mounters. Needs root.

#[path = "driver/calls.rs"]
mod calls;
#[path = "driver/crash.rs"]
mod crash;
#[path = "driver/ground.rs"]
mod ground;
#[path = "driver/input.rs"]
mod input;
#[path = "driver/lifecycle.rs"]
mod lifecycle;
#[path = "driver/many.rs"]
mod many;
#[path = "driver/passthrough.rs"]
mod passthrough;
#[path = "driver/restart.rs"]
mod restart;
