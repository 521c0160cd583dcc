//! Reads everything that findings are made from.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use volmedic_api::Arrived;
use volmedic_health::{Health, Vantage};
use volmedic_hub::ControllerLease;
use volmedic_roles::hub::policy::{self, Difference};
use volmedic_roles::hub::rows::NO_DRIVER;
use volmedic_view::Row;

use super::gate::{self, Gate};
use super::parts::{Parts, Pod, Role};
use super::rights::{self, OWN, needed, needed_at_home};
use crate::look::{self, Life, Picture, Progress, Reach, Rows, Scope, Unread, Version, each};

/// All that findings are made from.
pub(super) struct Facts {
    pub(super) place: String,
    pub(super) version: Option<Version>,
    pub(super) at: Timestamp,
    pub(super) unread: BTreeMap<&'static str, Unread>,
    pub(super) hub: Option<(Life, String)>,
    pub(super) parts: Parts,
    pub(super) parts_unread: Option<Unread>,
    pub(super) nodes: BTreeMap<String, NodeFacts>,
    pub(super) drivers: BTreeMap<String, DriverFacts>,
    /// Differences from the shipped policies; an error where they cannot be read.
    pub(super) policies: Result<Vec<Difference>, String>,
    pub(super) gate: Gate,
    /// Whether any claim has the field that the gate adds.
    pub(super) kept: bool,
    pub(super) own_gaps: Result<Vec<String>, String>,
    /// By role and account, as in `hub` and `volmedic/volmedic-hub`.
    pub(super) gaps: Vec<(Role, String, Result<Vec<String>, String>)>,
    pub(super) claims: usize,
    /// Claims with unknown health, by reason: the number of claims, and what to do.
    pub(super) unknown: BTreeMap<String, (usize, String)>,
    pub(super) checks_off: BTreeMap<(String, String), usize>,
    pub(super) malformed: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct NodeFacts {
    /// None without an agent.
    pub(super) agent: Option<Life>,
    pub(super) reports: bool,
    /// Its agent may not have had the time to report yet.
    pub(super) starts: bool,
    pub(super) version: String,
    /// Claims in use there.
    pub(super) claims: usize,
    /// Whether any CSI driver is there.
    pub(super) drivers: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct DriverFacts {
    pub(super) registered: bool,
    pub(super) nodes: usize,
    pub(super) claims: usize,
    pub(super) unknown: usize,
    /// The controller sidecar, and the holder of its Lease.
    pub(super) controller: Option<(Life, String)>,
    /// Kinds of vantage from which its volumes are probed.
    pub(super) reported_by: BTreeSet<&'static str>,
}

pub(super) async fn examine(reach: &Reach, progress: &Progress, at: Timestamp) -> Facts {
    let client = &reach.client;
    let scope = Scope::default();
    let (picture, (parts, parts_unread), policies, gate, own_gaps) = tokio::join!(
        look::read(reach, &scope, progress),
        parts(reach),
        policies(reach),
        gate::look(client, reach.version.as_ref(), reach.deadline),
        rights::missing(client, None, None, OWN, reach.deadline),
    );
    let gaps = gaps(reach, &parts).await;
    let mut rows = Rows::new(&picture, at);
    let all = rows.all();
    let who = &rows.who;
    let mut nodes: BTreeMap<String, NodeFacts> = BTreeMap::new();
    for name in picture.nodes.keys() {
        let report = picture.world.node_report(name);
        let facts = NodeFacts {
            agent: who.agents.get(name).copied(),
            reports: report.is_some(),
            starts: parts
                .iter()
                .any(|((role, ..), part)| *role == Role::Agent && part.has_just_started(name, at)),
            version: report.map(|report| report.agent.version.clone()).unwrap_or_default(),
            claims: 0,
            drivers: picture.node_drivers.get(name).map_or(0, Vec::len),
        };
        nodes.insert(name.to_string(), facts);
    }
    for node in all.iter().flat_map(|row| &row.nodes) {
        if let Some(facts) = nodes.get_mut(&**node) {
            facts.claims += 1;
        }
    }
    let mut unknown = BTreeMap::<String, (usize, String)>::new();
    for row in all.iter().filter(|row| row.health == Health::Unknown) {
        let why = row.why.as_deref().unwrap_or("no reason was given").to_owned();
        unknown.entry(why).or_insert_with(|| (0, row.next().to_owned())).0 += 1;
    }
    Facts {
        place: reach.place.clone(),
        version: reach.version.clone(),
        at,
        hub: picture.hub().map(|(namespace, lease)| (Life::of(lease, at), holder(namespace, lease))),
        parts,
        parts_unread,
        nodes,
        drivers: drivers(&picture, &all, at),
        policies,
        gate,
        kept: picture.world.claim_keys().iter().any(|key| picture.world.is_kept_in_claim(key)),
        own_gaps,
        gaps,
        claims: all.len(),
        unknown,
        checks_off: checks_off(&picture),
        malformed: picture.malformed,
        unread: picture.unread,
    }
}

fn drivers(picture: &Picture, rows: &[Row], at: Timestamp) -> BTreeMap<String, DriverFacts> {
    let mut drivers = BTreeMap::<String, DriverFacts>::new();
    for name in &picture.drivers {
        drivers.entry(name.to_string()).or_default().registered = true;
    }
    for name in picture.node_drivers.values().flatten() {
        drivers.entry(name.to_string()).or_default().nodes += 1;
    }
    let of_driver = |row: &&Row| !row.driver.is_empty() && *row.driver != *NO_DRIVER;
    for row in rows.iter().filter(of_driver) {
        let facts = match drivers.get_mut(&*row.driver) {
            Some(facts) => facts,
            None => drivers.entry(row.driver.to_string()).or_default(),
        };
        facts.claims += 1;
        facts.unknown += usize::from(row.health == Health::Unknown);
        facts.reported_by.extend(row.seen_by.iter().map(|sighting| kind(&sighting.vantage)));
    }
    for (name, facts) in &mut drivers {
        let controller = picture.controller(name);
        facts.controller =
            controller.map(|(namespace, lease)| (Life::of(lease, at), holder(namespace, lease)));
    }
    drivers
}

fn holder(namespace: &str, lease: &ControllerLease) -> String {
    format!("{namespace}/{}", lease.spec.holder_identity.as_deref().unwrap_or_default())
}

fn kind(vantage: &Vantage) -> &'static str {
    match vantage {
        Vantage::Controller => "controller",
        Vantage::Node(_) => "node",
        Vantage::Host(_) => "host",
        Vantage::Kubelet(_) => "kubelet",
        Vantage::Cluster => "cluster",
        Vantage::Pushed(_) => "pushed",
    }
}

/// Checks that do not run, and why, with on how many nodes.
fn checks_off(picture: &Picture) -> BTreeMap<(String, String), usize> {
    let mut off = BTreeMap::new();
    let checks = picture.world.node_reports().flat_map(|(_, report)| &report.checks);
    for check in checks.filter(|check| !check.running) {
        *off.entry((check.name.clone(), check.why.clone())).or_default() += 1;
    }
    off
}

async fn parts(reach: &Reach) -> (Parts, Option<Unread>) {
    let api: Api<Arrived<Pod>> = Api::all(reach.client.clone());
    let mut parts = Parts::new();
    let running = ListParams {
        field_selector: Some("status.phase!=Succeeded,status.phase!=Failed".to_owned()),
        ..ListParams::default()
    };
    let read =
        each(&api, running, reach.deadline, |object, pod: &Pod| pod.note(object.namespace(), &mut parts));
    let unread = read.await.err();
    (parts, unread)
}

async fn gaps(reach: &Reach, parts: &Parts) -> Vec<(Role, String, Result<Vec<String>, String>)> {
    let mut gaps = Vec::new();
    for (role, namespace, account) in parts.keys() {
        let who = format!("system:serviceaccount:{namespace}:{account}");
        let (client, deadline) = (&reach.client, reach.deadline);
        let (everywhere, at_home) = tokio::join!(
            rights::missing(client, Some(&who), None, needed(*role), deadline),
            rights::missing(client, Some(&who), Some(namespace), needed_at_home(*role), deadline),
        );
        let both = everywhere.and_then(|mut all| {
            all.extend(at_home?);
            Ok(all)
        });
        gaps.push((*role, format!("{namespace}/{account}"), both));
    }
    gaps
}

/// What of the shipped admission policies is missing or changed. An error where that is unknown.
async fn policies(reach: &Reach) -> Result<Vec<Difference>, String> {
    let found = policy::differences(&reach.client, reach.deadline).await?;
    if found.iter().any(|difference| difference.what == policy::What::Forbidden) {
        return Err("you may not read them".to_owned());
    }
    Ok(found)
}
