//! The volumes that a run makes and uses, written down before they are asked for.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use tonic::Status;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_service_capability::rpc::Type as Controller;
use volmedic_proto::csi::node_service_capability::rpc::Type as Node;
use volmedic_proto::csi::volume_capability::access_mode::Mode;
use volmedic_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use crate::bench::Bench;
use crate::report::{Not, broken, not_applicable};
use crate::text::{line, said};

/// How many volumes stay for the whole run. Pages of a list need several.
const VOLUMES: usize = 3;

/// A volume, from before it is asked for until it is deleted.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) name: String,
    /// Unknown until the answer came.
    pub(crate) id: Option<String>,
    context: HashMap<String, String>,
    /// The node it may be published to by the controller.
    pub(crate) attached: Option<String>,
    pub(crate) staged: bool,
    pub(crate) published: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) id: String,
    pub(crate) staging: String,
    pub(crate) target: String,
}

#[derive(Debug)]
pub(crate) struct Volumes {
    pub(crate) nonce: String,
    pub(crate) made: Vec<Made>,
    ids: Option<Result<Vec<String>, String>>,
    gone: Option<String>,
    publication: Option<Result<Published, String>>,
    pub(crate) directories: Vec<PathBuf>,
}

impl Volumes {
    pub(crate) fn new(nonce: &str) -> Self {
        Self {
            nonce: nonce.to_owned(),
            made: Vec::new(),
            ids: None,
            gone: None,
            publication: None,
            directories: Vec::new(),
        }
    }
}

impl Bench {
    pub(crate) fn capability(&self) -> wire::VolumeCapability {
        let access = if self.options.block {
            AccessType::Block(BlockVolume {})
        } else {
            AccessType::Mount(MountVolume::default())
        };
        wire::VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            access_type: Some(access),
        }
    }

    pub(crate) fn order(&self, name: &str) -> wire::CreateVolumeRequest {
        wire::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(wire::CapacityRange {
                required_bytes: self.options.volume_bytes,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![self.capability()],
            parameters: self.options.parameters.clone(),
            secrets: self.secrets(),
            ..Default::default()
        }
    }

    /// Asks for a volume; again with the same name, for the same one.
    pub(crate) async fn create(&mut self, name: &str) -> Result<wire::Volume, Status> {
        let request = self.order(name);
        let mut client = self.controller();
        let volume =
            self.ask("CreateVolume", client.create_volume(request)).await?.volume.unwrap_or_default();
        self.seen.string("CreateVolume", "volume_id", &volume.volume_id);
        Ok(volume)
    }

    async fn make(&mut self, which: &str) -> Result<String, String> {
        let name = format!("volmedic-conformance-{}-{which}", self.volumes.nonce);
        self.volumes.made.push(Made { name: name.clone(), ..Made::default() });
        let volume = self
            .create(&name)
            .await
            .map_err(|status| format!("CreateVolume({name}) answered {}", said(&status)))?;
        if volume.volume_id.is_empty() {
            return Err(format!("CreateVolume({name}) answered with no volume_id"));
        }
        if let Some(made) = self.volumes.made.iter_mut().find(|made| made.name == name) {
            made.id = Some(volume.volume_id.clone());
            made.context = volume.volume_context;
        }
        Ok(volume.volume_id)
    }

    /// The ids of the volumes of this run, made when first asked for.
    pub(crate) async fn make_volumes(&mut self) -> Result<Vec<String>, Not> {
        self.offers.need_controller(Controller::CreateDeleteVolume)?;
        if self.volumes.ids.is_none() {
            // Counted as failed until it is done, so that a stopped run does not count on them.
            self.volumes.ids = Some(Err("they were not made".to_owned()));
            let mut ids = Vec::new();
            let mut failed = None;
            for number in 1..=VOLUMES {
                match self.make(&number.to_string()).await {
                    Ok(id) if ids.contains(&id) => {
                        failed = Some(format!("CreateVolume gave {} for two volumes", line(&id)));
                        break;
                    }
                    Ok(id) => ids.push(id),
                    Err(why) => {
                        failed = Some(why);
                        break;
                    }
                }
            }
            self.volumes.ids = Some(failed.map_or(Ok(ids), Err));
        }
        match &self.volumes.ids {
            Some(Ok(ids)) => Ok(ids.clone()),
            Some(Err(why)) => broken(why.clone()),
            None => not_applicable("no volume was made"),
        }
    }

    /// As above, for rules about something else.
    pub(crate) async fn ids(&mut self) -> Result<Vec<String>, Not> {
        self.make_volumes().await.map_err(|not| match not {
            Not::Kept(why) => Not::Applicable(format!("no volume could be made: {why}")),
            other @ Not::Applicable(_) => other,
        })
    }

    /// The volume that the rules use.
    pub(crate) async fn id(&mut self) -> Result<String, Not> {
        Ok(self.ids().await?.swap_remove(0))
    }

    /// The id of a volume that was made and deleted.
    pub(crate) async fn gone(&mut self) -> Result<String, Not> {
        self.ids().await?;
        if let Some(id) = &self.volumes.gone {
            return Ok(id.clone());
        }
        let no_volume = |why| Not::Applicable(format!("no volume could be made: {why}"));
        let id = self.make("gone").await.map_err(no_volume)?;
        self.delete(&id)
            .await
            .map_err(|status| Not::Applicable(format!("no volume could be deleted: {}", said(&status))))?;
        self.volumes.made.retain(|made| made.id.as_deref() != Some(id.as_str()));
        self.volumes.gone = Some(id.clone());
        Ok(id)
    }

    pub(crate) async fn delete(&mut self, id: &str) -> Result<(), Status> {
        let request = wire::DeleteVolumeRequest { volume_id: id.to_owned(), secrets: self.secrets() };
        let mut client = self.controller();
        self.ask("DeleteVolume", client.delete_volume(request)).await.map(drop)
    }

    pub(crate) async fn node_id(&mut self) -> Result<String, String> {
        let mut client = self.node();
        let info = self.ask("NodeGetInfo", client.node_get_info(wire::NodeGetInfoRequest {})).await;
        let info = info.map_err(|status| format!("NodeGetInfo answered {}", said(&status)))?;
        self.seen.string("NodeGetInfo", "node_id", &info.node_id);
        if info.node_id.is_empty() { Err("NodeGetInfo named no node".to_owned()) } else { Ok(info.node_id) }
    }

    fn made(&mut self, id: &str) -> Option<&mut Made> {
        self.volumes.made.iter_mut().find(|made| made.id.as_deref() == Some(id))
    }

    /// Publishes by the controller.
    pub(crate) async fn attach(&mut self, id: &str, node: &str) -> Result<HashMap<String, String>, String> {
        let mut context = HashMap::new();
        if let Some(made) = self.made(id) {
            made.attached = Some(node.to_owned());
            context = made.context.clone();
        }
        let request = wire::ControllerPublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: node.to_owned(),
            volume_capability: Some(self.capability()),
            readonly: false,
            secrets: self.secrets(),
            volume_context: context,
        };
        let mut client = self.controller();
        let answer = self.ask("ControllerPublishVolume", client.controller_publish_volume(request)).await;
        let answer =
            answer.map_err(|status| format!("ControllerPublishVolume answered {}", said(&status)))?;
        Ok(answer.publish_context)
    }

    pub(crate) async fn detach(&mut self, id: &str, node: &str) -> Result<(), Status> {
        let request = wire::ControllerUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: node.to_owned(),
            secrets: self.secrets(),
        };
        let mut client = self.controller();
        self.ask("ControllerUnpublishVolume", client.controller_unpublish_volume(request)).await?;
        if let Some(made) = self.made(id) {
            made.attached = None;
        }
        Ok(())
    }

    /// The first volume staged and published on this node, when first asked for.
    pub(crate) async fn publish_volume(&mut self) -> Result<Published, Not> {
        if self.offers.node.is_none() {
            return not_applicable("the node service is not served here");
        }
        let id = self.id().await?;
        if self.volumes.publication.is_none() {
            self.volumes.publication = Some(Err("it was not published".to_owned()));
            self.volumes.publication = Some(self.publish(&id).await);
        }
        match &self.volumes.publication {
            Some(Ok(published)) => Ok(published.clone()),
            Some(Err(why)) => broken(why.clone()),
            None => not_applicable("no volume was published"),
        }
    }

    /// As above, for rules about something else.
    pub(crate) async fn published(&mut self) -> Result<Published, Not> {
        self.publish_volume().await.map_err(|not| match not {
            Not::Kept(why) => Not::Applicable(format!("no volume could be published: {why}")),
            other @ Not::Applicable(_) => other,
        })
    }

    fn directory(&mut self, parent: &Path) -> Result<PathBuf, String> {
        let path = parent.join(format!("volmedic-conformance-{}", self.volumes.nonce));
        if !self.volumes.directories.contains(&path) {
            fs::create_dir(&path).map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
            self.volumes.directories.push(path.clone());
        }
        Ok(path)
    }

    async fn publish(&mut self, id: &str) -> Result<Published, String> {
        let mut publish_context = HashMap::new();
        if self.offers.controller(Controller::PublishUnpublishVolume) {
            let node = self.node_id().await?;
            publish_context = self.attach(id, &node).await?;
        }
        let stages = self.offers.node(Node::StageUnstageVolume);
        let target = self.directory(&self.options.target_dir.clone())?.join("target");
        let mut staging = String::new();
        let volume_context = self.made(id).map(|made| made.context.clone()).unwrap_or_default();
        if stages {
            // The caller makes the staging directory; the target is made by the driver.
            let path = self.directory(&self.options.staging_dir.clone())?.join("staging");
            fs::create_dir(&path).map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
            self.volumes.directories.push(path.clone());
            staging = path.display().to_string();
            if let Some(made) = self.made(id) {
                made.staged = true;
            }
            self.stage(id, &staging, &publish_context, &volume_context).await?;
        }
        let published = Published { id: id.to_owned(), staging, target: target.display().to_string() };
        if let Some(made) = self.made(id) {
            made.published = true;
        }
        self.volumes.directories.push(target);
        self.publish_at(&published, &publish_context, &volume_context).await?;
        // A caller may not know what became of the first call.
        self.publish_at(&published, &publish_context, &volume_context)
            .await
            .map_err(|why| format!("again: {why}"))?;
        Ok(published)
    }

    async fn stage(
        &mut self,
        id: &str,
        staging: &str,
        publish_context: &HashMap<String, String>,
        volume_context: &HashMap<String, String>,
    ) -> Result<(), String> {
        let request = wire::NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            publish_context: publish_context.clone(),
            staging_target_path: staging.to_owned(),
            volume_capability: Some(self.capability()),
            secrets: self.secrets(),
            volume_context: volume_context.clone(),
        };
        for _ in 0..2 {
            let mut client = self.node();
            self.ask("NodeStageVolume", client.node_stage_volume(request.clone()))
                .await
                .map_err(|status| format!("NodeStageVolume({staging}) answered {}", said(&status)))?;
        }
        Ok(())
    }

    async fn publish_at(
        &mut self,
        published: &Published,
        publish_context: &HashMap<String, String>,
        volume_context: &HashMap<String, String>,
    ) -> Result<(), String> {
        let request = wire::NodePublishVolumeRequest {
            volume_id: published.id.clone(),
            publish_context: publish_context.clone(),
            staging_target_path: published.staging.clone(),
            target_path: published.target.clone(),
            volume_capability: Some(self.capability()),
            readonly: false,
            secrets: self.secrets(),
            volume_context: volume_context.clone(),
        };
        let mut client = self.node();
        let target = &published.target;
        self.ask("NodePublishVolume", client.node_publish_volume(request))
            .await
            .map_err(|status| format!("NodePublishVolume({target}) answered {}", said(&status)))?;
        Ok(())
    }

    pub(crate) fn publication(&self) -> Option<Published> {
        let first = self.volumes.made.first()?;
        let at = |parent: &Path, name: &str| {
            parent
                .join(format!("volmedic-conformance-{}", self.volumes.nonce))
                .join(name)
                .display()
                .to_string()
        };
        Some(Published {
            id: first.id.clone()?,
            staging: at(&self.options.staging_dir, "staging"),
            target: at(&self.options.target_dir, "target"),
        })
    }
}
