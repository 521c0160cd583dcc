//! How the hub does with 5,000 claims on 100 nodes. Run by `cargo xtask bench hub`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use volmedic_api::resource::{HealthWord, VolumeHealth};
use volmedic_testkit::objects;

use crate::process::Controller as Process;
use crate::stage::{CRDS, DRIVER, RBAC, Stage, apply_report, start_hub};

const WRITERS: usize = 32;
const LIMIT: Duration = Duration::from_mins(20);
const REST: Duration = Duration::from_secs(30);
const SINGLE_FAULTS: usize = 50;
/// Requests a second that the hub may send: a cluster of this size has an API server that bears it.
const REQUESTS: usize = 600;

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test]
#[ignore = "a measurement, run by `cargo xtask bench hub`"]
async fn how_it_scales() {
    let (claims, nodes) = (number("VOLMEDIC_BENCH_CLAIMS", 5_000), number("VOLMEDIC_BENCH_NODES", 100));
    // Without the policy, since one client stands for all agents here.
    let stage = Arc::new(Stage::own(&[&[CRDS], &RBAC[..]].concat()).await);
    let began = Instant::now();
    side_by_side(nodes, |n| {
        let stage = stage.clone();
        async move {
            stage.make_node(&node(n)).await;
        }
    })
    .await;
    side_by_side(claims, |n| {
        let stage = stage.clone();
        async move {
            let (name, on) = (claim(n), stage.node(&node(n % nodes)));
            let handle = stage.handle(&name);
            let bound = objects::bound_claim(&stage.client, &stage.namespace, &name, DRIVER, &handle).await;
            bound.expect("a bound claim");
            stage.pod(&name, &on, &name).await;
        }
    })
    .await;
    println!("{claims} claims on {nodes} nodes made in {} s", began.elapsed().as_secs());
    let requests = number("VOLMEDIC_BENCH_REQUESTS", REQUESTS);
    let pace = [format!("--kube-api-qps={requests}"), format!("--kube-api-burst={}", 2 * requests)];
    let arguments = [&*pace[0], &*pace[1], "--leader-election=false"];
    let pace = pace.join(" ");
    let mut page = format!(
        "| what | figure |\n|---|---|\n| claims, nodes | {claims}, {nodes} |\n| run with | `{pace}` |\n"
    );
    let mut row = |what: &str, figure: String| {
        println!("{what}: {figure}");
        let _ = writeln!(page, "| {what} | {figure} |");
    };

    let hub = start_hub(&stage.kubeconfig().await, &arguments);
    let began = Instant::now();
    while hub.get("/readyz").await.0 != 200 {
        assert!(began.elapsed() < LIMIT, "it does not get ready");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    row("from its start until it knows the cluster", seconds(began.elapsed()));
    row("resident memory, all claims well", format!("{} MiB", resident(&hub)));

    let report = |unhealthy: bool| {
        let (stage, client) = (stage.clone(), stage.client.clone());
        async move {
            side_by_side(nodes, |n| {
                let (stage, client) = (stage.clone(), client.clone());
                async move { tell(&stage, &client, n, nodes, if unhealthy { claims } else { 0 }).await }
            })
            .await;
        }
    };
    let before = writes(&hub).await;
    let began = Instant::now();
    report(true).await;
    let reported = began.elapsed();
    let done = settle(&stage, &hub, claims, HealthWord::HealthFailure).await;
    row("the reports of all nodes, all claims ill, written in", seconds(reported));
    row("all claims ill, until every headline says so", seconds(done - began));
    row("writes for it", (writes(&hub).await - before).to_string());
    row("resident memory, all claims ill", format!("{} MiB", resident(&hub)));

    let before = writes(&hub).await;
    tokio::time::sleep(REST).await;
    row("writes in 30 s at rest, all claims ill", (writes(&hub).await - before).to_string());

    let before = writes(&hub).await;
    let began = Instant::now();
    report(false).await;
    let done = settle(&stage, &hub, claims, HealthWord::Healthy).await;
    row("all claims well again, until every headline says so", seconds(done - began));
    row("writes for it", (writes(&hub).await - before).to_string());

    let mut took = Vec::new();
    for n in 0..SINGLE_FAULTS.min(nodes) {
        let began = Instant::now();
        let name = claim(n);
        let report = stage.report(&[(name.as_str(), "DataLoss", "LegsLost")]);
        apply_report(&stage.client, &stage.node(&node(n)), &report).await.expect("a report");
        while !is(&stage, &name, HealthWord::HealthFailure).await {
            assert!(began.elapsed() < LIMIT, "{name} is not told");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        took.push(began.elapsed());
    }
    took.sort_unstable();
    let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
    row(
        "one fault, from the agent's write to the headline, median of 50",
        format!("{} ms", median.as_millis()),
    );
    row("the same, worst of 50", format!("{} ms", worst.as_millis()));

    if let Ok(path) = std::env::var("VOLMEDIC_BENCH_PAGE") {
        let head = "# The hub, measured\n\nMade by `cargo xtask bench hub`: one hub process and a real API server on one machine.\n\n";
        std::fs::write(&path, format!("{head}{page}")).expect("the page can be written");
    }
}

fn node(n: usize) -> String {
    format!("node-{n:04}")
}

fn claim(n: usize) -> String {
    format!("claim-{n:05}")
}

/// Does something for each number, some at a time.
async fn side_by_side<F: Future<Output = ()> + 'static + Send>(count: usize, work: impl Fn(usize) -> F) {
    let room = Arc::new(Semaphore::new(WRITERS));
    let mut tasks = JoinSet::new();
    for n in 0..count {
        let permit = room.clone().acquire_owned().await.expect("it is never closed");
        let work = work(n);
        tasks.spawn(async move {
            work.await;
            drop(permit);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
}

/// The report of one node, with those of the given number of first claims unhealthy that are used there.
async fn tell(stage: &Stage, client: &Client, n: usize, nodes: usize, unhealthy: usize) {
    let names: Vec<String> = (n..unhealthy).step_by(nodes).map(claim).collect();
    let unhealthy: Vec<_> = names.iter().map(|name| (name.as_str(), "Inaccessible", "IOHung")).collect();
    apply_report(client, &stage.node(&node(n)), &stage.report(&unhealthy)).await.expect("a report");
}

/// Waits until the hub counts this number, and returns when that was; then the API server is asked whether it is so. To list
/// all objects again and again would slow down what is measured.
async fn settle(stage: &Stage, hub: &Process, claims: usize, health: HealthWord) -> Instant {
    let began = Instant::now();
    let counted = format!("volmedic_hub_claims{{health=\"{}\"}} {claims}", health.as_str());
    while !hub.get("/metrics").await.1.lines().any(|line| line == counted) {
        assert!(began.elapsed() < LIMIT, "not all claims are {health:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let done = Instant::now();
    let api = Api::<VolumeHealth>::namespaced(stage.client.clone(), &stage.namespace);
    let all = api.list(&ListParams::default()).await.expect("a list").items;
    assert_eq!(all.iter().filter(|object| word(object) == Some(health)).count(), claims);
    done
}

async fn is(stage: &Stage, name: &str, health: HealthWord) -> bool {
    stage
        .healths()
        .get_opt(name)
        .await
        .expect("an answer")
        .is_some_and(|object| word(&object) == Some(health))
}

fn word(object: &VolumeHealth) -> Option<HealthWord> {
    Some(object.status.as_ref()?.headline.health)
}

/// All that the hub wrote so far.
async fn writes(hub: &Process) -> u64 {
    let (_, text) = hub.get("/metrics").await;
    let lines = text.lines().filter(|line| line.starts_with("volmedic_hub_writes_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

fn resident(hub: &Process) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", hub.pid())).expect("the process is there");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number");
    kib / 1024
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
