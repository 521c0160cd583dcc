//! What the node's report says, when it is written, and that it is not missed where it cannot be.

use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use volmedic_api::resource::{ClaimName, ConditionStatus, NodeReport, NodeVantage, VolumeHealth};
use volmedic_driver::fault::Fault;
use volmedic_testkit::{ControlPlane, objects};

use crate::process::{Controller as Process, PATIENCE, program};
use crate::server;
use crate::stage::{ABNORMAL, NORMAL, Stage, apply, install_resources};

/// By host checks only, so that there is one story.
const ALONE: [&str; 3] =
    ["--csi-address=/nowhere/csi.sock", "--monitor-interval=500ms", "--http-endpoint=127.0.0.1:0"];

async fn renewed(stage: &Stage) -> Option<MicroTime> {
    let leases = Api::<Lease>::namespaced(stage.client.clone(), &stage.namespace);
    let lease = leases.get_opt(&format!("volmedic-agent-{}", stage.node)).await.expect("leases");
    let spec = lease?.spec?;
    assert_eq!(spec.holder_identity.as_deref(), Some(&*stage.node));
    spec.renew_time
}

/// Waits for the next sign of life.
async fn beats(stage: &Stage) {
    let (before, deadline) = (renewed(stage).await, Instant::now() + PATIENCE);
    while renewed(stage).await == before {
        assert!(Instant::now() < deadline, "the lease stays as it is: {before:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// This prints how long it took.
#[tokio::test]
#[allow(clippy::print_stderr, reason = "a figure for whoever reads the test's output")]
async fn what_is_wrong_is_in_it_until_it_is_over() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    let well = stage.volume("well", "fuse").await;
    let uid = stage.pod("web", &[&data, &well]).await;
    let _agent = stage.watching(&ALONE).await;
    beats(&stage).await;
    beats(&stage).await;
    let report = stage.report("all are well", |report| report.counts.healthy == 2).await.spec.report;
    assert!(report.volumes.is_empty(), "{report:#?}");
    assert!(!report.agent.version.is_empty());
    for name in ["mounted", "answers", "fs-errors"] {
        let check = report.checks.iter().find(|check| check.name == name).expect(name);
        assert_eq!(check.running, check.why.is_empty(), "{check:?}");
    }

    let began = Instant::now();
    stage.harm(Fault::ReadOnly, &data);
    let report = stage.report("it is ill", |report| !report.volumes.is_empty()).await.spec.report;
    eprintln!("from fault to report: {} ms", began.elapsed().as_millis());
    let [unhealthy] = &report.volumes[..] else { panic!("{report:#?}") };
    assert_eq!(
        (unhealthy.vantage, &*unhealthy.driver, &*unhealthy.volume_handle),
        (NodeVantage::Host, &*stage.driver, &*data.id)
    );
    assert_eq!(unhealthy.persistent_volume_name.as_deref(), Some(&*data.pv));
    assert_eq!(
        unhealthy.claim,
        Some(ClaimName { namespace: stage.namespace.clone(), name: "data".to_owned() })
    );
    let pods: Vec<_> = unhealthy.pods.iter().map(|pod| (&*pod.namespace, &*pod.name, &*pod.uid)).collect();
    assert_eq!(pods, [(&*stage.namespace, "web", &*uid)]);
    let [condition] = &unhealthy.health_conditions[..] else { panic!("{unhealthy:#?}") };
    assert_eq!((&*condition.reason, condition.status), ("ReadOnlyFilesystem", ConditionStatus::True));
    assert_eq!((report.counts.volumes, report.counts.healthy), (2, 1), "{:?}", report.counts);
    let mounted =
        unhealthy.evidence.iter().find(|line| line.starts_with("mounted: ")).expect("how it is mounted");
    assert!(mounted.contains("/dev/loop") && mounted.ends_with(" over ro"), "{mounted}");

    stage.repair(Fault::ReadOnly, &data);
    let over = |report: &NodeReport| report.volumes.is_empty() && report.counts.healthy == 2;
    stage.report("it is over", over).await;
}

#[tokio::test]
async fn killed_it_finds_its_report_as_it_is_and_writes_nothing() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    let well = stage.volume("well", "fuse").await;
    stage.pod("web", &[&data, &well]).await;
    let mut agent = stage.watching(&ALONE).await;
    stage.harm(Fault::ReadOnly, &data);
    let settled = |report: &NodeReport| {
        report.volumes.len() == 1 && report.counts.healthy == 1 && report.counts.unknown == 0
    };
    let before = stage.report("one is ill", settled).await.metadata;
    let user = format!("system:serviceaccount:{}:agent", stage.namespace);
    let asked = || {
        let requests = server::requests(&stage.plane, &user).into_iter();
        requests.filter(|request| request.is("get", "nodevolumehealths")).count()
    };
    for _ in 0..2 {
        agent.kill();
        let known = asked();
        agent = stage.watching(&ALONE).await;
        stage.looks(&agent, 6).await;
        // It has compared what is stored with what it would say.
        let deadline = Instant::now() + PATIENCE;
        while asked() == known {
            assert!(Instant::now() < deadline, "it does not look for its report: {}", agent.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        stage.looks(&agent, 6).await;
    }
    let after = stage.stored().await.expect("it is there").metadata;
    assert_eq!((after.uid, after.resource_version), (before.uid, before.resource_version));
}

#[tokio::test]
async fn where_it_is_not_installed_that_is_said_once_and_everything_else_works() {
    let mut stage = Stage::on(server::own(ControlPlane::options()), &[]).await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let agent = stage.watching(&ALONE).await;
    let missing = "does not know the resource NodeVolumeHealth; install deploy/chart/files/crds";
    agent.wait_log(missing).await;
    stage.harm(Fault::ReadOnly, &data);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem"]).await;
    stage.repair(Fault::ReadOnly, &data);
    stage.event("web", NORMAL, &["ReadOnlyFilesystem"]).await;
    beats(&stage).await;
    assert_eq!(agent.says(missing), 1, "{}", agent.log());
}

#[tokio::test]
async fn what_is_installed_later_is_found() {
    let mut stage = Stage::on(server::own(ControlPlane::options()), &[]).await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let agent = stage.watching(&ALONE).await;
    agent.wait_log("does not know the resource NodeVolumeHealth").await;
    install_resources(&stage.plane);
    stage.report("it is installed", |report| report.counts.healthy == 1).await;
    agent.wait_log("is reported to the hub again").await;
}

#[tokio::test]
async fn switched_off_nothing_is_written() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let _agent = stage.watching(&[&ALONE[..], &["--node-report=off"]].concat()).await;
    stage.harm(Fault::ReadOnly, &data);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem"]).await;
    assert!(stage.stored().await.is_none() && renewed(&stage).await.is_none());
}

/// Everything as shipped: the agent's token is bound to its pod, the policy is in force, and the hub believes the node.
#[tokio::test]
async fn the_hub_has_it_on_the_claim() {
    const HOME: &str = "default";
    let mut stage = Stage::on(server::own(ControlPlane::options()), &[]).await;
    install_resources(&stage.plane);
    for file in ["rbac-hub.yaml", "rbac-agent.yaml", "admission-agent.yaml", "admission-health.yaml"] {
        apply(&stage.plane, file);
    }
    objects::node(&stage.client, &stage.node).await.expect("a node");
    let account = "volmedic-agent";
    let own = objects::pod_as(&stage.client, HOME, account, &stage.node, &[], account).await.expect("a pod");
    let token = stage.plane.token(HOME, account, Some(&own)).await.expect("a token of the agent's pod");
    let agents = format!("--kubeconfig={}", stage.kubeconfig_with("bound", &token).display());
    let token = stage.plane.token(HOME, "volmedic-hub", None).await.expect("a token of the hub");
    let hubs = format!("--kubeconfig={}", stage.kubeconfig_with("hub", &token).display());
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let alone = ["hub", "--leader-election=false", "--agent-namespace", HOME, &hubs];
    let hub = Process::spawn(Command::new(program()).args(alone));
    hub.wait_log("lets every agent speak only for its own node").await;
    let agent = Process::spawn(stage.command(&[&ALONE[..], &[&agents]].concat()).env("POD_NAMESPACE", HOME));
    agent.wait_log("watching").await;

    let health = async |wanted: &str| {
        let api = Api::<VolumeHealth>::namespaced(stage.client.clone(), &stage.namespace);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = api.get_opt("data").await.expect("the API server answers").and_then(|it| it.status);
            let vantages = status.map(|status| status.vantages).unwrap_or_default();
            let found = vantages.iter().find(|vantage| vantage.name == format!("host/{}", stage.node));
            if let Some(found) = found.filter(|found| found.health.as_str() == wanted) {
                return found.clone();
            }
            assert!(Instant::now() < deadline, "not {wanted}: {vantages:#?}\n{}\n{}", agent.log(), hub.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    stage.harm(Fault::ReadOnly, &data);
    let unhealthy = health("HealthFailure").await;
    assert_eq!(unhealthy.health_conditions[0].reason, "ReadOnlyFilesystem");
    assert_ne!(unhealthy.verified, Some(false));
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem"]).await;
    stage.repair(Fault::ReadOnly, &data);
    health("Healthy").await;
    assert_eq!(hub.terminate(), Some(0));
}
