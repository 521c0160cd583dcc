//! A ledger, a reporter and claims, wired as the monitor wires them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::api::{Api, ListParams};
use kube::client::{Body, ClientBuilder};
use kube::{Client, ResourceExt};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tower::util::MapRequestLayer;
use volmedic_api::resource::{GROUP, LeaseName, VERSION};
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::{
    Condition, Held, Ledger, Memo, Policy, Reason, Sight, Status, Subject, Transition, Vantage, Volume,
};
use volmedic_report::{HealthOptions, Limits, Metrics, Notice, Options, Recall, Recalled, Reporter};
use volmedic_testkit::objects::bound_claim;
use volmedic_testkit::{ControlPlane, Feature, server_has};

/// Nothing here takes this long unless it never ends.
pub(crate) const LIMIT: Duration = Duration::from_mins(3);

/// What one client asked of the API server, as `VERB path`.
pub(crate) type Asked = Arc<Mutex<Vec<String>>>;

pub(crate) async fn counted(plane: &ControlPlane, token: Option<String>) -> (Client, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let layer = MapRequestLayer::new(move |request: Request<Body>| {
        log.lock().expect("nobody panicked").push(format!("{} {}", request.method(), request.uri().path()));
        request
    });
    let mut config = plane.admin_config().await.expect("a configuration");
    config.default_retry = false;
    if let Some(token) = token {
        config.auth_info = kube::config::AuthInfo { token: Some(token.into()), ..Default::default() };
    }
    (ClientBuilder::try_from(config).expect("a client").with_layer(&layer).build(), asked)
}

pub(crate) fn at(second: i64) -> Timestamp {
    // A fixed day, so that what is reported does not depend on when the test runs.
    Timestamp::from_second(1_787_300_000 + second).expect("a time")
}

pub(crate) fn bad(words: &str) -> Sight {
    Sight::adverse(words.split('+').map(condition))
}

pub(crate) fn condition(word: &str) -> Condition {
    let (what, message) = word.split_once(',').unwrap_or((word, ""));
    let (status, reason) = what.split_once('/').expect("Status/Reason");
    let status = Status::from_api_value(status).unwrap_or(Status::Unrecognized(9));
    Condition::new(status, Reason::new(reason), message)
}

/// One controller's desk: from sights to reports.
pub(crate) struct Desk {
    pub(crate) driver: String,
    pub(crate) namespace: String,
    pub(crate) client: Client,
    pub(crate) asked: Asked,
    pub(crate) claims: BTreeMap<String, ObjectRef>,
    pub(crate) ledger: Ledger,
    pub(crate) reporter: Reporter,
    pub(crate) registry: Registry,
    pub(crate) reported: Vec<Transition>,
    unsettled: Vec<(ObjectRef, Volume)>,
    limits: Limits,
    /// Whether VolumeHealths keep what the claims cannot.
    in_volume_healths: bool,
}

impl Desk {
    /// Claims named after their handles, bound.
    pub(crate) async fn open(plane: &ControlPlane, handles: &[&str]) -> Self {
        let namespace = plane.namespace("report").await.expect("a namespace");
        let admin = plane.client().await.expect("a client");
        let driver = format!("{namespace}.csi.example.net");
        let mut claims = BTreeMap::new();
        for handle in handles {
            let bound = bound_claim(&admin, &namespace, handle, &driver, handle).await.expect("a claim");
            let uid = bound.claim.uid().expect("a uid");
            claims.insert(
                (*handle).to_owned(),
                ObjectRef::new(Kind::PersistentVolumeClaim, &namespace, handle, &uid),
            );
        }
        let (client, asked) = counted(plane, None).await;
        Self::with(client, asked, &namespace, claims, Limits::default())
    }

    /// As [`Self::open`], on a server that keeps what is reported: in the claims, or in VolumeHealths where this release has
    /// no place for it in claims.
    pub(crate) async fn open_lasting(plane: &ControlPlane, handles: &[&str]) -> Self {
        if server_has(Feature::ClaimHealth) {
            Self::open(plane, handles).await
        } else {
            Self::open_in_volume_healths(plane, handles).await
        }
    }

    /// As [`Self::open`], with a reporter that stores in VolumeHealths what the claims do not keep.
    pub(crate) async fn open_in_volume_healths(plane: &ControlPlane, handles: &[&str]) -> Self {
        plane.install_definitions().expect("VolumeHealths");
        let Self { client, asked, namespace, claims, limits, .. } = Self::open(plane, handles).await;
        Self::storing(client, asked, &namespace, claims, limits, true)
    }

    pub(crate) fn with(
        client: Client,
        asked: Asked,
        namespace: &str,
        claims: BTreeMap<String, ObjectRef>,
        limits: Limits,
    ) -> Self {
        Self::storing(client, asked, namespace, claims, limits, false)
    }

    fn storing(
        client: Client,
        asked: Asked,
        namespace: &str,
        claims: BTreeMap<String, ObjectRef>,
        limits: Limits,
        in_volume_healths: bool,
    ) -> Self {
        let driver = format!("{namespace}.csi.example.net");
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let lease = LeaseName { namespace: namespace.to_owned(), name: "controller".to_owned() };
        let health = in_volume_healths.then(|| HealthOptions { driver: driver.clone(), lease, beats: None });
        let options =
            Options { limits: limits.clone(), health, ..Options::of_controller(&driver, "replica-0") };
        Self {
            reporter: Reporter::start(&client, &options, metrics),
            driver,
            namespace: namespace.to_owned(),
            client,
            asked,
            claims,
            ledger: Ledger::new(policy()),
            registry,
            reported: Vec::new(),
            unsettled: Vec::new(),
            limits,
            in_volume_healths,
        }
    }

    /// A new process in place of this one, which ends in the middle of whatever it does.
    pub(crate) async fn restart(self) -> (Self, Recalled) {
        let Self {
            driver: _,
            namespace,
            client,
            asked,
            claims,
            ledger,
            reporter,
            registry: _,
            reported: _,
            unsettled: _,
            limits,
            in_volume_healths,
        } = self;
        drop((reporter, ledger));
        // No process starts faster than this, and the last requests of the dead one have ended by then.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut next = Self::storing(client, asked, &namespace, claims, limits, in_volume_healths);
        let recalled = next.recall().await;
        next.reporter.prime(&recalled.stored, &recalled.reported);
        for memo in recalled.memos.clone() {
            next.ledger.recall(memo);
        }
        next.unsettled.clone_from(&recalled.unsettled);
        (next, recalled)
    }

    pub(crate) async fn recall(&self) -> Recalled {
        self.recall_from(true).await
    }

    /// What was reported, by the events alone or by the stored status too.
    pub(crate) async fn recall_from(&self, status_too: bool) -> Recalled {
        let options = Options::of_controller(&self.driver, "replica-0");
        let recall = Recall {
            component: options.voice.component,
            field_manager: options.field_manager.filter(|_| status_too),
            reports_of: Some(self.driver.clone()).filter(|_| self.in_volume_healths && status_too),
            vantage: Vantage::Controller,
        };
        let volume_of = |claim: &ObjectRef| {
            let known = self.claims.get(&*claim.name).is_some_and(|mine| mine.uid == claim.uid);
            known.then(|| Volume { driver: self.driver.as_str().into(), handle: (&*claim.name).into() })
        };
        let bound = std::future::ready(volume_of);
        recall.read(&self.client, bound, |_, _| true).await.expect("what was told")
    }

    pub(crate) fn see(&mut self, second: i64, handle: &str, sight: Sight) {
        let subject = Subject::volume(self.driver.as_str(), handle);
        let reported = self.ledger.record(at(second), &subject, &Vantage::Controller, sight);
        self.tell(reported);
        self.settle();
    }

    /// As the controller does it: what the driver has answered about is stored as it stands.
    fn settle(&mut self) {
        let Self { unsettled, ledger, reporter, .. } = self;
        unsettled.retain(|(claim, volume)| {
            let subject = Subject::Volume(volume.clone());
            let unanswered = ledger.is_recalled(&subject, &Vantage::Controller);
            if !unanswered {
                let standing: Vec<Held> =
                    ledger.beliefs(&subject).into_iter().flat_map(|(_, belief)| belief.conditions).collect();
                reporter.restate(claim, &standing, at(0));
            }
            unanswered
        });
    }

    pub(crate) fn tell(&mut self, transitions: Vec<Transition>) {
        for transition in transitions {
            self.reporter.tell(&self.notice(&transition));
            self.reported.push(transition);
        }
    }

    pub(crate) fn notice(&self, transition: &Transition) -> Notice {
        let standing: Vec<Held> = self
            .ledger
            .beliefs(&transition.subject)
            .into_iter()
            .flat_map(|(_, belief)| belief.conditions)
            .collect();
        let about = match &transition.subject {
            Subject::Volume(volume) => self.claims.get(&*volume.handle).cloned().into_iter().collect(),
            Subject::Backend(_) => Vec::new(),
        };
        Notice { transition: transition.clone(), about, known_as: None, standing }
    }

    pub(crate) async fn flush(&self) {
        assert_eq!(
            self.reporter.flush(LIMIT).await,
            0,
            "left after {LIMIT:?}; asked {:?}",
            self.asked.lock().expect("nobody panicked")
        );
    }

    /// How many reports ended so.
    pub(crate) fn count(&self, outlet: &str, result: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("a scrape");
        let name = format!(r#"volmedic_reports_total{{outlet="{outlet}",result="{result}"}} "#);
        text.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |n| n.parse().expect("a number"))
    }

    pub(crate) async fn events(&self) -> Vec<Event> {
        let api = Api::<Event>::namespaced(self.client.clone(), &self.namespace);
        let mut events = api.list(&ListParams::default()).await.expect("events").items;
        events.sort_by_key(|event| (event.last_timestamp.clone(), event.metadata.name.clone()));
        events
    }

    /// Events as `handle Type Reason count`, oldest first.
    pub(crate) async fn shown(&self) -> Vec<String> {
        let show = |event: Event| {
            format!(
                "{} {} {} x{}",
                event.involved_object.name.unwrap_or_default(),
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.count.unwrap_or_default()
            )
        };
        self.events().await.into_iter().map(show).collect()
    }

    /// A claim as the server has it, with the field that no crate knows.
    pub(crate) async fn claim(&self, handle: &str) -> Value {
        let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims/{handle}", self.namespace);
        self.client.request(Request::get(path).body(Vec::new()).expect("a request")).await.expect("the claim")
    }

    pub(crate) async fn health_status(&self, handle: &str) -> Value {
        self.claim(handle).await["status"]["healthStatus"].clone()
    }

    /// What a claim's VolumeHealth says of the controller's report; nothing where there is no such object.
    pub(crate) async fn controller_report(&self, handle: &str) -> Value {
        let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{}/volumehealths/{handle}", self.namespace);
        let request = Request::get(path).body(Vec::new()).expect("a request");
        match self.client.request::<Value>(request).await {
            Ok(health) => health["status"]["controllerReport"].clone(),
            Err(kube::Error::Api(status)) if status.code == 404 => Value::Null,
            Err(error) => panic!("{handle}: {error}"),
        }
    }

    /// (status/reason) of the stored conditions, sorted.
    pub(crate) async fn stored(&self, handle: &str) -> Vec<String> {
        let (stored, status) = if self.in_volume_healths {
            (self.controller_report(handle).await, "severity")
        } else {
            (self.health_status(handle).await, "status")
        };
        let conditions = stored["healthConditions"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut words: Vec<String> =
            conditions.iter().map(|c| format!("{}/{}", text(&c[status]), text(&c["reason"]))).collect();
        words.sort();
        words
    }

    pub(crate) fn claims_api(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// Reported immediately, so that each sight makes news.
fn policy() -> Policy {
    Policy { flap_limit: 1_000, reword_every: SignedDuration::from_secs(1), ..Policy::default() }
}

/// What events alone bring back: all but the conditions' text, which anybody could have written.
pub(crate) fn without_text(mut memos: Vec<Memo>) -> Vec<Memo> {
    for held in memos.iter_mut().flat_map(|memo| &mut memo.reported) {
        held.condition.message = "".into();
    }
    memos
}

/// What memos say was reported, as `handle: Status/Reason ...`, without times.
pub(crate) fn words(memos: &[Memo]) -> Vec<String> {
    let mut lines: Vec<String> = memos
        .iter()
        .filter(|memo| !memo.reported.is_empty())
        .map(|memo| {
            let mut held: Vec<String> = memo.reported.iter().map(|held| held.condition.to_string()).collect();
            held.sort();
            format!("{}: {}", memo.subject, held.join(" "))
        })
        .collect();
    lines.sort();
    lines
}
