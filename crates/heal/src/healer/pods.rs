//! Pods that use a volume, and which of them may be evicted. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use volmedic_api::Arrived;

use super::shapes::{WorkloadMeta, WorkloadPod};

/// Set by people and tools on pods that no automation may evict.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// A mirror pod shows what the kubelet runs from a file; evicting it changes nothing.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The label of pods in which kubevirt runs virtual machines.
const KUBEVIRT: (&str, &str) = ("kubevirt.io", "virt-launcher");
const KUBEVIRT_GROUP: &str = "kubevirt.io";

/// A pod that uses the volume, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserPod {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    pub node: Option<Box<str>>,
    pub owner: Option<Owner>,
    /// It is being deleted.
    pub ends: bool,
    pub ready: bool,
    /// When it was created.
    pub made: Option<Timestamp>,
    /// Why no automation may touch it.
    pub protected: Option<Box<str>>,
}

/// What controls a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// With its API group, as `ReplicaSet.apps`.
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

impl UserPod {
    /// `None` if it is over and uses nothing any more, or cannot be read.
    pub(super) fn new(pod: &Arrived<WorkloadPod>) -> Option<Self> {
        let WorkloadPod { metadata, spec, status } = pod.body.as_ref().ok()?;
        if matches!(&*status.phase, "Succeeded" | "Failed") {
            return None;
        }
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let ready = conditions.iter().any(|one| one.kind == "Ready" && one.status == "True");
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| {
            let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
            Owner {
                kind: format!("{}.{group}", owner.kind).into(),
                name: owner.name.as_str().into(),
                uid: owner.uid.as_str().into(),
            }
        });
        Some(Self {
            namespace: pod.namespace().into(),
            name: pod.name().into(),
            uid: pod.uid().into(),
            node: spec.node_name.as_deref().map(Into::into),
            protected: protected(metadata, owner.as_ref()),
            owner,
            ends: pod.is_going(),
            ready,
            made: pod.created(),
        })
    }

    pub(super) fn is_on(&self, node: &str) -> bool {
        self.node.as_deref() == Some(node)
    }

    /// It was created after the problem began, and works: an attempt that was stopped may have made it.
    fn is_replaced(&self, since: Timestamp) -> bool {
        self.ready && !self.ends && self.made.is_some_and(|made| made > since)
    }

    /// Whether something makes a new pod when this one is evicted; else why it must stay.
    pub fn evictable(&self, owners: &BTreeSet<Box<str>>) -> Result<&Owner, String> {
        let name = &self.name;
        if let Some(why) = &self.protected {
            return Err(format!("pod {name} must not be evicted, because {why}"));
        }
        let Some(owner) = &self.owner else {
            return Err(format!(
                "pod {name} has no controller that would make a new one; recreate it yourself"
            ));
        };
        if !owners.contains(&owner.kind) {
            let kind = owner.kind.trim_end_matches('.');
            return Err(format!(
                "pod {name} belongs to {kind} {}, which is not known to make a new pod that goes on with the work; \
                 recreate it yourself",
                owner.name
            ));
        }
        Ok(owner)
    }
}

/// The pods that have to be replaced because of a problem that began at this time. Those that were created after that are left
/// alone, because the older ones explain the problem. Where no older one is left, the problem is under the new ones.
pub(super) fn to_replace(mut pods: Vec<UserPod>, since: Option<Timestamp>) -> Vec<UserPod> {
    let replaced = |pod: &UserPod| since.is_some_and(|since| pod.is_replaced(since));
    if !pods.iter().all(replaced) {
        pods.retain(|pod| !replaced(pod));
    }
    pods
}

fn protected(metadata: &WorkloadMeta, owner: Option<&Owner>) -> Option<Box<str>> {
    let of = |map: &Option<std::collections::BTreeMap<String, String>>, key: &str| {
        map.as_ref().and_then(|map| map.get(key)).cloned()
    };
    let of_kubevirt = owner.is_some_and(|owner| owner.kind.ends_with(&format!(".{KUBEVIRT_GROUP}")));
    if of_kubevirt || of(&metadata.labels, KUBEVIRT.0).as_deref() == Some(KUBEVIRT.1) {
        return Some("it runs a virtual machine".into());
    }
    if of(&metadata.annotations, MIRROR).is_some() {
        return Some("the kubelet runs it from a file on the node".into());
    }
    (of(&metadata.annotations, SAFE_TO_EVICT).as_deref() == Some("false"))
        .then(|| format!("its annotation {SAFE_TO_EVICT} is false").into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::Recreate;

    fn owned(api_version: &str, kind: &str) -> Value {
        json!([{"apiVersion": api_version, "kind": kind, "name": "web", "uid": "u", "controller": true}])
    }

    fn pod(owners: &Value, metadata: &Value) -> UserPod {
        let mut object = json!({"metadata": {"name": "web-1", "namespace": "shop", "uid": "1", "ownerReferences": owners},
                                "spec": {"containers": [], "nodeName": "n"},
                                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        UserPod::new(&serde_json::from_str(&object.to_string()).unwrap()).unwrap()
    }

    #[track_caller]
    fn check(pod: &UserPod, expected: Result<&str, &str>) {
        let owners = Recreate::default().owners;
        match (pod.evictable(&owners), expected) {
            (Ok(owner), Ok(kind)) => assert_eq!(*owner.kind, *kind),
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (found, _) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn only_pods_that_come_back_are_evicted() {
        let none = || json!({});
        check(&pod(&owned("apps/v1", "ReplicaSet"), &none()), Ok("ReplicaSet.apps"));
        check(&pod(&owned("apps/v1", "StatefulSet"), &none()), Ok("StatefulSet.apps"));
        check(&pod(&owned("v1", "ReplicationController"), &none()), Ok("ReplicationController."));
        check(&pod(&json!([]), &none()), Err("no controller that would make a new one"));
        check(&pod(&owned("batch/v1", "Job"), &none()), Err("Job.batch web"));
        check(&pod(&owned("example.com/v1", "ReplicaSet"), &none()), Err("ReplicaSet.example.com web"));
        let not_controller =
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}]);
        check(&pod(&not_controller, &none()), Err("no controller"));
    }

    #[test]
    fn pods_that_were_replaced_already_are_left_alone_while_an_older_one_is_there() {
        let at = |second: i64| Timestamp::from_second(second).ok();
        let made = |name: &str, second: i64, ready: bool| UserPod {
            name: name.into(),
            made: at(second),
            ready,
            ..pod(&owned("apps/v1", "ReplicaSet"), &json!({}))
        };
        let names = |pods: &[UserPod], since: Option<Timestamp>| -> Vec<String> {
            to_replace(pods.to_vec(), since).iter().map(|pod| pod.name.to_string()).collect()
        };
        let (old, new, stuck) = (made("old", 50, true), made("new", 150, true), made("stuck", 150, false));
        let mixed = [old.clone(), new.clone(), stuck];
        assert_eq!(names(&mixed, at(100)), ["old", "stuck"]);
        assert_eq!(
            names(&mixed, None),
            ["old", "new", "stuck"],
            "a person may ask although nothing is reported"
        );
        assert_eq!(names(&[new.clone(), new], at(100)), ["new", "new"], "the problem is under the new ones");
        let ends = UserPod { ends: true, ..made("ends", 150, true) };
        assert_eq!(names(&[old, ends], at(100)), ["old", "ends"]);
    }

    #[test]
    fn virtual_machines_and_protected_pods_stay() {
        let set = owned("apps/v1", "ReplicaSet");
        check(&pod(&owned("kubevirt.io/v1", "VirtualMachineInstance"), &json!({})), Err("virtual machine"));
        check(&pod(&set, &json!({"labels": {"kubevirt.io": "virt-launcher"}})), Err("virtual machine"));
        check(&pod(&set, &json!({"annotations": {SAFE_TO_EVICT: "false"}})), Err("safe-to-evict is false"));
        check(&pod(&set, &json!({"annotations": {SAFE_TO_EVICT: "true"}})), Ok("ReplicaSet.apps"));
        check(&pod(&owned("v1", "Node"), &json!({"annotations": {MIRROR: "x"}})), Err("from a file"));
    }
}
