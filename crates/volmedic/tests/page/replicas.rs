//! Several replicas of the hub: who stands by says so, and who leads.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::chrome::Chrome;
use crate::hub_stage::{HOME, Stage, everything};
use crate::page_of;
use crate::process::{Controller as Process, program};

/// A hub on a machine of another name, as another pod is.
fn start_on(host: &str, kubeconfig: &Path) -> Process {
    let mut command = Command::new("unshare");
    command.args(["--uts", "--", "sh", "-c", r#"echo "$1" > /proc/sys/kernel/hostname; shift; exec "$@""#]);
    command
        .args([OsStr::new("sh"), OsStr::new(host), program().as_os_str()])
        .arg("hub")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--leader-election-namespace", HOME, "--page=127.0.0.1:0"])
        // Longer than any stall: the lease changes hands because it is given back, not because it ran out.
        .args(["--leader-election-lease-duration=120s", "--leader-election-renew-deadline=100s"])
        .arg("--leader-election-retry-period=500ms");
    Process::spawn(&mut command)
}

#[tokio::test]
async fn a_replica_that_stands_by_says_who_leads_and_shows_all_once_it_leads() {
    let cluster = Stage::own(&everything()).await;
    let node = cluster.make_node("n").await;
    cluster.used_claim("data", &node).await;
    let kubeconfig = cluster.kubeconfig().await;
    let leader = start_on("hub-one", &kubeconfig);
    leader.wait_log("merging what is known").await;
    let second = start_on("hub-two", &kubeconfig);
    let url = page_of(&second).await;
    let mut chrome = Chrome::start();
    chrome.open(&url);
    // It may not have seen the lease yet; the page lives here too.
    chrome.wait("document.querySelector('.empty')?.innerText.includes('hub-one leads')");
    assert_eq!(chrome.text("document.querySelector('h1').innerText"), "Standing by");
    assert_eq!(chrome.eval("document.querySelector('.tiles') === null"), true, "no counts that mean nothing");
    let answer =
        chrome.eval("fetch('api/volumes').then(async (answer) => [answer.status, await answer.json()])");
    assert_eq!(answer[0], 503, "an empty list would look like a cluster without volumes");
    assert!(answer[1]["standingBy"].as_str().is_some_and(|why| why.contains("hub-one leads")), "{answer}");
    chrome.screenshot("hub-standing-by");

    assert_eq!(leader.terminate(), Some(0));
    chrome.wait("document.querySelector('.tiles') !== null");
    chrome.wait("document.querySelector('table.volumes')?.innerText.includes('/data')");
    assert_eq!(second.terminate(), Some(0), "the lease is given back though there is a page");
    assert_ne!(chrome.eval("document.title"), Value::Null);
}
