//! Those who have much to report, and what it costs the hub and the API server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use volmedic_testkit::objects;

use crate::caller::{AUDIENCE, allow, token};
use crate::process::Controller as Process;
use crate::stage::{DRIVER, Stage};

/// A connection that stays, as a detector's does that has much to report.
pub(crate) struct Line {
    stream: TcpStream,
    head: String,
    left: Vec<u8>,
}

impl Line {
    pub(crate) fn open(to: SocketAddr, token: &str) -> Self {
        let stream = TcpStream::connect(to).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_mins(2))).expect("a limit for reads");
        stream.set_nodelay(true).expect("no delay");
        let head = format!(
            "POST /v1/reports HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: "
        );
        Self { stream, head, left: Vec::new() }
    }

    /// Sends a report and answers with what status it was met.
    pub(crate) fn send(&mut self, report: &Value) -> u16 {
        let body = report.to_string();
        let request = format!("{}{}\r\n\r\n{body}", self.head, body.len());
        self.stream.write_all(request.as_bytes()).expect("it reads");
        loop {
            let text = String::from_utf8_lossy(&self.left);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.and_then(|length| length.parse().ok()).expect("a length");
                if body.len() >= length {
                    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
                    let status = status.unwrap_or_else(|| panic!("no status in {head:?}"));
                    self.left.clear();
                    return status;
                }
            }
            let mut buffer = [0; 4096];
            let read = self.stream.read(&mut buffer).expect("it answers");
            assert!(read > 0, "the connection was closed");
            self.left.extend_from_slice(&buffer[..read]);
        }
    }
}

/// One who reports, with an account of its own.
pub(crate) struct Sender {
    pub(crate) name: String,
    pub(crate) token: String,
    pub(crate) claims: Vec<String>,
}

impl Sender {
    pub(crate) async fn new(stage: &Stage, number: usize, claims: Vec<String>) -> Self {
        let name = format!("sender-{number}");
        let token = token(stage, &name, AUDIENCE, None).await;
        allow(stage, &name);
        Self { name, token, claims }
    }

    /// Its `number`th report: one claim after the other. What it says of a claim changes with `change`, which is given
    /// the round and the claim's number.
    pub(crate) fn report(
        &self,
        namespace: &str,
        number: usize,
        change: impl Fn(usize, usize) -> usize,
    ) -> Value {
        let (claim, round) = (number % self.claims.len(), number / self.claims.len());
        json!({
            "claim": {"namespace": namespace, "name": self.claims[claim]}, "source": self.name,
            "ttlSeconds": 3600,
            "conditions": [{"status": "Degraded", "reason": format!("Round{}", change(round, claim))}],
        })
    }
}

pub(crate) async fn make_claims(stage: &Stage, from: usize, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for n in from..from + count {
        let name = format!("claim-{n:04}");
        let handle = stage.handle(&name);
        objects::bound_claim(&stage.client, &stage.namespace, &name, DRIVER, &handle)
            .await
            .expect("a bound claim");
        names.push(name);
    }
    names
}

/// How often the API server was asked to do something since it started.
pub(crate) async fn asked(client: &Client, resource: &str) -> u64 {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let text = client.request_text(request).await.expect("the API server's metrics");
    let about = format!("resource=\"{resource}\"");
    let written = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains(&about)
            && !["GET", "LIST", "WATCH"].iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    };
    let counts = text.lines().filter(written).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it counts")]
    let sum = counts.sum::<f64>() as u64;
    sum
}

/// Resident memory in KiB.
pub(crate) fn resident(hub: &Process) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", hub.pid())).expect("the process is there");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number")
}
