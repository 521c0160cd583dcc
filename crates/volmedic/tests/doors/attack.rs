//! What a hostile pod does to a listener. It has several addresses and no token, and connects again when it is dropped.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::door::{Door, Kind};

/// Addresses of attackers: 127.0.0.2 and following.
const PEERS: u8 = 8;
/// Connections that an attacker keeps up, more than any listener has places.
const LINES: u32 = 400;
const DRIP: Duration = Duration::from_millis(300);
const AGAIN: Duration = Duration::from_millis(250);
const TEN_THOUSAND: u32 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attack {
    SlowHeads,
    HugeHeads,
    SlowBodies,
    HalfOpenTls,
    Handshakes,
    UnreadAnswers,
    TenThousand,
}

impl Attack {
    pub(crate) const ALL: [Self; 7] = [
        Self::SlowHeads,
        Self::HugeHeads,
        Self::SlowBodies,
        Self::HalfOpenTls,
        Self::Handshakes,
        Self::UnreadAnswers,
        Self::TenThousand,
    ];

    /// On one of this many listeners. Answers how many connections there were.
    pub(crate) async fn run(self, door: &Door, doors: u32, until: Instant) -> u32 {
        let mut lines = JoinSet::new();
        if self == Self::TenThousand {
            open_all(door, TEN_THOUSAND / doors, &mut lines, until).await;
        } else {
            let count = match self {
                // Each costs the attacker as much as the listener.
                Self::Handshakes => 32,
                Self::UnreadAnswers => 64,
                _ => LINES,
            };
            for number in 0..count {
                let door = door.clone();
                lines.spawn(async move { self.keep_up(&door, peer(number), until).await });
            }
        }
        sleep_until(until).await;
        let mut connections = 0;
        while let Some(made) = lines.join_next().await {
            connections += made.unwrap();
        }
        connections
    }

    async fn keep_up(self, door: &Door, from: Ipv4Addr, until: Instant) -> u32 {
        let mut connections = 0;
        while Instant::now() < until {
            let once = self.once(door, from, &mut connections);
            // A refused connection is no failure of the test: it is what the listener is for.
            let _ = tokio::time::timeout_at(until, once).await;
            let pause = if self == Self::Handshakes { Duration::from_millis(5) } else { AGAIN };
            sleep(pause).await;
        }
        connections
    }

    /// One connection, until it is dropped.
    async fn once(self, door: &Door, from: Ipv4Addr, connections: &mut u32) -> std::io::Result<()> {
        let half_open =
            matches!(self, Self::HalfOpenTls) || door.kind == Kind::Relay && self != Self::Handshakes;
        if half_open {
            let mut stream = door.connect(from).await?;
            *connections += 1;
            // The beginning of a ClientHello of 512 bytes.
            stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).await?;
            drain(&mut stream).await;
            return Ok(());
        }
        let mut line = door.line_soon(from).await?;
        *connections += 1;
        let host = door.address;
        match self {
            Self::SlowHeads => {
                line.write_all(b"GET / HTTP/1.1\r\nX-Slow: a").await?;
                loop {
                    sleep(DRIP).await;
                    line.write_all(b"a").await?;
                    line.flush().await?;
                }
            }
            Self::HugeHeads => {
                line.write_all(b"GET / HTTP/1.1\r\nX-Huge: ").await?;
                for _ in 0..25 {
                    line.write_all(&[b'a'; 16 * 1024]).await?;
                }
                drain(&mut line).await;
                Ok(())
            }
            Self::SlowBodies => {
                let head =
                    format!("POST /v1/reports HTTP/1.1\r\nHost: {host}\r\nContent-Length: 60000\r\n\r\n");
                line.write_all(head.as_bytes()).await?;
                loop {
                    sleep(DRIP).await;
                    line.write_all(b"a").await?;
                    line.flush().await?;
                }
            }
            Self::UnreadAnswers => {
                let path = match door.kind {
                    Kind::Metrics => "/metrics",
                    Kind::Page => "/",
                    Kind::Push | Kind::Relay => "/v1/openapi.json",
                };
                let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
                loop {
                    line.write_all(request.as_bytes()).await?;
                    line.flush().await?;
                }
            }
            Self::Handshakes | Self::HalfOpenTls | Self::TenThousand => Ok(()),
        }
    }
}

fn peer(number: u32) -> Ipv4Addr {
    let last = u8::try_from(number % u32::from(PEERS)).unwrap();
    Ipv4Addr::new(127, 0, 0, 2 + last)
}

/// Reads until the listener ends the connection.
async fn drain(stream: &mut (impl AsyncReadExt + Unpin)) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer).await, Ok(count) if count > 0) {}
}

/// This number of connections, at an even pace, each kept for as long as the listener keeps it.
async fn open_all(door: &Door, count: u32, lines: &mut JoinSet<u32>, until: Instant) {
    const TOGETHER: u32 = 10;
    let rounds = count / TOGETHER;
    let time = until.saturating_duration_since(Instant::now()).mul_f64(0.8);
    let mut ticks = interval(time / rounds);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for round in 0..rounds {
        ticks.tick().await;
        for number in 0..TOGETHER {
            let (door, from) = (door.clone(), peer(round * TOGETHER + number));
            lines.spawn(async move {
                let kept = async {
                    let Ok(mut stream) = door.connect(from).await else { return 0 };
                    drain(&mut stream).await;
                    1
                };
                // One that is still open then was connected all the same.
                tokio::time::timeout_at(until, kept).await.unwrap_or(1)
            });
        }
    }
}
