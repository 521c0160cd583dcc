//! Reports of others' detectors, over real HTTP with real tokens.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::caller::{AUDIENCE, Desk, address, allow, failing, post, report, token};
use crate::process::{PATIENCE, program};
use crate::stage::{QUICK, Stage, everything, start_hub};

#[tokio::test]
async fn reports_are_stored_survive_a_restart_and_expire() {
    let Desk { stage, mut hub, to, good } = Desk::open(&[]).await;
    let sick = report(&stage, "data", 600, &failing());
    let nobody = token(&stage, "nobody", AUDIENCE, None).await;
    assert_eq!(stage.versions().await.len(), 0, "that all is well needs no object");

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
    let arguments = [&QUICK[..], &["--push-endpoint=127.0.0.1:0"]].concat();
    let hub = start_hub(&stage.kubeconfig().await, &arguments);
    hub.wait_log("merging what is known").await;
    let to = address(&hub).await;
    let volume = json!({
        "volume": {"driver": crate::stage::DRIVER, "volumeHandle": stage.handle("other")}, "source": "array",
        "ttlSeconds": 30, "conditions": [{"status": "DataLoss", "reason": "LegsLost"}],
    });
    crate::stage::until("a volume stands for its claims", || async {
        Ok::<_, String>(post(to, &good, &volume).0 == 200)
    })
    .await;
    stage.wait_stored("other", &["pushed/array HealthFailure DataLoss/LegsLost"]).await;
    let series = format!(
        r#"volmedic_claim_health_status{{driver_name="{}",namespace="{}",persistentvolumeclaim="other",node="",vantage="pushed/array",status="DataLoss",reason="LegsLost"}} 1"#,
        crate::stage::DRIVER,
        stage.namespace
    );
    let has_series = async || hub.get("/metrics").await.1.lines().any(|line| line == series);
    crate::stage::until("alerts see it", || async { Ok::<_, String>(has_series().await) }).await;
    stage.wait_stored("data", &[line]).await;
    assert_eq!(
        post(to, &nobody, &volume).0,
        404,
        "who may not does not learn whether there is such a volume"
    );

    // The command, for those who have no HTTP at hand.
    let run = |token: &str, more: &[&str]| command(&stage, to, token, more);
    let (worked, reported) = run(&good, &["--claim=data", "--condition=Inaccessible/DiskFailure=it is dead"]);
    assert!(worked && reported.starts_with("stored for 1 claim(s) until "), "{reported}");
    stage.wait_stored("data", &["pushed/smart-scan HealthFailure Inaccessible/DiskFailure"]).await;
    let (worked, reported) = run(&nobody, &["--claim=data"]);
    assert!(!worked && reported.contains("the hub refused the report (403 Forbidden)"), "{reported}");
    let (worked, reported) = run(&good, &["--claim=data", "--ttl=1s"]);
    assert!(!worked && reported.contains("ttlSeconds: 1 is not between 10 and 86400"), "{reported}");
    let (worked, _) = run(&good, &["--claim=data"]);
    assert!(worked, "all is well again");
    stage.wait_stored("data", &[]).await;

    // What is not reported again is not believed for ever.
    stage.wait_stored("other", &[]).await;
    crate::stage::until("the alert ends", || async { Ok::<_, String>(!has_series().await) }).await;
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
    assert_eq!(refused.ended(PATIENCE), Some(1));
    refused.wait_log("will not take tokens over plain HTTP").await;

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
        let (worked, reported) = send(&format!("https://{to}"), Some(&cert));
        if worked { Ok(true) } else { Err(reported) }
    })
    .await;
    stage.wait_stored("data", &["pushed/smart-scan HealthWarning Degraded/DiskDegrading"]).await;
    let (worked, reported) = send(&format!("https://{to}"), None);
    assert!(
        !worked && reported.contains("cannot be reached"),
        "who signed the certificate is not known: {reported}"
    );
    let (worked, reported) = send("http://hub.example.net:80", None);
    assert!(!worked && reported.contains("will not send a token over plain HTTP"), "{reported}");
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
