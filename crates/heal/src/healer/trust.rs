//! Whom to believe. Anybody who may create a CSIAddonsNode can write anything into it, so each word is held against what
//! others say: the pod it names, that pod's owner, the node that pod is on, and the drivers that kubelet has there.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::CSINode;
use thiserror::Error;
use volmedic_api::addons::{
    CREATED_BY, CsiAddonsNode, CsiAddonsNodeDriver, RELAY, RELAY_CERTIFICATES, RELAY_VERSION, UPDATED_AT,
};

const LONGEST_NAME: usize = 253;
const LONGEST_DRIVER: usize = 63;
const LONGEST_NODE_ID: usize = 256;
/// The one that is shown, and the one that will be.
const MOST_CERTIFICATES: usize = 2;

/// A relay that is what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relayed {
    pub driver: Arc<str>,
    /// By its name in Kubernetes.
    pub node: Arc<str>,
    pub namespace: Box<str>,
    /// The pod that it runs in, by name and uid.
    pub pod: Box<str>,
    pub pod_uid: Box<str>,
    pub address: SocketAddr,
    /// Another one after each restart of the relay or its driver.
    pub generation: Box<str>,
    /// The certificates that it may show, by their SHA-256, as its registration names them.
    pub certificates: Arc<[Box<str>]>,
}

/// Why a registration is not believed. It is never dialled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Distrust {
    #[error("it was not written by a relay of ours")]
    NotOurs,
    #[error("it is being deleted")]
    Going,
    #[error("registrations in the namespace {0} are not to be believed")]
    Namespace(String),
    #[error("its {field} is empty, too long or no proper name")]
    Malformed { field: &'static str },
    #[error("its endpoint is not of the form pod://<pod>.<namespace>:<port>")]
    Endpoint,
    #[error("its endpoint is in the namespace {endpoint}, and it is itself in {own}")]
    OtherNamespace { endpoint: String, own: String },
    #[error("the pod {0} of its endpoint does not exist")]
    NoPod(String),
    #[error("it was written by another pod than the one its endpoint names")]
    OtherPod,
    #[error("it does not belong to whom the pod of its endpoint belongs to")]
    OtherOwner,
    #[error("the pod of its endpoint does not run (yet)")]
    PodNotRunning,
    #[error("the pod of its endpoint has no address that may be dialled")]
    NoAddress,
    #[error("the driver {driver} is not registered with kubelet on node {node}")]
    ForeignDriver { driver: String, node: String },
    #[error("its node id {given} is not what the driver calls node {node}")]
    OtherNode { given: String, node: String },
    #[error("{0}")]
    Unknown(String),
    #[error("who answers at its endpoint is not to be trusted: {0}")]
    Peer(String),
    #[error("the driver behind it cannot heal: it does not announce VOLUME_HEALER")]
    CannotHeal,
}

impl Distrust {
    /// A label for metrics; a closed list.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotOurs => "not_ours",
            Self::Going => "going",
            Self::Namespace(_) => "namespace",
            Self::Malformed { .. } => "malformed",
            Self::Endpoint => "endpoint",
            Self::OtherNamespace { .. } => "other_namespace",
            Self::NoPod(_) => "no_pod",
            Self::OtherPod => "other_pod",
            Self::OtherOwner => "other_owner",
            Self::PodNotRunning => "pod_not_running",
            Self::NoAddress => "no_address",
            Self::ForeignDriver { .. } => "foreign_driver",
            Self::OtherNode { .. } => "other_node",
            Self::Unknown(_) => "unknown",
            Self::Peer(_) => "peer",
            Self::CannotHeal => "cannot_heal",
        }
    }

    /// Whether it may be all right in a while without anybody writing the object again.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::NoPod(_)
            | Self::PodNotRunning
            | Self::NoAddress
            | Self::ForeignDriver { .. }
            | Self::Unknown(_)
            | Self::Peer(_) => true,
            Self::NotOurs
            | Self::Going
            | Self::Namespace(_)
            | Self::Malformed { .. }
            | Self::Endpoint
            | Self::OtherNamespace { .. }
            | Self::OtherPod
            | Self::OtherOwner
            | Self::OtherNode { .. }
            | Self::CannotHeal => false,
        }
    }
}

/// Where a registration says that its pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) pod: String,
    pub(super) namespace: String,
    pub(super) port: u16,
}

/// What can be said without asking anybody.
pub(super) fn read(object: &CsiAddonsNode, trusted: &BTreeSet<String>) -> Result<Claimed, Distrust> {
    let own = object.metadata.namespace.as_deref().unwrap_or_default();
    if object.annotation(RELAY) != RELAY_VERSION {
        return Err(Distrust::NotOurs);
    }
    if object.is_going() {
        return Err(Distrust::Going);
    }
    if !trusted.is_empty() && !trusted.contains(own) {
        return Err(Distrust::Namespace(own.to_owned()));
    }
    let CsiAddonsNodeDriver { name, endpoint, node_id } = &object.spec.driver;
    for (field, value, longest) in
        [("driver name", name, LONGEST_DRIVER), ("node id", node_id, LONGEST_NODE_ID)]
    {
        if value.is_empty() || value.len() > longest || value.chars().any(char::is_control) {
            return Err(Distrust::Malformed { field });
        }
    }
    let claimed = endpoint_of(endpoint).ok_or(Distrust::Endpoint)?;
    if claimed.namespace != own {
        return Err(Distrust::OtherNamespace { endpoint: claimed.namespace, own: own.to_owned() });
    }
    Ok(claimed)
}

fn endpoint_of(endpoint: &str) -> Option<Claimed> {
    let rest = endpoint.strip_prefix("pod://")?;
    let (host, port) = rest.rsplit_once(':')?;
    // A pod's name may have dots in it, a namespace's may not.
    let (pod, namespace) = host.rsplit_once('.')?;
    let plain = |name: &str| {
        !name.is_empty()
            && name.len() <= LONGEST_NAME
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-'))
    };
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    (plain(pod) && plain(namespace)).then(|| Claimed { pod: pod.into(), namespace: namespace.into(), port })
}

/// What the pod itself says about it. Answers the pod's node and where to dial.
pub(super) fn against_pod(
    object: &CsiAddonsNode,
    claimed: &Claimed,
    pod: Option<&Pod>,
    allow_loopback: bool,
) -> Result<(Arc<str>, SocketAddr), Distrust> {
    let name = || format!("{}/{}", claimed.namespace, claimed.pod);
    let pod = pod.ok_or_else(|| Distrust::NoPod(name()))?;
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    if uid.is_empty() || object.annotation(CREATED_BY) != uid {
        return Err(Distrust::OtherPod);
    }
    let owned = object.owners().iter().any(|owner| {
        let by_pod = owner.kind == "Pod" && owner.uid == uid;
        let of_pod = pod.metadata.owner_references.as_deref().unwrap_or_default();
        by_pod || of_pod.iter().any(|of| of.uid == owner.uid && of.kind == owner.kind)
    });
    if !owned {
        return Err(Distrust::OtherOwner);
    }
    let status = pod.status.as_ref();
    let running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    if !running || node.is_empty() || pod.metadata.deletion_timestamp.is_some() {
        return Err(Distrust::PodNotRunning);
    }
    let address: Option<IpAddr> =
        status.and_then(|status| status.pod_ip.as_deref()).and_then(|ip| ip.parse().ok());
    let address =
        address.filter(|address| may_be_dialled(*address, allow_loopback)).ok_or(Distrust::NoAddress)?;
    Ok((node.into(), SocketAddr::new(address, claimed.port)))
}

/// Whether the pod of a relay still has the relay's address. Addresses are given to other pods when a pod is gone.
pub(super) fn has_still(relay: &Relayed, pod: Option<&Pod>) -> Result<(), String> {
    let name = format!("{}/{}", relay.namespace, relay.pod);
    let pod = pod.ok_or_else(|| format!("the pod {name} does not exist any more"))?;
    if pod.metadata.uid.as_deref() != Some(&*relay.pod_uid) {
        return Err(format!("the pod {name} was replaced by another one"));
    }
    let status = pod.status.as_ref();
    let running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    if !running || pod.metadata.deletion_timestamp.is_some() || node != Some(&*relay.node) {
        return Err(format!("the pod {name} does not run any more"));
    }
    let address = status.and_then(|status| status.pod_ip.as_deref()).and_then(|ip| ip.parse::<IpAddr>().ok());
    if address != Some(relay.address.ip()) {
        return Err(format!("the pod {name} has another address by now"));
    }
    Ok(())
}

/// Addresses of our own host, of nobody, of everybody, and of clouds' metadata services are no pods.
fn may_be_dialled(address: IpAddr, allow_loopback: bool) -> bool {
    let link_local = match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let address = address.to_canonical();
    !(address.is_unspecified() || address.is_multicast() || link_local)
        && (allow_loopback || !address.is_loopback())
}

/// What kubelet says of the drivers on the node.
pub(super) fn against_node(
    object: &CsiAddonsNode,
    node: &str,
    csi_node: Option<&CSINode>,
) -> Result<(), Distrust> {
    let CsiAddonsNodeDriver { name, endpoint: _, node_id } = &object.spec.driver;
    let drivers = csi_node.map(|found| found.spec.drivers.as_slice()).unwrap_or_default();
    let Some(driver) = drivers.iter().find(|driver| driver.name == *name) else {
        return Err(Distrust::ForeignDriver { driver: name.clone(), node: node.to_owned() });
    };
    if *node_id == driver.node_id || node_id == node {
        return Ok(());
    }
    let given = node_id.chars().take(64).flat_map(char::escape_debug).collect();
    Err(Distrust::OtherNode { given, node: node.to_owned() })
}

/// The fingerprints that the registration names. Only the agent on the relay's node may write them.
pub(super) fn certificates(object: &CsiAddonsNode) -> Arc<[Box<str>]> {
    let named = object.annotation(RELAY_CERTIFICATES).split(',');
    let proper = named.filter(|one| one.len() == "sha256:".len() + 64 && one.starts_with("sha256:"));
    proper.take(MOST_CERTIFICATES).map(Into::into).collect()
}

/// Which life of the relay and its driver it is. An object that was deleted and written again says the same.
pub(super) fn generation(object: &CsiAddonsNode) -> Box<str> {
    let shorten = |text: &str| text.chars().take(64).collect::<String>();
    format!("{}/{}", shorten(object.annotation(CREATED_BY)), shorten(object.annotation(UPDATED_AT))).into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    type Change = fn(&mut Value);

    fn object() -> Value {
        json!({
            "metadata": {"name": "n", "namespace": "stor", "uid": "o-1",
                "annotations": {RELAY: "v1", CREATED_BY: "p-1", UPDATED_AT: "t"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d-1"}]},
            "spec": {"driver": {"name": "d.example", "endpoint": "pod://agent-x.stor:9070", "nodeID": "id-7"}},
        })
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "agent-x", "namespace": "stor", "uid": "p-1",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d-1"}]},
            "spec": {"nodeName": "worker-7", "containers": []},
            "status": {"phase": "Running", "podIP": "10.1.2.3"},
        })
    }

    fn csi_node() -> Value {
        json!({"metadata": {"name": "worker-7"}, "spec": {"drivers": [{"name": "d.example", "nodeID": "id-7"}]}})
    }

    fn judge(object: Value, pod: Value, csi_node: Value) -> Result<SocketAddr, Distrust> {
        let object: CsiAddonsNode = serde_json::from_value(object).unwrap();
        let pod: Option<Pod> = serde_json::from_value(pod).unwrap();
        let csi_node: Option<CSINode> = serde_json::from_value(csi_node).unwrap();
        let claimed = read(&object, &BTreeSet::from(["stor".to_owned()]))?;
        let (node, address) = against_pod(&object, &claimed, pod.as_ref(), false)?;
        against_node(&object, &node, csi_node.as_ref())?;
        Ok(address)
    }

    #[track_caller]
    fn lie(expected: &str, change: impl FnOnce(&mut Value, &mut Value, &mut Value)) {
        let (mut object, mut pod, mut csi_node) = (object(), pod(), csi_node());
        change(&mut object, &mut pod, &mut csi_node);
        assert_eq!(judge(object, pod, csi_node).unwrap_err().label(), expected);
    }

    /// Whatever an account writes that may create CSIAddonsNodes.
    #[test]
    fn fuzz_csi_addons_node() {
        let pod: Pod = serde_json::from_value(pod()).unwrap();
        let csi_node: CSINode = serde_json::from_value(csi_node()).unwrap();
        volmedic_testkit::fuzz("csi-addons-node", |bytes| {
            let Ok(object) = serde_json::from_slice::<CsiAddonsNode>(bytes) else { return false };
            let _ = generation(&object);
            match read(&object, &BTreeSet::from(["stor".to_owned()])) {
                Ok(claimed) => {
                    assert_eq!(claimed.namespace, "stor");
                    assert!(claimed.port > 0 && !claimed.pod.contains('/'));
                    let found = against_pod(&object, &claimed, Some(&pod), false);
                    let _ = found.map(|(node, _)| against_node(&object, &node, Some(&csi_node)));
                }
                Err(why) => assert!(!why.to_string().is_empty() && !why.label().is_empty()),
            }
            true
        });
    }

    #[test]
    fn the_truth_is_believed() {
        assert_eq!(judge(object(), pod(), csi_node()), Ok("10.1.2.3:9070".parse().unwrap()));
    }

    #[test]
    fn lies_are_not() {
        lie("not_ours", |object, _, _| object["metadata"]["annotations"][RELAY] = json!("v9"));
        lie("namespace", |object, _, _| object["metadata"]["namespace"] = json!("evil"));
        lie("going", |object, _, _| {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
        lie("malformed", |object, _, _| object["spec"]["driver"]["name"] = json!("x".repeat(64)));
        lie("malformed", |object, _, _| object["spec"]["driver"]["name"] = json!(""));
        lie("malformed", |object, _, _| object["spec"]["driver"]["nodeID"] = json!("x".repeat(257)));
        lie("malformed", |object, _, _| object["spec"]["driver"]["nodeID"] = json!("a\nb"));
        lie("other_namespace", |object, _, _| {
            object["spec"]["driver"]["endpoint"] = json!("pod://agent-x.kube-system:9070");
        });
        lie("no_pod", |_, pod, _| *pod = Value::Null);
        lie("other_pod", |_, pod, _| pod["metadata"]["uid"] = json!("p-2"));
        lie("other_pod", |object, _, _| object["metadata"]["annotations"][CREATED_BY] = json!(""));
        lie("other_owner", |object, _, _| object["metadata"]["ownerReferences"][0]["uid"] = json!("d-2"));
        lie("other_owner", |object, _, _| object["metadata"]["ownerReferences"] = Value::Null);
        lie("pod_not_running", |_, pod, _| pod["status"]["phase"] = json!("Succeeded"));
        lie("pod_not_running", |_, pod, _| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
        lie("foreign_driver", |object, _, _| object["spec"]["driver"]["name"] = json!("other.example"));
        lie("foreign_driver", |_, _, csi_node| *csi_node = Value::Null);
        lie("other_node", |object, _, _| object["spec"]["driver"]["nodeID"] = json!("id-8"));
    }

    #[test]
    fn an_address_is_dialled_only_while_it_is_that_of_the_same_pod() {
        let relay = Relayed {
            driver: "d.example".into(),
            node: "worker-7".into(),
            namespace: "stor".into(),
            pod: "agent-x".into(),
            pod_uid: "p-1".into(),
            address: "10.1.2.3:9070".parse().unwrap(),
            generation: "1".into(),
            certificates: Arc::default(),
        };
        let check = |change: fn(&mut Value)| {
            let mut pod = pod();
            change(&mut pod);
            let pod: Option<Pod> = serde_json::from_value(pod).unwrap();
            has_still(&relay, pod.as_ref())
        };
        assert_eq!(check(|_| ()), Ok(()));
        let changes: [(&str, Change); 6] = [
            ("does not exist any more", |pod| *pod = Value::Null),
            ("was replaced", |pod| pod["metadata"]["uid"] = json!("p-2")),
            ("does not run", |pod| pod["status"]["phase"] = json!("Failed")),
            ("does not run", |pod| pod["spec"]["nodeName"] = json!("worker-8")),
            ("does not run", |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
            ("another address", |pod| pod["status"]["podIP"] = json!("10.1.2.4")),
        ];
        for (said, change) in changes {
            let why = check(change).unwrap_err();
            assert!(why.contains(said), "{said}: {why}");
        }
    }

    #[test]
    fn two_certificates_are_named_at_most_and_each_by_a_whole_hash() {
        let check = |text: &str, expected: &[&str]| {
            let mut object = object();
            object["metadata"]["annotations"][RELAY_CERTIFICATES] = json!(text);
            let named = certificates(&serde_json::from_value(object).unwrap());
            assert_eq!(named.iter().map(|one| &**one).collect::<Vec<_>>(), expected, "{text}");
        };
        let [a, b, c] = ["a", "b", "c"].map(|letter| format!("sha256:{}", letter.repeat(64)));
        check("", &[]);
        check(&a, &[&a]);
        check(&format!("{a},{b},{c}"), &[&a, &b]);
        check(&format!("sha256:,{},,{b}", &a[..70]), &[&b]);
        check(&a.replace("sha256", "sha1.."), &[]);
    }

    #[test]
    fn endpoints_that_point_elsewhere_are_not_understood() {
        for endpoint in [
            "",
            "10.0.0.1:9070",
            "https://agent-x.stor:9070",
            "pod://agent-x:9070",
            "pod://agent-x.stor",
            "pod://agent-x.stor:0",
            "pod://agent-x.stor:65536",
            "pod://agent-x.stor:9070/path",
            "pod://user@agent-x.stor:9070",
            "pod://.stor:9070",
            "pod://agent-x.:9070",
            "pod://a b.stor:9070",
            "pod://[::1]:9070",
        ] {
            lie("endpoint", |object, _, _| object["spec"]["driver"]["endpoint"] = json!(endpoint));
        }
        let dotted = endpoint_of("pod://a.b.stor:1").unwrap();
        assert_eq!((dotted.pod.as_str(), dotted.namespace.as_str()), ("a.b", "stor"));
    }

    #[test]
    fn addresses_that_are_no_pods_are_not_dialled() {
        for address in [
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "224.0.0.1",
            "fe80::1",
            "::ffff:127.0.0.1",
            "x",
            "",
        ] {
            lie("no_address", |_, pod, _| pod["status"]["podIP"] = json!(address));
        }
    }

    #[test]
    fn a_pod_of_a_deployment_owns_its_own_and_the_kubernetes_name_is_a_node_id_too() {
        let mut object = object();
        object["metadata"]["ownerReferences"][0] =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "agent-x", "uid": "p-1"});
        object["spec"]["driver"]["nodeID"] = json!("worker-7");
        assert!(judge(object, pod(), csi_node()).is_ok());
    }
}
