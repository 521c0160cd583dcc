//! What it takes when all node plugins restart at the same time. Run by `cargo xtask bench healer`.
#![allow(clippy::print_stdout, reason = "who measures wants to see it")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use volmedic_proto::healer::NodeHealerResponse;
use volmedic_testkit::{ControlPlane, objects};

use crate::audit::{self, Audit, Requests};
use crate::driver::Fake;
use crate::ground::{DRIVER, HOME, Stage};
use crate::process::Controller as Process;
use crate::stage::{ALONE, Clinic, attach, csi_node, publish};

const NODES: usize = 100;
const PER_NODE: usize = 10;
const WRITERS: usize = 32;
const LIMIT: Duration = Duration::from_mins(10);
const REST: Duration = Duration::from_secs(20);
/// How long the driver takes to check one volume and find it healthy.
const CHECK: Duration = Duration::from_millis(20);

/// With which budget it is measured.
const RUNS: [(&str, usize); 2] = [("as it comes", 10), ("with `--heal-at-once=100`", 100)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, run by `cargo xtask bench healer`"]
async fn how_it_scales() {
    let volumes = NODES * PER_NODE;
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy"), folder.path().join("audit"));
    let user = format!("system:serviceaccount:{HOME}:volmedic-hub");
    std::fs::write(&policy, audit::policy(&user).to_string()).unwrap();
    let plane = ControlPlane::options()
        .apiserver_argument(&format!("--audit-policy-file={}", policy.display()))
        .apiserver_argument(&format!("--audit-log-path={}", log.display()))
        .start()
        .unwrap();
    let clinic = Clinic::on(Arc::new(plane)).await;
    let stage = Arc::new(Stage::on(clinic.plane.clone()).await);
    let audit = Audit::new(&log);
    let kubelet = folder.path().join("kubelet");
    let began = Instant::now();
    side_by_side(NODES, |n| {
        let stage = stage.clone();
        async move {
            let node = stage.make_node(&format!("{n:03}")).await;
            csi_node(&stage.client, &node).await;
        }
    })
    .await;
    side_by_side(volumes, |n| {
        let (stage, kubelet) = (stage.clone(), kubelet.clone());
        async move {
            let (claim, node) = (format!("claim-{n:04}"), stage.node(&format!("{:03}", n % NODES)));
            let handle = stage.handle(&claim);
            objects::bound_claim(&stage.client, &stage.namespace, &claim, DRIVER, &handle).await.unwrap();
            let pv = format!("pv-{}-{claim}", stage.namespace);
            publish(&kubelet, &pv);
            attach(&stage.client, &pv, &node).await;
        }
    })
    .await;
    // One process stands for the drivers of all nodes, so that all can restart at the same time.
    let fake = Fake::new(DRIVER, folder.path()).that(|_| {
        std::thread::sleep(CHECK);
        Ok(NodeHealerResponse { abnormal: false, message: String::new() })
    });
    let mut driver = fake.serve();
    let mut relays = Vec::new();
    for n in 0..NODES {
        let node = stage.node(&format!("{n:03}"));
        relays.push(clinic.relay(&stage.client, &node, &fake, &kubelet).await);
    }
    println!("{volumes} attachments on {NODES} nodes made in {} s", began.elapsed().as_secs());

    let mut page = head(volumes);
    let mut row = |what: &str, figure: String| {
        println!("{what}: {figure}");
        let _ = writeln!(page, "| {what} | {figure} |");
    };
    for (name, together) in RUNS {
        let asked = fake.asked().len();
        let began = Instant::now();
        let budget = format!("--heal-at-once={together}");
        let hub = clinic.hub(&["--heal-mode=auto", ALONE, &budget]).await;
        wait(&hub, "the first check of all", || fake.asked().len() >= asked + volumes).await;
        row(&format!("{name}: from its start until each volume was checked"), seconds(began.elapsed()));
        calm(&hub).await;
        let (mark, asked, before) = (audit.mark(), fake.asked().len(), memory(&hub, "VmRSS:"));
        let began = Instant::now();
        drop(driver);
        driver = fake.serve();
        wait(&hub, "the check after the restart", || fake.asked().len() >= asked + volumes).await;
        row(&format!("{name}: from the restart until each volume was checked"), seconds(began.elapsed()));
        calm(&hub).await;
        row(&format!("{name}: asked for it"), (fake.asked().len() - asked).to_string());
        row(&format!("{name}: requests to the API server for it"), requests(&audit.since(mark).unwrap()));
        let (after, peak) = (memory(&hub, "VmRSS:"), memory(&hub, "VmHWM:"));
        row(
            &format!("{name}: resident memory before, after, at most"),
            format!("{before}, {after}, {peak} MiB"),
        );
        let (mark, asked) = (audit.mark(), fake.asked().len());
        tokio::time::sleep(REST).await;
        row(
            &format!("{name}: asked in {} s at rest", REST.as_secs()),
            (fake.asked().len() - asked).to_string(),
        );
        let at_rest = requests(&audit.since(mark).unwrap());
        row(&format!("{name}: requests in {} s at rest", REST.as_secs()), at_rest);
    }
    drop((relays, driver));
    if let Ok(path) = std::env::var("VOLMEDIC_BENCH_PAGE") {
        std::fs::write(&path, page).unwrap();
    }
}

fn head(volumes: usize) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let takes = CHECK.as_millis();
    format!(
        "# The healer, measured\n\n\
         Made by `cargo xtask bench healer` on a machine with {cores} cores. Do not edit; run it again.\n\n\
         {NODES} nodes have {PER_NODE} attached volumes each, {volumes} together. One hub runs with `--heal \
         --heal-mode=auto` and, unless said otherwise, the budgets it comes with; the relays of all nodes are real ones in \
         another process, in front of a driver that takes {takes} ms to find a volume well; a real API server is on the same \
         machine. *The restart* is that of the node plugins of all nodes at once; *asked* are calls of `NodeHealer`. \
         Requests are the hub's, from the API server's audit log; relays besides read each volume and have each caller's \
         right reviewed every 20 s.\n\n\
         | what | figure |\n|---|---|\n"
    )
}

/// Does something for each number, some at a time.
async fn side_by_side<F: Future<Output = ()> + 'static + Send>(count: usize, work: impl Fn(usize) -> F) {
    let room = Arc::new(Semaphore::new(WRITERS));
    let mut tasks = JoinSet::new();
    for n in 0..count {
        let permit = room.clone().acquire_owned().await.unwrap();
        let work = work(n);
        tasks.spawn(async move {
            work.await;
            drop(permit);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn wait(hub: &Process, what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LIMIT, "never: {what}\n{}", hub.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until nothing is under way, and all relays are known.
async fn calm(hub: &Process) {
    let began = Instant::now();
    let relays = format!("volmedic_heal_relays {NODES}");
    loop {
        let text = hub.get("/metrics").await.1;
        let has = |line: &str| text.lines().any(|found| found == line);
        if has("volmedic_heal_in_flight 0") && has("volmedic_heal_open 0") && has(&relays) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "it does not come to rest:\n{text}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn requests(requests: &Requests) -> String {
    let all: u64 = requests.values().sum();
    format!("{all} ({})", audit::show(requests))
}

/// In MiB.
fn memory(hub: &Process, which: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", hub.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(which)).unwrap();
    line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap() / 1024
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
