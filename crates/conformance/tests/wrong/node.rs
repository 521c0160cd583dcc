//! The node service of the driver that does one thing wrong.

use std::collections::HashMap;

use tonic::{Request, Response, Status};
use volmedic_proto::csi as wire;
use volmedic_proto::csi::node_get_storage_health_response::StorageBackendHealth;
use volmedic_proto::csi::node_server::Node;
use volmedic_proto::csi::node_service_capability::rpc::Type as Can;
use volmedic_proto::csi::node_service_capability::{Rpc, Type};
use volmedic_proto::csi::volume_capability::AccessMode;
use volmedic_proto::csi::volume_usage::Unit;

use crate::fake::{Answer, Fake, Wrong};

#[tonic::async_trait]
impl Node for Fake {
    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Answer<wire::NodeGetCapabilitiesResponse> {
        let can = [
            Can::StageUnstageVolume,
            Can::GetVolumeStats,
            Can::VolumeCondition,
            Can::GetVolumeHealth,
            Can::GetStorageHealth,
        ];
        let mut can = can.map(i32::from).to_vec();
        if self.is(Wrong::NodeCapability) {
            can.push(0);
        }
        let capability =
            |number| wire::NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: number })) };
        let capabilities = can.into_iter().map(capability).collect();
        Ok(Response::new(wire::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<wire::NodeGetInfoRequest>) -> Answer<wire::NodeGetInfoResponse> {
        let node_id = if self.is(Wrong::LongNodeId) { "n".repeat(300) } else { "node".to_owned() };
        Ok(Response::new(wire::NodeGetInfoResponse { node_id, ..Default::default() }))
    }

    async fn node_stage_volume(
        &self,
        _: Request<wire::NodeStageVolumeRequest>,
    ) -> Answer<wire::NodeStageVolumeResponse> {
        Ok(Response::new(wire::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        _: Request<wire::NodeUnstageVolumeRequest>,
    ) -> Answer<wire::NodeUnstageVolumeResponse> {
        Ok(Response::new(wire::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<wire::NodePublishVolumeRequest>,
    ) -> Answer<wire::NodePublishVolumeResponse> {
        let request = request.into_inner();
        let gone = self.no_volume(&request.volume_id, &request.secrets);
        let mut state = self.state();
        let volume = state.volumes.get_mut(&request.volume_id).ok_or(gone)?;
        if volume.target.is_some() && self.is(Wrong::PublishTwice) {
            return Err(Status::already_exists("it is there already"));
        }
        volume.target = Some(request.target_path);
        Ok(Response::new(wire::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<wire::NodeUnpublishVolumeRequest>,
    ) -> Answer<wire::NodeUnpublishVolumeResponse> {
        if let Some(volume) = self.state().volumes.get_mut(&request.into_inner().volume_id) {
            volume.target = None;
        }
        Ok(Response::new(wire::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<wire::NodeGetVolumeStatsRequest>,
    ) -> Answer<wire::NodeGetVolumeStatsResponse> {
        let request = request.into_inner();
        if request.volume_id.is_empty() && !self.is(Wrong::StatsNoId) {
            return Err(Status::invalid_argument("volume_id is missing"));
        }
        if request.volume_path.is_empty() && !self.is(Wrong::StatsNoPath) {
            return Err(Status::invalid_argument("volume_path is missing"));
        }
        let state = self.state();
        let known = state.volumes.get(&request.volume_id);
        let lies = self.is(Wrong::StatsUnknown) && !request.volume_id.is_empty();
        if known.is_none() && !lies {
            return Err(self.no_volume(&request.volume_id, &HashMap::new()));
        }
        let here = known.is_none_or(|volume| volume.target.as_deref() == Some(&request.volume_path));
        if !here && !self.is(Wrong::StatsWrongPath) {
            return Err(Status::not_found("it is not at that path"));
        }
        if request.staging_target_path.is_empty() && self.is(Wrong::StatsNeedsStaging) {
            return Err(Status::invalid_argument("staging_target_path is missing"));
        }
        let mut bytes = wire::VolumeUsage { available: 60, total: 100, used: 40, unit: Unit::Bytes.into() };
        match self.wrong {
            Wrong::NegativeUsage => bytes.available = -1,
            Wrong::MoreThanWhole => bytes.used = 101,
            Wrong::UnknownUnit => bytes.unit = 0,
            _ => {}
        }
        let count = match self.wrong {
            Wrong::UnitTwice => 2,
            Wrong::NoUsage => 0,
            _ => 1,
        };
        let adverse = known.is_some_and(|volume| volume.adverse);
        Ok(Response::new(wire::NodeGetVolumeStatsResponse {
            usage: vec![bytes; count],
            volume_condition: (!self.is(Wrong::StatsNoCondition)).then(|| self.condition(adverse)),
        }))
    }

    async fn node_get_volume_health(
        &self,
        request: Request<wire::NodeGetVolumeHealthRequest>,
    ) -> Answer<wire::NodeGetVolumeHealthResponse> {
        let request = request.into_inner();
        let id = request.volume_id;
        if id.is_empty() && !self.is(Wrong::NodeHealthNoId) {
            return Err(Status::invalid_argument("volume_id is missing"));
        }
        let state = self.state();
        let known = state.volumes.get(&id);
        let lies = self.is(Wrong::NodeHealthUnknown) && !id.is_empty();
        if known.is_none() && !lies {
            return Err(self.no_volume(&id, &HashMap::new()));
        }
        if self.is(Wrong::NodeHealthNeedsMount) && known.is_some_and(|volume| volume.target.is_none()) {
            return Err(Status::failed_precondition("it is not mounted"));
        }
        let adverse = known.is_some_and(|volume| volume.adverse)
            || self.is(Wrong::NodeHealthAdverse) && !request.volume_publish_path.is_empty();
        let named = if self.is(Wrong::NodeHealthOther) { "other" } else { &id };
        let volume_health = Some(self.health(named, adverse));
        Ok(Response::new(wire::NodeGetVolumeHealthResponse { volume_health }))
    }

    async fn node_get_storage_health(
        &self,
        _: Request<wire::NodeGetStorageHealthRequest>,
    ) -> Answer<wire::NodeGetStorageHealthResponse> {
        let mode = if self.is(Wrong::StorageMode) { 99 } else { 1 };
        let mut entry = StorageBackendHealth {
            status: wire::StorageHealthErrorType::StorageDegraded.into(),
            reason: "OnePathLost".to_owned(),
            message: String::new(),
            volume_capability: Some(wire::VolumeCapability {
                access_mode: Some(AccessMode { mode }),
                access_type: None,
            }),
        };
        let mut backend_health = vec![entry.clone()];
        match self.wrong {
            Wrong::StorageUnimplemented => return Err(Status::unimplemented("not yet")),
            Wrong::Hangs => std::future::pending().await,
            Wrong::StorageStatus => backend_health[0].status = 0,
            Wrong::StorageTwice => backend_health.push(entry),
            Wrong::StorageMany => {
                for number in 0..16 {
                    entry.reason = format!("Path{number}Lost");
                    backend_health.push(entry.clone());
                }
            }
            _ => {}
        }
        Ok(Response::new(wire::NodeGetStorageHealthResponse { backend_health }))
    }
}
