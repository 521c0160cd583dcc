//! The controller service.

mod list;

use std::sync::Arc;

use tonic::{Request, Response, Status};
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_server;
use volmedic_proto::csi::controller_service_capability::rpc::Type as Can;
use volmedic_proto::csi::controller_service_capability::{Rpc, Type};
use volmedic_proto::csi::volume_content_source;

use super::{Driver, signed};
use crate::controller::volumes::Order;
use crate::error::{Error, Result};
use crate::record::{SnapshotRecord, Source};
use crate::request::{capability, name, required, wish};

type Answer<T> = std::result::Result<Response<T>, Status>;

/// How the node learns that the controller published a volume read-only.
pub(super) const READONLY_KEY: &str = "readonly";

#[tonic::async_trait]
impl controller_server::Controller for Driver {
    async fn controller_get_capabilities(
        &self,
        _: Request<wire::ControllerGetCapabilitiesRequest>,
    ) -> Answer<wire::ControllerGetCapabilitiesResponse> {
        let mut can = vec![
            Can::CreateDeleteVolume,
            Can::PublishUnpublishVolume,
            Can::ListVolumes,
            Can::GetCapacity,
            Can::CreateDeleteSnapshot,
            Can::ListSnapshots,
            Can::CloneVolume,
            Can::PublishReadonly,
            Can::ExpandVolume,
            Can::ListVolumesPublishedNodes,
            Can::GetVolume,
            Can::SingleNodeMultiWriter,
            Can::GetSnapshot,
        ];
        if self.config.dialect.legacy() {
            can.push(Can::VolumeCondition);
        }
        if self.config.dialect.health() {
            can.extend([Can::GetVolumeHealth, Can::ListVolumeHealth]);
        }
        let capability = |can: Can| wire::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: can.into() })),
        };
        Ok(Response::new(wire::ControllerGetCapabilitiesResponse {
            capabilities: can.into_iter().map(capability).collect(),
        }))
    }

    async fn create_volume(
        &self,
        request: Request<wire::CreateVolumeRequest>,
    ) -> Answer<wire::CreateVolumeResponse> {
        let order = self.order(request.into_inner())?;
        let controller = Arc::clone(&self.controller);
        let record = self.workers.run("making the volume", move || controller.create(order)).await?;
        Ok(Response::new(wire::CreateVolumeResponse { volume: Some(self.volume(&record)) }))
    }

    async fn delete_volume(
        &self,
        request: Request<wire::DeleteVolumeRequest>,
    ) -> Answer<wire::DeleteVolumeResponse> {
        let id = required("volume_id", &request.get_ref().volume_id)?.to_owned();
        let controller = Arc::clone(&self.controller);
        let assessor = Arc::clone(&self.assessor);
        let work = move || {
            controller.delete(&id)?;
            assessor.checks.forget(&id);
            Ok(())
        };
        self.workers.run("deleting the volume", work).await?;
        Ok(Response::new(wire::DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<wire::ControllerPublishVolumeRequest>,
    ) -> Answer<wire::ControllerPublishVolumeResponse> {
        let request = request.into_inner();
        let id = required("volume_id", &request.volume_id)?.to_owned();
        let node = required("node_id", &request.node_id)?.to_owned();
        let wanted = capability(request.volume_capability.as_ref())?;
        let (controller, readonly) = (Arc::clone(&self.controller), request.readonly);
        let work = move || controller.attach(&id, &node, &wanted, readonly);
        let readonly = self.workers.run("publishing the volume", work).await?;
        let publish_context =
            readonly.then(|| (READONLY_KEY.to_owned(), "true".to_owned())).into_iter().collect();
        Ok(Response::new(wire::ControllerPublishVolumeResponse { publish_context }))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<wire::ControllerUnpublishVolumeRequest>,
    ) -> Answer<wire::ControllerUnpublishVolumeResponse> {
        let request = request.into_inner();
        let id = required("volume_id", &request.volume_id)?.to_owned();
        let controller = Arc::clone(&self.controller);
        let work = move || match controller.detach(&id, &request.node_id) {
            // Of a volume that is gone nothing is published anywhere.
            Err(Error::NoVolume(_)) => Ok(()),
            other => other,
        };
        self.workers.run("unpublishing the volume", work).await?;
        Ok(Response::new(wire::ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<wire::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<wire::ValidateVolumeCapabilitiesResponse> {
        let request = request.into_inner();
        let id = required("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Error::Missing { field: "volume_capabilities" }.into());
        }
        let record = self.store.volume(id)?;
        let known = self.volume(&record).volume_context;
        let verdict = wish(&known, &request.volume_capabilities).and_then(|_| {
            if request.volume_context.is_empty() || request.volume_context == known {
                Ok(())
            } else {
                Err(Error::invalid("volume_context", "it is not the one that the volume was made with"))
            }
        });
        let (confirmed, message) = match verdict {
            Ok(()) => (
                Some(wire::validate_volume_capabilities_response::Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                }),
                String::new(),
            ),
            Err(why) => (None, why.to_string()),
        };
        Ok(Response::new(wire::ValidateVolumeCapabilitiesResponse { confirmed, message }))
    }

    async fn list_volumes(
        &self,
        request: Request<wire::ListVolumesRequest>,
    ) -> Answer<wire::ListVolumesResponse> {
        self.list(request.into_inner()).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<wire::ControllerGetVolumeRequest>,
    ) -> Answer<wire::ControllerGetVolumeResponse> {
        self.get(request.into_inner()).await
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<wire::ControllerListVolumeHealthRequest>,
    ) -> Answer<wire::ControllerListVolumeHealthResponse> {
        self.list_health(request.into_inner()).await
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<wire::ControllerGetVolumeHealthRequest>,
    ) -> Answer<wire::ControllerGetVolumeHealthResponse> {
        self.get_health(request.into_inner()).await
    }

    async fn get_capacity(
        &self,
        request: Request<wire::GetCapacityRequest>,
    ) -> Answer<wire::GetCapacityResponse> {
        let request = request.into_inner();
        let elsewhere = request.accessible_topology.as_ref().is_some_and(|asked| !self.reaches(asked));
        let minimum = match request.volume_capabilities.as_slice() {
            [] => None,
            // What cannot be made has no capacity, which is an answer and not an error.
            capabilities => match wish(&request.parameters, capabilities) {
                Ok(wish) => Some(wish.minimum_bytes()),
                Err(_) => return Ok(Response::new(wire::GetCapacityResponse::default())),
            },
        };
        let controller = Arc::clone(&self.controller);
        let available = if elsewhere {
            0
        } else {
            self.workers.run("measuring the capacity", move || controller.available()).await?
        };
        Ok(Response::new(wire::GetCapacityResponse {
            available_capacity: signed(available),
            maximum_volume_size: Some(signed(self.config.max_volume_bytes)),
            minimum_volume_size: minimum.map(signed),
        }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<wire::ControllerExpandVolumeRequest>,
    ) -> Answer<wire::ControllerExpandVolumeResponse> {
        let request = request.into_inner();
        let id = required("volume_id", &request.volume_id)?.to_owned();
        let range = request.capacity_range.ok_or(Error::Missing { field: "capacity_range" })?;
        let controller = Arc::clone(&self.controller);
        let bytes = self.workers.run("growing the volume", move || controller.expand(&id, &range)).await?;
        // The device, the file system or the mounter has to follow.
        Ok(Response::new(wire::ControllerExpandVolumeResponse {
            capacity_bytes: signed(bytes),
            node_expansion_required: true,
        }))
    }

    async fn create_snapshot(
        &self,
        request: Request<wire::CreateSnapshotRequest>,
    ) -> Answer<wire::CreateSnapshotResponse> {
        let request = request.into_inner();
        let volume = required("source_volume_id", &request.source_volume_id)?.to_owned();
        name("name", &request.name)?;
        if let Some(key) = request.parameters.keys().find(|key| !key.starts_with("csi.storage.k8s.io/")) {
            let shown: String = key.chars().take(64).collect();
            return Err(Error::invalid(
                "parameters",
                format_args!("{shown:?} is not known; snapshots take none"),
            )
            .into());
        }
        let controller = Arc::clone(&self.controller);
        let work = move || controller.create_snapshot(&request.name, &volume);
        let record = self.workers.run("making the snapshot", work).await?;
        Ok(Response::new(wire::CreateSnapshotResponse { snapshot: Some(snapshot(&record)) }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<wire::DeleteSnapshotRequest>,
    ) -> Answer<wire::DeleteSnapshotResponse> {
        let id = required("snapshot_id", &request.get_ref().snapshot_id)?.to_owned();
        let controller = Arc::clone(&self.controller);
        self.workers.run("deleting the snapshot", move || controller.delete_snapshot(&id)).await?;
        Ok(Response::new(wire::DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(
        &self,
        request: Request<wire::ListSnapshotsRequest>,
    ) -> Answer<wire::ListSnapshotsResponse> {
        self.list_snapshots(&request.into_inner()).map(Response::new).map_err(Status::from)
    }

    async fn get_snapshot(
        &self,
        request: Request<wire::GetSnapshotRequest>,
    ) -> Answer<wire::GetSnapshotResponse> {
        let record = self.store.snapshot(required("snapshot_id", &request.get_ref().snapshot_id)?)?;
        Ok(Response::new(wire::GetSnapshotResponse { snapshot: Some(snapshot(&record)) }))
    }
}

impl Driver {
    fn order(&self, request: wire::CreateVolumeRequest) -> Result<Order> {
        name("name", &request.name)?;
        let wish = wish(&request.parameters, &request.volume_capabilities)?;
        if !request.mutable_parameters.is_empty() {
            return Err(Error::invalid(
                "mutable_parameters",
                "volumes of this driver cannot be modified; leave them out",
            ));
        }
        if let Some(needs) = &request.accessibility_requirements
            && !needs.requisite.is_empty()
            && !needs.requisite.iter().any(|topology| self.reaches(topology))
        {
            let (key, node) = (self.config.topology_key(), &self.config.node_id);
            return Err(Error::Exhausted(format!("volumes can only be made where {key} is {node}")));
        }
        let source = match request.volume_content_source {
            None => None,
            Some(source) => match source.r#type {
                Some(volume_content_source::Type::Snapshot(from)) => {
                    Some(Source::Snapshot(required("snapshot_id", &from.snapshot_id)?.to_owned()))
                }
                Some(volume_content_source::Type::Volume(from)) => {
                    Some(Source::Volume(required("volume_id", &from.volume_id)?.to_owned()))
                }
                None => return Err(Error::Missing { field: "volume_content_source.type" }),
            },
        };
        Ok(Order { name: request.name, wish, range: request.capacity_range, source })
    }

    /// Whether this topology includes our node. One that says nothing of our key includes every node.
    fn reaches(&self, topology: &wire::Topology) -> bool {
        topology.segments.get(&self.config.topology_key()).is_none_or(|node| *node == self.config.node_id)
    }
}

pub(super) fn snapshot(record: &SnapshotRecord) -> wire::Snapshot {
    let created = prost_types::Timestamp {
        seconds: record.created.as_second(),
        nanos: record.created.subsec_nanosecond(),
    };
    wire::Snapshot {
        size_bytes: signed(record.bytes),
        snapshot_id: record.id.clone(),
        source_volume_id: record.source_volume.clone(),
        creation_time: Some(created),
        ready_to_use: true,
        group_snapshot_id: String::new(),
    }
}
