//! A client that means no harm, and how long it waits while others attack.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::door::{Door, Kind};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 99);
const PAUSE: Duration = Duration::from_millis(100);
/// Much more than is allowed, so that the failure says how much it was.
const GIVES_UP: Duration = Duration::from_secs(20);
/// Of HTTP/2: the first words of a client, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// One request.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) kind: Kind,
    pub(crate) outcome: Result<(), String>,
    /// Without the time in which its thread or the role's waited for a processor: attackers have machines of their own.
    pub(crate) waited: Duration,
}

/// Asks again and again, on a thread of its own.
pub(crate) struct Client {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Served>>,
}

impl Client {
    pub(crate) fn start(door: Door, process: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let mut all = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                all.push(runtime.block_on(measured(&door, process)));
                std::thread::sleep(PAUSE);
            }
            all
        });
        Self { stop, thread }
    }

    pub(crate) fn stop(self) -> Vec<Served> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

async fn measured(door: &Door, process: u32) -> Served {
    let (ours, theirs) = (starved("/proc/thread-self"), starved_process(process));
    let began = Instant::now();
    let outcome = match tokio::time::timeout(GIVES_UP, ask(door)).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {GIVES_UP:?}")),
    };
    let took = began.elapsed();
    let starved = (starved("/proc/thread-self").saturating_sub(ours))
        + starved_process(process)
            .iter()
            .map(|(thread, now)| {
                let before = theirs.iter().find(|(known, _)| known == thread);
                now.saturating_sub(before.map_or(Duration::ZERO, |(_, before)| *before))
            })
            .max()
            .unwrap_or_default();
    Served { kind: door.kind, outcome, waited: took.saturating_sub(starved) }
}

/// How long a thread was ready to run and had no processor.
fn starved(thread: &str) -> Duration {
    let text = std::fs::read_to_string(format!("{thread}/schedstat")).unwrap_or_default();
    Duration::from_nanos(text.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or_default())
}

fn starved_process(process: u32) -> Vec<(String, Duration)> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks
        .map(|task| {
            let path = task.path().display().to_string();
            let starved = starved(&path);
            (path, starved)
        })
        .collect()
}

/// One request on a connection of its own, as each kind of client makes it.
pub(crate) async fn ask(door: &Door) -> std::io::Result<()> {
    let mut line = door.line(ADDRESS).await?;
    let host = door.address;
    let (request, wanted) = match door.kind {
        Kind::Metrics => {
            (format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"), "200")
        }
        Kind::Page => (format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"), "200"),
        // Without a token it is refused, in good order.
        Kind::Push => {
            let head = "Connection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
            (format!("POST /v1/reports HTTP/1.1\r\nHost: {host}\r\n{head}"), "401")
        }
        Kind::Relay => {
            line.write_all(PREFACE).await?;
            line.flush().await?;
            let mut frame = [0; 9];
            line.read_exact(&mut frame).await?;
            return if frame[3] == 4 { Ok(()) } else { Err(other(format!("no settings, but {frame:?}"))) };
        }
    };
    line.write_all(request.as_bytes()).await?;
    line.flush().await?;
    let mut answer = Vec::new();
    // A TLS server may close without its last words.
    let read = line.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).unwrap_or_default();
    if status != wanted {
        let first = answer.lines().next().unwrap_or_default();
        return Err(other(format!("{wanted} was expected, not {first:?} ({read:?})")));
    }
    Ok(())
}

fn other(text: String) -> std::io::Error {
    std::io::Error::other(text)
}
