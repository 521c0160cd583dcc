//! A driver, a namespace with claims that are bound to the driver's volumes, and an account for the controller.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;
use volmedic_api::resource::VolumeHealth;
use volmedic_testkit::sim::Sim;
use volmedic_testkit::{ControlPlane, Feature, objects, server_has};

use crate::process::{Controller, PATIENCE};
use crate::rights::Rights;
use crate::server::{self, Request};

/// The numbers of the wire.
pub(crate) const DEGRADED: i32 = 1;
pub(crate) const INACCESSIBLE: i32 = 2;
pub(crate) const DATA_LOSS: i32 = 3;

/// The account that everything runs under unless a test says otherwise.
const ACCOUNT: &str = "controller";

pub(crate) struct Stage {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) driver: String,
    pub(crate) sim: Sim,
    pub(crate) dir: TempDir,
    pub(crate) kubeconfig: PathBuf,
}

impl Stage {
    /// A driver of its own with these capabilities, and a namespace of its own.
    pub(crate) async fn new(capabilities: &[i32]) -> Self {
        Self::on(server::shared(), capabilities).await
    }

    pub(crate) async fn on(plane: Arc<ControlPlane>, capabilities: &[i32]) -> Self {
        let client = plane.client().await.expect("a client");
        let namespace = plane.namespace("controller").await.expect("a namespace");
        let driver = format!("{namespace}.csi.example.net");
        objects::csi_driver(&client, &driver).await.expect("a CSIDriver");
        let dir = tempfile::tempdir().expect("a directory for the socket");
        let sim =
            Sim::start(&dir.path().join("csi.sock"), &driver, capabilities).expect("the driver listens");
        let mut stage = Self { plane, client, namespace, driver, sim, dir, kubeconfig: PathBuf::new() };
        stage.kubeconfig = stage.account(ACCOUNT, &Rights::shipped(&stage.plane)).await;
        stage
    }

    /// A service account with these rights; answers its kubeconfig.
    pub(crate) async fn account(&self, name: &str, rights: &Rights) -> PathBuf {
        let config = rights.grant(&self.plane, &self.client, &self.namespace, name).await;
        let path = self.dir.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, config.to_string()).expect("the kubeconfig can be written");
        path
    }

    /// A volume of the driver with a claim of the same name bound to it.
    pub(crate) async fn claim(&self, name: &str) {
        self.sim.add_volumes([self.handle(name)]);
        let bound =
            objects::bound_claim(&self.client, &self.namespace, name, &self.driver, &self.handle(name)).await;
        bound.expect("a bound claim");
    }

    pub(crate) async fn claims(&self, names: &[&str]) {
        for name in names {
            self.claim(name).await;
        }
    }

    pub(crate) fn handle(&self, name: &str) -> String {
        format!("{}.{name}", self.namespace)
    }

    pub(crate) fn harm(&self, name: &str, status: i32, reason: &str, message: &str) {
        self.sim.harm(&self.handle(name), status, reason, message);
    }

    pub(crate) fn repair(&self, name: &str) {
        self.sim.repair(&self.handle(name));
    }

    /// Starts the controller with short intervals and these arguments besides.
    pub(crate) fn controller(&self, arguments: &[&str]) -> Controller {
        self.controller_as(&self.kubeconfig, arguments)
    }

    pub(crate) fn controller_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Controller {
        Controller::start(self.sim.socket(), kubeconfig, arguments)
    }

    /// Starts it and waits until it watches.
    pub(crate) async fn watching(&self, arguments: &[&str]) -> Controller {
        let controller = self.controller(arguments);
        controller.wait_log("watching").await;
        controller
    }

    /// All that the controller asked of the API server so far, whichever process it was.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests_of(ACCOUNT)
    }

    /// What it wrote after this many requests.
    pub(crate) fn writes_after(&self, requests: usize) -> Vec<Request> {
        self.requests().into_iter().skip(requests).filter(Request::is_write).collect()
    }

    /// How many requests there were, once the API server has noted all that are over: it notes one after it has answered it.
    /// Leases are renewed all the time.
    #[allow(dead_code, reason = "only some of the tests that share this ask for it")]
    pub(crate) async fn requests_noted(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        let others = || self.requests().iter().filter(|request| request.resource != "leases").count();
        let mut before = others();
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let (count, now) = (self.requests().len(), others());
            if now == before {
                return count;
            }
            assert!(Instant::now() < deadline, "it goes on asking: {:?}", self.requests());
            before = now;
        }
    }

    pub(crate) fn requests_of(&self, account: &str) -> Vec<Request> {
        server::requests(&self.plane, &format!("system:serviceaccount:{}:{account}", self.namespace))
    }

    /// Waits until the driver was asked this often since now: this many rounds went by.
    pub(crate) async fn rounds(&self, call: &str, count: u64) {
        let enough = self.sim.calls(call) + count;
        let deadline = Instant::now() + PATIENCE;
        while self.sim.calls(call) < enough {
            assert!(Instant::now() < deadline, "the driver is not asked for {call}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// All events in the namespace.
    pub(crate) async fn all_events(&self) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        api.list(&ListParams::default()).await.expect("events").items
    }

    /// What was reported on an object, oldest first.
    pub(crate) async fn events(&self, object: &str) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let fields = format!("involvedObject.name={object}");
        let mut events = api.list(&ListParams::default().fields(&fields)).await.expect("events").items;
        events.sort_by_key(|event| event.first_timestamp.clone());
        events
    }

    /// Waits for an event on an object.
    pub(crate) async fn event(&self, object: &str, reason: &str, contains: &str) -> Event {
        let wanted = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.message.as_deref().is_some_and(|message| message.contains(contains))
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.events(object).await;
            if let Some(event) = events.iter().find(|event| wanted(event)) {
                return event.clone();
            }
            let reported: Vec<_> = events.iter().map(|e| (e.reason.clone(), e.message.clone())).collect();
            assert!(
                Instant::now() < deadline,
                "no {reason} with {contains:?} on {object}; there is {reported:#?}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until an event was counted this often.
    pub(crate) async fn counted(&self, object: &str, reason: &str, count: i32) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.events(object).await;
            let event = events.iter().find(|event| event.reason.as_deref() == Some(reason));
            let counted = event.and_then(|event| event.count);
            if counted == Some(count) {
                return;
            }
            assert!(Instant::now() < deadline, "{reason} on {object} was counted {counted:?}, not {count}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The claim's stored health, as `Status/Reason` each: from the claim, or from its VolumeHealth where this release has no
    /// place for it in claims.
    pub(crate) async fn stored(&self, claim: &str) -> Vec<String> {
        let (stored, status) = if server_has(Feature::ClaimHealth) {
            (self.health_in_claim(claim).await, "status")
        } else {
            (self.health_in_volume_health(claim).await, "severity")
        };
        let conditions = stored["healthConditions"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        conditions.iter().map(|c| format!("{}/{}", text(&c[status]), text(&c["reason"]))).collect()
    }

    async fn health_in_claim(&self, claim: &str) -> Value {
        let kind = ApiResource::erase::<PersistentVolumeClaim>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &kind);
        api.get(claim).await.expect("the claim").data["status"]["healthStatus"].clone()
    }

    async fn health_in_volume_health(&self, claim: &str) -> Value {
        let api: Api<VolumeHealth> = Api::namespaced(self.client.clone(), &self.namespace);
        match api.get(claim).await {
            Ok(health) => json!(health.status.and_then(|status| status.controller_report)),
            // No such object, or no VolumeHealths at all.
            Err(kube::Error::Api(status)) if status.code == 404 => Value::Null,
            Err(error) => panic!("the VolumeHealth of {claim} cannot be read: {error}"),
        }
    }

    pub(crate) async fn wait_stored(&self, claim: &str, expected: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stored = self.stored(claim).await;
            if stored == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{claim} has {stored:?} stored, not {expected:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
