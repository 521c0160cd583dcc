//! What of an object an archive has, and which pods run Volmedic.

use serde_json::Value;

use super::fields::Fields;
use super::kinds::{Kind, METADATA, OWN_POD};

/// Prefixes of the Leases of all roles.
const LEASES: [&str; 3] = ["volmedic-hub", "volmedic-agent-", "external-health-monitor-leader-"];
/// Labels and annotations that are kept, apart from Volmedic's own and those of storage.
const PUBLIC: [&str; 7] = [
    "app.kubernetes.io/component",
    "app.kubernetes.io/name",
    "app.kubernetes.io/version",
    "helm.sh/chart",
    "microk8s.io/cluster",
    "pod-security.kubernetes.io/enforce",
    "storageclass.kubernetes.io/is-default-class",
];
/// Conditions of nodes and pods that Kubernetes itself sets. Others may have any name.
const CONDITIONS: [&str; 13] = [
    "Available",
    "ContainersReady",
    "DiskPressure",
    "DisruptionTarget",
    "Initialized",
    "MemoryPressure",
    "NetworkUnavailable",
    "PIDPressure",
    "PodReadyToStartContainers",
    "PodScheduled",
    "Progressing",
    "Ready",
    "ReplicaFailure",
];

/// A kind of object with the fields of it that are kept.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) kind: &'static Kind,
    redact: bool,
    fields: Fields,
    own_pod: Fields,
}

impl Selection {
    pub(super) fn new(kind: &'static Kind, redact: bool) -> Self {
        let fields = Fields::new(&[METADATA, kind.fields], redact);
        Self { kind, redact, fields, own_pod: Fields::new(OWN_POD, redact) }
    }

    /// Events, Leases and policies of others are left out. Pods with Volmedic's label are in a file of their own.
    pub(super) fn includes(&self, object: &Value) -> bool {
        match self.kind.file {
            // Those that were applied without the chart have no labels.
            "validatingadmissionpolicies" | "validatingadmissionpolicybindings" => {
                name(object).starts_with("volmedic-")
            }
            "leases" => LEASES.iter().any(|prefix| name(object).starts_with(prefix)),
            "events" => {
                let about = object["involvedObject"]["name"].as_str().unwrap_or_default();
                is_from_volmedic(object) || about.starts_with("volmedic-")
            }
            "pods" => !has_label(object),
            _ => true,
        }
    }

    /// Leaves out everything but the fields that are kept.
    pub(super) fn keep(&self, object: &mut Value) {
        let is_own_pod = self.kind.plural == "pods" && Own::of(object).is_some();
        if is_own_pod {
            keep_own_containers(object);
        }
        if self.kind.plural == "events" && self.redact && !is_from_volmedic(object) {
            // It is not known what is in it: of the scheduler, for example, names of taints.
            object.as_object_mut().and_then(|event| event.remove("message"));
        }
        for part in ["/metadata/labels", "/metadata/annotations"] {
            if let Some(all) = object.pointer_mut(part).and_then(Value::as_object_mut) {
                all.retain(|name, _| is_public(name));
            }
        }
        if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
            let is_known = |one: &Value| one["type"].as_str().is_some_and(|kind| CONDITIONS.contains(&kind));
            conditions.retain(|one| self.kind.plural == "volumehealths" || is_known(one));
        }
        let fields = if is_own_pod { &self.own_pod } else { &self.fields };
        fields.keep(object);
    }
}

impl Kind {
    pub(super) fn path(&self, limit: usize, token: &str) -> String {
        let Self { plural, group, select, .. } = self;
        let token = if token.is_empty() { String::new() } else { format!("&continue={}", escaped(token)) };
        format!("{group}/{plural}?limit={limit}{select}{token}")
    }
}

fn is_public(name: &str) -> bool {
    let domain = name.split_once('/').map_or("", |(domain, _)| domain);
    ["volmedic.dev", "volume.kubernetes.io"].contains(&domain) || PUBLIC.contains(&name)
}

fn is_from_volmedic(event: &Value) -> bool {
    let from = |field: &Value| field.as_str().is_some_and(|name| name.starts_with("volmedic"));
    from(&event["source"]["component"]) || from(&event["reportingComponent"])
}

/// Of pods that run Volmedic beside a driver, what belongs to the other containers is not needed.
fn keep_own_containers(pod: &mut Value) {
    let Some(own) = Own::of(pod) else { return };
    for list in ["/spec/containers", "/status/containerStatuses"] {
        if let Some(all) = pod.pointer_mut(list).and_then(Value::as_array_mut) {
            all.retain(|one| own.containers.iter().any(|name| one["name"] == **name));
        }
    }
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether the chart or the manifests installed it.
pub(super) fn has_label(object: &Value) -> bool {
    object["metadata"]["labels"]["app.kubernetes.io/name"] == "volmedic"
}

/// A pod that runs Volmedic, with the containers that do. The order is that in which logs are read: the hub first, then
/// controllers, then agents; those that are not ready first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Own {
    rank: usize,
    is_ready: bool,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) containers: Vec<String>,
}

const ROLES: [&str; 3] = ["hub", "controller", "agent"];

impl Own {
    pub(super) fn of(pod: &Value) -> Option<Self> {
        let is_own = |container: &&Value| {
            let image = container["image"].as_str().unwrap_or_default();
            image.rsplit('/').next().is_some_and(|name| name.starts_with("volmedic"))
        };
        let own: Vec<&Value> = pod["spec"]["containers"].as_array()?.iter().filter(is_own).collect();
        let rank = own.iter().map(|container| rank(container)).min()?;
        let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
        Some(Self {
            rank,
            is_ready: pod["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is_ready)),
            namespace: pod["metadata"]["namespace"].as_str()?.to_owned(),
            pod: pod["metadata"]["name"].as_str()?.to_owned(),
            containers: own.iter().filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect(),
        })
    }
}

/// By its role, which is one of the first two words.
fn rank(container: &Value) -> usize {
    let words = ["command", "args"].map(|list| container[list].as_array().into_iter().flatten());
    let mut words = words.into_iter().flatten().filter_map(Value::as_str).take(2);
    words.find_map(|word| ROLES.iter().position(|role| *role == word)).unwrap_or(ROLES.len())
}

/// For a query.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kinds::KINDS;
    use super::super::mask;
    use super::super::names::Names;
    use super::*;

    fn kept(file: &str, redact: bool, mut object: Value) -> Value {
        let kind = KINDS.iter().find(|kind| kind.file == file).unwrap();
        Selection::new(kind, redact).keep(&mut object);
        object
    }

    #[test]
    fn pods_of_others_have_nothing_but_their_volumes() {
        let pod = json!({
            "metadata": {"name": "db", "namespace": "shop", "labels": {"team": "a"}},
            "spec": {
                "nodeName": "n",
                "volumes": [
                    {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "s", "secret": {"secretName": "x"}},
                ],
                "containers": [{"image": "postgres", "env": [{"name": "X", "value": "y"}]}],
            },
            "status": {"phase": "Running", "containerStatuses": [{"name": "postgres", "image": "postgres"}]},
        });
        let expected = |volumes: Value| {
            json!({
                "metadata": {"name": "db", "namespace": "shop", "labels": {}},
                "spec": {"nodeName": "n", "volumes": volumes},
                "status": {"phase": "Running"},
            })
        };
        let claim = json!({"claimName": "c"});
        let volumes = json!([{"name": "v", "persistentVolumeClaim": claim}, {"name": "s"}]);
        assert_eq!(kept("pods", false, pod.clone()), expected(volumes));
        assert_eq!(kept("pods", true, pod), expected(json!([{"persistentVolumeClaim": claim}, {}])));
    }

    #[test]
    fn of_a_drivers_pod_only_the_sidecar_is_kept() {
        let pod = json!({
            "metadata": {"name": "driver-0", "namespace": "storage"},
            "spec": {"containers": [
                {"name": "driver", "image": "vendor/driver:1", "args": ["--token=x"]},
                {"name": "health", "image": "registry/volmedic:1", "args": ["controller", "--leader-election"]},
            ]},
            "status": {"containerStatuses": [
                {"name": "driver", "ready": true},
                {"name": "health", "ready": false},
            ]},
        });
        let own = Own::of(&pod).unwrap();
        assert_eq!((own.rank, own.is_ready, &*own.containers), (1, false, &["health".to_owned()][..]));
        let pod = kept("pods", false, pod);
        assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), 1);
        assert_eq!(pod["spec"]["containers"][0]["args"], json!(["controller", "--leader-election"]));
        assert_eq!(pod["status"]["containerStatuses"], json!([{"name": "health", "ready": false}]));
    }

    #[test]
    fn logs_are_read_of_the_hub_then_of_controllers_then_of_agents() {
        let pod = |name: &str, role: &str, ready: &str| {
            json!({
                "metadata": {"name": name, "namespace": "volmedic"},
                "spec": {"containers": [{"name": "x", "image": "volmedic:1", "args": [role]}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        let pods = [
            pod("agent-a", "agent", "True"),
            pod("agent-b", "agent", "False"),
            pod("other", "doctor", "True"),
            pod("controller", "controller", "True"),
            pod("hub", "hub", "True"),
        ];
        let mut own: Vec<Own> = pods.iter().filter_map(Own::of).collect();
        own.sort();
        let names: Vec<&str> = own.iter().map(|own| own.pod.as_str()).collect();
        assert_eq!(names, ["hub", "controller", "agent-b", "agent-a", "other"]);
        assert_eq!(Own::of(&json!({"spec": {"containers": [{"name": "x", "image": "postgres"}]}})), None);
    }

    #[test]
    fn what_others_report_about_their_own_objects_is_not_included() {
        let includes = |file: &str, object: Value| {
            let kind = KINDS.iter().find(|kind| kind.file == file).unwrap();
            Selection::new(kind, true).includes(&object)
        };
        let about =
            |name: &str, from: &str| json!({"involvedObject": {"name": name}, "source": {"component": from}});
        assert!(includes("events", about("db-0", "volmedic-agent")));
        assert!(includes("events", about("volmedic-hub-1", "kubelet")));
        assert!(!includes("events", about("db-0", "kubelet")));
        assert!(includes("leases", json!({"metadata": {"name": "volmedic-hub"}})));
        assert!(!includes("leases", json!({"metadata": {"name": "kube-scheduler"}})));
        assert!(includes("validatingadmissionpolicies", json!({"metadata": {"name": "volmedic-agent"}})));
        assert!(!includes("validatingadmissionpolicies", json!({"metadata": {"name": "acme"}})));
        let mut event = about("volmedic-hub-1", "scheduler");
        event["message"] = "node(s) had untolerated taint {acme.example/team: hr}".into();
        assert_eq!(kept("events", true, event.clone())["message"], Value::Null);
        assert_eq!(kept("events", false, event.clone())["message"], event["message"]);
    }

    #[test]
    fn an_object_of_another_shape_is_no_panic() {
        for kind in KINDS {
            for odd in
                [json!("text"), json!([1]), json!({"metadata": "x", "spec": [], "status": "y"}), json!(null)]
            {
                let selection = Selection::new(kind, true);
                let mut object = odd;
                selection.includes(&object);
                Names::default().note(kind, &object);
                mask::object(&mut object);
                selection.keep(&mut object);
            }
        }
    }

    #[test]
    fn a_continue_token_survives_the_query() {
        let kind = KINDS.iter().find(|kind| kind.file == "namespaces").unwrap();
        assert!(kind.path(5, "a+b=&c").ends_with("?limit=5&continue=a%2Bb%3D%26c"));
    }
}
