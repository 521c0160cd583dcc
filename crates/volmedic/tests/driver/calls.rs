//! CSI calls, short.

use std::collections::HashMap;
use std::path::Path;

use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_client::ControllerClient;
use volmedic_proto::csi::node_client::NodeClient;
use volmedic_proto::csi::volume_capability::access_mode::Mode;
use volmedic_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use crate::ground::{Ground, NODE};

pub(crate) const GIB: i64 = 1 << 30;

#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) controller: ControllerClient<Channel>,
    pub(crate) node: NodeClient<Channel>,
}

pub(crate) type Outcome<T> = Result<T, Status>;

impl Calls {
    pub(crate) async fn to(ground: &Ground) -> Self {
        Self::at(&ground.socket()).await
    }

    pub(crate) async fn at(socket: &Path) -> Self {
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
        let channel = endpoint.timeout(std::time::Duration::from_mins(5)).connect().await.unwrap();
        let large = 64 << 20;
        Self {
            controller: ControllerClient::new(channel.clone()).max_decoding_message_size(large),
            node: NodeClient::new(channel),
        }
    }

    pub(crate) async fn create(
        &mut self,
        name: &str,
        bytes: i64,
        parameters: &[(&str, &str)],
        block: bool,
    ) -> Outcome<String> {
        let parameters =
            parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let request = wire::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(wire::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capabilities: vec![capability(block)],
            parameters,
            ..Default::default()
        };
        Ok(self.controller.create_volume(request).await?.into_inner().volume.unwrap().volume_id)
    }

    pub(crate) async fn delete(&mut self, id: &str) -> Outcome<()> {
        let request = wire::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        self.controller.delete_volume(request).await.map(drop)
    }

    pub(crate) async fn attach(&mut self, id: &str, readonly: bool) -> Outcome<HashMap<String, String>> {
        let request = wire::ControllerPublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: NODE.to_owned(),
            volume_capability: Some(capability(false)),
            readonly,
            ..Default::default()
        };
        Ok(self.controller.controller_publish_volume(request).await?.into_inner().publish_context)
    }

    pub(crate) async fn detach(&mut self, id: &str) -> Outcome<()> {
        let request = wire::ControllerUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: NODE.to_owned(),
            ..Default::default()
        };
        self.controller.controller_unpublish_volume(request).await.map(drop)
    }

    pub(crate) async fn stage(&mut self, id: &str, path: &str, block: bool) -> Outcome<()> {
        let request = wire::NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: path.to_owned(),
            volume_capability: Some(capability(block)),
            ..Default::default()
        };
        self.node.node_stage_volume(request).await.map(drop)
    }

    pub(crate) async fn unstage(&mut self, id: &str, path: &str) -> Outcome<()> {
        let request =
            wire::NodeUnstageVolumeRequest { volume_id: id.to_owned(), staging_target_path: path.to_owned() };
        self.node.node_unstage_volume(request).await.map(drop)
    }

    pub(crate) async fn publish(
        &mut self,
        id: &str,
        staging: &str,
        target: &str,
        block: bool,
        readonly: bool,
    ) -> Outcome<()> {
        let request = wire::NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: staging.to_owned(),
            target_path: target.to_owned(),
            volume_capability: Some(capability(block)),
            readonly,
            ..Default::default()
        };
        self.node.node_publish_volume(request).await.map(drop)
    }

    pub(crate) async fn unpublish(&mut self, id: &str, target: &str) -> Outcome<()> {
        let request =
            wire::NodeUnpublishVolumeRequest { volume_id: id.to_owned(), target_path: target.to_owned() };
        self.node.node_unpublish_volume(request).await.map(drop)
    }

    pub(crate) async fn stats(&mut self, id: &str, path: &str) -> Outcome<wire::NodeGetVolumeStatsResponse> {
        self.stats_staged(id, path, "").await
    }

    /// By a caller that says where it had the volume staged.
    pub(crate) async fn stats_staged(
        &mut self,
        id: &str,
        path: &str,
        staging: &str,
    ) -> Outcome<wire::NodeGetVolumeStatsResponse> {
        let request = wire::NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: path.to_owned(),
            staging_target_path: staging.to_owned(),
        };
        Ok(self.node.node_get_volume_stats(request).await?.into_inner())
    }

    /// On the controller and then on the node.
    pub(crate) async fn expand(&mut self, id: &str, path: &str, bytes: i64) -> Outcome<i64> {
        let range = Some(wire::CapacityRange { required_bytes: bytes, limit_bytes: 0 });
        let request = wire::ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: range,
            ..Default::default()
        };
        let grown = self.controller.controller_expand_volume(request).await?.into_inner();
        assert!(grown.node_expansion_required);
        let request = wire::NodeExpandVolumeRequest {
            volume_id: id.to_owned(),
            volume_path: path.to_owned(),
            capacity_range: range,
            ..Default::default()
        };
        Ok(self.node.node_expand_volume(request).await?.into_inner().capacity_bytes)
    }

    /// All ids, page by page.
    pub(crate) async fn list(&mut self, max_entries: i32) -> Outcome<Vec<String>> {
        let (mut ids, mut starting_token) = (Vec::new(), String::new());
        loop {
            let request = wire::ListVolumesRequest { max_entries, starting_token };
            let page = self.controller.list_volumes(request).await?.into_inner();
            ids.extend(page.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id));
            if page.next_token.is_empty() {
                return Ok(ids);
            }
            starting_token = page.next_token;
        }
    }
}

pub(crate) fn capability(block: bool) -> wire::VolumeCapability {
    let access =
        if block { AccessType::Block(BlockVolume {}) } else { AccessType::Mount(MountVolume::default()) };
    wire::VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(access),
    }
}

#[track_caller]
pub(crate) fn assert_code<T: std::fmt::Debug>(outcome: Outcome<T>, code: Code) {
    let status = outcome.expect_err("this must fail");
    assert_eq!(status.code(), code, "{}", status.message());
    assert!(status.message().len() > 20, "{:?} is not a sentence", status.message());
    assert!(status.details().is_empty());
}
