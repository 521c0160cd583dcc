//! Findings from facts. Pure: the same facts give the same findings.

mod coverage;

use jiff::Timestamp;
use serde::Serialize;

use super::examine::{DriverFacts, Facts, NodeFacts};
use super::gate::{GATE, Gate};
use super::parts::Role;
use crate::look::{Life, Unread, Version};
use volmedic_roles::hub::policy::Difference;

/// Maximum number of names in a finding, and of differences of policies, which are longer.
const NAMED: usize = 5;
const POLICIES: usize = 2;
/// From here on a token carries the node of its pod, and policies can compare it.
const VERIFIED: (u32, u32) = (1, 30);
/// Older servers lack resources that are needed.
const OLDEST: (u32, u32) = (1, 25);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Good,
    /// Worth knowing; nothing has to be done.
    Note,
    /// Something has to be fixed.
    Problem,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    pub(super) area: Area,
    pub(super) level: Level,
    pub(super) what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    pub(super) at: Timestamp,
    pub(super) cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    /// Whether too little could be read to be sure that there is no problem.
    pub(super) partial: bool,
    pub(super) findings: Vec<Finding>,
    pub(super) drivers: Vec<Driver>,
}

/// One driver, as a line of the table.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Driver {
    pub(super) name: String,
    pub(super) nodes: usize,
    pub(super) claims: usize,
    pub(super) unknown: usize,
    pub(super) controller: String,
    pub(super) reported_by: Vec<&'static str>,
}

/// What a finding is about, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Area {
    Cluster,
    Installed,
    Probing,
    Rights,
    Coverage,
}

impl Area {
    pub(super) const ALL: [Self; 5] =
        [Self::Cluster, Self::Installed, Self::Probing, Self::Rights, Self::Coverage];
}

/// Without these kinds it is unknown whether there is a problem.
const NEEDED: [&str; 4] = ["leases", "nodes", "persistentvolumeclaims", "pods"];

impl Report {
    pub(super) fn new(facts: &Facts) -> Self {
        let mut found = Findings::default();
        server(facts.version.as_ref(), &mut found);
        gate(facts, &mut found);
        resources(facts, &mut found);
        hub(facts, &mut found);
        running(facts, &mut found);
        policies(facts, &mut found);
        agents(facts, &mut found);
        controllers(facts, &mut found);
        rights(facts, &mut found);
        coverage::note(facts, &mut found);
        let drivers = facts.drivers.iter().map(|(name, driver)| line(name, driver, facts)).collect();
        let server = facts.version.as_ref().map(|version| version.text.clone());
        let partial = NEEDED.iter().any(|kind| !readable(facts, kind));
        Self { at: facts.at, partial, cluster: facts.place.clone(), server, findings: found.0, drivers }
    }
}

impl Report {
    /// Leaves out all findings but those of these areas.
    pub(super) fn keep(&mut self, areas: &[Area]) {
        self.findings.retain(|finding| areas.contains(&finding.area));
        if !areas.contains(&Area::Coverage) {
            self.drivers.clear();
        }
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.level == Level::Problem)
    }
}

/// Findings in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    fn put(&mut self, area: Area, level: Level, what: String, fix: Option<&str>) {
        self.0.push(Finding { area, level, what, fix: fix.map(str::to_owned) });
    }

    pub(super) fn good(&mut self, area: Area, what: impl Into<String>) {
        self.put(area, Level::Good, what.into(), None);
    }

    pub(super) fn note(&mut self, area: Area, what: impl Into<String>, fix: Option<&str>) {
        self.put(area, Level::Note, what.into(), fix);
    }

    pub(super) fn problem(&mut self, area: Area, what: impl Into<String>, fix: &str) {
        self.put(area, Level::Problem, what.into(), Some(fix));
    }
}

pub(super) fn server(version: Option<&Version>, found: &mut Findings) {
    let Some(version) = version else {
        return found.note(Area::Cluster, "the server does not report its version", None);
    };
    let text = &version.text;
    if version.number < OLDEST {
        found.problem(
            Area::Cluster,
            format!("Kubernetes {text} is older than the oldest version that Volmedic was tested with"),
            "Upgrade the cluster to 1.30 or later.",
        );
    } else if version.number < VERIFIED {
        found.problem(
            Area::Cluster,
            format!(
                "Kubernetes {text} cannot limit an agent to its own node, so reports of nodes are unverified"
            ),
            "Upgrade to 1.30 or later, and apply deploy/chart/files/admission-agent.yaml.",
        );
    } else {
        found.good(Area::Cluster, format!("Kubernetes {text}"));
    }
}

fn gate(facts: &Facts, found: &mut Findings) {
    let field = "pvc.status.healthStatus";
    match (facts.gate, facts.kept) {
        (Gate::On, _) | (_, true) => {
            let what = format!("claims store what their driver reports ({field}, gate {GATE})");
            found.good(Area::Cluster, what);
        }
        (Gate::Off, _) => found.note(
            Area::Cluster,
            format!(
                "the gate {GATE} is off, so claims do not store what their driver reports ({field}); \
                 VolumeHealth does"
            ),
            None,
        ),
        (Gate::Absent, _) => found.note(
            Area::Cluster,
            format!(
                "this release has no {field}, so claims do not store what their driver reports; \
                 VolumeHealth does"
            ),
            None,
        ),
        (Gate::Hidden, _) => found.note(
            Area::Cluster,
            format!(
                "it is unknown whether the gate {GATE} is on: no claim has {field}, and the server's metrics \
                 cannot be read"
            ),
            None,
        ),
    }
}

fn resources(facts: &Facts, found: &mut Findings) {
    let missing = |kind: &str| facts.unread.get(kind) == Some(&Unread::Missing);
    match (missing("volumehealths"), missing("nodevolumehealths")) {
        (false, false) if !readable(facts, "volumehealths") || !readable(facts, "nodevolumehealths") => {
            found.note(
                Area::Installed,
                "it is unknown whether VolumeHealth and NodeVolumeHealth are installed, because they cannot be \
                 listed",
                None,
            );
        }
        (false, false) => found.good(Area::Installed, "the resources VolumeHealth and NodeVolumeHealth"),
        (both, other) => {
            let names = match (both, other) {
                (true, true) => "VolumeHealth and NodeVolumeHealth are",
                (true, false) => "VolumeHealth is",
                _ => "NodeVolumeHealth is",
            };
            found.problem(
                Area::Installed,
                format!("{names} not installed, so health is not stored; there are still events"),
                "kubectl apply -f deploy/chart/files/crds",
            );
        }
    }
}

fn hub(facts: &Facts, found: &mut Findings) {
    if !readable(facts, "leases") {
        return;
    }
    match &facts.hub {
        Some((Life::Alive, holder)) => found.good(Area::Installed, format!("the hub, led by {holder}")),
        Some((Life::Silent(since), _)) => found.problem(
            Area::Installed,
            format!(
                "the hub has not renewed its Lease{}, so VolumeHealths are not updated",
                since_when(*since)
            ),
            "Check its pods: kubectl get pods -A -l app.kubernetes.io/component=hub",
        ),
        None => found.problem(
            Area::Installed,
            "no hub runs: no pod holds the Lease volmedic-hub, so the reports of agents and controllers are not \
             merged",
            "kubectl apply -f deploy/namespace.yaml && helm install volmedic deploy/chart -n volmedic",
        ),
    }
}

fn running(facts: &Facts, found: &mut Findings) {
    if let Some(why) = &facts.parts_unread {
        return found.note(
            Area::Installed,
            format!("Volmedic's pods cannot be listed: {why}"),
            Some("Ask an administrator for `list` on pods."),
        );
    }
    for ((role, namespace, _), part) in &facts.parts {
        let chart =
            if part.charts.is_empty() { String::new() } else { format!(", {}", part.charts.join(", ")) };
        let what = format!(
            "{} of {} pods of the {role} in namespace {namespace} ready{chart}",
            part.ready, part.pods
        );
        if part.ready < part.pods {
            let label = format!("kubectl get pods -n {namespace}");
            found.problem(Area::Installed, what, &label);
        } else {
            found.good(Area::Installed, what);
        }
    }
}

fn policies(facts: &Facts, found: &mut Findings) {
    let old = facts.version.as_ref().is_some_and(|version| version.number < VERIFIED);
    match &facts.policies {
        Ok(differences) if differences.is_empty() => found.good(
            Area::Installed,
            "the admission policies, as shipped with this version: agents report for their own node only, \
             controllers for their own driver only",
        ),
        // Reported with the server's version.
        Ok(_) | Err(_) if old => {}
        Ok(differences) => found.problem(
            Area::Installed,
            format!(
                "{}; so any agent may report for any node, or any controller for any driver, reports count as \
                 unverified, and nothing is healed",
                different(differences)
            ),
            "From the version that is installed: kubectl apply -f deploy/chart/files/admission-agent.yaml -f \
             deploy/chart/files/admission-health.yaml",
        ),
        Err(why) => found.note(
            Area::Installed,
            format!("it is unknown whether the admission policies are installed: {why}"),
            Some(
                "Ask an administrator for `get` on validatingadmissionpolicies and \
                 validatingadmissionpolicybindings.",
            ),
        ),
    }
}

fn different(differences: &[Difference]) -> String {
    let named: Vec<String> = differences.iter().take(POLICIES).map(Difference::to_string).collect();
    let more = differences.len() - named.len();
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

fn agents(facts: &Facts, found: &mut Findings) {
    if !readable(facts, "leases") || !readable(facts, "nodes") {
        return;
    }
    let named = |wanted: &dyn Fn(&NodeFacts) -> bool| -> Vec<&str> {
        facts.nodes.iter().filter(|(_, node)| wanted(node)).map(|(name, _)| name.as_str()).collect()
    };
    let alive = named(&|node| node.agent == Some(Life::Alive));
    if !alive.is_empty() {
        found.good(Area::Probing, format!("agents on {} of {} nodes", alive.len(), facts.nodes.len()));
    }
    let expired = named(&|node| matches!(node.agent, Some(Life::Silent(_))));
    if !expired.is_empty() {
        found.problem(
            Area::Probing,
            format!(
                "{} not responding: {}; the last report is kept and may be old",
                many(expired.len(), "agent is", "agents are"),
                list(&expired)
            ),
            "Check the pods: kubectl get pods -A -o wide -l app.kubernetes.io/component=agent. If a node needs no \
             agent, delete its Lease.",
        );
    }
    let can_report = !matches!(facts.unread.get("nodevolumehealths"), Some(Unread::Missing));
    let unreported = |starts: bool| {
        named(&|node| can_report && node.agent == Some(Life::Alive) && !node.reports && node.starts == starts)
    };
    let starting = unreported(true);
    if !starting.is_empty() {
        let agents =
            many(starting.len(), "agent was just started and is", "agents were just started and are");
        found.note(
            Area::Probing,
            format!("{agents} checking the volumes for the first time: {}", list(&starting)),
            None,
        );
    }
    let unreported = unreported(false);
    if !unreported.is_empty() {
        found.problem(
            Area::Probing,
            format!(
                "{} stored no report: {}",
                many(unreported.len(), "agent runs but has", "agents run but have"),
                list(&unreported)
            ),
            "Read the agent's log; it may lack rights on nodevolumehealths.",
        );
    }
    let ours = env!("CARGO_PKG_VERSION");
    let other = named(&|node| !node.version.is_empty() && node.version != ours);
    if !other.is_empty() {
        let versions: std::collections::BTreeSet<&str> = facts
            .nodes
            .values()
            .map(|node| node.version.as_str())
            .filter(|version| !version.is_empty() && *version != ours)
            .collect();
        let versions: Vec<&str> = versions.into_iter().collect();
        found.note(
            Area::Probing,
            format!(
                "{} of version {}, this program is {ours}",
                many(other.len(), "agent is", "agents are"),
                versions.join(", ")
            ),
            Some("Use the same version for both."),
        );
    }
    for ((check, why), count) in &facts.checks_off {
        let why = if why.is_empty() { "without a reason" } else { why };
        found.note(
            Area::Probing,
            format!("the check {check} is off on {}: {why}", many(*count, "node", "nodes")),
            None,
        );
    }
}

fn controllers(facts: &Facts, found: &mut Findings) {
    if !readable(facts, "leases") {
        return;
    }
    for (name, driver) in &facts.drivers {
        match &driver.controller {
            Some((Life::Alive, holder)) => {
                found.good(Area::Probing, format!("the controller of {name} ({holder})"));
            }
            Some((Life::Silent(since), _)) => found.problem(
                Area::Probing,
                format!("the controller sidecar of {name} has not renewed its Lease{}", since_when(*since)),
                "Check the driver's controller plugin and the sidecar beside it.",
            ),
            None => {}
        }
    }
}

fn rights(facts: &Facts, found: &mut Findings) {
    match &facts.own_gaps {
        Ok(gaps) if gaps.is_empty() => {
            found.good(Area::Rights, "you may read everything that status, explain and doctor show");
        }
        Ok(gaps) => found.note(
            Area::Rights,
            format!("you may not read {}; what depends on them is not shown", gaps.join(", ")),
            Some("Ask an administrator for these, or use another --context."),
        ),
        Err(why) => found.note(Area::Rights, format!("your rights are unknown: {why}"), None),
    }
    let mut unknown = None;
    for (role, account, gaps) in &facts.gaps {
        let file = match role {
            Role::Hub => "deploy/chart/files/rbac-hub.yaml",
            Role::Agent => "deploy/chart/files/rbac-agent.yaml",
            Role::Controller => "deploy/chart/files/rbac-controller.yaml",
        };
        match gaps {
            Ok(gaps) if gaps.is_empty() => {
                found.good(Area::Rights, format!("the {role} ({account}) has the rights that it needs"));
            }
            Ok(gaps) => found.problem(
                Area::Rights,
                format!("the {role} ({account}) lacks rights on {}", gaps.join(", ")),
                &format!("Grant them as {file} does, bound to that account."),
            ),
            Err(why) => unknown = Some(why),
        }
    }
    if let Some(why) = unknown {
        found.note(
            Area::Rights,
            format!("it is unknown whether hub, agents and controllers have their rights: {why}"),
            None,
        );
    }
}

fn line(name: &str, driver: &DriverFacts, facts: &Facts) -> Driver {
    let controller = match &driver.controller {
        Some((Life::Alive, _)) => "alive",
        Some((Life::Silent(_), _)) => "not responding",
        None if readable(facts, "leases") => "none",
        None => "not known",
    };
    Driver {
        name: name.to_owned(),
        nodes: driver.nodes,
        claims: driver.claims,
        unknown: driver.unknown,
        controller: controller.to_owned(),
        reported_by: driver.reported_by.iter().copied().collect(),
    }
}

fn readable(facts: &Facts, kind: &str) -> bool {
    !facts.unread.contains_key(kind)
}

fn since_when(since: Option<Timestamp>) -> String {
    since.map(|since| format!(" since {since:.0}")).unwrap_or_default()
}

pub(super) fn many(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

pub(super) fn list(names: &[&str]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    if names.len() > NAMED { format!("{shown} and {} more", names.len() - NAMED) } else { shown }
}
