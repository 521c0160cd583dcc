//! The few calls that the file systems in userspace are made with.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tonic::transport::{Channel, Endpoint};
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_client::ControllerClient;
use volmedic_proto::csi::node_client::NodeClient;
use volmedic_proto::csi::volume_capability::access_mode::Mode;
use volmedic_proto::csi::volume_capability::{AccessMode, AccessType, MountVolume};

const DEADLINE: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Calls {
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
}

impl Calls {
    /// Waits until somebody listens there.
    pub(super) async fn to(socket: &Path) -> Result<Self> {
        let address = format!("unix:{}", socket.display());
        let endpoint = Endpoint::from_shared(address).context("this is no socket")?.timeout(DEADLINE);
        let end = Instant::now() + DEADLINE;
        loop {
            match endpoint.connect().await {
                Ok(channel) => {
                    let (controller, node) =
                        (ControllerClient::new(channel.clone()), NodeClient::new(channel));
                    return Ok(Self { controller, node });
                }
                Err(error) if Instant::now() >= end => bail!("the driver does not listen: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Makes a volume in userspace and mounts it; answers its id.
    pub(super) async fn mounted(&mut self, name: &str, path: &Path) -> Result<String> {
        let request = wire::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(wire::CapacityRange { required_bytes: 16 << 20, limit_bytes: 0 }),
            volume_capabilities: vec![capability()],
            parameters: HashMap::from([("kind".to_owned(), "fuse".to_owned())]),
            ..Default::default()
        };
        let made = self.controller.create_volume(request).await.context("cannot make a volume")?;
        let id = made.into_inner().volume.context("a volume without anything")?.volume_id;
        let request = wire::NodeStageVolumeRequest {
            volume_id: id.clone(),
            staging_target_path: path.display().to_string(),
            volume_capability: Some(capability()),
            ..Default::default()
        };
        self.node.node_stage_volume(request).await.context("cannot mount a volume")?;
        Ok(id)
    }

    pub(super) async fn unmount(&mut self, id: &str, path: &Path) -> Result<()> {
        let request = wire::NodeUnstageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: path.display().to_string(),
        };
        self.node.node_unstage_volume(request).await.map(drop).context("cannot unmount a volume")
    }
}

fn capability() -> wire::VolumeCapability {
    wire::VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}
