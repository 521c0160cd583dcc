//! Accounts with tokens, a hub that takes their reports, and the wire to it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::process::Controller as Process;
use crate::stage::{QUICK, Stage, everything, kubectl, start_hub, until};

pub(crate) const AUDIENCE: &str = "volmedic-hub";
/// Whatever is answered is answered by then.
const LIMIT: Duration = Duration::from_mins(2);

/// A hub that takes reports on the claims `data` and `other`, and the token of an account that may report on them.
pub(crate) struct Desk {
    pub(crate) stage: Stage,
    pub(crate) hub: Process,
    pub(crate) to: SocketAddr,
    pub(crate) good: String,
}

impl Desk {
    pub(crate) async fn open(arguments: &[&str]) -> Self {
        let stage = Stage::own(&everything()).await;
        let node = stage.make_node("n").await;
        for claim in ["data", "other"] {
            stage.used_claim(claim, &node).await;
        }
        let good = token(&stage, "detector", AUDIENCE, None).await;
        allow(&stage, "detector");
        let arguments = [&QUICK[..], &["--push-endpoint=127.0.0.1:0"], arguments].concat();
        let hub = start_hub(&stage.kubeconfig().await, &arguments);
        hub.wait_log("merging what is known").await;
        let to = address(&hub).await;
        let desk = Self { stage, hub, to, good };
        until("the hub has read the cluster", || async {
            let (status, answer) = post(to, &desk.good, &report(&desk.stage, "data", 600, &json!([])));
            if status == 200 { Ok(true) } else { Err(answer) }
        })
        .await;
        desk
    }

    /// How many reports the hub counted, by what became of them.
    pub(crate) async fn counts(&self) -> BTreeMap<String, u64> {
        counts(&self.hub).await
    }

    /// That nothing is stored, now that everything was answered.
    pub(crate) async fn nothing_is_stored(&self) {
        assert_eq!(self.stage.versions().await.len(), 0, "nothing of all that was stored");
    }
}

pub(crate) async fn counts(hub: &Process) -> BTreeMap<String, u64> {
    let (_, text) = hub.get("/metrics").await;
    let count = |line: &str| {
        let (result, count) =
            line.strip_prefix("volmedic_hub_reports_total{result=\"")?.split_once("\"} ")?;
        Some((result.to_owned(), count.parse().ok()?))
    };
    text.lines().filter_map(count).collect()
}

/// A token of an account in the stage's namespace, which is made if need be.
pub(crate) async fn token(stage: &Stage, account: &str, audience: &str, pod: Option<&Pod>) -> String {
    token_in(stage, &stage.namespace, account, audience, pod).await
}

pub(crate) async fn token_in(
    stage: &Stage,
    namespace: &str,
    account: &str,
    audience: &str,
    pod: Option<&Pod>,
) -> String {
    stage.plane.token(namespace, account, None).await.expect("the account can be made");
    let bound = pod.map(|pod| BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
    });
    let spec = TokenRequestSpec {
        audiences: vec![audience.to_owned()],
        bound_object_ref: bound,
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let accounts = Api::<ServiceAccount>::namespaced(stage.client.clone(), namespace);
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    answer.expect("a token").status.expect("a status").token
}

/// Allows an account to report on the claims of the stage.
pub(crate) fn allow(stage: &Stage, account: &str) {
    let namespace = &stage.namespace;
    let role = ["--verb=report", "--resource=volumehealths.volmedic.dev"];
    kubectl(&stage.plane, &[&["create", "role", account, "-n", namespace], &role[..]].concat());
    let (role, subject) = (format!("--role={account}"), format!("--serviceaccount={namespace}:{account}"));
    kubectl(&stage.plane, &["create", "rolebinding", account, "-n", namespace, &role, &subject]);
}

pub(crate) async fn address(hub: &Process) -> SocketAddr {
    hub.wait_log("taking reports on").await;
    let log = hub.log();
    let (_, rest) = log.split_once("taking reports on http://").expect("an address");
    rest.split('/').next().and_then(|address| address.parse().ok()).expect("an address")
}

/// An answer, as it came.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// That it is a problem document with this code, which says this.
    #[track_caller]
    pub(crate) fn is_problem(&self, code: u16, word: &str) {
        assert_eq!(self.status, code, "{word}: {} {}", self.head, self.body);
        assert_eq!(self.body["status"], code, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.head);
        let detail = self.body["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(word), "{word:?} is not in {detail:?}");
    }
}

pub(crate) fn call(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut stream = TcpStream::connect(to).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit for reads");
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(b"\r\n")).expect("it reads");
    // Who refuses a long body need not read it to its end.
    let _ = stream.write_all(body);
    answer(&mut stream)
}

/// Reads an answer to the end of its connection.
pub(crate) fn answer(stream: &mut TcpStream) -> Answer {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer {
        status: status.unwrap_or_else(|| panic!("no status in {head:?}")),
        head: head.to_owned(),
        body: serde_json::from_str(body).unwrap_or_default(),
    }
}

pub(crate) fn send(to: SocketAddr, token: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    call(to, "POST", "/v1/reports", &headers, body.to_string().as_bytes())
}

/// Status and body of the answer to a report.
pub(crate) fn post(to: SocketAddr, token: &str, body: &Value) -> (u16, Value) {
    let answer = send(to, token, body);
    (answer.status, answer.body)
}

pub(crate) fn report(stage: &Stage, claim: &str, ttl: u64, conditions: &Value) -> Value {
    report_in(&stage.namespace, claim, ttl, conditions)
}

pub(crate) fn report_in(namespace: &str, claim: &str, ttl: u64, conditions: &Value) -> Value {
    json!({
        "claim": {"namespace": namespace, "name": claim}, "source": "smart-scan",
        "ttlSeconds": ttl, "conditions": conditions,
    })
}

pub(crate) fn failing() -> Value {
    json!([{"status": "Degraded", "reason": "DiskDegrading", "message": "9 sectors"}])
}
