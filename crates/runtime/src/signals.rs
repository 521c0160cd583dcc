//! When to end, and what time it is.

use anyhow::Context;
use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use volmedic_monitor::Now;

#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn new() -> anyhow::Result<Self> {
        let what = "cannot wait for signals";
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context(what)?,
            interrupt: signal(SignalKind::interrupt()).context(what)?,
        })
    }

    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("terminated by a signal; shutting down"),
            _ = self.interrupt.recv() => tracing::info!("interrupted; shutting down"),
        }
    }
}

pub fn clock() -> Now {
    // Tokio's clock, so that what is due and what is slept for are measured alike.
    Now { day: Timestamp::now(), clock: tokio::time::Instant::now().into_std() }
}
