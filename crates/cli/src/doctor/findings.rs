//! From what was found out to what to say about it. Pure: the same facts give the same findings.

use jiff::Timestamp;
use serde::Serialize;

use super::examine::{DriverFacts, Facts, NodeFacts};
use super::gate::{GATE, Gate};
use super::parts::Role;
use crate::look::{Life, Unread};

/// Names that a finding lists one by one.
const NAMED: usize = 5;
/// From here on a token carries the node of its pod, and policies can compare it.
const VERIFIED: (u32, u32) = (1, 30);
/// Older servers lack what is taken for granted.
const OLDEST: (u32, u32) = (1, 25);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Good,
    /// Worth knowing; nothing has to be done.
    Note,
    /// Something is to be mended.
    Mend,
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) area: &'static str,
    pub(super) level: Level,
    pub(super) what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) at: Timestamp,
    pub(super) cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    /// Whether so much could not be read that nothing found means little.
    pub(super) partial: bool,
    pub(super) findings: Vec<Finding>,
    pub(super) drivers: Vec<Driver>,
}

/// One driver, as a line of the table.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Driver {
    pub(super) name: String,
    pub(super) nodes: usize,
    pub(super) claims: usize,
    pub(super) unknown: usize,
    pub(super) controller: String,
    pub(super) told_by: Vec<&'static str>,
}

pub(super) const CLUSTER: &str = "Cluster";
pub(super) const INSTALLED: &str = "Installed";
pub(super) const LOOKING: &str = "Who looks";
pub(super) const RIGHTS: &str = "Rights";
pub(super) const BLIND: &str = "Blind spots";
/// In the order in which they are shown.
pub(super) const AREAS: [&str; 5] = [CLUSTER, INSTALLED, LOOKING, RIGHTS, BLIND];

/// Without these nobody can say that nothing is to be mended.
const NEEDED: [&str; 4] = ["leases", "nodes", "persistentvolumeclaims", "pods"];

impl Report {
    pub(super) fn new(facts: &Facts) -> Self {
        let mut say = Say(Vec::new());
        server(facts, &mut say);
        gate(facts, &mut say);
        resources(facts, &mut say);
        hub(facts, &mut say);
        running(facts, &mut say);
        policy(facts, &mut say);
        agents(facts, &mut say);
        controllers(facts, &mut say);
        rights(facts, &mut say);
        blind(facts, &mut say);
        let drivers = facts.drivers.iter().map(|(name, driver)| line(name, driver, facts)).collect();
        let server = facts.version.as_ref().map(|version| version.text.clone());
        let partial = NEEDED.iter().any(|kind| !readable(facts, kind));
        Self { at: facts.at, partial, cluster: facts.place.clone(), server, findings: say.0, drivers }
    }
}

struct Say(Vec<Finding>);

impl Say {
    fn put(&mut self, area: &'static str, level: Level, what: String, fix: Option<&str>) {
        self.0.push(Finding { area, level, what, fix: fix.map(str::to_owned) });
    }

    fn good(&mut self, area: &'static str, what: impl Into<String>) {
        self.put(area, Level::Good, what.into(), None);
    }

    fn note(&mut self, area: &'static str, what: impl Into<String>, fix: Option<&str>) {
        self.put(area, Level::Note, what.into(), fix);
    }

    fn mend(&mut self, area: &'static str, what: impl Into<String>, fix: &str) {
        self.put(area, Level::Mend, what.into(), Some(fix));
    }
}

fn server(facts: &Facts, say: &mut Say) {
    let Some(version) = &facts.version else {
        return say.note(CLUSTER, "the server does not tell its version", None);
    };
    let text = &version.text;
    if version.number < OLDEST {
        say.mend(
            CLUSTER,
            format!("Kubernetes {text} is older than anything Volmedic was tried with"),
            "Upgrade the cluster to 1.30 or later.",
        );
    } else if version.number < VERIFIED {
        say.mend(
            CLUSTER,
            format!(
                "Kubernetes {text} cannot hold an agent to its own node, so what nodes report is unverified"
            ),
            "Upgrade to 1.30 or later, and apply deploy/chart/files/admission-agent.yaml.",
        );
    } else {
        say.good(CLUSTER, format!("Kubernetes {text}"));
    }
}

fn gate(facts: &Facts, say: &mut Say) {
    let field = "pvc.status.healthStatus";
    match (facts.gate, facts.kept) {
        (Gate::On, _) | (_, true) => say.good(CLUSTER, format!("claims keep what their driver says ({field}, gate {GATE})")),
        (Gate::Off, _) => say.note(
            CLUSTER,
            format!("the gate {GATE} is off, so claims do not keep what their driver says ({field}); VolumeHealth does"),
            None,
        ),
        (Gate::Absent, _) => say.note(
            CLUSTER,
            format!("this release has no gate {GATE}, so claims do not keep what their driver says; VolumeHealth does"),
            None,
        ),
        (Gate::Hidden, _) => say.note(
            CLUSTER,
            format!("whether the gate {GATE} is on cannot be seen: no claim has {field}, and the server's metrics may not be read"),
            None,
        ),
    }
}

fn resources(facts: &Facts, say: &mut Say) {
    let missing = |kind: &str| facts.unread.get(kind) == Some(&Unread::Missing);
    match (missing("volumehealths"), missing("nodevolumehealths")) {
        (false, false) if !readable(facts, "volumehealths") || !readable(facts, "nodevolumehealths") => {
            say.note(
                INSTALLED,
                "whether VolumeHealth and NodeVolumeHealth are installed cannot be seen",
                None,
            );
        }
        (false, false) => say.good(INSTALLED, "the resources VolumeHealth and NodeVolumeHealth"),
        (both, other) => {
            let names = match (both, other) {
                (true, true) => "VolumeHealth and NodeVolumeHealth are",
                (true, false) => "VolumeHealth is",
                _ => "NodeVolumeHealth is",
            };
            say.mend(
                INSTALLED,
                format!(
                    "{names} not installed, so nothing is stored of a volume's health; events are still told"
                ),
                "kubectl apply -f deploy/chart/files/crds",
            );
        }
    }
}

fn hub(facts: &Facts, say: &mut Say) {
    if !readable(facts, "leases") {
        return;
    }
    match &facts.hub {
        Some((Life::Alive, holder)) => say.good(INSTALLED, format!("the hub, led by {holder}")),
        Some((Life::Silent(since), _)) => say.mend(
            INSTALLED,
            format!("the hub is silent{}, so VolumeHealths are not kept up to date", since_when(*since)),
            "See why its pods do not run: kubectl get pods -A -l app.kubernetes.io/component=hub",
        ),
        None => say.mend(
            INSTALLED,
            "no hub runs: nobody holds the Lease volmedic-hub, so nobody merges what agents and drivers say",
            "kubectl apply -f deploy/namespace.yaml && helm install volmedic deploy/chart -n volmedic",
        ),
    }
}

fn running(facts: &Facts, say: &mut Say) {
    if let Some(why) = &facts.parts_unread {
        return say.note(
            INSTALLED,
            format!("which pods of ours run cannot be seen: {why}"),
            Some("Ask for `list` on pods."),
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
            say.mend(INSTALLED, what, &label);
        } else {
            say.good(INSTALLED, what);
        }
    }
}

fn policy(facts: &Facts, say: &mut Say) {
    let old = facts.version.as_ref().is_some_and(|version| version.number < VERIFIED);
    match &facts.policy {
        Ok(true) => say.good(INSTALLED, "the admission policy that holds every agent to its own node"),
        // Said of the server already.
        Ok(false) | Err(_) if old => {}
        Ok(false) => say.mend(
            INSTALLED,
            "the admission policy volmedic-agent is missing or does not deny, so any agent could speak for any node",
            "kubectl apply -f deploy/chart/files/admission-agent.yaml",
        ),
        Err(why) => say.note(
            INSTALLED,
            format!("whether the admission policy volmedic-agent is there cannot be seen: {why}"),
            Some("Ask for `get` on validatingadmissionpolicies."),
        ),
    }
}

fn agents(facts: &Facts, say: &mut Say) {
    if !readable(facts, "leases") || !readable(facts, "nodes") {
        return;
    }
    let named = |wanted: &dyn Fn(&NodeFacts) -> bool| -> Vec<&str> {
        facts.nodes.iter().filter(|(_, node)| wanted(node)).map(|(name, _)| name.as_str()).collect()
    };
    let alive = named(&|node| node.agent == Some(Life::Alive));
    if !alive.is_empty() {
        say.good(LOOKING, format!("agents on {} of {} nodes", alive.len(), facts.nodes.len()));
    }
    let silent = named(&|node| matches!(node.agent, Some(Life::Silent(_))));
    if !silent.is_empty() {
        say.mend(
            LOOKING,
            format!("{} silent: {}; what was said there last stands and may be old", many(silent.len(), "agent is", "agents are"), list(&silent)),
            "See why: kubectl get pods -A -o wide -l app.kubernetes.io/component=agent; for a node without one delete its Lease.",
        );
    }
    let can_report = !matches!(facts.unread.get("nodevolumehealths"), Some(Unread::Missing));
    let unreported = |starts: bool| {
        named(&|node| can_report && node.agent == Some(Life::Alive) && !node.reports && node.starts == starts)
    };
    let starting = unreported(true);
    if !starting.is_empty() {
        let agents =
            many(starting.len(), "agent has just started and is", "agents have just started and are");
        say.note(
            LOOKING,
            format!("{agents} checking the volumes for the first time: {}", list(&starting)),
            None,
        );
    }
    let unreported = unreported(false);
    if !unreported.is_empty() {
        say.mend(
            LOOKING,
            format!(
                "{} no report stored: {}",
                many(unreported.len(), "agent lives but has", "agents live but have"),
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
        say.note(
            LOOKING,
            format!(
                "{} of version {}, this program is {ours}",
                many(other.len(), "agent is", "agents are"),
                versions.join(", ")
            ),
            Some("Bring both to one version."),
        );
    }
    for ((check, why), count) in &facts.checks_off {
        let why = if why.is_empty() { "it does not say why" } else { why };
        say.note(
            LOOKING,
            format!("the check {check} is off on {}: {why}", many(*count, "node", "nodes")),
            None,
        );
    }
}

fn controllers(facts: &Facts, say: &mut Say) {
    if !readable(facts, "leases") {
        return;
    }
    for (name, driver) in &facts.drivers {
        match &driver.controller {
            Some((Life::Alive, holder)) => {
                say.good(LOOKING, format!("the controller of {name} ({holder})"));
            }
            Some((Life::Silent(since), _)) => say.mend(
                LOOKING,
                format!("the controller sidecar of {name} is silent{}", since_when(*since)),
                "Check the driver's controller plugin and the sidecar beside it.",
            ),
            None => {}
        }
    }
}

fn rights(facts: &Facts, say: &mut Say) {
    match &facts.own_gaps {
        Ok(gaps) if gaps.is_empty() => {
            say.good(RIGHTS, "you may read all that status, explain and doctor show");
        }
        Ok(gaps) => say.note(
            RIGHTS,
            format!("you lack rights on {}; what depends on them is not shown", gaps.join(", ")),
            Some("Ask an administrator for these, or use another --context."),
        ),
        Err(why) => say.note(RIGHTS, format!("what you may read cannot be found out: {why}"), None),
    }
    let mut untold = None;
    for (role, account, gaps) in &facts.gaps {
        let file = match role {
            Role::Hub => "deploy/chart/files/rbac-hub.yaml",
            Role::Agent => "deploy/chart/files/rbac-agent.yaml",
            Role::Controller => "deploy/chart/files/rbac-controller.yaml",
        };
        match gaps {
            Ok(gaps) if gaps.is_empty() => {
                say.good(RIGHTS, format!("the {role} ({account}) may do what it needs to"));
            }
            Ok(gaps) => say.mend(
                RIGHTS,
                format!("the {role} ({account}) lacks rights on {}", gaps.join(", ")),
                &format!("Grant it as {file} does, bound to that account."),
            ),
            Err(why) => untold = Some(why),
        }
    }
    if let Some(why) = untold {
        say.note(
            RIGHTS,
            format!("whether hub, agents and controllers have their rights cannot be found out: {why}"),
            None,
        );
    }
}

fn blind(facts: &Facts, say: &mut Say) {
    if readable(facts, "leases") && readable(facts, "nodes") {
        let bare = facts.nodes.iter().filter(|(_, node)| node.agent.is_none());
        let (used, idle): (Vec<_>, Vec<_>) = bare.partition(|(_, node)| node.claims > 0 || node.drivers > 0);
        let names = |nodes: &[(&String, &NodeFacts)]| -> String {
            list(&nodes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>())
        };
        if !used.is_empty() {
            let claims: usize = used.iter().map(|(_, node)| node.claims).sum();
            say.mend(
                BLIND,
                format!("no agent on {} with storage: {} ({} in use there)", many(used.len(), "node", "nodes"), names(&used), many(claims, "claim", "claims")),
                "Run the agent's DaemonSet there: check its nodeSelector and tolerations (helm value agent.tolerations).",
            );
        }
        if !idle.is_empty() {
            say.note(
                BLIND,
                format!(
                    "no agent on {} without storage: {}",
                    many(idle.len(), "node", "nodes"),
                    names(&idle)
                ),
                None,
            );
        }
        for (name, driver) in facts.drivers.iter().filter(|(_, driver)| driver.controller.is_none()) {
            let what = format!(
                "driver {name} has no controller sidecar: what only its controller knows, and volumes that no pod uses, nobody sees"
            );
            let fix = format!(
                "Run `volmedic controller --leader-election` beside the controller plugin of {name}."
            );
            if driver.unknown > 0 {
                say.mend(BLIND, what, &fix);
            } else if driver.registered || driver.claims > 0 {
                say.note(BLIND, what, Some(&fix));
            }
        }
    }
    for (kind, why) in facts.unread.iter().filter(|(_, why)| **why != Unread::Missing) {
        say.note(
            BLIND,
            format!("{kind} could not be read: {why}"),
            Some(&format!("Ask for `list` on {kind}.")),
        );
    }
    if facts.malformed > 0 {
        say.note(
            BLIND,
            format!("{} made no sense and were left out", many(facts.malformed, "object", "objects")),
            None,
        );
    }
    let unknown: usize = facts.unknown.values().map(|(count, _)| count).sum();
    if unknown == 0 && readable(facts, "persistentvolumeclaims") {
        let claims = many(facts.claims, "claim", "claims");
        return say.good(
            BLIND,
            if facts.claims == 0 {
                "there are no claims to look at".to_owned()
            } else {
                format!("somebody looks at each of {claims}")
            },
        );
    }
    let mut whys: Vec<_> = facts.unknown.iter().collect();
    whys.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    for (why, (count, next)) in whys.iter().take(NAMED) {
        say.note(BLIND, format!("{} unknown: {why}", many(*count, "claim is", "claims are")), Some(next));
    }
    if whys.len() > NAMED {
        let rest: usize = whys[NAMED..].iter().map(|(_, (count, _))| count).sum();
        say.note(
            BLIND,
            format!("{} unknown for other reasons", many(rest, "claim is", "claims are")),
            Some("volmedic status --health unknown -o wide"),
        );
    }
}

fn line(name: &str, driver: &DriverFacts, facts: &Facts) -> Driver {
    let controller = match &driver.controller {
        Some((Life::Alive, _)) => "alive",
        Some((Life::Silent(_), _)) => "silent",
        None if readable(facts, "leases") => "none",
        None => "not known",
    };
    Driver {
        name: name.to_owned(),
        nodes: driver.nodes,
        claims: driver.claims,
        unknown: driver.unknown,
        controller: controller.to_owned(),
        told_by: driver.told_by.iter().copied().collect(),
    }
}

fn readable(facts: &Facts, kind: &str) -> bool {
    !facts.unread.contains_key(kind)
}

fn since_when(since: Option<Timestamp>) -> String {
    since.map(|since| format!(" since {since:.0}")).unwrap_or_default()
}

fn many(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn list(names: &[&str]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    if names.len() > NAMED { format!("{shown} and {} more", names.len() - NAMED) } else { shown }
}
