//! One pod in few bytes: which of its volumes matter, and how they are meant to be used.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_api::slim::{Container, NodePod, NodePodVolume, PodVolumeHealth};
use volmedic_api::{Arrived, Kind, ObjectRef};

use super::phase::{containers, is_running, phase};
use super::volume::{KubeletCondition, KubeletSaid, Mode, Phase};

/// The API server takes no more conditions of a volume than this, and no longer texts.
const MOST_CONDITIONS: usize = 16;
const LONGEST_TEXT: usize = 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) pod: Arc<ObjectRef>,
    /// The uid that the kubelet works with, for pods that came from a file on the node.
    pub(super) mirror: Option<Box<str>>,
    pub(super) phase: Phase,
    /// Volumes that a container uses and that have a claim or a CSI driver, in the pod's order.
    pub(super) wanted: Box<[Wanted]>,
}

/// One volume of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// In the pod.
    pub(super) name: Box<str>,
    pub(super) source: Source,
    pub(super) mode: Mode,
    pub(super) read_only: bool,
    /// Containers that run and the indices of their mounts that show only a part of the volume.
    pub(super) sub_paths: Box<[(Box<str>, usize)]>,
    pub(super) kubelet: Option<Box<KubeletSaid>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The claim's name, in the pod's namespace.
    Claim(Box<str>),
    Inline {
        driver: Box<str>,
        fs_type: Option<Box<str>>,
    },
}

impl Record {
    pub(super) fn new(object: &Arrived<NodePod>, pod: &NodePod, boot: Option<Timestamp>) -> Self {
        let running: BTreeSet<&str> = containers(&pod.status)
            .filter(|container| is_running(container, boot))
            .map(|container| &*container.name)
            .collect();
        let reported = pod.status.volume_health.as_deref().unwrap_or_default();
        let mirror = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.mirror.as_deref());
        let wanted = pod.spec.volumes.iter().flatten().filter_map(|volume| {
            let source = source(object.name(), volume)?;
            let mounts = Mounts::of(&volume.name, pod, &running);
            let claim = volume.persistent_volume_claim.as_ref();
            let read_only = claim
                .and_then(|claim| claim.read_only)
                .or_else(|| volume.csi.as_ref().and_then(|csi| csi.read_only));
            Some(Wanted {
                name: volume.name.as_str().into(),
                source,
                // The kubelet sets up only what a container uses.
                mode: mounts.mode?,
                read_only: read_only.unwrap_or_default(),
                sub_paths: mounts.sub_paths.into(),
                kubelet: reported
                    .iter()
                    .find(|said| said.name == volume.name)
                    .map(|said| Box::new(said.into())),
            })
        });
        Self {
            wanted: wanted.collect(),
            pod: Arc::new(ObjectRef::new(Kind::Pod, object.namespace(), object.name(), object.uid())),
            mirror: mirror.filter(|mirror| *mirror != object.uid()).map(Into::into),
            phase: phase(&pod.status, object.is_going(), boot),
        }
    }

    /// The names of its claims.
    pub(super) fn claims(&self) -> impl Iterator<Item = &str> {
        self.wanted.iter().filter_map(|wanted| match &wanted.source {
            Source::Claim(name) => Some(&**name),
            Source::Inline { .. } => None,
        })
    }

    pub(super) fn has_claim(&self, name: &str) -> bool {
        self.claims().any(|claim| claim == name)
    }

    /// The uid in the kubelet's paths.
    pub(super) fn kubelet_uid(&self) -> &str {
        self.mirror.as_deref().unwrap_or(&self.pod.uid)
    }
}

fn source(pod: &str, volume: &NodePodVolume) -> Option<Source> {
    match (&volume.persistent_volume_claim, &volume.ephemeral, &volume.csi) {
        (Some(claim), _, _) => Some(Source::Claim(claim.claim_name.as_str().into())),
        (None, Some(_), _) => Some(Source::Claim(format!("{pod}-{}", volume.name).into())),
        (None, None, Some(csi)) => Some(Source::Inline {
            driver: csi.driver.as_str().into(),
            fs_type: csi.fs_type.as_deref().filter(|kind| !kind.is_empty()).map(Into::into),
        }),
        (None, None, None) => None,
    }
}

/// How the containers of a pod use one of its volumes.
#[derive(Default)]
struct Mounts {
    /// None if no container does.
    mode: Option<Mode>,
    sub_paths: Vec<(Box<str>, usize)>,
}

impl Mounts {
    fn of(volume: &str, pod: &NodePod, running: &BTreeSet<&str>) -> Self {
        let spec = &pod.spec;
        let lists = [&spec.init_containers, &spec.containers, &spec.ephemeral_containers];
        let mut found = Self::default();
        for container in lists.into_iter().flatten().flatten() {
            found.add(volume, container, running.contains(&*container.name));
        }
        found
    }

    fn add(&mut self, volume: &str, container: &Container, running: bool) {
        for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
            if mount.name != volume {
                continue;
            }
            self.mode = Some(Mode::Filesystem);
            let partial = |path: &Option<String>| path.as_ref().is_some_and(|path| !path.is_empty());
            if running && (partial(&mount.sub_path) || partial(&mount.sub_path_expr)) {
                self.sub_paths.push((container.name.as_str().into(), index));
            }
        }
        if container.volume_devices.iter().flatten().any(|device| device.name == volume) {
            self.mode.get_or_insert(Mode::Block);
        }
    }
}

impl From<&PodVolumeHealth> for KubeletSaid {
    fn from(said: &PodVolumeHealth) -> Self {
        let text = |text: &str| text[..text.floor_char_boundary(LONGEST_TEXT)].into();
        let conditions = said.health_conditions.iter().flatten().take(MOST_CONDITIONS);
        Self {
            conditions: conditions
                .map(|condition| KubeletCondition {
                    status: text(&condition.status),
                    reason: text(&condition.reason),
                    message: text(&condition.message),
                })
                .collect(),
            since: said.last_transition_time.as_ref().map(|time| time.0),
        }
    }
}

#[cfg(test)]
mod tests;
