//! What a node takes with it when it goes down.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use volmedic_api::ObjectRef;

use crate::pods::{PodUse, Pods};
use crate::volumes::Volumes;

/// A volume that is used on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affected {
    pub node: Box<str>,
    /// The claim, or the pod for its inline volumes.
    pub about: ObjectRef,
    /// None for inline volumes: they have no PersistentVolume.
    pub handle: Option<Arc<str>>,
    /// The pods on that node that use it. Some may be terminating.
    pub pods: Vec<ObjectRef>,
}

/// Everything of our driver that is used on any of the nodes, by node and claim.
///
/// All volumes are visited once, however many nodes are asked for, so ask for all of them together.
pub(crate) fn affected(nodes: &[&str], pods: &Pods, volumes: &Volumes) -> Vec<Affected> {
    let pods: Vec<(&str, PodUse)> =
        nodes.iter().flat_map(|&node| pods.on(node).into_iter().map(move |pod| (node, pod))).collect();
    let mut users: HashMap<(&str, &str), Vec<(&str, &ObjectRef)>> = HashMap::new();
    for (node, used) in &pods {
        for claim in &used.claims {
            users.entry((&used.pod.namespace, claim)).or_default().push((node, &used.pod));
        }
    }
    let mut found: BTreeMap<(&str, ObjectRef), Affected> = BTreeMap::new();
    if !users.is_empty() {
        volumes.for_each_claim(|handle, claim| {
            for &(node, pod) in users.get(&(claim.namespace, claim.name)).into_iter().flatten() {
                let about = ObjectRef::from(&claim);
                let entry = found.entry((node, about.clone())).or_insert_with(|| Affected {
                    node: node.into(),
                    about,
                    handle: Some(handle.clone()),
                    pods: Vec::new(),
                });
                // A pod may mount one claim several times.
                if !entry.pods.contains(pod) {
                    entry.pods.push(pod.clone());
                }
            }
        });
    }
    for (node, used) in pods.iter().filter(|(_, used)| used.inline) {
        let about = used.pod.clone();
        let affected = Affected { node: (*node).into(), about, handle: None, pods: vec![used.pod.clone()] };
        found.insert((node, used.pod.clone()), affected);
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests;
