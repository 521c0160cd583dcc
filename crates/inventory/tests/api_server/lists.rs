//! What lists cost etcd, by the API server's own count.

use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use volmedic_inventory::Metrics;
use volmedic_inventory::node::{Inventory, Options};
use volmedic_testkit::ControlPlane;

use crate::common::until;
use crate::node::ready;
use crate::stage::Stage;

const AGENTS: u64 = 40;

/// All requests about pods that the API server has sent to etcd.
async fn etcd_requests(client: &Client) -> u64 {
    let request = Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    let pods = |line: &&str| {
        line.starts_with("etcd_request_duration_seconds_count{")
            && ["resource=\"pods\"", "type=\"/registry/pods/\"", "type=\"pods\""]
                .iter()
                .any(|label| line.contains(label))
    };
    let counts: Vec<u64> =
        text.lines().filter(pods).map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(!counts.is_empty(), "the API server does not count its requests to etcd as it did");
    counts.iter().sum()
}

/// Nothing else uses this API server, because the requests of others would be counted, too.
#[tokio::test]
async fn agents_that_start_together_do_not_read_their_pods_from_etcd() {
    let plane = ControlPlane::options().start().unwrap();
    let stage = Stage::on(&plane, "lists").await;
    let pv = stage.claim("db").await;
    let uid = stage.pod_with("web", "db").await;
    stage.set_up(&uid, &pv, "db", "Persistent");
    stage.run("web").await;
    let pods = Api::<Pod>::all(stage.client.clone());
    let newest = ListParams::default().fields("spec.nodeName=n").limit(500);

    let before = etcd_requests(&stage.client).await;
    for _ in 0..AGENTS {
        pods.list(&newest).await.unwrap();
    }
    let paged = etcd_requests(&stage.client).await - before;
    assert!(paged >= AGENTS, "{paged} requests to etcd for {AGENTS} lists of the newest state");

    let before = etcd_requests(&stage.client).await;
    let mut inventories = vec![stage.start()];
    for number in 1..AGENTS {
        let options = Options { node: format!("{}-{number}", stage.node).into(), ..stage.options() };
        inventories.push(Inventory::start(&stage.client, &options, &Metrics::default()));
    }
    for inventory in &inventories {
        ready(inventory).await;
    }
    until("the volume of the pod", || inventories[0].volumes().get(&stage.driver, "db").is_some()).await;
    let cached = etcd_requests(&stage.client).await - before;
    // The cache compares itself with etcd now and then, whatever is read from it.
    assert!(cached < AGENTS / 4, "{cached} requests to etcd for {AGENTS} agents that start");
}
