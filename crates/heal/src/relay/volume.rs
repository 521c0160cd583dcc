//! What the API server knows of a volume, as the driver needs it. Secrets are read here and held only for the call.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolumeSpec, Secret, SecretReference};
use kube::api::{GetParams, Request};
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource};
use serde::Deserialize;
use tokio::time::timeout;
use tonic::Status;
use volmedic_api::slim::VolumeStatus;
use volmedic_api::{Arrived, Shape};
use volmedic_csi::Secrets;
use volmedic_proto::csi::VolumeCapability;
use volmedic_proto::csi::volume_capability::access_mode::Mode;
use volmedic_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use super::API;

/// What is read of a PersistentVolume: not its metadata, which others may write, too.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Stored {
    spec: PersistentVolumeSpec,
    status: VolumeStatus,
}

impl Shape for Stored {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "PersistentVolume";
    const PLURAL: &'static str = "persistentvolumes";
}

/// A volume that this node's driver may be asked about.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) handle: String,
    pub(super) block: bool,
    pub(super) capability: VolumeCapability,
    pub(super) context: HashMap<String, String>,
    pub(super) secret: Option<SecretReference>,
}

impl Volume {
    /// Looks it up. It must be bound, and of this driver.
    pub(super) async fn look_up(client: &Client, name: &str, driver: &str) -> Result<Self, Status> {
        let volumes = Api::<Arrived<Stored>>::all(client.clone());
        let volume = match timeout(API, volumes.get(name)).await {
            Ok(Ok(volume)) => volume,
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => {
                return Err(Status::not_found(format!("the PersistentVolume {name} does not exist")));
            }
            Ok(Err(error)) => {
                return Err(Status::unavailable(format!(
                    "the PersistentVolume {name} cannot be read: {error}"
                )));
            }
            Err(_) => return Err(Status::unavailable("the API server did not answer in time")),
        };
        let volume = volume.body.map_err(|malformed| {
            let why = malformed.why;
            Status::failed_precondition(format!("the PersistentVolume {name} cannot be read: {why}"))
        })?;
        Self::accept(name, driver, volume).map_err(Status::failed_precondition)
    }

    fn accept(name: &str, driver: &str, volume: Stored) -> Result<Self, String> {
        let phase = volume.status.phase;
        if phase != "Bound" {
            return Err(format!("the PersistentVolume {name} is {phase}, not Bound"));
        }
        let PersistentVolumeSpec { access_modes, csi, mount_options, volume_mode, .. } = volume.spec;
        let csi = csi.ok_or_else(|| format!("the PersistentVolume {name} belongs to no CSI driver"))?;
        let CSIPersistentVolumeSource {
            driver: of,
            volume_handle,
            fs_type,
            volume_attributes,
            node_stage_secret_ref,
            ..
        } = csi;
        if of != driver {
            return Err(format!(
                "the PersistentVolume {name} belongs to {of}, and this relay serves {driver}"
            ));
        }
        let block = volume_mode.as_deref() == Some("Block");
        let access_type = if block {
            AccessType::Block(BlockVolume {})
        } else {
            AccessType::Mount(MountVolume {
                fs_type: fs_type.unwrap_or_default(),
                mount_flags: mount_options.unwrap_or_default(),
                ..MountVolume::default()
            })
        };
        let mode = access_mode(access_modes.unwrap_or_default().first().map(String::as_str));
        let access_mode = mode.map(|mode| AccessMode { mode: mode as i32 });
        Ok(Self {
            handle: volume_handle,
            block,
            capability: VolumeCapability { access_mode, access_type: Some(access_type) },
            context: volume_attributes.unwrap_or_default().into_iter().collect(),
            secret: node_stage_secret_ref,
        })
    }

    /// The secret for staging and its version, if the volume has one.
    pub(super) async fn secrets(&self, client: &Client) -> Result<(Secrets, String), Status> {
        let Some(SecretReference { name, namespace }) = &self.secret else {
            return Ok((Secrets::default(), String::new()));
        };
        let (name, namespace) = (name.clone().unwrap_or_default(), namespace.clone().unwrap_or_default());
        let failed = |why: &str| {
            Status::failed_precondition(format!(
                "the node-stage secret {namespace}/{name} cannot be used: {why}"
            ))
        };
        let request = Request::new(Secret::url_path(&(), Some(&namespace)))
            .get(&name, &GetParams::default())
            .map_err(|error| failed(&error.to_string()))?;
        // As text: the client would print an answer that it cannot read, and this one is secret.
        let text = match timeout(API, client.request_text(request)).await {
            Ok(Ok(text)) => text,
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => {
                return Err(failed("it does not exist"));
            }
            Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
                return Err(failed("this agent may not read it; give it `get` on that secret"));
            }
            Ok(Err(error)) => {
                return Err(Status::unavailable(format!(
                    "the node-stage secret {namespace}/{name} cannot be read: {error}"
                )));
            }
            Err(_) => return Err(Status::unavailable("the API server did not answer in time")),
        };
        // The words of the parser may quote what it read.
        let held: Held =
            serde_json::from_str(&text).map_err(|_| failed("it is no secret that makes sense"))?;
        held.open().ok_or_else(|| failed("a value in it is not text, and CSI takes text only"))
    }
}

/// The parts of a Secret that go to a driver. Has no `Debug`, so that nobody prints it.
#[derive(Deserialize)]
struct Held {
    metadata: HeldMeta,
    #[serde(default)]
    data: BTreeMap<String, ByteString>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeldMeta {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
}

impl Held {
    fn open(self) -> Option<(Secrets, String)> {
        let Self { metadata: HeldMeta { uid, resource_version }, data } = self;
        let mut values = HashMap::new();
        for (key, value) in data {
            values.insert(key, String::from_utf8(value.0).ok()?);
        }
        Some((Secrets::new(values), format!("{uid}/{resource_version}")))
    }
}

/// As kubelet translates the first of a volume's modes.
fn access_mode(mode: Option<&str>) -> Option<Mode> {
    match mode? {
        "ReadWriteOnce" => Some(Mode::SingleNodeWriter),
        "ReadOnlyMany" => Some(Mode::MultiNodeReaderOnly),
        "ReadWriteMany" => Some(Mode::MultiNodeMultiWriter),
        "ReadWriteOncePod" => Some(Mode::SingleNodeSingleWriter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn accept(volume: serde_json::Value) -> Result<Volume, String> {
        Volume::accept("pv-1", "d.example", serde_json::from_value(volume).unwrap())
    }

    #[test]
    fn a_bound_volume_of_the_driver_is_taken() {
        let volume = accept(json!({
            "spec": {
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "mountOptions": ["noatime"],
                "csi": {"driver": "d.example", "volumeHandle": "h", "fsType": "ext4",
                        "volumeAttributes": {"pool": "a"},
                        "nodeStageSecretRef": {"name": "s", "namespace": "n"}},
            },
            "status": {"phase": "Bound"},
        }))
        .unwrap();
        assert_eq!((volume.handle.as_str(), volume.block), ("h", false));
        assert_eq!(volume.capability.access_mode.unwrap().mode, Mode::MultiNodeMultiWriter as i32);
        let Some(AccessType::Mount(mount)) = &volume.capability.access_type else { panic!("no mount") };
        assert_eq!((mount.fs_type.as_str(), &mount.mount_flags[..]), ("ext4", &["noatime".to_owned()][..]));
        assert_eq!(volume.context["pool"], "a");
        assert_eq!(volume.secret.unwrap().name.as_deref(), Some("s"));
    }

    #[test]
    fn others_are_refused_with_their_reason() {
        let csi = json!({"driver": "d.example", "volumeHandle": "h"});
        for (volume, why) in [
            (json!({"spec": {"csi": csi}, "status": {"phase": "Released"}}), "is Released, not Bound"),
            (json!({"spec": {"csi": csi}}), "not Bound"),
            (json!({"spec": {}, "status": {"phase": "Bound"}}), "belongs to no CSI driver"),
            (
                json!({"spec": {"csi": {"driver": "x", "volumeHandle": "h"}}, "status": {"phase": "Bound"}}),
                "belongs to x, and this relay serves d.example",
            ),
        ] {
            let refused = accept(volume).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_secret_that_is_no_text_is_refused_and_one_that_is_has_a_version() {
        let held = |value: &str| {
            let text = json!({"metadata": {"uid": "u", "resourceVersion": "9"}, "data": {"key": value}});
            serde_json::from_value::<Held>(text).unwrap().open()
        };
        assert!(held("/////w==").is_none());
        let (secrets, version) = held("aHVudGVyMg==").unwrap();
        assert_eq!((format!("{secrets:?}").as_str(), version.as_str()), ("[redacted]", "u/9"));
    }
}
