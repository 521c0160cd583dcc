//! A driver, a controller process, and claims that are bound to the driver's volumes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use tempfile::TempDir;
use volmedic_testkit::sim::Sim;
use volmedic_testkit::{ControlPlane, objects};

/// Generous, because the machine may be busy; everything waited for comes much sooner.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) driver: String,
    pub(crate) sim: Sim,
    pub(crate) dir: TempDir,
}

impl Stage {
    /// A driver of its own with these capabilities, and a namespace of its own.
    pub(crate) async fn new(capabilities: &[i32]) -> Self {
        let plane = ControlPlane::shared();
        let client = plane.client().await.expect("a client");
        let namespace = plane.namespace("controller").await.expect("a namespace");
        let driver = format!("{namespace}.csi.example.net");
        let dir = tempfile::tempdir().expect("a directory for the socket");
        let sim = Sim::start(&dir.path().join("csi.sock"), &driver, capabilities).expect("the driver listens");
        Self { plane, client, namespace, driver, sim, dir }
    }

    /// A volume of the driver with a claim of the same name bound to it.
    pub(crate) async fn claim(&self, name: &str) {
        self.sim.add_volumes([self.handle(name)]);
        let bound = objects::bound_claim(&self.client, &self.namespace, name, &self.driver, &self.handle(name)).await;
        bound.expect("a bound claim");
    }

    pub(crate) fn handle(&self, name: &str) -> String {
        format!("handle-of-{name}")
    }

    pub(crate) fn harm(&self, name: &str, status: i32, reason: &str, message: &str) {
        self.sim.harm(&self.handle(name), status, reason, message);
    }

    pub(crate) fn mend(&self, name: &str) {
        self.sim.mend(&self.handle(name));
    }

    /// Starts the controller with short intervals and these arguments besides.
    pub(crate) fn controller(&self, arguments: &[&str]) -> Controller {
        Controller::start(self.sim.socket(), self.plane.kubeconfig(), arguments)
    }

    /// What was told on a claim, oldest first: type, reason, count and message of each event.
    pub(crate) async fn events(&self, claim: &str) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let fields = format!("involvedObject.name={claim}");
        let mut events = api.list(&ListParams::default().fields(&fields)).await.expect("events").items;
        events.sort_by_key(|event| event.first_timestamp.clone());
        events
    }

    /// Waits for an event on a claim.
    pub(crate) async fn event(&self, claim: &str, reason: &str, contains: &str) -> Event {
        let wanted = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.message.as_deref().is_some_and(|message| message.contains(contains))
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.events(claim).await;
            if let Some(event) = events.iter().find(|event| wanted(event)) {
                return event.clone();
            }
            let told: Vec<_> = events.iter().map(|e| (e.reason.clone(), e.message.clone())).collect();
            assert!(Instant::now() < deadline, "no {reason} with {contains:?} on {claim}; there is {told:#?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The claim's stored health, as `Status/Reason` each.
    pub(crate) async fn stored(&self, claim: &str) -> Vec<String> {
        let kind = ApiResource::erase::<PersistentVolumeClaim>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &kind);
        let claim = api.get(claim).await.expect("the claim").data;
        let conditions = claim["status"]["healthStatus"]["healthConditions"].as_array().cloned().unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        conditions.iter().map(|c| format!("{}/{}", text(&c["status"]), text(&c["reason"]))).collect()
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

/// A controller process. Killed when dropped.
pub(crate) struct Controller {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Controller {
    fn start(socket: &Path, kubeconfig: &Path, arguments: &[&str]) -> Self {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_volmedic"));
        let mut child = Command::new(program)
            .arg("controller")
            .arg(format!("--csi-address={}", socket.display()))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["--monitor-interval=1s", "--list-volumes-interval=1s", "--timeout=2s"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the controller starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, kept) = (BufReader::new(child.stderr.take().expect("piped")), log.clone());
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                kept.lock().expect("not poisoned").push(line);
            }
        });
        Self { child, log }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("not poisoned").join("\n")
    }

    /// Ends it the hard way.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Ends it in good order and answers its exit code.
    pub(crate) fn terminate(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it can be told to end");
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn wait_log(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "the log never says {text:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the controller's log ---\n{}", self.log());
        }
    }
}
