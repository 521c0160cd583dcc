//! What is being read, shown to anyone who waits for it.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

/// A shorter wait is not shown.
const PATIENCE: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(200);

/// Counts what is read. On a terminal a line on standard error says so; it goes when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    counts: Arc<[AtomicUsize; KINDS.len()]>,
    /// Whether anything is on the line.
    shown: Arc<AtomicBool>,
    line: Option<JoinHandle<()>>,
}

const KINDS: [&str; 4] = ["claims", "volumes", "pods", "events"];

impl Progress {
    /// Must be called within a runtime.
    pub(crate) fn start() -> Self {
        let counts: Arc<[AtomicUsize; KINDS.len()]> = Arc::default();
        if !io::stderr().is_terminal() {
            return Self { counts, shown: Arc::default(), line: None };
        }
        let (read, shown) = (counts.clone(), Arc::new(AtomicBool::new(false)));
        let drawn = shown.clone();
        let line = tokio::spawn(async move {
            sleep(PATIENCE).await;
            let mut tick = interval(EVERY);
            loop {
                tick.tick().await;
                let counts = KINDS.iter().zip(read.iter());
                let counts = counts.map(|(kind, count)| (kind, count.load(Ordering::Relaxed)));
                let counts = counts.filter(|(_, count)| *count > 0);
                let read: Vec<String> = counts.map(|(kind, count)| format!("{count} {kind}")).collect();
                let read = if read.is_empty() { "the cluster".to_owned() } else { read.join(", ") };
                let _ = write!(io::stderr(), "\r\x1b[Kreading {read} …");
                drawn.store(true, Ordering::Relaxed);
            }
        });
        Self { counts, shown, line: Some(line) }
    }

    /// One more was read. Kinds that are never many are not counted.
    pub(crate) fn note(&self, kind: &str) {
        if let Some(index) = KINDS.iter().position(|known| *known == kind) {
            self.counts[index].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            line.abort();
        }
        if self.shown.load(Ordering::Relaxed) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
