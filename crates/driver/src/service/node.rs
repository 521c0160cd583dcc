//! The node service.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use volmedic_proto::csi as wire;
use volmedic_proto::csi::node_server;
use volmedic_proto::csi::node_service_capability::rpc::Type as Can;
use volmedic_proto::csi::node_service_capability::{Rpc, Type};

use super::Driver;
use super::controller::READONLY_KEY;
use crate::error::Error;
use crate::request::{bounds, capability, required};

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl node_server::Node for Driver {
    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Answer<wire::NodeGetCapabilitiesResponse> {
        let mut can =
            vec![Can::StageUnstageVolume, Can::GetVolumeStats, Can::ExpandVolume, Can::SingleNodeMultiWriter];
        if self.config.dialect.legacy() {
            can.push(Can::VolumeCondition);
        }
        if self.config.dialect.health() {
            can.extend([Can::GetVolumeHealth, Can::GetStorageHealth]);
        }
        let capability =
            |can: Can| wire::NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: can.into() })) };
        Ok(Response::new(wire::NodeGetCapabilitiesResponse {
            capabilities: can.into_iter().map(capability).collect(),
        }))
    }

    async fn node_get_info(&self, _: Request<wire::NodeGetInfoRequest>) -> Answer<wire::NodeGetInfoResponse> {
        Ok(Response::new(wire::NodeGetInfoResponse {
            node_id: self.config.node_id.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(self.topology()),
        }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<wire::NodeStageVolumeRequest>,
    ) -> Answer<wire::NodeStageVolumeResponse> {
        let request = request.into_inner();
        let id = required("volume_id", &request.volume_id)?.to_owned();
        required("staging_target_path", &request.staging_target_path)?;
        let wanted = capability(request.volume_capability.as_ref())?;
        let readonly = request.publish_context.get(READONLY_KEY).is_some_and(|value| value == "true");
        let node = Arc::clone(&self.node);
        let work = move || {
            node.store.volume(&id)?;
            let place = node.roots.place("staging_target_path", &request.staging_target_path)?;
            node.stage(&id, &place, &wanted, readonly)
        };
        self.workers.run("staging the volume", work).await?;
        Ok(Response::new(wire::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<wire::NodeUnstageVolumeRequest>,
    ) -> Answer<wire::NodeUnstageVolumeResponse> {
        let request = request.into_inner();
        let id = required("volume_id", &request.volume_id)?.to_owned();
        required("staging_target_path", &request.staging_target_path)?;
        let (node, assessor) = (Arc::clone(&self.node), Arc::clone(&self.assessor));
        let work = move || {
            node.store.volume(&id)?;
            let place = node.roots.place("staging_target_path", &request.staging_target_path)?;
            node.unstage(&id, &place)?;
            assessor.checks.forget(&id);
            Ok(())
        };
        self.workers.run("unstaging the volume", work).await?;
        Ok(Response::new(wire::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<wire::NodePublishVolumeRequest>,
    ) -> Answer<wire::NodePublishVolumeResponse> {
        let request = request.into_inner();
        let id = required("volume_id", &request.volume_id)?.to_owned();
        required("target_path", &request.target_path)?;
        let wanted = capability(request.volume_capability.as_ref())?;
        if request.staging_target_path.is_empty() {
            return Err(Error::precondition(
                &id,
                "staging_target_path is empty, and volumes are staged first",
            )
            .into());
        }
        let context = request.publish_context.get(READONLY_KEY).is_some_and(|value| value == "true");
        let readonly = request.readonly || context;
        let node = Arc::clone(&self.node);
        let work = move || {
            node.store.volume(&id)?;
            let staging = node.roots.place("staging_target_path", &request.staging_target_path)?;
            let target = node.roots.place("target_path", &request.target_path)?;
            node.publish(&id, &staging, &target, &wanted, readonly)
        };
        self.workers.run("publishing the volume", work).await?;
        Ok(Response::new(wire::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<wire::NodeUnpublishVolumeRequest>,
    ) -> Answer<wire::NodeUnpublishVolumeResponse> {
        let request = request.into_inner();
        let id = required("volume_id", &request.volume_id)?.to_owned();
        required("target_path", &request.target_path)?;
        let node = Arc::clone(&self.node);
        let work = move || {
            node.store.volume(&id)?;
            let target = node.roots.place("target_path", &request.target_path)?;
            node.unpublish(&id, &target)
        };
        self.workers.run("unpublishing the volume", work).await?;
        Ok(Response::new(wire::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<wire::NodeGetVolumeStatsRequest>,
    ) -> Answer<wire::NodeGetVolumeStatsResponse> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        required("volume_path", &request.volume_path)?;
        self.stats(request).await.map(Response::new).map_err(Status::from)
    }

    async fn node_expand_volume(
        &self,
        request: Request<wire::NodeExpandVolumeRequest>,
    ) -> Answer<wire::NodeExpandVolumeResponse> {
        let request = request.into_inner();
        let id = required("volume_id", &request.volume_id)?.to_owned();
        required("volume_path", &request.volume_path)?;
        let at_least =
            request.capacity_range.as_ref().map(bounds).transpose()?.and_then(|(required, _)| required);
        let node = Arc::clone(&self.node);
        let work = move || {
            node.store.volume(&id)?;
            let at = node.roots.place("volume_path", &request.volume_path)?;
            node.expand(&id, &at, at_least)
        };
        let bytes = self.workers.run("growing the volume", work).await?;
        Ok(Response::new(wire::NodeExpandVolumeResponse { capacity_bytes: super::signed(bytes) }))
    }

    async fn node_get_volume_health(
        &self,
        request: Request<wire::NodeGetVolumeHealthRequest>,
    ) -> Answer<wire::NodeGetVolumeHealthResponse> {
        self.health_dialect()?;
        let record = self.store.volume(required("volume_id", &request.get_ref().volume_id)?)?;
        let volume_health = Some(self.health_of_one(record).await?);
        Ok(Response::new(wire::NodeGetVolumeHealthResponse { volume_health }))
    }

    async fn node_get_storage_health(
        &self,
        _: Request<wire::NodeGetStorageHealthRequest>,
    ) -> Answer<wire::NodeGetStorageHealthResponse> {
        self.health_dialect()?;
        self.storage_health().await.map(Response::new).map_err(Status::from)
    }
}
