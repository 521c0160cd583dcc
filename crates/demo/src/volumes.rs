//! The dozen volumes: made, staged and published as kubelet would do it.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use volmedic_driver::fault::Kind;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_client::ControllerClient;
use volmedic_proto::csi::node_client::NodeClient;
use volmedic_proto::csi::volume_capability::access_mode::Mode;
use volmedic_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use super::home::Home;
use super::means::{Means, Mounts};

/// What this machine is called here.
pub(super) const NODE: &str = "here";
/// For one call; making a file system takes its time on a busy machine.
const CALL: Duration = Duration::from_mins(1);
const MIB: i64 = 1 << 20;

/// Names as a shop would have them, and what each is made of where that can be had.
const NAMES: [(&str, Kind); 12] = [
    ("orders", Kind::Ext4),
    ("invoices", Kind::Ext4),
    ("mail", Kind::Ext4),
    ("search", Kind::Ext4),
    ("metrics", Kind::Xfs),
    ("logs", Kind::Xfs),
    ("photos", Kind::Btrfs),
    ("backups", Kind::Btrfs),
    ("ledger", Kind::Block),
    ("wiki", Kind::Fuse),
    ("uploads", Kind::Fuse),
    ("notes", Kind::Fuse),
];

/// One volume of the demo.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    /// What people call it; the driver's own id says nothing to them.
    pub(super) name: Arc<str>,
    pub(super) id: Arc<str>,
    /// What it is made of.
    pub(super) kind: Kind,
    /// Where it is staged and published; nowhere if it is not mounted.
    pub(super) paths: Option<Paths>,
    /// As the driver wants it back.
    pub(super) context: HashMap<String, String>,
}

#[derive(Debug, Clone)]
pub(super) struct Paths {
    pub(super) staging: PathBuf,
    pub(super) target: PathBuf,
}

impl Volume {
    pub(super) fn capability(&self) -> wire::VolumeCapability {
        capability(self.kind)
    }
}

/// All volumes, in a fixed order.
#[derive(Debug)]
pub(super) struct Volumes(Vec<Volume>);

impl Volumes {
    /// Creates all that can be created; also answers what could not be, a sentence for each kind.
    pub(super) async fn make(home: &Home, means: &Means) -> anyhow::Result<(Self, Vec<String>)> {
        let maker = Maker::new(home, means.mounts)?;
        let mut making: JoinSet<(usize, &str, Kind, anyhow::Result<Volume>)> = JoinSet::new();
        for (place, (name, kind)) in plan(means).into_iter().enumerate() {
            let maker = maker.clone();
            making.spawn(async move { (place, name, kind, maker.make(name, kind).await) });
        }
        let (mut made, mut failed) = (Vec::new(), Vec::new());
        while let Some(done) = making.join_next().await {
            match done.context("internal error (bug): creating a volume panicked")? {
                (place, .., Ok(volume)) => made.push((place, volume)),
                (place, name, kind, Err(error)) => failed.push((place, name, kind, format!("{error:#}"))),
            }
        }
        made.sort_by_key(|(place, _)| *place);
        failed.sort_by_key(|(place, ..)| *place);
        let failed = by_kind(&failed);
        if made.is_empty() {
            bail!("no volume could be created: {}", failed.join("; "));
        }
        Ok((Self(made.into_iter().map(|(_, volume)| volume).collect()), failed))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Volume> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Volume> {
        self.0.iter().find(|volume| *volume.name == *name)
    }

    pub(super) fn by_id(&self, id: &str) -> Option<&Volume> {
        self.0.iter().find(|volume| *volume.id == *id)
    }

    /// As in `4 ext4, 2 xfs and 1 fuse`.
    pub(super) fn words(&self) -> String {
        let count = |kind: Kind| self.0.iter().filter(|volume| volume.kind == kind).count();
        let counted =
            Kind::ALL.iter().map(|kind| (count(*kind), kind.name())).filter(|(count, _)| *count > 0);
        counted.map(|(count, name)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }

    #[cfg(test)]
    pub(super) fn of(volumes: &[(&str, Kind)]) -> Self {
        let volume = |(name, kind): &(&str, Kind)| Volume {
            name: (*name).into(),
            id: format!("vol-{name}").into(),
            kind: *kind,
            paths: None,
            context: HashMap::new(),
        };
        Self(volumes.iter().map(volume).collect())
    }
}

/// What fails for one volume nearly always fails for all of its kind, so it is said once.
fn by_kind(failed: &[(usize, &str, Kind, String)]) -> Vec<String> {
    let of = |kind: Kind| failed.iter().filter(move |(_, _, other, _)| *other == kind);
    let sentence = |kind: &Kind| {
        let (.., why) = of(*kind).next()?;
        let names: Vec<&str> = of(*kind).map(|(_, name, ..)| *name).collect();
        Some(format!("without {} ({}): {why}", names.join(", "), kind.name()))
    };
    Kind::ALL.iter().filter_map(sentence).collect()
}

/// A kind that cannot be had is left out where others can; where only userspace mounts can be had, all are that.
fn plan(means: &Means) -> Vec<(&'static str, Kind)> {
    match means.mounts {
        Mounts::Nowhere | Mounts::OnOurOwn => NAMES.map(|(name, _)| (name, Kind::Fuse)).to_vec(),
        Mounts::OnTheHost if means.kinds == [Kind::Fuse] => {
            NAMES.map(|(name, _)| (name, Kind::Fuse)).to_vec()
        }
        Mounts::OnTheHost => NAMES.into_iter().filter(|(_, kind)| means.kinds.contains(kind)).collect(),
    }
}

/// As small as each kind can be: they are filled to the brim in the story.
fn bytes(kind: Kind) -> i64 {
    match kind {
        Kind::Ext4 | Kind::Fuse => 32 * MIB,
        Kind::Xfs => 300 * MIB,
        Kind::Btrfs => 256 * MIB,
        Kind::Block => 16 * MIB,
    }
}

fn parameters(kind: Kind) -> HashMap<String, String> {
    let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    match kind {
        Kind::Fuse => HashMap::from([("kind", "fuse")].map(pair)),
        Kind::Block => HashMap::new(),
        Kind::Ext4 | Kind::Xfs | Kind::Btrfs => HashMap::from([("fsType", kind.name())].map(pair)),
    }
}

fn capability(kind: Kind) -> wire::VolumeCapability {
    let access = match kind {
        Kind::Block => AccessType::Block(BlockVolume {}),
        _ => AccessType::Mount(MountVolume::default()),
    };
    wire::VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(access),
    }
}

#[derive(Debug, Clone)]
struct Maker {
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
    folder: PathBuf,
    mounts: Mounts,
}

impl Maker {
    fn new(home: &Home, mounts: Mounts) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("unix:{}", home.csi_socket().display()))
            .context("the path of the driver's socket is not a valid address")?;
        let channel = endpoint.timeout(CALL).connect_timeout(CALL).connect_lazy();
        let (controller, node) = (ControllerClient::new(channel.clone()), NodeClient::new(channel));
        Ok(Self { controller, node, folder: home.node(), mounts })
    }

    async fn make(mut self, name: &str, kind: Kind) -> anyhow::Result<Volume> {
        let request = wire::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(wire::CapacityRange { required_bytes: bytes(kind), limit_bytes: 0 }),
            volume_capabilities: vec![capability(kind)],
            parameters: parameters(kind),
            ..Default::default()
        };
        let created =
            self.controller.create_volume(request).await.map_err(|status| failed("created", &status))?;
        let created = created.into_inner().volume.context("the driver created nothing")?;
        let (id, context) = (created.volume_id, created.volume_context);
        let paths = match self.mounts {
            Mounts::Nowhere => None,
            Mounts::OnOurOwn | Mounts::OnTheHost => Some(self.publish(name, &id, kind, &context).await?),
        };
        Ok(Volume { name: name.into(), id: id.into(), kind, paths, context })
    }

    async fn publish(
        &mut self,
        name: &str,
        id: &str,
        kind: Kind,
        context: &HashMap<String, String>,
    ) -> anyhow::Result<Paths> {
        let staging = self.folder.join("staging").join(name);
        let target = self.folder.join("pods").join(name).join("volume");
        // kubelet makes the staging path, and all but the last part of the target.
        for folder in [Some(staging.as_path()), target.parent()].into_iter().flatten() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let request = wire::NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: staging.display().to_string(),
            volume_capability: Some(capability(kind)),
            volume_context: context.clone(),
            ..Default::default()
        };
        self.node.node_stage_volume(request).await.map_err(|status| failed("staged", &status))?;
        let request = wire::NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: staging.display().to_string(),
            target_path: target.display().to_string(),
            volume_capability: Some(capability(kind)),
            volume_context: context.clone(),
            ..Default::default()
        };
        self.node.node_publish_volume(request).await.map_err(|status| failed("published", &status))?;
        Ok(Paths { staging, target })
    }
}

fn failed(what: &str, status: &tonic::Status) -> anyhow::Error {
    anyhow!("it cannot be {what}: {}", status.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_for_every_volume_of_a_kind_is_said_once() {
        let failed = [(0, "orders", Kind::Ext4), (4, "metrics", Kind::Xfs), (1, "mail", Kind::Ext4)];
        let failed = failed.map(|(place, name, kind)| (place, name, kind, format!("no room for {name}")));
        assert_eq!(
            by_kind(&failed),
            ["without orders, mail (ext4): no room for orders", "without metrics (xfs): no room for metrics"]
        );
    }

    fn check(mounts: Mounts, kinds: &[Kind], expected: &str) {
        let means = Means { mounts, kinds: kinds.to_vec(), left_out: Vec::new() };
        let planned = plan(&means);
        assert_eq!(Volumes::of(&planned).words(), expected);
    }

    #[test]
    fn a_dozen_where_it_can_be_had() {
        check(Mounts::OnTheHost, Kind::ALL, "4 ext4, 2 xfs, 2 btrfs, 1 block, 3 fuse");
        check(Mounts::OnTheHost, &[Kind::Ext4, Kind::Block], "4 ext4, 1 block");
        check(Mounts::OnTheHost, &[Kind::Fuse], "12 fuse");
        check(Mounts::OnOurOwn, &[Kind::Fuse], "12 fuse");
        check(Mounts::Nowhere, &[], "12 fuse");
    }
}
