//! Candidates against a real API server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, PostParams};
use kube::client::{Body, ClientBuilder};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tower::util::MapRequestLayer;
use volmedic_lease::{Candidate, Config, State, lock_name};
use volmedic_testkit::ControlPlane;

const DRIVER: &str = "disk.csi.example.net";
/// Nothing here takes this long unless it never ends.
const LIMIT: Duration = Duration::from_mins(2);

/// A lease of `seconds` seconds, which is held on to for half of that without a renewal. A leader on a busy machine may be
/// stalled for seconds: only what waits for a lease to run out takes a short one.
fn config(namespace: &str, identity: &str, seconds: u64) -> Config {
    Config {
        lease_duration: Duration::from_secs(seconds),
        renew_deadline: Duration::from_secs(seconds) / 2,
        retry_period: Duration::from_millis(400),
        ..Config::new(namespace, &lock_name(DRIVER), identity)
    }
}

/// Longer than anything here is waited for.
const LONG: u64 = 600;

async fn elected(candidate: &Candidate) -> State {
    timeout(LIMIT, candidate.elected()).await.expect("no candidate was elected")
}

async fn spec(client: &Client, namespace: &str) -> LeaseSpec {
    let api = Api::<Lease>::namespaced(client.clone(), namespace);
    api.get(&lock_name(DRIVER)).await.expect("the lease").spec.expect("its spec")
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < LIMIT, "{what} did not happen within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn one_leads_and_a_released_lease_changes_hands_immediately() {
    let plane = ControlPlane::shared();
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("lease").await.unwrap();
    let mut first = config(&namespace, "replica-a", LONG);
    first.labels = BTreeMap::from([("team".to_owned(), "storage".to_owned())]);

    let a = Candidate::start(client.clone(), first).unwrap();
    assert_eq!(elected(&a).await, State::Leading);
    let b = Candidate::start(client.clone(), config(&namespace, "replica-b", LONG)).unwrap();
    until("seeing the leader", async || b.holder() == "replica-a").await;
    assert_eq!(b.state(), State::Standby);
    assert!(a.healthy(Instant::now()).is_ok() && a.holds(Instant::now()) && !b.holds(Instant::now()));

    let held = spec(&client, &namespace).await;
    assert_eq!(held.holder_identity.as_deref(), Some("replica-a"));
    assert_eq!((held.lease_duration_seconds, held.lease_transitions), (Some(600), Some(0)));
    let acquired = held.acquire_time.expect("acquireTime");
    until("a renewal", async || spec(&client, &namespace).await.renew_time > held.renew_time).await;
    assert_eq!(spec(&client, &namespace).await.acquire_time, Some(acquired), "renewing is not acquiring");
    let lease = Api::<Lease>::namespaced(client.clone(), &namespace).get(&lock_name(DRIVER)).await.unwrap();
    assert_eq!(lease.labels().get("team").map(String::as_str), Some("storage"));

    assert!(a.release().await);
    assert_eq!(elected(&b).await, State::Leading, "a released lease does not have to run out");
    let held = spec(&client, &namespace).await;
    assert_eq!((held.holder_identity.as_deref(), held.lease_transitions), (Some("replica-b"), Some(1)));

    assert!(b.release().await);
    let free = spec(&client, &namespace).await;
    assert_eq!((free.holder_identity.as_deref(), free.lease_duration_seconds), (Some(""), Some(1)));
}

#[tokio::test]
async fn a_killed_leader_is_followed_when_its_lease_ends() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("lease").await.unwrap();
    let doomed = config(&namespace, "doomed", 4);
    // A runtime of its own that is thrown away: the task ends in the middle of whatever it does, as by kill -9.
    let runtime = std::thread::spawn(move || {
        let runtime = Runtime::new().unwrap();
        let candidate = runtime.block_on(async {
            let client = ControlPlane::shared().client().await.unwrap();
            let candidate = Candidate::start(client, doomed).unwrap();
            assert_eq!(elected(&candidate).await, State::Leading);
            candidate
        });
        runtime.shutdown_background();
        drop(candidate);
    });
    tokio::task::spawn_blocking(|| runtime.join()).await.unwrap().unwrap();
    let killed = Instant::now();
    let client = plane.client().await.unwrap();
    assert_eq!(spec(&client, &namespace).await.holder_identity.as_deref(), Some("doomed"));
    let heir = Candidate::start(client.clone(), config(&namespace, "heir", 4)).unwrap();
    assert_eq!(elected(&heir).await, State::Leading);
    let took = killed.elapsed();
    assert!(took >= Duration::from_millis(3900), "it did not respect the lease: {took:?}");
    assert_eq!(spec(&client, &namespace).await.lease_transitions, Some(1));
}

#[tokio::test]
async fn a_holder_of_another_make_is_respected_while_it_renews_whatever_its_clock_says() {
    let plane = ControlPlane::shared();
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("lease").await.unwrap();
    let api = Api::<Lease>::namespaced(client.clone(), &namespace);
    let mut lease = Lease::default();
    lease.metadata.name = Some(lock_name(DRIVER));
    // Its clock is a day behind.
    let clock = || Timestamp::now() - jiff::SignedDuration::from_hours(24);
    let acquired = Some(MicroTime(clock()));
    let foreign = |renewed: Timestamp| LeaseSpec {
        holder_identity: Some("go-sidecar".to_owned()),
        lease_duration_seconds: Some(10),
        acquire_time: acquired.clone(),
        renew_time: Some(MicroTime(renewed)),
        lease_transitions: Some(6),
        ..LeaseSpec::default()
    };
    lease.spec = Some(foreign(clock()));
    let mut lease = api.create(&PostParams::default(), &lease).await.unwrap();

    let ours = Candidate::start(client.clone(), config(&namespace, "ours", 4)).unwrap();
    // For longer than the lease would last without a renewal.
    let end = Instant::now() + Duration::from_secs(13);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(400)).await;
        lease.spec = Some(foreign(clock()));
        lease = api.replace(&lock_name(DRIVER), &PostParams::default(), &lease).await.unwrap();
        assert_eq!(ours.state(), State::Standby);
    }
    assert_eq!(elected(&ours).await, State::Leading, "once it stops renewing");
    assert_eq!(spec(&client, &namespace).await.lease_transitions, Some(7));
}

#[tokio::test]
async fn an_api_server_away_for_longer_than_the_renew_deadline_ends_the_lead() {
    let plane = tokio::task::spawn_blocking(|| ControlPlane::options().start()).await.unwrap().unwrap();
    let namespace = plane.namespace("lease").await.unwrap();
    let leader = Candidate::start(plane.client().await.unwrap(), config(&namespace, "leader", 20)).unwrap();
    assert_eq!(elected(&leader).await, State::Leading);
    // Frozen, not refused: requests are taken and never answered.
    plane.pause(volmedic_testkit::Part::ApiServer).unwrap();
    let begun = Instant::now();
    timeout(LIMIT, leader.lost()).await.expect("it still leads");
    let took = begun.elapsed();
    // Before the lease ends for the other candidates, which is what the renew deadline of ten seconds is for. When exactly is proved
    // on a clock of its own.
    assert!(took < Duration::from_secs(20), "lost after {took:?}");
    assert!(!leader.holds(Instant::now()));
    plane.resume(volmedic_testkit::Part::ApiServer).unwrap();

    // A candidate that stands by while the server is away just goes on standing.
    let plane = Arc::new(plane);
    let waiting = Candidate::start(plane.client().await.unwrap(), config(&namespace, "waiting", 20)).unwrap();
    let stopper = plane.clone();
    tokio::task::spawn_blocking(move || {
        stopper.stop_apiserver().unwrap();
        std::thread::sleep(Duration::from_secs(4));
        stopper.start_apiserver().unwrap();
    })
    .await
    .unwrap();
    assert_eq!(elected(&waiting).await, State::Leading);
}

#[tokio::test]
async fn standby_asks_for_the_lease_and_nothing_else_with_the_least_of_rights() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("lease").await.unwrap();
    let admin = plane.client().await.unwrap();
    let role: Role = serde_json::from_value(json!({
        "metadata": {"name": "lease"},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}],
    }))
    .unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "lease"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lease"},
        "subjects": [{"kind": "ServiceAccount", "name": "replica", "namespace": namespace}],
    }))
    .unwrap();
    Api::namespaced(admin.clone(), &namespace).create(&PostParams::default(), &role).await.unwrap();
    Api::namespaced(admin.clone(), &namespace).create(&PostParams::default(), &binding).await.unwrap();
    let token = plane.token(&namespace, "replica", None).await.unwrap();

    let leader =
        Candidate::start(plane.client_with(&token).await.unwrap(), config(&namespace, "leader", LONG))
            .unwrap();
    assert_eq!(elected(&leader).await, State::Leading);

    let (count, odd) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let mut kube_config = plane.admin_config().await.unwrap();
    kube_config.auth_info = kube::config::AuthInfo { token: Some(token.into()), ..Default::default() };
    let (counter, others) = (count.clone(), odd.clone());
    let watcher = MapRequestLayer::new(move |request: http::Request<Body>| {
        counter.fetch_add(1, Ordering::Relaxed);
        let line = format!("{} {}", request.method(), request.uri().path());
        if !line.starts_with("GET ") || !line.ends_with(&lock_name(DRIVER)) {
            others.lock().unwrap().push(line);
        }
        request
    });
    let counted = ClientBuilder::try_from(kube_config).unwrap().with_layer(&watcher).build();
    let waiting = Candidate::start(counted, config(&namespace, "waiting", LONG)).unwrap();
    until("five reads", async || count.load(Ordering::Relaxed) >= 5).await;
    assert_eq!(waiting.state(), State::Standby);
    assert_eq!(*odd.lock().unwrap(), Vec::<String>::new());
    drop((waiting, leader));
    until("giving up on drop", async || {
        spec(&admin, &namespace).await.holder_identity.as_deref() == Some("")
    })
    .await;
}
