//! The relay inside the agent: registered beside a real driver for as long as both are there, and open to those who may.
//! What it does with each kind of caller and answer is proved in the tests of the relay itself.

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use volmedic_api::addons::{CREATED_BY, CsiAddonsNode, RELAY, RELAY_CERTIFICATES, UPDATED_AT};
use volmedic_driver::fault::Fault;
use volmedic_heal::Outcome;
use volmedic_heal::healer::{Dialer, Relayed, Trust};
use volmedic_proto::relay::HealRequest;
use volmedic_testkit::{ControlPlane, objects};

use crate::ground::Ground;
use crate::kind;
use crate::process::{Controller as Process, PATIENCE};
use crate::rights::Rights;
use crate::server;
use crate::stage::{ABNORMAL, Stage, Volume, shipped};

const POD: &str = "agent-x";
const HEALER: &str = "healer";
const DEADLINE: Duration = PATIENCE;

/// A stage whose agent has a pod and the rights of a relay.
struct Clinic {
    stage: Stage,
    pod: Pod,
    kubeconfig: PathBuf,
}

impl Clinic {
    async fn new() -> Self {
        let plane = server::shared();
        kind::define(&plane.client().await.expect("a client")).await;
        Self::on(plane).await
    }

    /// Where the kind may be missing.
    async fn on(plane: Arc<ControlPlane>) -> Self {
        let stage = Stage::on(plane, &[]).await;
        let relays = Rights::named(&stage.plane, "rbac-healer.yaml", "volmedic-relay");
        let kubeconfig = stage.account("relaying", &shipped(&stage.plane).and(relays)).await;
        let healers = Rights::named(&stage.plane, "rbac-healer.yaml", "volmedic-heal");
        stage.account(HEALER, &healers).await;
        let pod = own_pod(&stage).await;
        Self { stage, pod, kubeconfig }
    }

    /// Of the tokens that relays on this node accept.
    fn audience(&self) -> String {
        volmedic_heal::relay::audience_of(&self.stage.node)
    }

    fn addons(&self) -> PathBuf {
        self.stage.ground.path().join("addons.sock")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.stage.ground.path().join(name)
    }

    /// Ends the driver the hard way and starts one that can heal.
    fn restart_driver(&mut self) {
        self.stage.ground.kill();
        let (name, addons) = (
            format!("--name={}", self.stage.driver),
            format!("--addons-endpoint=unix://{}", self.addons().display()),
        );
        self.stage.ground.start(&[&name, &addons, "--check-deadline=30"]);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let usual = [
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--addons-address=unix://{}", self.addons().display()),
        ];
        let mut all: Vec<&str> = usual.iter().map(String::as_str).collect();
        all.extend(["--relay-endpoint=127.0.0.1:0", "--http-endpoint=127.0.0.1:0"]);
        all.extend(arguments);
        let mut command = self.stage.command(&all);
        command.env("POD_NAME", POD);
        command
    }

    fn agent(&self, arguments: &[&str]) -> Process {
        Process::spawn(&mut self.command(arguments))
    }

    async fn registrations(&self) -> Vec<CsiAddonsNode> {
        let api = Api::<CsiAddonsNode>::namespaced(self.stage.client.clone(), &self.stage.namespace);
        // Where the kind is not installed there are none.
        api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default()
    }

    /// Waits until the registrations are as they should be.
    async fn registered(&self, what: &str, wanted: impl Fn(&[CsiAddonsNode]) -> bool) -> Vec<CsiAddonsNode> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.registrations().await;
            if wanted(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain until {what}: {found:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Has the healer ask anyone who is registered there, with this token.
    async fn ask(&self, object: &CsiAddonsNode, token: String, volume: &Volume) -> Outcome {
        let file = self.file("token");
        std::fs::write(&file, token).unwrap();
        let trust = Trust { token: Some(file), unverified: None };
        let relayed = Relayed {
            driver: self.stage.driver.as_str().into(),
            node: self.stage.node.as_str().into(),
            namespace: self.stage.namespace.as_str().into(),
            pod: POD.into(),
            pod_uid: self.pod.metadata.uid.as_deref().expect("a uid").into(),
            address: ([127, 0, 0, 1], port(object)).into(),
            generation: "1".into(),
            certificates: object.annotation(RELAY_CERTIFICATES).split(',').map(Into::into).collect(),
        };
        let request = HealRequest { persistent_volume: volume.pv.clone(), ..HealRequest::default() };
        Dialer::new(self.stage.client.clone(), trust).ask(&relayed, request, DEADLINE).await
    }

    /// A token of an account, which is made if need be, for the API server.
    async fn common_token(&self, account: &str) -> String {
        self.stage.plane.token(&self.stage.namespace, account, None).await.expect("a token")
    }

    /// The same for somebody else.
    async fn token(&self, account: &str, audience: &str) -> String {
        self.common_token(account).await;
        let Stage { client, namespace, .. } = &self.stage;
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
        let spec = TokenRequestSpec { audiences: vec![audience.to_owned()], ..Default::default() };
        let request = TokenRequest { spec, ..Default::default() };
        let made = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        made.status.unwrap().token
    }
}

/// Where a registration says that its relay listens.
fn port(object: &CsiAddonsNode) -> u16 {
    object.spec.driver.endpoint.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}

fn why(outcome: Outcome) -> String {
    match outcome {
        Outcome::NotReached { why } => why,
        other => panic!("it got in: {other:?}"),
    }
}

/// The pod that the agent runs in, of a DaemonSet.
async fn own_pod(stage: &Stage) -> Pod {
    let Stage { client, namespace, node, .. } = stage;
    let labels = json!({"app": "agent"});
    let template = json!({"metadata": {"labels": labels},
                          "spec": {"containers": [{"name": "main", "image": "none"}]}});
    let set = json!({"metadata": {"name": "agent"},
                     "spec": {"selector": {"matchLabels": labels}, "template": template}});
    let sets = Api::<DaemonSet>::namespaced(client.clone(), namespace);
    let set = sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    objects::pod_as(client, namespace, POD, node, &[], "default").await.expect("a pod");
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent",
                        "uid": set.metadata.uid, "controller": true}]);
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owner}}));
    stage.pods().patch(POD, &PatchParams::default(), &patch).await.unwrap();
    // The healer connects only to a pod that runs and has that address.
    let status =
        json!({"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    stage.pods().patch_status(POD, &PatchParams::default(), &Patch::Merge(status)).await.unwrap()
}

async fn metric(agent: &Process, line: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (_, text) = agent.get("/metrics").await;
        if text.lines().any(|found| found == line) {
            return;
        }
        let relays: Vec<_> = text.lines().filter(|line| line.contains("relay")).collect();
        assert!(Instant::now() < deadline, "no {line:?} among {relays:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn who_may_has_a_volume_repaired_through_the_agent_and_others_are_refused_and_counted() {
    let mut clinic = Clinic::new().await;
    // No socket yet; the agent waits for it, and watches meanwhile.
    let agent = clinic.agent(&[]);
    agent.wait_log("relaying heals on 127.0.0.1").await;
    agent.wait_log("watching").await;
    assert!(clinic.registrations().await.is_empty());
    clinic.restart_driver();
    let found = clinic.registered("it is registered", |found| found.len() == 1).await;
    let object = &found[0];
    let (namespace, node) = (&clinic.stage.namespace, &clinic.stage.node);
    assert_eq!(object.metadata.name, Some(format!("{node}-{namespace}-daemonset-agent")));
    assert_eq!(object.annotation(CREATED_BY), clinic.pod.metadata.uid.as_deref().unwrap());
    assert_eq!(object.annotation(RELAY), "v1");
    assert!(object.annotation(UPDATED_AT).parse::<jiff::Timestamp>().is_ok());
    let owners: Vec<_> = object.owners().iter().map(|owner| (&*owner.kind, &*owner.name)).collect();
    assert_eq!(owners, [("DaemonSet", "agent")]);
    let driver = &object.spec.driver;
    assert_eq!((&driver.name, &driver.node_id), (&clinic.stage.driver, node));
    assert!(driver.endpoint.starts_with(&format!("pod://{POD}.{namespace}:")), "{}", driver.endpoint);

    let data = clinic.stage.volume("data", "fuse").await;
    clinic.stage.pod("web", &[&data]).await;
    clinic.stage.harm(Fault::MounterKilled, &data);
    clinic.stage.event("web", ABNORMAL, &["MounterDead"]).await;

    let refused = why(clinic.ask(object, clinic.token("stranger", &clinic.audience()).await, &data).await);
    assert!(refused.contains("stranger may not heal csiaddonsnodes"), "{refused}");
    let refused = why(clinic.ask(object, clinic.token(HEALER, "somebody-else").await, &data).await);
    assert!(refused.contains("another audience than volmedic-relay"), "{refused}");
    let mut plain = TcpStream::connect(("127.0.0.1", port(object))).unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    for refusal in ["not_allowed", "wrong_audience", "plain_text"] {
        metric(&agent, &format!("volmedic_relay_refused_total{{why=\"{refusal}\"}} 1")).await;
    }
    let healed = clinic.ask(object, clinic.token(HEALER, &clinic.audience()).await, &data).await;
    assert!(healed.is_healthy(), "{healed:?}");
    metric(&agent, r#"volmedic_relay_heals_total{result="well"} 1"#).await;
    clinic.stage.event("web", crate::stage::NORMAL, &["MounterDead"]).await;

    assert_eq!(agent.terminate(), Some(0));
    assert!(clinic.registrations().await.is_empty(), "it is taken back at the end");
}

#[tokio::test]
async fn it_is_registered_again_when_the_driver_or_the_agent_was_killed() {
    let mut clinic = Clinic::new().await;
    clinic.restart_driver();
    let mut agent = clinic.agent(&[]);
    let first = clinic.registered("it is registered", |found| found.len() == 1).await.remove(0);
    clinic.restart_driver();
    let updated = |found: &[CsiAddonsNode], old: &CsiAddonsNode| {
        found[0].annotation(UPDATED_AT) != old.annotation(UPDATED_AT)
    };
    let second =
        clinic.registered("the driver's restart shows", |found| updated(found, &first)).await.remove(0);
    assert_eq!(second.metadata.uid, first.metadata.uid);
    assert_eq!(second.spec.driver.endpoint, first.spec.driver.endpoint);
    agent.kill();
    assert_eq!(clinic.registrations().await.len(), 1, "nobody took it back");
    let _agent = clinic.agent(&[]);
    let third =
        clinic.registered("the agent's restart shows", |found| updated(found, &second)).await.remove(0);
    assert_eq!(third.metadata.uid, first.metadata.uid);
    assert_eq!(second.annotation(RELAY_CERTIFICATES), first.annotation(RELAY_CERTIFICATES));
    assert_ne!(
        third.annotation(RELAY_CERTIFICATES),
        first.annotation(RELAY_CERTIFICATES),
        "its key ended with it"
    );
}

/// The manifest of csi-addons may come after ours.
#[tokio::test]
async fn a_kind_that_is_not_installed_is_said_once_and_found_when_it_is() {
    let mut clinic = Clinic::on(server::own(ControlPlane::options())).await;
    clinic.restart_driver();
    let agent = clinic.agent(&["--node-report=off"]);
    let missing = "does not know the resource CSIAddonsNode; install its definition";
    agent.wait_log(missing).await;
    let user = format!("system:serviceaccount:{}:relaying", clinic.stage.namespace);
    let tries = || {
        let requests = server::requests(&clinic.stage.plane, &user).into_iter();
        requests.filter(|request| request.is("get", "csiaddonsnodes")).count()
    };
    let deadline = Instant::now() + PATIENCE;
    while tries() < 2 {
        assert!(Instant::now() < deadline, "it does not try again: {}", agent.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(agent.says(missing), 1, "{}", agent.log());
    agent.wait_log("watching").await;
    kind::define(&clinic.stage.client).await;
    clinic.registered("it is registered", |found| found.len() == 1).await;
}

/// Each driver has an object and a port of its own. In the scheme of csi-addons, which somebody asked for by name, any
/// token of the cluster will do.
#[tokio::test]
async fn several_drivers_are_distinguished_and_the_scheme_of_csi_addons_is_there_by_name() {
    let mut clinic = Clinic::new().await;
    clinic.restart_driver();
    let mut other = Ground::new();
    let (name, socket) = (format!("other.{}", clinic.stage.driver), other.path().join("addons.sock"));
    other.start(&[&format!("--name={name}"), &format!("--addons-endpoint=unix://{}", socket.display())]);
    let more = format!("--addons-address={}", socket.display());
    let agent = clinic.agent(&[&more, "--relay-csi-addons"]);
    let found = clinic.registered("both are registered", |found| found.len() == 2).await;
    assert_ne!(port(&found[0]), port(&found[1]));
    for driver in [&clinic.stage.driver, &name] {
        let object = found.iter().find(|object| object.spec.driver.name == *driver).expect(driver);
        let ends =
            object.metadata.name.as_ref().is_some_and(|name| name.ends_with(&format!("-agent-{driver}")));
        assert!(ends, "{:?}", object.metadata.name);
    }
    let data = clinic.stage.volume("data", "fuse").await;
    clinic.stage.pod("web", &[&data]).await;
    let object = found.iter().find(|object| object.spec.driver.name == clinic.stage.driver).unwrap();
    let healed = clinic.ask(object, clinic.token("stranger", "volmedic-csi-addons").await, &data).await;
    assert!(healed.is_healthy(), "{healed:?}");
    assert_eq!(agent.terminate(), Some(0));
    assert!(clinic.registrations().await.is_empty(), "all are taken back at the end");
}
