//! Writes to the API server. Each names the very object and version it was decided from, so that nothing is ever
//! written from an older view than what is stored.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions, Request};
use serde_json::{Value, json};
use volmedic_api::resource::{GROUP, Heal, VERSION, VolumeHealthStatus};

use crate::shape::{StoredHealth, StoredMeta};
use crate::world::{HEALTH_LABEL, MESSAGE_ANNOTATION, Marks};
use crate::{ClaimKey, FIELD_MANAGER, Metrics};

/// No request waits longer for its answer.
const CALL_LIMIT: Duration = Duration::from_secs(15);
/// Who owns the marks on PersistentVolumes: what they are is decided apart from all else.
const MARKS_MANAGER: &str = "volmedic-hub-marks";
/// Who owns the attempts to heal.
const HEALER: &str = "volmedic-healer";

/// One change of a claim's object.
#[derive(Debug)]
pub(crate) enum Write {
    /// There is none yet.
    Create {
        owner: Box<str>,
        status: Box<VolumeHealthStatus>,
    },
    Apply {
        uid: Box<str>,
        version: Box<str>,
        status: Box<VolumeHealthStatus>,
    },
    /// This very version, where it would not go if it had changed meanwhile.
    Remove {
        uid: Box<str>,
        version: Option<Box<str>>,
    },
}

/// Why a write did not get through.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It is no longer as it was when this was decided. What it is now is on its way to us.
    Moved,
    /// The object or its namespace is gone, or going.
    Gone(String),
    Refused(String),
    Unreachable(String),
}

impl Failure {
    /// Part of the ordinary life of a cluster; nobody has to do anything about it.
    pub(crate) fn is_ordinary(&self) -> bool {
        matches!(self, Self::Moved)
    }

    fn of(error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            let mut text = error.to_string();
            let mut cause = error.source();
            while let Some(deeper) = cause {
                let more = deeper.to_string();
                if !text.contains(&more) {
                    text = format!("{text}: {more}");
                }
                cause = deeper.source();
            }
            return Self::Unreachable(text);
        };
        let said = format!("{} ({})", status.message, status.code);
        let causes = || status.details.iter().flat_map(|details| &details.causes);
        match status.code {
            409 => Self::Moved,
            // Who names a uid may not change it: it is another object of the same name.
            422 if causes().any(|cause| cause.field == "metadata.uid") => Self::Moved,
            404 => Self::Gone(said),
            403 if causes().any(|cause| cause.reason == "NamespaceTerminating") => Self::Gone(said),
            _ => Self::Refused(said),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved => f.write_str("it changed meanwhile"),
            Self::Gone(said) => write!(f, "it or its namespace is gone: {said}"),
            Self::Refused(said) => write!(f, "the API server refused: {said}"),
            Self::Unreachable(why) => write!(f, "the API server cannot be reached: {why}"),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Store {
    client: Client,
    metrics: Metrics,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    pub(crate) fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, metrics }
    }

    /// Answers what is stored afterwards.
    pub(crate) async fn write(&self, key: &ClaimKey, write: Write) -> Result<Option<StoredHealth>, Failure> {
        match write {
            Write::Create { owner, status } => {
                let made = self.create(key, &owner).await?;
                let meta = &made.metadata;
                self.apply(key, &meta.uid, &meta.resource_version, &status).await.map(Some)
            }
            Write::Apply { uid, version, status } => self.apply(key, &uid, &version, &status).await.map(Some),
            Write::Remove { uid, version } => self.remove(key, &uid, version.as_deref()).await.map(|()| None),
        }
    }

    pub(crate) async fn read(&self, key: &ClaimKey) -> Result<Option<StoredHealth>, Failure> {
        let request = resource(key).get(&key.name, &GetParams::default());
        let request = request.map_err(|error| Failure::Refused(error.to_string()))?;
        match tokio::time::timeout(CALL_LIMIT, self.client.request(request)).await {
            Ok(Ok(object)) => Ok(Some(object)),
            Ok(Err(error)) => match Failure::of(&error) {
                Failure::Gone(_) => Ok(None),
                failure => Err(failure),
            },
            Err(_) => Err(Failure::Unreachable(format!("no answer within {} s", CALL_LIMIT.as_secs()))),
        }
    }

    /// Only one can succeed, however many try.
    async fn create(&self, key: &ClaimKey, owner: &str) -> Result<StoredHealth, Failure> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let mut object = object(key);
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": &*key.name, "uid": owner}]);
        object["spec"] = json!({"persistentVolumeClaimName": &*key.name});
        let body = serde_json::to_vec(&object).map_err(|error| Failure::Refused(error.to_string()))?;
        let request = resource(key).create(&params, body);
        self.call("created", request.map_err(|error| Failure::Refused(error.to_string()))?).await
    }

    async fn apply(
        &self,
        key: &ClaimKey,
        uid: &str,
        version: &str,
        status: &VolumeHealthStatus,
    ) -> Result<StoredHealth, Failure> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let mut object = object(key);
        object["metadata"]["uid"] = uid.into();
        object["metadata"]["resourceVersion"] = version.into();
        object["status"] =
            serde_json::to_value(status).map_err(|error| Failure::Refused(error.to_string()))?;
        if let Some(status) = object["status"].as_object_mut() {
            // The healer's, and the driver's controller's.
            status.remove("heals");
            status.remove("controllerReport");
        }
        let request = resource(key).patch_subresource("status", &key.name, &params, &Patch::Apply(object));
        self.call("applied", request.map_err(|error| Failure::Refused(error.to_string()))?).await
    }

    /// What the healer did. It owns this list, and the hub owns all the rest.
    pub(crate) async fn apply_heals(
        &self,
        key: &ClaimKey,
        read: &StoredMeta,
        heals: &[Heal],
    ) -> Result<StoredHealth, Failure> {
        let params = PatchParams::apply(HEALER).force();
        let mut object = object(key);
        object["metadata"]["uid"] = read.uid.as_str().into();
        object["metadata"]["resourceVersion"] = read.resource_version.as_str().into();
        object["status"] = json!({ "heals": heals });
        let request = resource(key).patch_subresource("status", &key.name, &params, &Patch::Apply(object));
        self.call("applied", request.map_err(|error| Failure::Refused(error.to_string()))?).await
    }

    async fn remove(&self, key: &ClaimKey, uid: &str, version: Option<&str>) -> Result<(), Failure> {
        let preconditions =
            Preconditions { uid: Some(uid.to_owned()), resource_version: version.map(str::to_owned) };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = resource(key).delete(&key.name, &params);
        let request = request.map_err(|error| Failure::Refused(error.to_string()))?;
        match self.call::<Value>("removed", request).await {
            Ok(_) | Err(Failure::Gone(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Sets our marks on a PersistentVolume to these, or takes them away.
    pub(crate) async fn mark(&self, volume: &str, marks: &Marks) -> Result<(), Failure> {
        let params = PatchParams::apply(MARKS_MANAGER).force();
        let mut object =
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}});
        if let Some(label) = &marks.label {
            object["metadata"]["labels"] = json!({ HEALTH_LABEL: label });
        }
        if let Some(message) = &marks.message {
            object["metadata"]["annotations"] = json!({ MESSAGE_ANNOTATION: message });
        }
        let request = Request::new("/api/v1/persistentvolumes").patch(volume, &params, &Patch::Apply(object));
        let request = request.map_err(|error| Failure::Refused(error.to_string()))?;
        match self.call::<Value>("marked", request).await {
            Ok(_) | Err(Failure::Gone(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    async fn call<T: serde::de::DeserializeOwned>(
        &self,
        what: &'static str,
        request: http::Request<Vec<u8>>,
    ) -> Result<T, Failure> {
        let failed = match tokio::time::timeout(CALL_LIMIT, self.client.request::<T>(request)).await {
            Ok(Ok(answer)) => {
                self.metrics.wrote(what);
                return Ok(answer);
            }
            Ok(Err(error)) => Failure::of(&error),
            Err(_) => Failure::Unreachable(format!("no answer within {} s", CALL_LIMIT.as_secs())),
        };
        self.metrics.wrote(if failed.is_ordinary() { "conflict" } else { "failed" });
        Err(failed)
    }
}

fn resource(key: &ClaimKey) -> Request {
    Request::new(format!("/apis/{GROUP}/{VERSION}/namespaces/{}/volumehealths", key.namespace))
}

fn object(key: &ClaimKey) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "VolumeHealth",
        "metadata": {"name": &*key.name, "namespace": &*key.namespace},
    })
}
