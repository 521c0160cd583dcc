//! Sequences of calls about volumes that are really made and mounted. Each takes a while, so there are few of them.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use proptest::collection::vec;
use proptest::prelude::*;
use rustix::mount::{UnmountFlags, unmount};
use tonic::Status;
use volmedic_driver::mounter::Mounter;
use volmedic_host::mounts::Table;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_client::ControllerClient;
use volmedic_proto::csi::node_client::NodeClient;
use volmedic_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use crate::ground::{Ground, cases_as_they_are, is_of_csi};

/// Where volumes may be put. Nothing else outside of the state directory may change.
///
/// The last is inside of the first: a good place while no volume is around it, and a bad one while one is.
const GIVEN: [&str; 5] = ["staging-0", "staging-1", "target-0", "target-1", "staging-0/inside"];
const KINDS: [(&str, bool); 3] = [("loop", false), ("loop", true), ("fuse", false)];

/// Volumes and places by number; a kind is one of [`KINDS`].
#[derive(Clone, Debug)]
enum Call {
    Create { volume: usize },
    Delete { volume: usize },
    Stage { volume: usize, at: Path, block: bool, readonly: bool },
    Unstage { volume: usize, at: Path },
    Publish { volume: usize, staging: Path, at: Path, block: bool, readonly: bool },
    Unpublish { volume: usize, at: Path },
    Stats { volume: usize, at: Path },
    Expand { volume: usize, at: Path },
}

#[derive(Clone, Debug)]
enum Path {
    /// Where this volume is put as a rule: the first of the two, or the second.
    Usual(usize),
    Given(usize),
    /// `@` is the allowed root.
    Other(&'static str),
}

fn path(first: usize) -> impl Strategy<Value = Path> {
    const OTHERS: &[&str] = &["@/file", "@/link/x", "@/../outside", "@", "/etc", ""];
    prop_oneof![
        12 => Just(Path::Usual(first)),
        2 => (0..GIVEN.len()).prop_map(Path::Given),
        1 => proptest::sample::select(OTHERS).prop_map(Path::Other),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let volume = || 0..KINDS.len();
    // Mostly what fits the volume, so that sequences get somewhere.
    let rarely = || prop_oneof![9 => Just(false), 1 => Just(true)];
    let fits = |volume: usize, odd: bool| KINDS[volume].1 != odd;
    prop_oneof![
        3 => volume().prop_map(|volume| Call::Create { volume }),
        1 => volume().prop_map(|volume| Call::Delete { volume }),
        6 => (volume(), path(0), rarely(), rarely()).prop_map(move |(volume, at, odd, readonly)| Call::Stage {
            volume, at, block: fits(volume, odd), readonly
        }),
        2 => (volume(), path(0)).prop_map(|(volume, at)| Call::Unstage { volume, at }),
        6 => (volume(), path(0), path(2), rarely(), any::<bool>()).prop_map(
            move |(volume, staging, at, odd, readonly)| Call::Publish {
                volume, staging, at, block: fits(volume, odd), readonly
            }
        ),
        2 => (volume(), path(2)).prop_map(|(volume, at)| Call::Unpublish { volume, at }),
        2 => (volume(), path(2)).prop_map(|(volume, at)| Call::Stats { volume, at }),
        1 => (volume(), path(2)).prop_map(|(volume, at)| Call::Expand { volume, at }),
    ]
}

fn capability(block: bool) -> wire::VolumeCapability {
    let access =
        if block { AccessType::Block(BlockVolume {}) } else { AccessType::Mount(MountVolume::default()) };
    wire::VolumeCapability { access_mode: Some(AccessMode { mode: 1 }), access_type: Some(access) }
}

impl Ground {
    fn text(&self, path: &Path, volume: usize) -> String {
        let root = self.path().join("kubelet");
        match path {
            Path::Usual(first) => root.join(GIVEN[first + volume % 2]).display().to_string(),
            Path::Given(number) => root.join(GIVEN[*number]).display().to_string(),
            Path::Other(text) => text.replace('@', &root.display().to_string()),
        }
    }

    async fn mount_call(&self, call: &Call, made: &[Option<String>; 3]) -> Result<String, Status> {
        let mut controller = ControllerClient::new(self.channel.clone());
        let mut node = NodeClient::new(self.channel.clone());
        let id = |volume: usize| made[volume].clone().unwrap_or_else(|| format!("vol-{}", "0".repeat(32)));
        let nothing = String::new();
        Ok(match call {
            Call::Create { volume } => {
                let (kind, block) = KINDS[*volume];
                let request = wire::CreateVolumeRequest {
                    name: format!("volume-{volume}"),
                    capacity_range: Some(wire::CapacityRange { required_bytes: 32 << 20, limit_bytes: 0 }),
                    volume_capabilities: vec![capability(block)],
                    parameters: [("kind".to_owned(), kind.to_owned())].into(),
                    ..Default::default()
                };
                controller.create_volume(request).await?.into_inner().volume.unwrap().volume_id
            }
            Call::Delete { volume } => {
                let request = wire::DeleteVolumeRequest { volume_id: id(*volume), ..Default::default() };
                controller.delete_volume(request).await.map(|_| nothing)?
            }
            Call::Stage { volume, at, block, readonly } => {
                let context = readonly.then(|| ("readonly".to_owned(), "true".to_owned()));
                let request = wire::NodeStageVolumeRequest {
                    volume_id: id(*volume),
                    staging_target_path: self.text(at, *volume),
                    volume_capability: Some(capability(*block)),
                    publish_context: context.into_iter().collect(),
                    ..Default::default()
                };
                node.node_stage_volume(request).await.map(|_| nothing)?
            }
            Call::Unstage { volume, at } => {
                let request = wire::NodeUnstageVolumeRequest {
                    volume_id: id(*volume),
                    staging_target_path: self.text(at, *volume),
                };
                node.node_unstage_volume(request).await.map(|_| nothing)?
            }
            Call::Publish { volume, staging, at, block, readonly } => {
                let request = wire::NodePublishVolumeRequest {
                    volume_id: id(*volume),
                    staging_target_path: self.text(staging, *volume),
                    target_path: self.text(at, *volume),
                    volume_capability: Some(capability(*block)),
                    readonly: *readonly,
                    ..Default::default()
                };
                node.node_publish_volume(request).await.map(|_| nothing)?
            }
            Call::Unpublish { volume, at } => {
                let request = wire::NodeUnpublishVolumeRequest {
                    volume_id: id(*volume),
                    target_path: self.text(at, *volume),
                };
                node.node_unpublish_volume(request).await.map(|_| nothing)?
            }
            Call::Stats { volume, at } => {
                let request = wire::NodeGetVolumeStatsRequest {
                    volume_id: id(*volume),
                    volume_path: self.text(at, *volume),
                    ..Default::default()
                };
                let stats = node.node_get_volume_stats(request).await?.into_inner();
                format!("{:?}", stats.volume_condition)
            }
            Call::Expand { volume, at } => {
                let range = Some(wire::CapacityRange { required_bytes: 40 << 20, limit_bytes: 0 });
                let request = wire::ControllerExpandVolumeRequest {
                    volume_id: id(*volume),
                    capacity_range: range,
                    ..Default::default()
                };
                controller.controller_expand_volume(request).await?;
                let request = wire::NodeExpandVolumeRequest {
                    volume_id: id(*volume),
                    volume_path: self.text(at, *volume),
                    capacity_range: range,
                    ..Default::default()
                };
                format!("{:?}", node.node_expand_volume(request).await?.into_inner())
            }
        })
    }

    /// Runs one sequence and takes away what it made, also when it failed: the next is to be judged by itself.
    fn play_mounting(&self, calls: &[Call]) -> Result<(), TestCaseError> {
        let mut made: [Option<String>; 3] = [None, None, None];
        let played = catch_unwind(AssertUnwindSafe(|| self.play_calls(calls, &mut made)));
        let away = catch_unwind(AssertUnwindSafe(|| self.put_away(&made)));
        played.unwrap_or_else(|panic| resume_unwind(panic))?;
        away.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn play_calls(&self, calls: &[Call], made: &mut [Option<String>; 3]) -> Result<(), TestCaseError> {
        let first = (0..KINDS.len()).map(|volume| Call::Create { volume });
        for call in first.collect::<Vec<_>>().iter().chain(calls) {
            let first = self.runtime.block_on(self.mount_call(call, made));
            let again = self.runtime.block_on(self.mount_call(call, made));
            let kind = format!("{call:?}").split(' ').next().unwrap_or("").to_owned();
            if first.is_ok() {
                self.met.borrow_mut().0.insert(kind);
            }
            match (&first, &again) {
                (Ok(first), Ok(again)) => prop_assert_eq!(first, again, "{:?}", call),
                (Err(first), Err(again)) => {
                    prop_assert!(is_of_csi(first.code()), "{call:?}: {first:?}");
                    prop_assert!(!first.message().is_empty(), "{call:?} was refused without a word");
                    prop_assert_eq!(first.code(), again.code(), "{:?}", call);
                }
                _ => prop_assert!(false, "{call:?} gave {first:?} and then {again:?}"),
            }
            match (call, first) {
                (Call::Create { volume }, Ok(id)) => made[*volume] = Some(id),
                (Call::Delete { volume }, Ok(_)) => made[*volume] = None,
                _ => {}
            }
            let volumes: Vec<String> = made.iter().flatten().cloned().collect();
            self.assert_untouched_but(&GIVEN, &volumes);
            prop_assert!(self.mounted().iter().all(|name| GIVEN.contains(&name.as_str())), "{call:?}");
        }
        Ok(())
    }

    /// The names below the allowed root, or the whole paths elsewhere on this ground, where something is mounted.
    fn mounted(&self) -> Vec<String> {
        let root = self.path().join("kubelet");
        let table = Table::read().unwrap();
        let targets = table.under(self.path()).map(|mount| mount.target().to_owned());
        targets.map(|at| at.strip_prefix(&root).unwrap_or(&at).display().to_string()).collect()
    }

    /// Every volume can be put away, wherever it was put, and then nothing is left of it.
    fn put_away(&self, made: &[Option<String>; 3]) -> Result<(), TestCaseError> {
        let mut failed = None;
        for volume in (0..KINDS.len()).filter(|volume| made[*volume].is_some()) {
            let places = || (0..GIVEN.len()).map(Path::Given);
            let unpublish = places().map(|at| Call::Unpublish { volume, at });
            let unstage = places().map(|at| Call::Unstage { volume, at });
            for call in unpublish.chain(unstage).chain([Call::Delete { volume }]) {
                let done = self.runtime.block_on(self.mount_call(&call, made));
                if let Err(status) = done {
                    failed.get_or_insert_with(|| format!("{call:?}: {status:?}"));
                }
            }
        }
        prop_assert!(failed.is_none(), "{failed:?}");
        prop_assert_eq!(self.mounted(), Vec::<String>::new());
        for entry in fs::read_dir("/sys/block").unwrap() {
            let backing = entry.unwrap().path().join("loop/backing_file");
            let backing = fs::read_to_string(backing).unwrap_or_default();
            prop_assert!(
                !std::path::Path::new(&backing).starts_with(self.path()),
                "{backing} stays attached"
            );
        }
        for name in GIVEN.into_iter().rev() {
            // Empty, or it stays and is found.
            let _ = fs::remove_dir(self.path().join("kubelet").join(name));
        }
        self.assert_untouched(&[]);
        Ok(())
    }
}

fn usual() -> Vec<Call> {
    let each = |volume: usize| {
        let ((staging, at), block) = ((Path::Usual(0), Path::Usual(2)), KINDS[volume].1);
        let publish =
            Call::Publish { volume, staging: staging.clone(), at: at.clone(), block, readonly: false };
        [
            Call::Stage { volume, at: staging.clone(), block, readonly: false },
            publish,
            Call::Stats { volume, at: at.clone() },
            Call::Unpublish { volume, at },
            Call::Unstage { volume, at: staging },
            Call::Delete { volume },
        ]
    };
    (0..KINDS.len()).flat_map(each).collect()
}

fn over_a_file() -> Vec<Call> {
    let volume = KINDS.iter().position(|(_, block)| *block).unwrap();
    let (staging, file) = (Path::Usual(0), Path::Other("@/file"));
    vec![
        Call::Stage { volume, at: staging.clone(), block: true, readonly: false },
        Call::Publish { volume, staging, at: file.clone(), block: true, readonly: false },
        Call::Unpublish { volume, at: file },
    ]
}

pub(crate) fn arbitrary_sequences_that_mount() {
    let ground = Mounting(Ground::new());
    // One that every volume is put away after in the usual way; chance may bring none that gets so far.
    ground.0.play_mounting(&usual()).unwrap_or_else(|failure| panic!("{failure}"));
    // Chance found this one: a device must not hide a file with content.
    ground.0.play_mounting(&over_a_file()).unwrap_or_else(|failure| panic!("{failure}"));
    let run = cases_as_they_are(16).run(&vec(call(), 6..20), |calls| ground.0.play_mounting(&calls));
    run.unwrap_or_else(|failure| panic!("{failure}"));
    // Otherwise the sequences prove less than they seem to.
    let accepted: BTreeSet<String> = ground.0.met.borrow().0.clone();
    for kind in ["Create", "Delete", "Stage", "Publish", "Stats", "Unpublish", "Unstage"] {
        assert!(accepted.contains(kind), "no call of {kind} was ever accepted: {accepted:?}");
    }
}

/// Takes away what a failed sequence left mounted; mounters end with their mounts.
struct Mounting(Ground);

impl Drop for Mounting {
    fn drop(&mut self) {
        let left: Vec<_> =
            Table::read().unwrap().under(self.0.path()).map(|mount| mount.target().to_owned()).collect();
        for place in left.iter().rev() {
            let _ = unmount(place, UnmountFlags::DETACH);
        }
    }
}

/// This program as the mounter of its driver.
pub(crate) fn mount_if_asked() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_none_or(|first| first != "mounter") {
        return;
    }
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name).unwrap();
        arguments[at + 1].clone()
    };
    let mounter = Mounter {
        volume: value("--volume"),
        volume_dir: value("--volume-dir").into(),
        mountpoint: value("--mountpoint").into(),
        parent: value("--parent").parse().unwrap(),
        readonly: given("--readonly"),
        take_over: given("--take-over"),
    };
    volmedic_driver::mounter::run(&mounter).unwrap();
    std::process::exit(0)
}
