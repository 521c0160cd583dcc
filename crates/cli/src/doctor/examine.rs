//! Finds out what there is to find out.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::timeout;
use volmedic_api::Arrived;
use volmedic_health::{Health, Vantage};
use volmedic_hub::ControllerLease;
use volmedic_roles::hub::rows::NO_DRIVER;
use volmedic_view::Row;

use super::gate::{self, Gate};
use super::parts::{Parts, Pod, Role};
use super::rights::{self, OWN, needed, needed_at_home};
use crate::look::{self, Life, Picture, Progress, Reach, Rows, Scope, Unread, Version, each, innermost};

/// The policy that holds agents to their node, and its binding.
const POLICY: &str = "volmedic-agent";

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
    /// None where it cannot be read.
    pub(super) policy: Result<bool, String>,
    pub(super) gate: Gate,
    /// Whether any claim has what the gate would let it have.
    pub(super) kept: bool,
    pub(super) own_gaps: Result<Vec<String>, String>,
    /// By role and account, as in `hub` and `volmedic/volmedic-hub`.
    pub(super) gaps: Vec<(Role, String, Result<Vec<String>, String>)>,
    pub(super) claims: usize,
    /// Claims of which nobody can say how they are: how many for which reason, with what to do.
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
    /// The controller's sidecar, and who holds its Lease.
    pub(super) controller: Option<(Life, String)>,
    /// Kinds of vantage that say anything of its volumes.
    pub(super) told_by: BTreeSet<&'static str>,
}

pub(super) async fn examine(reach: &Reach, progress: &Progress, at: Timestamp) -> Facts {
    let client = &reach.client;
    let scope = Scope::default();
    let (picture, (parts, parts_unread), policy, gate, own_gaps) = tokio::join!(
        look::read(reach, &scope, progress),
        parts(reach),
        policy(reach),
        gate::look(client, reach.deadline),
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
        let why = row.why.as_deref().unwrap_or("nobody said why").to_owned();
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
        policy,
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
        facts.told_by.extend(row.seen_by.iter().map(|sighting| kind(&sighting.vantage)));
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

/// Whether the API server holds every agent to its own node. An error where it cannot be found out.
async fn policy(reach: &Reach) -> Result<bool, String> {
    async fn both(client: &Client) -> Result<bool, String> {
        let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone());
        let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
        let (policy, binding) = tokio::join!(policies.get_opt(POLICY), bindings.get_opt(POLICY));
        let policy = policy.map_err(|error| why(&error))?;
        let binding = binding.map_err(|error| why(&error))?;
        let denies = binding.and_then(|binding| binding.spec).is_some_and(|spec| {
            let mut actions = spec.validation_actions.iter().flatten();
            spec.policy_name.as_deref() == Some(POLICY) && actions.any(|action| action == "Deny")
        });
        let fails = policy.and_then(|policy| policy.spec);
        Ok(denies && fails.is_some_and(|spec| spec.failure_policy.as_deref() != Some("Ignore")))
    }
    fn why(error: &kube::Error) -> String {
        match error {
            kube::Error::Api(status) if status.code == 403 => "you may not read it".to_owned(),
            error => innermost(error),
        }
    }
    timeout(reach.deadline, both(&reach.client)).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}
