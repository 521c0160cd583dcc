//! The service against its own description, tried by schemathesis.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use volmedic_testkit::{objects, python, seed};

use crate::caller::{AUDIENCE, address, call, counts, post, report, token};
use crate::stage::{DRIVER, QUICK, Stage, bare, everything, install, kubectl, start_hub, until};

/// It takes less than two of them on an idle machine.
const LIMIT: Duration = Duration::from_mins(20);
const EXAMPLES: &str = "600";

/// A report that looks right and contradicts itself is refused with 422; no schema can say that a status and a reason
/// may be there only once. The others are what a right report may come to.
const SETTINGS: &str = "\
[checks]
positive_data_acceptance.expected-statuses = [200, 404, 422]
";

#[tokio::test]
async fn it_is_as_its_description_says() {
    let schemathesis = python::schemathesis().expect("schemathesis can be installed");
    let plane = bare();
    install(&plane, &everything());
    let stage = Stage::new(plane.clone(), plane.client().await.expect("a client"), "shop".to_owned());
    // What the examples in the description are about.
    kubectl(&stage.plane, &["create", "namespace", "shop"]);
    stage.claim("data").await;
    let bound = objects::bound_claim(&stage.client, "shop", "media", DRIVER, "vol-0a1b2c").await;
    bound.expect("a bound claim");
    let good = token(&stage, "detector", AUDIENCE, None).await;
    // On all claims: what is tried is what is said, not who says it.
    let role = ["--verb=report", "--resource=volumehealths.volmedic.dev"];
    kubectl(&stage.plane, &[&["create", "clusterrole", "detector"], &role[..]].concat());
    let binding = ["--clusterrole=detector", "--serviceaccount=shop:detector"];
    kubectl(&stage.plane, &[&["create", "clusterrolebinding", "detector"], &binding[..]].concat());
    let arguments = [&QUICK[..], &["--push-endpoint=127.0.0.1:0", "--push-rate=10000"]].concat();
    let hub = start_hub(&stage.kubeconfig().await, &arguments);
    let to = address(&hub).await;
    until("the hub has read the cluster", || async {
        let (status, answer) = post(to, &good, &report(&stage, "data", 600, &json!([])));
        if status == 200 { Ok(true) } else { Err(answer) }
    })
    .await;

    // Before the hub had read the cluster, a report may have been refused.
    let before = counts(&hub).await;
    let folder = tempfile::tempdir().expect("a folder");
    let settings = folder.path().join("schemathesis.toml");
    std::fs::write(&settings, SETTINGS).expect("the settings can be written");
    // From a file, because it would not try the path that it has the description from.
    let described = folder.path().join("openapi.json");
    let served = call(to, "GET", "/v1/openapi.json", &[], b"").body;
    std::fs::write(&described, served.to_string()).expect("the description can be written");
    let examples = std::env::var("VOLMEDIC_EXAMPLES").unwrap_or_else(|_| EXAMPLES.to_owned());
    let mut command = Command::new(schemathesis);
    command
        .arg(format!("--config-file={}", settings.display()))
        .arg("run")
        .arg(&described)
        .args([&format!("--url=http://{to}"), "--checks=all", "--mode=all"])
        .arg(format!("--seed={}", seed("it_is_as_its_description_says")))
        .arg(format!("--max-examples={examples}"))
        .args(["--workers=1", "--request-timeout=120", "--generation-database=none"])
        .args(["--continue-on-failure", "--no-color"])
        .arg(format!("--header=Authorization: Bearer {good}"))
        .env_remove("SCHEMATHESIS_HOOKS")
        .current_dir(folder.path());
    let (success, reported) = run(command, folder.path());
    assert!(success, "{reported}");
    println!("{}", reported.split("SUMMARY").last().unwrap_or_default());

    // It was no walk past closed doors: reports of each kind came through, and of each kind were refused.
    let counts = counts(&hub).await;
    println!("{counts:?}");
    for result in ["stored", "invalid", "no_token", "bad_token", "not_json", "unknown_claim"] {
        assert!(counts.get(result).is_some_and(|count| *count > 0), "none is {result}: {counts:?}");
    }
    for result in ["api_server", "late", "too_slow", "too_fast"] {
        assert_eq!(counts.get(result), before.get(result), "{counts:?}");
    }
}

/// Runs it to its end and answers whether it found nothing, and all that it said.
fn run(mut command: Command, folder: &std::path::Path) -> (bool, String) {
    let path = folder.join("output");
    let output = std::fs::File::create(&path).expect("a file");
    let errors = output.try_clone().expect("a file");
    let mut child =
        command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().expect("schemathesis starts");
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break Some(status);
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let reported = std::fs::read_to_string(&path).unwrap_or_default();
    (status.is_some_and(|status| status.success()), reported)
}
