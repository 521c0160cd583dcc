//! The hub's page: the whole cluster, on a real API server.

use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use volmedic_testkit::objects;

use crate::chrome::{Chrome, PATIENCE};
use crate::hub_stage::{DRIVER, Stage, everything, start_hub};
use crate::process::Controller as Process;
use crate::{inspect, page_of};

const ROWS: &str = "Array.from(document.querySelectorAll('table.volumes tbody tr'))";
const FIRST: &str = "document.querySelector('table.volumes tbody tr')";
const HOSTILE: &str = "<script>window.hacked = 1</script>\"'><img src=x onerror=\"window.hacked = 1\">";

/// A cluster with a hub, and a browser on its page.
struct Scene {
    cluster: Stage,
    _hub: Process,
    chrome: Chrome,
    url: String,
}

impl Scene {
    async fn new(cluster: Stage) -> Self {
        let arguments = ["--node-grace-period=1s", "--leader-election=false", "--page=127.0.0.1:0"];
        let hub = start_hub(&cluster.kubeconfig().await, &arguments);
        let url = page_of(&hub).await;
        Self { cluster, _hub: hub, chrome: Chrome::start(), url }
    }

    fn open(&mut self, path: &str) {
        self.chrome.open(&format!("{}{path}", self.url));
    }

    fn names(&mut self) -> Vec<String> {
        let names = self.chrome.eval(&format!("{ROWS}.map(row => row.querySelector('th a').innerText)"));
        serde_json::from_value(names).expect("a list of names")
    }

    /// An agent's report on a node: claims with status, reason and message.
    async fn report(&self, node: &str, unhealthy: &[(&str, &str, &str, &str)]) {
        let since = Timestamp::now() - SignedDuration::from_secs(90);
        let volume = |(handle, status, reason, message): &(&str, &str, &str, &str)| {
            let kind = if *status == "Degraded" { "HealthWarning" } else { "HealthFailure" };
            json!({
                "vantage": "Host", "driver": DRIVER, "volumeHandle": handle,
                "healthConditions": [{"type": kind, "status": "True", "errorCode": status, "reason": reason,
                                      "message": message, "lastTransitionTime": format!("{since:.0}")}],
            })
        };
        let volumes: Vec<Value> = unhealthy.iter().map(volume).collect();
        let report = serde_json::from_value(json!({ "volumes": volumes })).expect("a report");
        self.cluster.tell(node, &report).await;
    }

    async fn healed(&self, claim: &str) {
        let heal = json!({"time": format!("{:.0}", Timestamp::now()), "outcome": "Succeeded", "remedy": "Remount",
                          "node": "worker", "message": HOSTILE});
        let patch = Patch::Merge(json!({"status": {"heals": [heal]}}));
        let api = self.cluster.healths();
        api.patch_status(claim, &PatchParams::default(), &patch).await.expect("a heal");
    }
}

/// Waits until an expression is true, and lets agents renew their Leases meanwhile: the hub knows that an agent lives only
/// after it saw a Lease change, and nothing says when it began to watch Leases.
pub(crate) async fn wait_renewing(chrome: &mut Chrome, expression: &str, renew: impl AsyncFn()) {
    let deadline = Instant::now() + PATIENCE;
    while chrome.eval(expression) != true {
        assert!(Instant::now() < deadline, "no {expression}: {}", chrome.text("document.body.innerText"));
        renew().await;
    }
}

#[tokio::test]
async fn all_claims_are_shown_and_what_changes_is_shown_as_it_changes() {
    let cluster = Stage::own(&everything()).await;
    let (node, quiet, dead) =
        (cluster.make_node("a").await, cluster.make_node("b").await, cluster.make_node("c").await);
    for number in 0..12 {
        cluster.used_claim(&format!("data-{number:02}"), &node).await;
    }
    cluster.used_claim("elsewhere", &dead).await;
    cluster.claim("unused").await;
    // The longest name that a claim's volume can have, and a handle that would like to be code.
    let long = "x".repeat(253 - format!("pv-{}-", cluster.namespace).len());
    objects::bound_claim(&cluster.client, &cluster.namespace, &long, DRIVER, HOSTILE).await.expect("a claim");
    let pod = json!({
        "metadata": {"name": "hostile"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}],
                 "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": long}}]},
    });
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), &cluster.namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("a pod");

    let mut scene = Scene::new(cluster).await;
    scene.report(&node, &[]).await;
    scene.cluster.beat(&quiet, 1).await;
    scene.open("");
    // Used where an agent looks: well. Used where none does, or not at all: nobody knows, and that is said.
    let hub = &scene.cluster;
    let renew = async || hub.beat(&node, 600).await;
    wait_renewing(&mut scene.chrome, "document.title.startsWith('2 unknown, 13 healthy')", renew).await;
    let namespace = scene.cluster.namespace.clone();
    assert_eq!(scene.names()[..2], [format!("{namespace}/elsewhere"), format!("{namespace}/unused")]);
    let table = "document.querySelector('table.volumes').innerText";
    scene.chrome.wait_text(table, &["no agent runs on node", "no pod uses it"]);

    // Without a reload: what is wrong comes first, is announced, and what the keyboard is on stays.
    scene.chrome.eval("window.marker = 7");
    scene.chrome.eval("document.querySelector('a[href*=\"data-03\"]').focus()");
    let handle = scene.cluster.handle("data-03");
    let message = format!("{HOSTILE} \u{202e}txt");
    let unhealthy = [
        (handle.as_str(), "Inaccessible", "IOHung", "statfs has not come back for 60 s"),
        (HOSTILE, "Degraded", "OutOfCapacity", message.as_str()),
    ];
    scene.report(&node, &unhealthy).await;
    scene.chrome.wait(&format!("{FIRST}.innerText.includes('IOHung')"));
    scene.chrome.wait("document.getElementById('announce').textContent.includes('is ')");
    scene.chrome.wait("document.title.startsWith('1 inaccessible, 1 degraded, 2 unknown, 11 healthy')");
    assert_eq!(scene.chrome.eval("window.marker"), 7, "the page was loaded again");
    let focus = scene.chrome.text("document.activeElement.getAttribute('href')");
    assert!(focus.contains("data-03"), "the keyboard's place was lost: {focus}");
    let vantage = format!("host/{node}");
    let parts = ["Inaccessible", "statfs has not come back", "data-03", &node, &vantage];
    scene.chrome.wait_text(&format!("{FIRST}.innerText"), &parts);
    inspect::assert_accessible(&mut scene.chrome, "the list");
    inspect::pictures(&mut scene.chrome, "hub-list");

    filters(&mut scene, &node, &long);
    one_volume(&mut scene, &node).await;
    nodes(&mut scene, &node, &quiet, &dead).await;
    keyboard(&mut scene);

    assert_eq!(scene.chrome.eval("window.hacked === undefined"), true);
    inspect::assert_clean(&mut scene.chrome, &scene.url.clone());
}

fn filters(scene: &mut Scene, node: &str, long: &str) {
    let namespace = scene.cluster.namespace.clone();
    let check = |scene: &mut Scene, query: &str, expected: &[&str]| {
        scene.open(query);
        let expected: Vec<String> = expected.iter().map(|name| format!("{namespace}/{name}")).collect();
        assert_eq!(scene.names(), expected, "{query}");
    };
    check(scene, "?health=Inaccessible", &["data-03"]);
    check(scene, "?health=NotWell&sort=name", &["data-03", "elsewhere", "unused", long]);
    check(scene, "?q=iohung+statfs", &["data-03"]);
    check(scene, "?q=hostile", &[long]);
    check(scene, &format!("?node={node}&q=data-07"), &["data-07"]);
    check(scene, "?namespace=other", &[]);
    check(scene, "?health=Healthy&sort=name&per=4&page=2", &["data-05", "data-06", "data-07", "data-08"]);
    let tile = "document.querySelector('.tile.g-degraded')";
    scene.open("");
    scene.chrome.eval(&format!("{tile}.click()"));
    scene.chrome.wait(&format!("location.search === '?health=Degraded' && {ROWS}.length === 1"));
    assert_eq!(scene.names(), [format!("{namespace}/{long}")]);
}

/// Its past is drawn from what is stored, also what was before this hub; heals are shown; and it lives.
async fn one_volume(scene: &mut Scene, node: &str) {
    let handle = scene.cluster.handle("data-03");
    scene.open(&format!("volume?driver={DRIVER}&volume={handle}"));
    let namespace = scene.cluster.namespace.clone();
    assert_eq!(scene.chrome.text("document.querySelector('h1').innerText"), format!("{namespace}/data-03"));
    let spans =
        "Array.from(document.querySelectorAll('svg.timeline rect.span'), span => span.getAttribute('class'))";
    // Of all together, and of the host's checks.
    scene.chrome.wait(&format!("{spans}.join() === 'span g-inaccessible,span g-inaccessible'"));
    let words = "document.querySelector('svg.timeline desc').textContent";
    scene.chrome.wait_text(words, &["All together", &format!("host checks on node {node}")]);

    scene.healed("data-03").await;
    scene.chrome.wait("document.querySelector('table.heals')?.innerText.includes('Succeeded')");
    scene.chrome.wait_text("document.querySelector('table.heals tbody').innerText", &["Remount", "<script>"]);
    inspect::assert_accessible(&mut scene.chrome, "a volume");

    scene.report(node, &[(&handle, "DataLoss", "FilesystemCorruption", "3 of 3 checks agree")]).await;
    scene.chrome.wait("document.querySelector('.headline').innerText.includes('FilesystemCorruption')");
    scene.chrome.wait(&format!("{spans}.slice(0, 2).join() === 'span g-inaccessible,span g-dataloss'"));
    scene.report(node, &[]).await;
    scene.chrome.wait(&format!("{spans}.join() === 'span g-inaccessible,span g-dataloss,span g-healthy'"));
    inspect::pictures(&mut scene.chrome, "hub-volume");
    let reported = "document.querySelector('ol.changes').innerText";
    scene.chrome.wait_text(reported, &["is Inaccessible/IOHung", "is healthy"]);
}

async fn nodes(scene: &mut Scene, node: &str, quiet: &str, dead: &str) {
    objects::set_node_ready(&scene.cluster.client, dead, "Unknown").await.expect("a node that is down");
    scene.open("nodes");
    let line = |name: &str| {
        format!(
            "Array.from(document.querySelectorAll('table.nodes tbody tr')).find(row => row.innerText.includes('{name}'))?.innerText"
        )
    };
    scene.chrome.wait(&format!("{}?.includes('silent')", line(quiet)));
    scene.chrome.wait(&format!("{}?.includes('down, ')", line(dead)));
    scene.chrome.wait(&format!("{}?.includes('Inaccessible')", line(dead)));
    // That it lives is known only once its Lease was seen to change, which nothing before this waited for.
    let (cluster, alive) = (&scene.cluster, format!("{}?.includes('alive') === true", line(node)));
    wait_renewing(&mut scene.chrome, &alive, async || cluster.beat(node, 600).await).await;
    scene.chrome.wait_text(&line(node), &["ready", "alive", "13 healthy"]);
    inspect::assert_accessible(&mut scene.chrome, "nodes");
    inspect::pictures(&mut scene.chrome, "hub-nodes");
    scene.open("source");
    let limits = "document.querySelector('.limits').innerText";
    scene.chrome.wait_text(limits, &["1 of 3 nodes have no agent", "the lease of one agent expired"]);
    inspect::assert_accessible(&mut scene.chrome, "where it comes from");
}

fn keyboard(scene: &mut Scene) {
    scene.open("");
    scene.chrome.press("/");
    scene.chrome.write("data-07");
    scene.chrome.press("Enter");
    scene.chrome.wait(&format!("location.search.includes('q=data-07') && {ROWS}.length === 1"));
    // The keys are the script's, which comes after the page.
    scene.chrome.wait("document.getElementById('state')?.textContent === 'live'");
    scene.chrome.press("j");
    scene.chrome.wait("document.activeElement.getAttribute('href')?.includes('data-07')");
    assert_eq!(scene.chrome.text("getComputedStyle(document.activeElement).outlineStyle"), "solid");
    scene.chrome.press("Enter");
    scene.chrome.wait("document.querySelector('h1')?.innerText.endsWith('/data-07')");
    // A claim that never was unhealthy has a page too.
    scene.chrome.wait_text("document.querySelector('.headline').innerText", &["Healthy"]);
}
