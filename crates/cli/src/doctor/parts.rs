//! What of ours runs in the cluster: pods by their role, and the chart they came with.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;
use volmedic_api::Shape;

/// An agent stores its first report when it has checked every volume once: after an interval and a deadline, which are a
/// minute and ten seconds in the chart.
const FIRST_REPORT: SignedDuration = SignedDuration::from_mins(2);

/// A role that runs in pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Role {
    Hub,
    Agent,
    Controller,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hub => "hub",
            Self::Agent => "agent",
            Self::Controller => "controller",
        })
    }
}

/// One kind of pod of ours: those that share a role and an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Part {
    pub(super) pods: usize,
    pub(super) ready: usize,
    pub(super) charts: Vec<String>,
    /// By node, when the newest of them there was started.
    started: BTreeMap<String, Timestamp>,
}

impl Part {
    /// Whether the pod on this node may not have had the time to report yet.
    pub(super) fn has_just_started(&self, node: &str, now: Timestamp) -> bool {
        self.started.get(node).is_some_and(|started| now.duration_since(*started) < FIRST_REPORT)
    }
}

/// By role, namespace and service account.
pub(super) type Parts = BTreeMap<(Role, String, String), Part>;

/// A pod as we know our own by.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Meta {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    service_account_name: Option<String>,
    containers: Option<Vec<Container>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Container {
    image: String,
    command: Option<Vec<String>>,
    args: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    start_time: Option<Time>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Shape for Pod {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

impl Pod {
    /// The role that runs in it, if it is one of ours.
    fn role(&self) -> Option<Role> {
        self.spec.containers.iter().flatten().find_map(|container| {
            let words = container.command.iter().flatten().chain(container.args.iter().flatten());
            let words: Vec<&str> = words.map(String::as_str).collect();
            let named = |text: &str| text.rsplit('/').next().unwrap_or_default().starts_with("volmedic");
            if !named(&container.image) && !words.first().is_some_and(|word| named(word)) {
                return None;
            }
            words.iter().take(2).find_map(|word| match *word {
                "hub" => Some(Role::Hub),
                "agent" => Some(Role::Agent),
                "controller" => Some(Role::Controller),
                _ => None,
            })
        })
    }

    /// Counts it among ours, if it is.
    pub(super) fn note(&self, namespace: &str, parts: &mut Parts) {
        let Some(role) = self.role() else { return };
        let account = self.spec.service_account_name.as_deref().unwrap_or("default");
        let part = parts.entry((role, namespace.to_owned(), account.to_owned())).or_default();
        part.pods += 1;
        let ready = |condition: &Condition| condition.kind == "Ready" && condition.status == "True";
        part.ready += usize::from(self.status.conditions.iter().flatten().any(ready));
        if let (Some(node), Some(Time(started))) = (&self.spec.node_name, &self.status.start_time) {
            let newest = part.started.entry(node.clone()).or_insert(*started);
            *newest = (*newest).max(*started);
        }
        let chart = self.metadata.labels.as_ref().and_then(|labels| {
            labels.get("helm.sh/chart").or_else(|| labels.get("app.kubernetes.io/version"))
        });
        if let Some(chart) = chart.filter(|chart| !part.charts.contains(chart)) {
            part.charts.push(chart.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(container: &str) -> Option<Role> {
        let pod = format!(r#"{{"spec":{{"containers":[{{"image":"busybox"}},{container}]}}}}"#);
        serde_json::from_str::<Pod>(&pod).expect("a pod").role()
    }

    #[test]
    fn our_own_pods_are_known_by_what_they_run() {
        let check = |container, expected| assert_eq!(role(container), expected, "{container}");
        check(r#"{"image":"ghcr.io/x/volmedic:0.1","args":["agent","--node-name=n"]}"#, Some(Role::Agent));
        check(r#"{"image":"tools","command":["/usr/bin/volmedic","hub"]}"#, Some(Role::Hub));
        check(r#"{"image":"volmedic@sha256:12","args":["controller"]}"#, Some(Role::Controller));
        check(r#"{"image":"tools","args":["hub"]}"#, None);
        check(r#"{"image":"volmedic","args":["driver"]}"#, None);
    }

    #[test]
    fn an_agent_has_the_time_of_its_first_round_to_report() {
        let pod = r#"{"spec":{"nodeName":"n","containers":[{"image":"volmedic","args":["agent"]}]},
            "status":{"startTime":"2026-01-01T00:00:00Z"}}"#;
        let mut parts = Parts::new();
        serde_json::from_str::<Pod>(pod).expect("a pod").note("here", &mut parts);
        let part = parts.values().next().expect("an agent");
        let at = |time: &str| time.parse::<Timestamp>().expect("a time");
        assert!(part.has_just_started("n", at("2026-01-01T00:01:59Z")));
        assert!(!part.has_just_started("n", at("2026-01-01T00:02:00Z")));
        assert!(!part.has_just_started("other", at("2026-01-01T00:00:01Z")));
    }
}
