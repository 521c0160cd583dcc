//! `volmedic doctor --pre`: whether Volmedic can be installed in this cluster, and with which values.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use tokio::time::timeout;
use volmedic_api::{Arrived, Shape};

use super::findings::{Area, Findings, Report, list, many, server};
use super::rights::{self, Right};
use crate::look::{Reach, Unread, each, innermost};

const CREATE: &[&str] = &["create", "patch"];

/// What installing the chart creates in the whole cluster.
const EVERYWHERE: &[Right] = &[
    ("", "namespaces", CREATE),
    ("apiextensions.k8s.io", "customresourcedefinitions", CREATE),
    ("rbac.authorization.k8s.io", "clusterroles", CREATE),
    ("rbac.authorization.k8s.io", "clusterrolebindings", CREATE),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", CREATE),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", CREATE),
];
/// The same in its namespace. Helm stores its release in Secrets.
const IN_NAMESPACE: &[Right] = &[
    ("", "serviceaccounts", CREATE),
    ("", "services", CREATE),
    ("", "configmaps", CREATE),
    ("", "secrets", CREATE),
    ("apps", "deployments", CREATE),
    ("apps", "daemonsets", CREATE),
    ("rbac.authorization.k8s.io", "roles", CREATE),
    ("rbac.authorization.k8s.io", "rolebindings", CREATE),
    ("policy", "poddisruptionbudgets", CREATE),
    ("networking.k8s.io", "networkpolicies", CREATE),
];
/// Operating systems on which SELinux is enforced as installed.
const SELINUX: [&str; 9] = [
    "AlmaLinux",
    "Bottlerocket",
    "CentOS",
    "CoreOS",
    "Fedora",
    "Oracle Linux",
    "Red Hat",
    "Rocky Linux",
    "SUSE Linux Micro",
];
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Node {
    metadata: Labels,
    status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatus {
    allocatable: Option<BTreeMap<String, String>>,
    node_info: NodeInfo,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeInfo {
    architecture: String,
    kubelet_version: String,
    operating_system: String,
    os_image: String,
}

impl Shape for Node {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Pod {
    spec: PodSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
}

impl Shape for Pod {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Namespace {
    metadata: Labels,
}

impl Shape for Namespace {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "Namespace";
    const PLURAL: &'static str = "namespaces";
}

/// Reads what installing depends on, and judges it.
pub(super) async fn check(reach: &Reach, namespace: &str, at: Timestamp) -> Report {
    let mut found = Findings::default();
    server(reach.version.as_ref(), &mut found);
    let (nodes, pods, everywhere, in_namespace, labels, openshift) = tokio::join!(
        nodes(reach),
        pods(reach),
        rights::missing(&reach.client, None, None, EVERYWHERE, reach.deadline),
        rights::missing(&reach.client, None, Some(namespace), IN_NAMESPACE, reach.deadline),
        labels(reach, namespace),
        is_openshift(reach),
    );
    let missing = everywhere.and_then(|mut all| {
        all.extend(in_namespace?);
        Ok(all)
    });
    let partial =
        nodes.is_err() || pods.is_err() || labels.is_err() || openshift.is_err() || missing.is_err();
    match nodes {
        Ok(nodes) if nodes.is_empty() => found.note(Area::Cluster, "there are no nodes yet", None),
        Ok(nodes) => {
            platforms(&nodes, &mut found);
            directories(&nodes, &mut found);
            // On OpenShift the SecurityContextConstraints set the SELinux type.
            if !openshift.as_ref().is_ok_and(|openshift| *openshift) {
                selinux(&nodes, &mut found);
            }
            room(&nodes, pods, &mut found);
        }
        Err(why) => found.note(
            Area::Cluster,
            format!("nodes cannot be read: {why}"),
            Some("Ask an administrator for `list` on nodes."),
        ),
    }
    match openshift {
        Ok(false) => {}
        Ok(true) => found.note(
            Area::Cluster,
            "this is OpenShift, which limits pods by SecurityContextConstraints",
            Some("Install with --set openshift.securityContextConstraints=true."),
        ),
        Err(why) => {
            found.note(Area::Cluster, format!("it is unknown whether this is OpenShift: {why}"), None);
        }
    }
    pod_security(namespace, labels, &mut found);
    match missing {
        Ok(missing) if missing.is_empty() => {
            found.good(Area::Rights, "you may create everything that the chart installs");
        }
        Ok(missing) => found.problem(
            Area::Rights,
            format!("you may not install the chart; you lack {}", missing.join(", ")),
            "Ask an administrator of the cluster to install it.",
        ),
        Err(why) => found.note(Area::Rights, format!("your rights are unknown: {why}"), None),
    }
    Report {
        at,
        cluster: reach.place.clone(),
        server: reach.version.as_ref().map(|version| version.text.clone()),
        partial,
        findings: found.0,
        drivers: Vec::new(),
    }
}

async fn nodes(reach: &Reach) -> Result<BTreeMap<String, Node>, Unread> {
    let api = Api::<Arrived<Node>>::all(reach.client.clone());
    let mut nodes = BTreeMap::new();
    each(&api, ListParams::default(), reach.deadline, |object, node: &Node| {
        nodes.insert(object.name().to_owned(), node.clone());
    })
    .await?;
    Ok(nodes)
}

/// The number of pods on each node.
async fn pods(reach: &Reach) -> Result<BTreeMap<String, usize>, Unread> {
    let api = Api::<Arrived<Pod>>::all(reach.client.clone());
    let running = ListParams {
        field_selector: Some("status.phase!=Succeeded,status.phase!=Failed".to_owned()),
        ..ListParams::default()
    };
    let mut pods = BTreeMap::new();
    each(&api, running, reach.deadline, |_, pod: &Pod| {
        if let Some(node) = &pod.spec.node_name {
            *pods.entry(node.clone()).or_default() += 1;
        }
    })
    .await?;
    Ok(pods)
}

/// The labels of the namespace, or none if there is no such namespace.
async fn labels(reach: &Reach, namespace: &str) -> Result<Option<BTreeMap<String, String>>, Unread> {
    let api = Api::<Arrived<Namespace>>::all(reach.client.clone());
    let only =
        ListParams { field_selector: Some(format!("metadata.name={namespace}")), ..ListParams::default() };
    let mut labels = None;
    each(&api, only, reach.deadline, |_, found: &Namespace| {
        labels = Some(found.metadata.labels.clone().unwrap_or_default());
    })
    .await?;
    Ok(labels)
}

async fn is_openshift(reach: &Reach) -> Result<bool, String> {
    let groups = timeout(reach.deadline, reach.client.list_api_groups()).await;
    let groups = groups.map_err(|_| format!("no answer within {} s", reach.deadline.as_secs()))?;
    let groups = groups.map_err(|error| innermost(&error))?.groups;
    Ok(groups.iter().any(|group| group.name == "security.openshift.io"))
}

fn platforms(nodes: &BTreeMap<String, Node>, found: &mut Findings) {
    let of = |field: fn(&NodeInfo) -> &String| -> BTreeSet<&str> {
        let all = nodes.values().map(|node| field(&node.status.node_info).as_str());
        all.filter(|value| !value.is_empty()).collect()
    };
    let architectures: Vec<&str> = of(|info| &info.architecture).into_iter().collect();
    let count = many(nodes.len(), "node", "nodes");
    let text = match &architectures[..] {
        [] => format!("{count} of unknown architecture"),
        all => format!("{count} of architecture {}", list(all)),
    };
    if architectures.len() > 1 {
        let fix = "Build the image for each architecture, and push all under one name.";
        found.note(Area::Cluster, text, Some(fix));
    } else {
        found.good(Area::Cluster, text);
    }
    if of(|info| &info.operating_system).contains("windows") {
        found.note(Area::Cluster, "there are Windows nodes; agents run on Linux nodes only", None);
    }
}

/// Where distributions put the kubelet's directory, if it is not the usual one.
fn directory(node: &Node) -> Option<&'static str> {
    let labels = node.metadata.labels.as_ref();
    if labels.is_some_and(|labels| labels.contains_key("microk8s.io/cluster")) {
        Some("/var/snap/microk8s/common/var/lib/kubelet")
    } else if node.status.node_info.kubelet_version.contains("+k0s") {
        Some("/var/lib/k0s/kubelet")
    } else {
        None
    }
}

fn directories(nodes: &BTreeMap<String, Node>, found: &mut Findings) {
    let mut by_directory = BTreeMap::<_, Vec<&str>>::new();
    for (name, node) in nodes {
        by_directory.entry(directory(node)).or_default().push(name);
    }
    for (directory, names) in by_directory {
        let Some(directory) = directory else { continue };
        found.note(
            Area::Cluster,
            format!("the kubelet's directory is {directory} on {}", list(&names)),
            Some(&format!("Install with --set agent.kubeletDir={directory}.")),
        );
    }
}

fn selinux(nodes: &BTreeMap<String, Node>, found: &mut Findings) {
    let enforces = |node: &&Node| SELINUX.iter().any(|name| node.status.node_info.os_image.contains(name));
    let images: BTreeSet<&str> =
        nodes.values().filter(enforces).map(|node| node.status.node_info.os_image.as_str()).collect();
    if images.is_empty() {
        return;
    }
    let images: Vec<&str> = images.into_iter().collect();
    found.note(
        Area::Cluster,
        format!(
            "nodes run {}, which enforces SELinux by default, so agents cannot read the kubelet's directory",
            list(&images)
        ),
        Some("Install with --set agent.securityContext.seLinuxOptions.type=spc_t."),
    );
}

fn room(nodes: &BTreeMap<String, Node>, pods: Result<BTreeMap<String, usize>, Unread>, found: &mut Findings) {
    let pods = match pods {
        Ok(pods) => pods,
        Err(why) => {
            return found.note(
                Area::Cluster,
                format!("it is unknown whether each node has room for an agent, because pods cannot be read: {why}"),
                Some("Ask an administrator for `list` on pods."),
            );
        }
    };
    let full = nodes.iter().filter(|(name, node)| {
        let most = node.status.allocatable.as_ref().and_then(|all| all.get("pods")?.parse::<usize>().ok());
        most.is_some_and(|most| pods.get(*name).is_some_and(|running| *running >= most))
    });
    let full: Vec<&str> = full.map(|(name, _)| name.as_str()).collect();
    if full.is_empty() {
        return found.good(Area::Cluster, "every node has room for one more pod");
    }
    found.note(
        Area::Cluster,
        format!("{} no room for one more pod: {}", many(full.len(), "node has", "nodes have"), list(&full)),
        Some(
            "The agent takes the place of a pod with a lower priority there. To prevent that, set \
             agent.priorityClassName.",
        ),
    );
}

fn pod_security(
    namespace: &str,
    labels: Result<Option<BTreeMap<String, String>>, Unread>,
    found: &mut Findings,
) {
    match labels {
        Ok(Some(labels)) if labels.get(ENFORCE).is_some_and(|level| level == "privileged") => {
            found.good(
                Area::Installed,
                format!("the namespace {namespace} lets agents mount host directories"),
            );
        }
        Ok(Some(labels)) => {
            let fix = format!("kubectl label namespace {namespace} {ENFORCE}=privileged --overwrite");
            match labels.get(ENFORCE) {
                Some(level) => found.problem(
                    Area::Installed,
                    format!(
                        "the namespace {namespace} enforces the Pod Security level {level}, which refuses agents"
                    ),
                    &fix,
                ),
                None => found.note(
                    Area::Installed,
                    format!(
                        "the namespace {namespace} has no label {ENFORCE}; agents are refused if the cluster's \
                         default is not privileged"
                    ),
                    Some(&fix),
                ),
            }
        }
        Ok(None) => found.note(
            Area::Installed,
            format!("the namespace {namespace} does not exist yet"),
            Some("kubectl apply -f deploy/namespace.yaml"),
        ),
        Err(why) => found.note(
            Area::Installed,
            format!("the namespace {namespace} cannot be read: {why}"),
            Some("Ask an administrator for `list` on namespaces."),
        ),
    }
}
