//! What the API server knows of a volume, its claim and its pods.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DeleteParams, EvictParams, ListParams, Preconditions};
use kube::{Api, Client};
use tokio::time::timeout;
use volmedic_api::slim::Pod;
use volmedic_api::{Arrived, Kind, ObjectRef};

use super::pods::UserPod;
use super::ports::{Cluster, Eviction, Found};
use super::shapes::{Claim, ClaimRef, CsiNode, Volume, VolumeSpec, WorkloadPod};
use super::{Filters, survey};
use crate::mode::{Rules, Ruling};
use crate::place::Place;
use crate::triage::{Again, Approval, Exam, Standing};

const API: Duration = Duration::from_secs(15);
/// Pods that are reported; more use no volume.
const MOST_PODS: usize = 16;
pub(super) const PAGE: u32 = 500;

/// A volume right before it is acted on.
#[derive(Debug, Clone)]
pub struct Details {
    /// Of the PersistentVolume.
    pub version: Box<str>,
    /// Whether it is there, bound, and the volume that is meant; else why not.
    pub bound: Result<(), Box<str>>,
    /// Why the operator's filters leave it out.
    pub filtered: Option<Box<str>>,
    pub claim: Option<ObjectRef>,
    pub class: Option<Box<str>>,
    /// The claim's own word on its mode.
    pub mode: Option<Box<str>>,
    pub approval: Approval,
    /// The same two for recreating pods.
    pub recreate_mode: Option<Box<str>>,
    pub recreate_approval: Approval,
}

impl Details {
    fn not_bound(why: impl Into<Box<str>>) -> Self {
        Self {
            version: Box::default(),
            bound: Err(why.into()),
            filtered: None,
            claim: None,
            class: None,
            mode: None,
            approval: Approval::None,
            recreate_mode: None,
            recreate_approval: Approval::None,
        }
    }

    pub(super) fn ruling(&self, rules: &Rules) -> Ruling {
        rules.ruling(self.mode.as_deref(), self.namespace(), self.class.as_deref())
    }

    /// What the rules and the claim say of recreating pods.
    pub(super) fn recreate(&self, rules: &Rules) -> Standing {
        Standing {
            ruling: rules.ruling(self.recreate_mode.as_deref(), self.namespace(), self.class.as_deref()),
            approval: self.recreate_approval,
            obstacle: None,
        }
    }

    fn namespace(&self) -> &str {
        self.claim.as_ref().map(|claim| &*claim.namespace).unwrap_or_default()
    }

    pub(super) fn exam(&self, rules: &Rules, again: Again, recreate: Option<Standing>) -> Exam {
        Exam {
            ruling: self.ruling(rules),
            approval: self.approval,
            bound: self.bound.clone(),
            filtered: self.filtered.clone(),
            version: self.version.clone(),
            again,
            recreate,
        }
    }
}

/// A real cluster.
#[derive(Clone)]
pub struct KubeCluster {
    pub(super) client: Client,
    filters: Filters,
}

impl std::fmt::Debug for KubeCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeCluster").field("filters", &self.filters).finish_non_exhaustive()
    }
}

impl KubeCluster {
    pub fn new(client: Client, filters: Filters) -> Self {
        Self { client, filters }
    }

    pub(super) fn volumes(&self) -> Api<Arrived<Volume>> {
        Api::all(self.client.clone())
    }

    pub(super) fn claims(&self, namespace: &str) -> Api<Arrived<Claim>> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Why the filters leave a volume out.
    fn filtered(&self, pv: &str, spec: &VolumeSpec, namespace: &str) -> Option<Box<str>> {
        let Filters { drivers, classes, namespaces, mounters } = &self.filters;
        let csi = spec.csi.as_ref();
        let driver = spec.driver_and_handle(pv).map(|(driver, _)| driver);
        let mounter = csi.and_then(|csi| csi.volume_attributes.as_ref()?.get("mounter")).map(String::as_str);
        let class = spec.storage_class_name.as_deref();
        let out = |what: &str, set: &BTreeSet<String>, value: Option<&str>| {
            let value = value.unwrap_or_default();
            (!set.is_empty() && !set.contains(value))
                .then(|| format!("{what} {value:?} is not among those chosen"))
        };
        let first = out("the driver", drivers, driver)
            .or_else(|| out("the storage class", classes, class))
            .or_else(|| out("the namespace", namespaces, Some(namespace)))
            .or_else(|| out("the mounter", mounters, mounter));
        first.map(Into::into)
    }
}

impl Cluster for KubeCluster {
    async fn details(&self, place: &Place, pv: &str) -> Result<Details, String> {
        let reading = format!("the PersistentVolume {pv}");
        let Some(volume) = ask(&reading, self.volumes().get_opt(pv)).await? else {
            return Ok(Details::not_bound(format!("{reading} does not exist any more")));
        };
        let (version, going) = (volume.resource_version().to_owned(), volume.is_going());
        let Volume { spec, status } = readable(&reading, volume)?;
        let phase = status.phase;
        if spec.driver_and_handle(pv) != Some((&*place.driver, &*place.handle)) {
            return Ok(Details::not_bound(format!("{reading} is another volume by now")));
        }
        if phase != "Bound" || going {
            let state = if going { "being deleted" } else { phase.as_str() };
            return Ok(Details::not_bound(format!("{reading} is {state}, not Bound")));
        }
        let ClaimRef { namespace, name, uid } = spec.claim_ref.clone().unwrap_or_default();
        let reading = format!("the claim {namespace}/{name}");
        let Some(claim) = ask(&reading, self.claims(&namespace).get_opt(&name)).await? else {
            return Ok(Details::not_bound(format!("{reading} does not exist any more")));
        };
        if claim.uid() != uid {
            return Ok(Details::not_bound(format!("{reading} is another one by now")));
        }
        let claim = readable(&reading, claim)?;
        let approval = |key: &str| {
            let approved = claim.annotation(key).and_then(|time| time.parse::<Timestamp>().ok());
            approved.map_or(Approval::None, Approval::Given)
        };
        Ok(Details {
            version: version.into(),
            bound: Ok(()),
            filtered: self.filtered(pv, &spec, &namespace),
            claim: Some(ObjectRef::new(Kind::PersistentVolumeClaim, &namespace, &name, &uid)),
            class: spec.storage_class_name.map(Into::into),
            mode: claim.annotation(Rules::ANNOTATION).map(Into::into),
            approval: approval(Rules::APPROVED),
            recreate_mode: claim.annotation(Rules::RECREATE_ANNOTATION).map(Into::into),
            recreate_approval: approval(Rules::RECREATE_APPROVED),
        })
    }

    async fn in_use_on(&self, wanted: &[(Arc<str>, Arc<str>)]) -> Result<Vec<Found>, String> {
        survey::in_use_on(self, wanted).await
    }

    async fn places_of(&self, namespace: &str, claim: &str) -> Result<Vec<Found>, String> {
        let reading = format!("the claim {namespace}/{claim}");
        let found = ask(&reading, self.claims(namespace).get_opt(claim)).await?;
        let found = found.ok_or_else(|| format!("{reading} does not exist"))?;
        let pv = readable(&reading, found)?
            .spec
            .volume_name
            .ok_or_else(|| format!("{reading} is bound to no PersistentVolume"))?;
        let reading = format!("the PersistentVolume {pv}");
        let volume = ask(&reading, self.volumes().get_opt(&pv)).await?;
        let volume = volume.map(|volume| readable(&reading, volume)).transpose()?;
        let spec = volume.map(|volume| volume.spec).ok_or_else(|| format!("{reading} does not exist"))?;
        let (driver, handle) = spec.driver_and_handle(&pv).ok_or_else(|| {
            format!("{reading} is neither of a CSI driver nor a local volume, so it cannot be healed")
        })?;
        let pods = Api::<Arrived<Pod>>::namespaced(self.client.clone(), namespace);
        let mut nodes = BTreeSet::new();
        let params = ListParams::default().limit(PAGE);
        for pod in survey::all(&pods, &params, "pods").await? {
            if survey::in_use(&pod) && survey::claims_of(&pod).any(|used| used == claim) {
                nodes.extend(pod.body.ok().and_then(|pod| pod.spec.node_name));
            }
        }
        let place = |node: String| Place::new(driver, handle, &*node);
        Ok(nodes.into_iter().map(|node| Found { place: place(node), pv: pv.as_str().into() }).collect())
    }

    async fn users(&self, node: &str, claim: &ObjectRef) -> Vec<ObjectRef> {
        let pods = Api::<Arrived<Pod>>::namespaced(self.client.clone(), &claim.namespace);
        let params = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(PAGE);
        // Pods that are not known get no event; the claim gets one in any case.
        let found = survey::all(&pods, &params, "pods").await.unwrap_or_default();
        let uses = |pod: &Arrived<Pod>| {
            survey::in_use(pod) && survey::claims_of(pod).any(|used| *used == *claim.name)
        };
        let about = |pod: Arrived<Pod>| ObjectRef::new(Kind::Pod, &claim.namespace, pod.name(), pod.uid());
        found.into_iter().filter(uses).take(MOST_PODS).map(about).collect()
    }

    async fn pods_of(&self, claim: &ObjectRef) -> Result<Vec<UserPod>, String> {
        let pods = Api::<Arrived<WorkloadPod>>::namespaced(self.client.clone(), &claim.namespace);
        let found = survey::all(&pods, &ListParams::default().limit(PAGE), "pods").await?;
        let uses = |pod: &&Arrived<WorkloadPod>| {
            let body = pod.body.as_ref().ok();
            body.is_some_and(|body| {
                survey::claims_in(pod.name(), &body.spec).any(|used| *used == *claim.name)
            })
        };
        Ok(found.iter().filter(uses).filter_map(UserPod::new).collect())
    }

    async fn has_driver(&self, place: &Place) -> Result<bool, String> {
        // Every kubelet mounts these, and registers no driver for it.
        if *place.driver == *Place::LOCAL_VOLUME {
            return Ok(true);
        }
        let nodes = Api::<Arrived<CsiNode>>::all(self.client.clone());
        let what = format!("the CSINode {}", place.node);
        let node =
            ask(&what, nodes.get_opt(&place.node)).await?.map(|node| readable(&what, node)).transpose()?;
        let drivers = node.and_then(|node| node.spec.drivers).unwrap_or_default();
        Ok(drivers.iter().any(|driver| *driver.name == *place.driver))
    }

    async fn evict(&self, pod: &UserPod) -> Eviction {
        // Nothing of a pod is read here.
        let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(self.client.clone(), &pod.namespace);
        // Of a StatefulSet the next pod has the same name.
        let only_this = Preconditions { uid: Some(pod.uid.to_string()), resource_version: None };
        let params = EvictParams {
            delete_options: Some(DeleteParams::default().preconditions(only_this)),
            ..EvictParams::default()
        };
        match timeout(API, pods.evict(&pod.name, &params)).await {
            Ok(Ok(_)) => Eviction::Accepted,
            Ok(Err(kube::Error::Api(status))) => match status.code {
                404 | 409 => Eviction::Gone,
                429 | 500..=599 => Eviction::Later(status.message.clone()),
                _ => Eviction::Denied(status.message.clone()),
            },
            Ok(Err(error)) => Eviction::Unknown(error.to_string()),
            Err(_) => Eviction::Unknown("the API server did not answer in time".to_owned()),
        }
    }
}

/// With a deadline; the error is a sentence.
pub(super) async fn ask<T>(
    what: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, String> {
    match timeout(API, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(format!("{what} cannot be read: {error}")),
        Err(_) => Err(format!("{what} cannot be read: the API server did not answer in time")),
    }
}

/// What was read of an object, if it could be.
pub(super) fn readable<T>(what: &str, object: Arrived<T>) -> Result<T, String> {
    object.body.map_err(|malformed| format!("{what} cannot be read: {}", malformed.why))
}
