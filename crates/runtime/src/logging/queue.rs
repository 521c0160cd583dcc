//! Lines on their way to standard error, written by a thread of their own. Whatever reads them may stop reading, and a thread
//! that renews a Lease must not wait for that.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use tracing_subscriber::fmt::MakeWriter;

/// Bytes that may wait.
const MOST: usize = 256 << 10;
/// What a line costs beside its text.
const OVERHEAD: usize = 64;
/// The thread only copies bytes to a file descriptor.
const STACK: usize = 128 << 10;

/// How a line is written that says how many others were dropped.
pub(super) type Notice = fn(u64) -> Vec<u8>;

/// Takes lines and never waits. While nothing reads them, it drops the new ones and counts them.
#[derive(Debug, Clone)]
pub(super) struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    notice: Notice,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    /// Bytes of all lines and what else they cost.
    cost: usize,
    /// Since the last notice. From the first one on all are dropped until those before were written, so that the notice is
    /// where they would have been.
    dropped: u64,
    is_writing: bool,
}

impl Queue {
    /// Starts the thread that hands lines to `write`, which may wait for as long as it likes.
    pub(super) fn start(notice: Notice, write: impl FnMut(&[u8]) + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), notice });
        let queue = Self(shared.clone());
        thread::Builder::new().name("log".to_owned()).stack_size(STACK).spawn(move || shared.run(write))?;
        Ok(queue)
    }

    pub(super) fn push(&self, line: Vec<u8>) {
        let mut state = self.0.state.lock();
        let cost = line.len() + OVERHEAD;
        // One that alone is longer than all that may wait is no reason to drop it.
        let is_full = !state.lines.is_empty() && state.cost + cost > MOST;
        if is_full || state.dropped > 0 {
            state.dropped += 1;
        } else {
            state.cost += cost;
            state.lines.push_back(line);
            self.0.changed.notify_all();
        }
    }

    /// Waits until everything is written, but not longer than this; answers whether it is.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut state = self.0.state.lock();
        while !state.is_idle() {
            if self.0.changed.wait_until(&mut state, end).timed_out() {
                return state.is_idle();
            }
        }
        true
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0 && !self.is_writing
    }
}

impl Shared {
    /// Runs until the process ends.
    fn run(&self, mut write: impl FnMut(&[u8])) {
        let mut state = self.state.lock();
        loop {
            let line = match state.lines.pop_front() {
                Some(line) => {
                    state.cost -= line.len() + OVERHEAD;
                    line
                }
                None if state.dropped > 0 => (self.notice)(std::mem::take(&mut state.dropped)),
                None => {
                    self.changed.notify_all();
                    self.changed.wait(&mut state);
                    continue;
                }
            };
            state.is_writing = true;
            MutexGuard::unlocked(&mut state, || write(&line));
            state.is_writing = false;
        }
    }
}

/// The formatter hands over one whole line at a time.
impl io::Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Queue {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Writes to standard error without its lock, which a panic elsewhere may want meanwhile. What cannot be written is gone: there
/// is nowhere to report it.
pub(super) fn to_stderr(mut line: &[u8]) {
    let stderr = rustix::stdio::stderr();
    while !line.is_empty() {
        match rustix::io::write(stderr, line) {
            Ok(written) => line = line.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Another process made the pipe one that does not wait.
            Err(Errno::AGAIN) => {
                let _ = rustix::event::poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_mins(1);

    fn notice(dropped: u64) -> Vec<u8> {
        format!("dropped {dropped}").into_bytes()
    }

    /// A queue, a way to let one line after the other be written, and what was written.
    fn queue() -> (Queue, mpsc::Sender<()>, mpsc::Receiver<String>) {
        let (let_one, may_write) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        let write = move |line: &[u8]| {
            let _ = may_write.recv();
            let _ = written.send(String::from_utf8_lossy(line).into_owned());
        };
        (Queue::start(notice, write).unwrap(), let_one, lines)
    }

    #[test]
    fn while_nothing_reads_it_neither_waits_nor_grows_and_says_what_it_dropped() {
        let (queue, let_one, lines) = queue();
        let sent = 10_000_u64;
        for number in 0..sent {
            queue.push(format!("{number:0100}").into_bytes());
        }
        {
            let state = queue.0.state.lock();
            assert!(state.cost <= MOST && state.dropped > sent / 2, "{} {}", state.cost, state.dropped);
        }
        assert!(!queue.flush(Duration::ZERO), "nothing was read");
        // From now on it is read as fast as it is written.
        drop(let_one);
        assert!(queue.flush(PATIENCE));
        queue.push(b"after".to_vec());
        assert!(queue.flush(PATIENCE));
        let lines: Vec<String> = lines.try_iter().collect();
        let [kept @ .., notice, after] = &lines[..] else { panic!("{} lines", lines.len()) };
        for (number, line) in kept.iter().enumerate() {
            assert_eq!(*line, format!("{number:0100}"), "the oldest, in order");
        }
        assert_eq!(*notice, format!("dropped {}", sent - kept.len() as u64), "and all others were counted");
        assert_eq!(after, "after");
    }

    #[test]
    fn a_long_line_is_not_dropped_for_its_length() {
        let (queue, let_one, lines) = queue();
        drop(let_one);
        let long = "x".repeat(2 * MOST);
        queue.push(long.clone().into_bytes());
        assert!(queue.flush(PATIENCE));
        assert_eq!(lines.try_iter().collect::<Vec<_>>(), [long]);
    }
}
