//! Which volumes of a driver are in use on a node: by attachment, and where a driver attaches nothing, by pods.
//!
//! Many nodes are looked up together, so that all node plugins restarting at once cost one list and not one per node.

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
use super::shapes::{Attachment, Driver};
use crate::place::Place;

/// Up to so many volumes are read one by one; beyond, the whole list is cheaper.
const ONE_BY_ONE: usize = 200;
const AT_ONCE: usize = 8;
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
    for attachment in all(&attachments, &params, "volume attachments").await? {
        // One that cannot be read is not known to be attached.
        let Ok(Attachment { spec, status }) = attachment.body else { continue };
        if status.attached
            && wanted.contains(&(spec.attacher.as_str(), spec.node_name.as_str()))
            && let Some(pv) = spec.source.persistent_volume_name
        {
            used.entry(pv).or_default().insert(spec.node_name);
        }
    }
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
    for node in by_their_pods {
        by_pods(cluster, node, &mut used).await?;
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

async fn by_pods(
    cluster: &KubeCluster,
    node: &str,
    used: &mut BTreeMap<String, BTreeSet<String>>,
) -> Result<(), String> {
    let pods = Api::<Arrived<Pod>>::all(cluster.client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(PAGE);
    let mut claims = BTreeSet::new();
    for pod in all(&pods, &params, "pods").await?.iter().filter(|pod| in_use(pod)) {
        claims.extend(claims_of(pod).map(|claim| (pod.namespace().to_owned(), claim)));
    }
    let reads = stream::iter(claims.into_iter().map(|(namespace, claim)| async move {
        let what = format!("the claim {namespace}/{claim}");
        let found = ask(&what, cluster.claims(&namespace).get_opt(&claim)).await?;
        // A claim that cannot be read concerns nobody but its owner.
        Ok::<_, String>(found.and_then(|claim| claim.body.ok()?.spec.volume_name))
    }));
    let mut reads = reads.buffer_unordered(AT_ONCE);
    while let Some(pv) = reads.next().await {
        if let Some(pv) = pv? {
            used.entry(pv).or_default().insert(node.to_owned());
        }
    }
    Ok(())
}

/// Of the volumes that are bound: name, driver, handle.
async fn read(
    cluster: &KubeCluster,
    used: &BTreeMap<String, BTreeSet<String>>,
) -> Result<Vec<(String, String, String)>, String> {
    if used.len() > ONE_BY_ONE {
        let volumes = Api::<Arrived<slim::PersistentVolume>>::all(cluster.client.clone());
        let listed = all(&volumes, &ListParams::default().limit(PAGE), "PersistentVolumes").await?;
        let wanted = listed.into_iter().filter(|volume| used.contains_key(volume.name()));
        let named = wanted.filter_map(|volume| {
            let name = volume.name().to_owned();
            let body = volume.body.ok()?;
            let csi = body.spec.csi.filter(|_| body.status.phase == "Bound")?;
            Some((name, csi.driver, csi.volume_handle))
        });
        return Ok(named.collect());
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
    let mut reads = reads.buffer_unordered(AT_ONCE);
    let mut volumes = Vec::new();
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
    let mut params = params.clone();
    let mut items = Vec::new();
    for _ in 0..MOST_PAGES {
        let page = ask(&format!("the list of {what}"), api.list(&params)).await?;
        items.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(items),
        }
    }
    Err(format!("the list of {what} has no end"))
}
