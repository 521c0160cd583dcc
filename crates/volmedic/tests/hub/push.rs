//! Reports of others' detectors, over real HTTP with real tokens.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use volmedic_testkit::objects;

use crate::process::{Controller as Process, program};
use crate::stage::{QUICK, Stage, everything, kubectl, start_hub};

const AUDIENCE: &str = "volmedic-hub";

/// A token of an account in the stage's namespace, which is made if need be.
async fn token(stage: &Stage, account: &str, audience: &str, pod: Option<&Pod>) -> String {
    stage.plane.token(&stage.namespace, account, None).await.expect("the account can be made");
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
    let accounts = Api::<ServiceAccount>::namespaced(stage.client.clone(), &stage.namespace);
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    answer.expect("a token").status.expect("a status").token
}

/// Allows an account to report on the claims of the stage.
fn allow(stage: &Stage, account: &str) {
    let namespace = &stage.namespace;
    kubectl(
        &stage.plane,
        &[
            "create",
            "role",
            "reporter",
            "-n",
            namespace,
            "--verb=report",
            "--resource=volumehealths.volmedic.dev",
        ],
    );
    let subject = format!("--serviceaccount={namespace}:{account}");
    kubectl(
        &stage.plane,
        &["create", "rolebinding", "reporter", "-n", namespace, "--role=reporter", &subject],
    );
}

async fn address(hub: &Process) -> SocketAddr {
    hub.wait_log("taking reports on").await;
    let log = hub.log();
    let (_, rest) = log.split_once("taking reports on http://").expect("an address");
    rest.split('/').next().and_then(|address| address.parse().ok()).expect("an address")
}

/// Status and body of an answer.
fn call(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, Value) {
    let mut stream = TcpStream::connect(to).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit for reads");
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
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (
        status.unwrap_or_else(|| panic!("no status in {head:?}")),
        serde_json::from_str(body).unwrap_or_default(),
    )
}

fn post(to: SocketAddr, token: &str, body: &Value) -> (u16, Value) {
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    call(to, "POST", "/v1/reports", &headers, body.to_string().as_bytes())
}

fn report(stage: &Stage, claim: &str, ttl: u64, conditions: &Value) -> Value {
    json!({
        "claim": {"namespace": stage.namespace, "name": claim}, "source": "smart-scan",
        "ttlSeconds": ttl, "conditions": conditions,
    })
}

fn failing() -> Value {
    json!([{"status": "Degraded", "reason": "DiskDegrading", "message": "9 sectors"}])
}

#[tokio::test]
async fn reports_are_stored_expire_and_are_refused_with_a_reason() {
    let stage = Stage::own(&everything()).await;
    let node = stage.make_node("n").await;
    for claim in ["data", "other"] {
        stage.used_claim(claim, &node).await;
    }
    let good = token(&stage, "detector", AUDIENCE, None).await;
    allow(&stage, "detector");
    let kubeconfig = stage.kubeconfig().await;
    let arguments = [&QUICK[..], &["--push-endpoint=127.0.0.1:0"]].concat();
    let mut hub = start_hub(&kubeconfig, &arguments);
    hub.wait_log("merging what is known").await;
    let to = address(&hub).await;
    let sick = report(&stage, "data", 600, &failing());
    crate::stage::until("the hub has read the cluster", || async {
        Ok::<_, String>(post(to, &good, &report(&stage, "data", 600, &json!([]))).0 == 200)
    })
    .await;

    // Who may not.
    let elsewhere = token(&stage, "detector", "https://kubernetes.default.svc", None).await;
    let nobody = token(&stage, "nobody", AUDIENCE, None).await;
    let pod = objects::pod_as(&stage.client, &stage.namespace, "short", &node, &[], "detector")
        .await
        .expect("a pod");
    let orphaned = token(&stage, "detector", AUDIENCE, Some(&pod)).await;
    let pods = Api::<Pod>::namespaced(stage.client.clone(), &stage.namespace);
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete("short", &now).await.expect("the pod is deleted");
    crate::stage::until("the pod is gone", || async { pods.get_opt("short").await.map(|pod| pod.is_none()) })
        .await;
    let mut forged = good.clone();
    forged.truncate(good.len() - 4);
    for (token, code, word) in [
        ("", 401, "Bearer"),
        ("nonsense", 401, "not valid"),
        (forged.as_str(), 401, "not valid"),
        (elsewhere.as_str(), 401, "audience volmedic-hub"),
        (orphaned.as_str(), 401, "not valid"),
        (nobody.as_str(), 403, "may not report on claim"),
    ] {
        let (status, problem) = post(to, token, &sick);
        assert_eq!(status, code, "{problem}");
        assert_eq!(problem["status"], code, "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(word)), "{word}: {problem}");
    }

    // What may not be said.
    let mut twice = sick.clone();
    twice["conditions"] = json!([sick["conditions"][0], sick["conditions"][0]]);
    let bell = json!([{"status": "Degraded", "reason": "X", "message": "ding\u{7}"}]);
    for (body, code, word) in [
        (report(&stage, "absent", 600, &failing()), 404, "there is no claim"),
        (report(&stage, "data", 5, &failing()), 400, "ttlSeconds"),
        (report(&stage, "data", 1_000_000, &failing()), 400, "ttlSeconds"),
        (report(&stage, "data", 600, &bell), 400, "control characters"),
        (twice, 400, "told twice"),
        (json!([]), 400, "it is no report"),
    ] {
        let (status, problem) = post(to, &good, &body);
        assert_eq!(status, code, "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(word)), "{word}: {problem}");
    }
    let bearer = format!("Bearer {good}");
    let json_type = ("Content-Type", "application/json");
    let huge = vec![b'x'; 10 << 20];
    assert_eq!(call(to, "POST", "/v1/reports", &[("Authorization", &bearer), json_type], &huge).0, 413);
    assert_eq!(call(to, "POST", "/v1/reports", &[("Authorization", &bearer)], b"{}").0, 415);
    assert_eq!(call(to, "GET", "/v1/reports", &[("Authorization", &bearer)], b"").0, 405);
    assert_eq!(call(to, "GET", "/", &[], b"").0, 404);
    let (status, described) = call(to, "GET", "/v1/openapi.json", &[], b"");
    assert_eq!((status, &described["openapi"]), (200, &json!("3.0.3")));
    assert_eq!(stage.versions().await.len(), 0, "nothing of all that was stored");

    // What may.
    let (status, answer) = post(to, &good, &sick);
    assert_eq!((status, &answer["claims"]), (200, &json!(1)), "{answer}");
    let line = "pushed/smart-scan HealthWarning Degraded/DiskDegrading";
    let first = stage.wait_stored("data", &[line]).await;
    assert_eq!(post(to, &good, &sick).0, 200);
    let second = stage.wait_stored("data", &[line]).await;
    assert_eq!(
        first.metadata.resource_version, second.metadata.resource_version,
        "the same again is not written"
    );

    // A restart forgets nothing, and nobody needs a database.
    hub.kill();
    let hub = start_hub(&kubeconfig, &arguments);
    hub.wait_log("merging what is known").await;
    let to = address(&hub).await;
    let volume = json!({
        "volume": {"driver": crate::stage::DRIVER, "volumeHandle": stage.handle("other")}, "source": "array",
        "ttlSeconds": 10, "conditions": [{"status": "DataLoss", "reason": "LegsLost"}],
    });
    crate::stage::until("a volume stands for its claims", || async {
        Ok::<_, String>(post(to, &good, &volume).0 == 200)
    })
    .await;
    stage.wait_stored("other", &["pushed/array HealthFailure DataLoss/LegsLost"]).await;
    stage.wait_stored("data", &[line]).await;
    assert_eq!(
        post(to, &nobody, &volume).0,
        404,
        "who may not does not learn whether there is such a volume"
    );

    // The command, for those who have no HTTP at hand.
    let run = |token: &str, more: &[&str]| command(&stage, to, token, more);
    let (worked, told) = run(&good, &["--claim=data", "--condition=Inaccessible/DiskFailure=it is dead"]);
    assert!(worked && told.starts_with("stored for 1 claim(s) until "), "{told}");
    stage.wait_stored("data", &["pushed/smart-scan HealthFailure Inaccessible/DiskFailure"]).await;
    let (worked, told) = run(&nobody, &["--claim=data"]);
    assert!(!worked && told.contains("the hub refused the report (403 Forbidden)"), "{told}");
    let (worked, told) = run(&good, &["--claim=data", "--ttl=1s"]);
    assert!(!worked && told.contains("ttlSeconds: 1 is not between 10 and 86400"), "{told}");
    let (worked, _) = run(&good, &["--claim=data"]);
    assert!(worked, "all is well again");
    stage.wait_stored("data", &[]).await;

    // What is not told again is not believed for ever.
    stage.wait_stored("other", &[]).await;

    // Many at once: each is answered, none is stored twice.
    let began = Instant::now();
    let answered: Vec<u16> = std::thread::scope(|scope| {
        let send = |n: usize| {
            let (good, stage) = (&good, &stage);
            scope.spawn(move || {
                let one = report(stage, if n.is_multiple_of(2) { "data" } else { "other" }, 600, &failing());
                (0..50).map(|_| post(to, good, &one).0).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = (0..8).map(send).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let rate = 400.0 / began.elapsed().as_secs_f64();
    println!("400 reports by 8 senders: {rate:.0} a second");
    assert!(answered.iter().all(|status| matches!(status, 200 | 429 | 503)), "{answered:?}");
    assert!(answered.contains(&200));
    for claim in ["data", "other"] {
        let object = stage.wait_stored(claim, &[line]).await;
        let history = object.status.expect("a status").history;
        assert_eq!(history[0].reason.as_deref(), Some("DiskDegrading"));
        assert_ne!(history[1].reason.as_deref(), Some("DiskDegrading"), "told once");
    }
}

#[tokio::test]
async fn over_tls_and_never_in_the_clear_beyond_this_machine() {
    let stage = Stage::own(&everything()).await;
    let node = stage.make_node("n").await;
    stage.used_claim("data", &node).await;
    let good = token(&stage, "detector", AUDIENCE, None).await;
    allow(&stage, "detector");
    let kubeconfig = stage.kubeconfig().await;
    let mut refused = start_hub(&kubeconfig, &[&QUICK[..], &["--push-endpoint=0.0.0.0:0"]].concat());
    assert_eq!(refused.ended(Duration::from_secs(30)), Some(1));
    assert!(refused.log().contains("will not take tokens over plain HTTP"), "{}", refused.log());

    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&cert, made.cert.pem()).expect("the certificate can be written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("the key can be written");
    let (cert_flag, key_flag) =
        (format!("--push-tls-cert={}", cert.display()), format!("--push-tls-key={}", key.display()));
    let tls = ["--push-endpoint=127.0.0.1:0", cert_flag.as_str(), key_flag.as_str()];
    let hub = start_hub(&kubeconfig, &[&QUICK[..], &tls].concat());
    hub.wait_log("merging what is known").await;
    hub.wait_log("taking reports on https://").await;
    let log = hub.log();
    let (_, rest) = log.split_once("taking reports on https://").expect("an address");
    let to = rest.split('/').next().expect("an address").to_owned();
    let send = |hub: &str, ca: Option<&Path>| {
        let ca = ca.map(|path| format!("--ca-file={}", path.display()));
        let mut more = vec!["--claim=data", "--condition=Degraded/DiskDegrading"];
        more.extend(ca.as_deref());
        command_at(&stage, hub, &good, &more)
    };
    crate::stage::until("the report is stored", || async {
        let (worked, told) = send(&format!("https://{to}"), Some(&cert));
        if worked { Ok(true) } else { Err(told) }
    })
    .await;
    stage.wait_stored("data", &["pushed/smart-scan HealthWarning Degraded/DiskDegrading"]).await;
    let (worked, told) = send(&format!("https://{to}"), None);
    assert!(!worked && told.contains("cannot be reached"), "who signed the certificate is not known: {told}");
    let (worked, told) = send("http://hub.example.net:80", None);
    assert!(!worked && told.contains("will not send a token over plain HTTP"), "{told}");
}

/// Runs `volmedic report` and answers whether it worked and what it said.
fn command(stage: &Stage, to: SocketAddr, token: &str, more: &[&str]) -> (bool, String) {
    command_at(stage, &format!("http://{to}"), token, more)
}

fn command_at(stage: &Stage, hub: &str, token: &str, more: &[&str]) -> (bool, String) {
    let file: PathBuf = stage.plane.kubeconfig().with_extension("detector-token");
    std::fs::write(&file, token).expect("the token can be written");
    let output = Command::new(program())
        .args(["report", "--source=smart-scan"])
        .arg(format!("--hub={hub}"))
        .arg(format!("--token-file={}", file.display()))
        .arg(format!("--namespace={}", stage.namespace))
        .args(more)
        .output()
        .expect("it starts");
    let text =
        [&*String::from_utf8_lossy(&output.stdout), &*String::from_utf8_lossy(&output.stderr)].concat();
    (output.status.success(), text)
}
