//! What ends a demo from outside.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) enum End {
    /// A signal to end, or the terminal is gone.
    Over,
    /// Back in the foreground.
    Resumed,
}

/// What ends a demo from outside.
pub(super) struct Ends {
    signals: [Signal; 3],
    resumed: Signal,
}

impl Ends {
    pub(super) fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            signals: [
                listen(SignalKind::interrupt())?,
                listen(SignalKind::terminate())?,
                listen(SignalKind::hangup())?,
            ],
            resumed: listen(SignalKind::from_raw(libc::SIGCONT))?,
        })
    }

    pub(super) async fn which(&mut self) -> End {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => End::Over,
            _ = terminate.recv() => End::Over,
            _ = hangup.recv() => End::Over,
            _ = self.resumed.recv() => End::Resumed,
        }
    }

    pub(super) async fn next(&mut self) {
        while !matches!(self.which().await, End::Over) {}
    }
}
