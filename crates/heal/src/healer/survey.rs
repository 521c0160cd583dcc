//! Which volumes of a driver are in use on a node: by attachment, and where a driver attaches nothing, by pods.
//!
//! Many nodes are looked up together, so that all node plugins restarting at the same time cost one list of each kind and
//! not one per node. Lists are read page by page, and only what is wanted of a page is kept.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Debug;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;
use volmedic_api::slim::Pod;
use volmedic_api::{Arrived, slim};

use super::cluster::{KubeCluster, PAGE, ask, readable};
use super::ports::Found;
use super::shapes::{Attachment, Claim, Driver};
use crate::place::Place;

/// Up to this number, objects are read one by one; beyond, the whole list is cheaper.
const ONE_BY_ONE: usize = 200;
/// Pods that use something on some node.
const IN_USE: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
const TOGETHER: usize = 8;
/// More pages than any cluster has.
const MOST_PAGES: usize = 2000;

pub(super) async fn in_use_on(
    cluster: &KubeCluster,
    wanted: &[(Arc<str>, Arc<str>)],
) -> Result<Vec<Found>, String> {
    let wanted: HashSet<(&str, &str)> = wanted.iter().map(|(driver, node)| (&**driver, &**node)).collect();
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let attachments = Api::<Arrived<Attachment>>::all(cluster.client.clone());
    let params = ListParams::default().limit(PAGE);
    each(&attachments, &params, "volume attachments", |attachment| {
        // One that cannot be read is not known to be attached.
        let Ok(Attachment { spec, status }) = attachment.body else { return };
        if status.attached
            && wanted.contains(&(spec.attacher.as_str(), spec.node_name.as_str()))
            && let Some(pv) = spec.source.persistent_volume_name
        {
            used.entry(pv).or_default().insert(spec.node_name);
        }
    })
    .await?;
    let mut nodes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (driver, node) in &wanted {
        nodes.entry(driver).or_default().insert(node);
    }
    let mut by_their_pods = BTreeSet::new();
    for (driver, nodes) in nodes {
        if !attaches(cluster, driver).await? {
            by_their_pods.extend(nodes);
        }
    }
    if !by_their_pods.is_empty() {
        by_pods(cluster, &by_their_pods, &mut used).await?;
    }
    let volumes = read(cluster, &used).await?;
    let mut found = Vec::new();
    for (pv, driver, handle) in volumes {
        for node in used.get(&pv).into_iter().flatten() {
            // A node's pods use volumes of other drivers, too.
            if wanted.contains(&(driver.as_str(), node.as_str())) {
                let place = Place::new(driver.as_str(), handle.as_str(), node.as_str());
                found.push(Found { place, pv: pv.as_str().into() });
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A driver that does not say otherwise is attached.
async fn attaches(cluster: &KubeCluster, driver: &str) -> Result<bool, String> {
    let drivers = Api::<Arrived<Driver>>::all(cluster.client.clone());
    let what = format!("the CSIDriver {driver}");
    let found = ask(&what, drivers.get_opt(driver)).await?.map(|found| readable(&what, found)).transpose()?;
    Ok(found.and_then(|driver| driver.spec.attach_required).unwrap_or(true))
}

/// What the pods on these nodes use: one list of pods, however many nodes there are.
async fn by_pods(
    cluster: &KubeCluster,
    nodes: &BTreeSet<&str>,
    used: &mut BTreeMap<String, BTreeSet<String>>,
) -> Result<(), String> {
    let pods = Api::<Arrived<Pod>>::all(cluster.client.clone());
    let fields = match nodes.first() {
        Some(node) if nodes.len() == 1 => format!("spec.nodeName={node}"),
        _ => IN_USE.to_owned(),
    };
    // The nodes of each claim, by namespace and name.
    let mut claims: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    each(&pods, &ListParams::default().fields(&fields).limit(PAGE), "pods", |pod| {
        let node = pod.body.as_ref().ok().and_then(|body| body.spec.node_name.as_deref());
        let Some(node) = node.filter(|node| nodes.contains(node) && in_use(&pod)) else { return };
        for claim in claims_of(&pod) {
            claims.entry((pod.namespace().to_owned(), claim)).or_default().insert(node.to_owned());
        }
    })
    .await?;
    for (claim, pv) in bound(cluster, claims.keys()).await? {
        let nodes = claims.get(&claim).into_iter().flatten();
        used.entry(pv).or_default().extend(nodes.cloned());
    }
    Ok(())
}

/// Of the claims that are bound: the namespace and name, and the PersistentVolume.
async fn bound(
    cluster: &KubeCluster,
    claims: impl ExactSizeIterator<Item = &(String, String)>,
) -> Result<Vec<((String, String), String)>, String> {
    let mut bound = Vec::new();
    // A claim that cannot be read concerns nobody but its owner.
    let volume = |claim: Arrived<Claim>| claim.body.ok()?.spec.volume_name;
    if claims.len() > ONE_BY_ONE {
        let claims: HashSet<&(String, String)> = claims.collect();
        let all = Api::<Arrived<Claim>>::all(cluster.client.clone());
        each(&all, &ListParams::default().limit(PAGE), "claims", |claim| {
            let key = (claim.namespace().to_owned(), claim.name().to_owned());
            if claims.contains(&key)
                && let Some(pv) = volume(claim)
            {
                bound.push((key, pv));
            }
        })
        .await?;
        return Ok(bound);
    }
    let keys: Vec<(String, String)> = claims.cloned().collect();
    let reads = stream::iter(keys.into_iter().map(|(namespace, name)| async move {
        let what = format!("the claim {namespace}/{name}");
        let found = ask(&what, cluster.claims(&namespace).get_opt(&name)).await?;
        Ok::<_, String>(found.and_then(volume).map(|pv| ((namespace, name), pv)))
    }));
    let mut reads = reads.buffer_unordered(TOGETHER);
    while let Some(claim) = reads.next().await {
        bound.extend(claim?);
    }
    Ok(bound)
}

/// Of the volumes that are bound: name, driver, handle.
async fn read(
    cluster: &KubeCluster,
    used: &BTreeMap<String, BTreeSet<String>>,
) -> Result<Vec<(String, String, String)>, String> {
    let mut volumes = Vec::new();
    if used.len() > ONE_BY_ONE {
        let all = Api::<Arrived<slim::PersistentVolume>>::all(cluster.client.clone());
        each(&all, &ListParams::default().limit(PAGE), "PersistentVolumes", |volume| {
            if !used.contains_key(volume.name()) {
                return;
            }
            let name = volume.name().to_owned();
            let Ok(body) = volume.body else { return };
            if let Some(csi) = body.spec.csi.filter(|_| body.status.phase == "Bound") {
                volumes.push((name, csi.driver, csi.volume_handle));
            }
        })
        .await?;
        return Ok(volumes);
    }
    let names: Vec<String> = used.keys().cloned().collect();
    let reads = stream::iter(names.into_iter().map(|pv| async move {
        let found = ask(&format!("the PersistentVolume {pv}"), cluster.volumes().get_opt(&pv)).await?;
        Ok::<_, String>(found.and_then(|volume| {
            let volume = volume.body.ok()?;
            let csi = volume.spec.csi.filter(|_| volume.status.phase == "Bound")?;
            Some((pv, csi.driver, csi.volume_handle))
        }))
    }));
    let mut reads = reads.buffer_unordered(TOGETHER);
    while let Some(volume) = reads.next().await {
        volumes.extend(volume?);
    }
    Ok(volumes)
}

/// A pod that may use its volumes.
pub(super) fn in_use(pod: &Arrived<Pod>) -> bool {
    let Ok(Pod { spec, status }) = &pod.body else { return false };
    spec.node_name.is_some() && !matches!(&*status.phase, "Succeeded" | "Failed")
}

/// The claims of a pod, those that were made for it included.
pub(super) fn claims_of(pod: &Arrived<Pod>) -> impl Iterator<Item = String> {
    pod.body.as_ref().ok().into_iter().flat_map(|body| claims_in(pod.name(), &body.spec))
}

/// The same of a pod with this name.
pub(super) fn claims_in(name: &str, spec: &slim::PodSpec) -> impl Iterator<Item = String> {
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    volumes.iter().filter_map(move |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
        (None, None) => None,
    })
}

/// All pages of a list.
pub(super) async fn all<K>(api: &Api<K>, params: &ListParams, what: &str) -> Result<Vec<K>, String>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut items = Vec::new();
    each(api, params, what, |item| items.push(item)).await?;
    Ok(items)
}

/// Passes every item of a list to `take`, and holds no more than one page at a time.
async fn each<K>(api: &Api<K>, params: &ListParams, what: &str, mut take: impl FnMut(K)) -> Result<(), String>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.clone();
    for _ in 0..MOST_PAGES {
        let page = ask(&format!("the list of {what}"), api.list(&params)).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
    Err(format!("the list of {what} has no end"))
}

#[cfg(test)]
mod tests;
