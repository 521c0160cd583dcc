//! The requests.

use http::Request as HttpRequest;
use kube::Error;
use kube::api::{Patch, PatchParams, PostParams, Request};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use volmedic_api::ObjectRef;
use volmedic_api::resource::{ControllerReport, GROUP, VERSION};

use super::Healths;
use crate::failure::{Failure, call};
use crate::sender::Gate;

/// How often an object is created that is deleted immediately each time.
const TRIES: usize = 2;

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    Stored,
    /// The object, or the claim, of that name is not the one that was meant.
    Another,
    /// There are no VolumeHealths.
    NoResource,
    /// The server took it and kept nothing of it.
    Dropped,
}

/// What is not there.
enum Absent {
    Object,
    Namespace,
    Resource,
}

#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    metadata: AnswerMeta,
    #[serde(default)]
    status: AnswerStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnswerMeta {
    owner_references: Vec<Owner>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnswerStatus {
    controller_report: Option<IgnoredAny>,
}

impl Healths {
    /// Stores a report, or takes it away. `there` if we know of the object.
    pub(super) async fn write(
        &self,
        claim: &ObjectRef,
        report: Option<&ControllerReport>,
        there: bool,
        gate: &Gate,
    ) -> Result<Written, Failure> {
        let mut there = there;
        for _ in 0..TRIES {
            if !there {
                match self.create(claim, gate).await {
                    Ok(Ok(_)) | Err(Failure::Exists) => {}
                    Ok(Err(Absent::Resource)) => return Ok(Written::NoResource),
                    Ok(Err(Absent::Namespace | Absent::Object)) => return Ok(Written::Another),
                    Err(failure) => return Err(failure),
                }
            }
            match self.apply(claim, report, gate).await? {
                Ok(answer) => return Ok(judge(&answer, claim, report.is_some())),
                Err(Absent::Resource) => return Ok(Written::NoResource),
                Err(Absent::Namespace) => return Ok(Written::Another),
                // Nothing is left to be taken away.
                Err(Absent::Object) if report.is_none_or(|report| report.health_conditions.is_empty()) => {
                    return Ok(Written::Stored);
                }
                Err(Absent::Object) => there = false,
            }
        }
        Ok(Written::Another)
    }

    /// With the claim as its owner, so that it goes with it.
    async fn create(&self, claim: &ObjectRef, gate: &Gate) -> Result<Result<IgnoredAny, Absent>, Failure> {
        let params = PostParams { field_manager: Some(self.manager.clone()), ..PostParams::default() };
        let owner = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.name, "uid": claim.uid,
        });
        let mut body = object(claim);
        body["metadata"]["ownerReferences"] = json!([owner]);
        body["spec"] = json!({ "persistentVolumeClaimName": claim.name });
        let body = serde_json::to_vec(&body).map_err(|error| Failure::Refused(error.to_string()))?;
        self.ask(resource(claim).create(&params, body), claim, gate).await
    }

    async fn apply(
        &self,
        claim: &ObjectRef,
        report: Option<&ControllerReport>,
        gate: &Gate,
    ) -> Result<Result<Answer, Absent>, Failure> {
        let params = PatchParams::apply(&self.manager).force();
        let mut body = object(claim);
        body["status"] = json!({});
        if let Some(report) = report {
            body["status"]["controllerReport"] = json!(report);
        }
        let request = resource(claim).patch_subresource("status", &claim.name, &params, &Patch::Apply(body));
        self.ask(request, claim, gate).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        request: Result<HttpRequest<Vec<u8>>, kube::core::request::Error>,
        claim: &ObjectRef,
        gate: &Gate,
    ) -> Result<Result<T, Absent>, Failure> {
        let request = request.map_err(|error| Failure::Refused(error.to_string()))?;
        gate.pass().await;
        call(async {
            match self.client.request::<T>(request).await {
                Ok(answer) => Ok(Ok(answer)),
                Err(Error::Api(status)) if status.code == 404 => Ok(Err(absent(&status, claim))),
                Err(error) => Err(error),
            }
        })
        .await
    }
}

/// A server that does not know the resource names no object in its answer.
fn absent(status: &kube::core::Status, claim: &ObjectRef) -> Absent {
    match &status.details {
        Some(details) if details.kind == "namespaces" => Absent::Namespace,
        Some(details) if *details.name == *claim.name => Absent::Object,
        _ => Absent::Resource,
    }
}

fn judge(answer: &Answer, claim: &ObjectRef, reported: bool) -> Written {
    if answer.metadata.owner_references.iter().all(|owner| *owner.uid != *claim.uid) {
        return Written::Another;
    }
    if reported && answer.status.controller_report.is_none() { Written::Dropped } else { Written::Stored }
}

fn resource(claim: &ObjectRef) -> Request {
    Request::new(format!("/apis/{GROUP}/{VERSION}/namespaces/{}/volumehealths", claim.namespace))
}

fn object(claim: &ObjectRef) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "VolumeHealth",
        "metadata": {"name": claim.name, "namespace": claim.namespace},
    })
}
