//! What happened, in order, with the time at which it did.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing_subscriber::fmt::MakeWriter;

/// Lines kept; a history that writes more goes round in circles.
const MOST: usize = 200_000;

/// Shared by all parts of a simulation.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    began: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Log {
    /// Inside the runtime whose clock is paused.
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), lines: Arc::default() }
    }

    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn at(&self, time: Duration) -> Instant {
        self.began + time
    }

    pub(crate) fn add(&self, line: impl AsRef<str>) {
        let now = self.now().as_millis();
        let mut lines = self.lines.lock();
        if lines.len() < MOST {
            let (minutes, rest) = (now / 60_000, now % 60_000);
            lines.push(format!("{minutes:>4}m{:02}.{:03} {}", rest / 1000, rest % 1000, line.as_ref()));
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// Whether any line has this word.
    pub(crate) fn find(&self, word: &str) -> Option<String> {
        self.lines.lock().iter().find(|line| line.contains(word)).cloned()
    }
}

/// For the product's own log.
#[derive(Debug)]
pub(crate) struct Line(Log, Vec<u8>);

impl io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.add(format!("log: {}", String::from_utf8_lossy(&self.1).trim_end()));
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(self.clone(), Vec::new())
    }
}
