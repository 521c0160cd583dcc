//! Sequences of calls that are right, nearly right, or hostile, each asked twice.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tonic::Status;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_client::ControllerClient;
use volmedic_proto::csi::node_client::NodeClient;
use volmedic_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use crate::ground::{Ground, NODE, cases, is_of_csi};

#[derive(Clone, Debug)]
enum Call {
    Create {
        name: String,
        required: i64,
        limit: i64,
        parameter: Option<(String, String)>,
        mode: i32,
        block: bool,
    },
    Delete(Id),
    Attach {
        id: Id,
        node: String,
        mode: i32,
    },
    Detach {
        id: Id,
        node: String,
    },
    Get(Id),
    Health(Id),
    NodeHealth {
        id: Id,
        path: String,
    },
    List {
        max: i32,
        token: String,
    },
    ListHealth {
        max: i32,
        token: String,
    },
    Expand {
        id: Id,
        required: i64,
        limit: i64,
    },
    Validate {
        id: Id,
        mode: i32,
    },
    Stage {
        id: Id,
        path: String,
        mode: i32,
        flag: Option<String>,
    },
    Unstage {
        id: Id,
        path: String,
    },
    Publish {
        id: Id,
        staging: String,
        target: String,
        mode: i32,
    },
    Unpublish {
        id: Id,
        target: String,
    },
    Stats {
        id: Id,
        path: String,
    },
    NodeExpand {
        id: Id,
        path: String,
        required: i64,
    },
}

/// A volume of this sequence, or what somebody made up.
#[derive(Clone, Debug)]
enum Id {
    Made(usize),
    Text(String),
}

fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("..".to_owned()),
        Just("../../etc".to_owned()),
        Just("vol-".to_owned()),
        Just(format!("vol-{}", "0".repeat(32))),
        Just(format!("vol-{}/..", "0".repeat(28))),
        Just("x".repeat(129)),
        Just("x".repeat(70_000)),
        Just("a\0b".to_owned()),
        Just("\u{202e}\n%s{}".to_owned()),
        "\\PC{0,40}",
    ]
}

fn id() -> impl Strategy<Value = Id> {
    prop_oneof![4 => (0_usize..4).prop_map(Id::Made), 1 => hostile().prop_map(Id::Text)]
}

/// `@` is the ground. None of these may be accepted.
fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        hostile(),
        Just("@/kubelet/../outside/x".to_owned()),
        Just("@/kubelet/link/x".to_owned()),
        Just("@/kubelet/file/x".to_owned()),
        Just("@/kubelet/file".to_owned()),
        Just("@/kubelet/none/x".to_owned()),
        Just("@/kubelet".to_owned()),
        Just("@/kubelet/".to_owned()),
        Just("@/outside/x".to_owned()),
        Just("@/state/volumes".to_owned()),
        Just("/".to_owned()),
        Just("/etc/passwd".to_owned()),
        Just(format!("/{}", "x/".repeat(3_000))),
        Just(format!("@/kubelet/{}", "x".repeat(300))),
    ]
}

fn size() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        Just(-1),
        Just(1),
        Just(1 << 30),
        Just(9 << 30),
        Just(i64::MAX),
        Just(i64::MIN),
        any::<i64>()
    ]
}

fn mode() -> impl Strategy<Value = i32> {
    prop_oneof![4 => Just(1), 1 => -1_i32..9, 1 => any::<i32>()]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-c]", 1 => hostile()]
}

fn node() -> impl Strategy<Value = String> {
    prop_oneof![3 => Just(NODE.to_owned()), 1 => hostile()]
}

fn token() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just(String::new()),
        1 => Just(format!("after-vol-{}", "0".repeat(32))),
        1 => Just("after-vol-../x".to_owned()),
        1 => hostile()
    ]
}

fn max() -> impl Strategy<Value = i32> {
    prop_oneof![Just(0), Just(1), Just(-1), Just(i32::MAX), Just(i32::MIN)]
}

fn parameter() -> impl Strategy<Value = Option<(String, String)>> {
    let pair = |key: &str, value: &str| Just(Some((key.to_owned(), value.to_owned())));
    prop_oneof![
        Just(None),
        pair("kind", "loop"),
        pair("kind", "fuse"),
        pair("kind", "tape"),
        pair("fsType", "xfs"),
        pair("fsType", "../ext4"),
        (hostile(), hostile()).prop_map(Some),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let create = (name(), size(), size(), parameter(), mode(), any::<bool>()).prop_map(
        |(name, required, limit, parameter, mode, block)| Call::Create {
            name,
            required,
            limit,
            parameter,
            mode,
            block,
        },
    );
    // One that succeeds more often than not, so that the others have something to be about.
    let plain = ("[a-c]", any::<bool>()).prop_map(|(name, block)| Call::Create {
        name,
        required: 1 << 30,
        limit: 0,
        parameter: None,
        mode: 1,
        block,
    });
    let flag = prop_oneof![Just(None), Just(Some("bind".to_owned())), hostile().prop_map(Some)];
    prop_oneof![
        3 => plain,
        2 => create,
        1 => id().prop_map(Call::Delete),
        2 => (id(), node(), mode()).prop_map(|(id, node, mode)| Call::Attach { id, node, mode }),
        1 => (id(), node()).prop_map(|(id, node)| Call::Detach { id, node }),
        1 => id().prop_map(Call::Get),
        1 => id().prop_map(Call::Health),
        1 => (id(), path()).prop_map(|(id, path)| Call::NodeHealth { id, path }),
        1 => (max(), token()).prop_map(|(max, token)| Call::List { max, token }),
        1 => (max(), token()).prop_map(|(max, token)| Call::ListHealth { max, token }),
        1 => (id(), size(), size()).prop_map(|(id, required, limit)| Call::Expand { id, required, limit }),
        1 => (id(), mode()).prop_map(|(id, mode)| Call::Validate { id, mode }),
        2 => (id(), path(), mode(), flag).prop_map(|(id, path, mode, flag)| Call::Stage { id, path, mode, flag }),
        1 => (id(), path()).prop_map(|(id, path)| Call::Unstage { id, path }),
        2 => (id(), path(), path(), mode())
            .prop_map(|(id, staging, target, mode)| Call::Publish { id, staging, target, mode }),
        1 => (id(), path()).prop_map(|(id, target)| Call::Unpublish { id, target }),
        1 => (id(), path()).prop_map(|(id, path)| Call::Stats { id, path }),
        1 => (id(), path(), size()).prop_map(|(id, path, required)| Call::NodeExpand { id, path, required }),
    ]
}

fn capability(mode: i32, block: bool, flag: Option<String>) -> wire::VolumeCapability {
    let mount = MountVolume { mount_flags: flag.into_iter().collect(), ..MountVolume::default() };
    let access = if block { AccessType::Block(BlockVolume {}) } else { AccessType::Mount(mount) };
    wire::VolumeCapability { access_mode: Some(AccessMode { mode }), access_type: Some(access) }
}

impl Ground {
    fn at(&self, path: &str) -> String {
        path.replace('@', &self.path().display().to_string())
    }

    /// Makes the call. The same answer gives the same text.
    async fn make(&self, call: Call, made: &[String]) -> Result<String, Status> {
        let mut controller = ControllerClient::new(self.channel.clone());
        let mut node_client = NodeClient::new(self.channel.clone());
        let text = |id: Id| match id {
            Id::Made(number) => made.get(number).cloned().unwrap_or_else(|| "vol-none".to_owned()),
            Id::Text(text) => text,
        };
        let range = |required_bytes, limit_bytes| Some(wire::CapacityRange { required_bytes, limit_bytes });
        Ok(match call {
            Call::Create { name, required, limit, parameter, mode, block } => {
                let request = wire::CreateVolumeRequest {
                    name,
                    capacity_range: range(required, limit),
                    volume_capabilities: vec![capability(mode, block, None)],
                    parameters: parameter.into_iter().collect::<HashMap<_, _>>(),
                    ..Default::default()
                };
                controller.create_volume(request).await?.into_inner().volume.unwrap().volume_id
            }
            Call::Delete(id) => {
                let request = wire::DeleteVolumeRequest { volume_id: text(id), ..Default::default() };
                controller.delete_volume(request).await.map(|_| String::new())?
            }
            Call::Attach { id, node, mode } => {
                let request = wire::ControllerPublishVolumeRequest {
                    volume_id: text(id),
                    node_id: node,
                    volume_capability: Some(capability(mode, false, None)),
                    ..Default::default()
                };
                controller.controller_publish_volume(request).await.map(|_| String::new())?
            }
            Call::Detach { id, node } => {
                let request = wire::ControllerUnpublishVolumeRequest {
                    volume_id: text(id),
                    node_id: node,
                    ..Default::default()
                };
                controller.controller_unpublish_volume(request).await.map(|_| String::new())?
            }
            Call::Get(id) => {
                let request = wire::ControllerGetVolumeRequest { volume_id: text(id) };
                format!("{:?}", controller.controller_get_volume(request).await?.into_inner().status)
            }
            Call::Health(id) => {
                let request =
                    wire::ControllerGetVolumeHealthRequest { volume_id: text(id), ..Default::default() };
                format!("{:?}", controller.controller_get_volume_health(request).await?.into_inner())
            }
            Call::NodeHealth { id, path } => {
                let request = wire::NodeGetVolumeHealthRequest {
                    volume_id: text(id),
                    volume_publish_path: self.at(&path),
                    staging_target_path: self.at(&path),
                };
                format!("{:?}", node_client.node_get_volume_health(request).await?.into_inner())
            }
            Call::List { max, token } => {
                let request = wire::ListVolumesRequest { max_entries: max, starting_token: token };
                let page = controller.list_volumes(request).await?.into_inner();
                assert!(max == 0 || page.entries.len() <= usize::try_from(max).unwrap());
                let ids: Vec<String> =
                    page.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect();
                format!("{ids:?} {}", page.next_token)
            }
            Call::ListHealth { max, token } => {
                let request = wire::ControllerListVolumeHealthRequest {
                    max_entries: max,
                    starting_token: token,
                    ..Default::default()
                };
                format!("{:?}", controller.controller_list_volume_health(request).await?.into_inner())
            }
            Call::Expand { id, required, limit } => {
                let request = wire::ControllerExpandVolumeRequest {
                    volume_id: text(id),
                    capacity_range: range(required, limit),
                    ..Default::default()
                };
                format!("{:?}", controller.controller_expand_volume(request).await?.into_inner())
            }
            Call::Validate { id, mode } => {
                let request = wire::ValidateVolumeCapabilitiesRequest {
                    volume_id: text(id),
                    volume_capabilities: vec![capability(mode, false, None)],
                    ..Default::default()
                };
                controller.validate_volume_capabilities(request).await?.into_inner().message
            }
            Call::Stage { id, path, mode, flag } => {
                let request = wire::NodeStageVolumeRequest {
                    volume_id: text(id),
                    staging_target_path: self.at(&path),
                    volume_capability: Some(capability(mode, false, flag)),
                    ..Default::default()
                };
                node_client.node_stage_volume(request).await?;
                panic!("{path} was accepted for staging")
            }
            Call::Unstage { id, path } => {
                let request = wire::NodeUnstageVolumeRequest {
                    volume_id: text(id),
                    staging_target_path: self.at(&path),
                };
                node_client.node_unstage_volume(request).await.map(|_| String::new())?
            }
            Call::Publish { id, staging, target, mode } => {
                let request = wire::NodePublishVolumeRequest {
                    volume_id: text(id),
                    staging_target_path: self.at(&staging),
                    target_path: self.at(&target),
                    volume_capability: Some(capability(mode, false, None)),
                    ..Default::default()
                };
                node_client.node_publish_volume(request).await?;
                panic!("{target} was accepted for publishing")
            }
            Call::Unpublish { id, target } => {
                let request =
                    wire::NodeUnpublishVolumeRequest { volume_id: text(id), target_path: self.at(&target) };
                node_client.node_unpublish_volume(request).await.map(|_| String::new())?
            }
            Call::Stats { id, path } => {
                let request = wire::NodeGetVolumeStatsRequest {
                    volume_id: text(id),
                    volume_path: self.at(&path),
                    ..Default::default()
                };
                node_client.node_get_volume_stats(request).await?;
                panic!("a volume was found at {path}")
            }
            Call::NodeExpand { id, path, required } => {
                let request = wire::NodeExpandVolumeRequest {
                    volume_id: text(id),
                    volume_path: self.at(&path),
                    capacity_range: range(required, 0),
                    ..Default::default()
                };
                node_client.node_expand_volume(request).await?;
                panic!("a volume was grown at {path}")
            }
        })
    }

    /// Runs one sequence and takes away what it made.
    fn play(&self, calls: Vec<Call>) -> Result<(), TestCaseError> {
        let mut made: Vec<String> = Vec::new();
        for call in calls {
            let first = self.runtime.block_on(self.make(call.clone(), &made));
            let again = self.runtime.block_on(self.make(call.clone(), &made));
            let kind =
                format!("{call:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap_or("").to_owned();
            let mut met = self.met.borrow_mut();
            if first.is_ok() {
                met.0.insert(kind)
            } else {
                met.1.insert(kind)
            };
            drop(met);
            match (&first, &again) {
                (Ok(first), Ok(again)) => prop_assert_eq!(first, again, "{:?}", call),
                (Err(first), Err(again)) => {
                    prop_assert!(is_of_csi(first.code()), "{call:?}: {first:?}");
                    prop_assert!(!first.message().is_empty(), "{call:?} was refused without a word");
                    prop_assert_eq!(first.code(), again.code(), "{:?}", call);
                }
                _ => prop_assert!(false, "{call:?} gave {first:?} and then {again:?}"),
            }
            match (&call, first) {
                (Call::Create { .. }, Ok(id)) if !made.contains(&id) => made.push(id),
                (Call::Delete(Id::Made(number)), Ok(_)) if *number < made.len() => drop(made.remove(*number)),
                _ => {}
            }
        }
        self.assert_untouched(&made);
        for number in 0..made.len() {
            let everywhere = Call::Detach { id: Id::Made(number), node: String::new() };
            for call in [everywhere, Call::Delete(Id::Made(number))] {
                self.runtime.block_on(self.make(call, &made)).unwrap();
            }
        }
        self.assert_untouched(&[]);
        Ok(())
    }
}

/// How many kinds of calls there are.
const KINDS: usize = 17;

pub(crate) fn arbitrary_sequences_of_calls() {
    let ground = Ground::new();
    let must = ["Create", "Delete", "Attach", "Detach", "Get", "Health", "NodeHealth", "List", "ListHealth"];
    // Some answers are rare. Chance gets some more rounds, but not for ever.
    for _ in 0..8 {
        let run = cases(150).run(&vec(call(), 1..24), |calls| ground.play(calls));
        run.unwrap_or_else(|failure| panic!("{failure}"));
        let (accepted, refused) = &*ground.met.borrow();
        if refused.len() == KINDS && must.iter().all(|kind| accepted.contains(*kind)) {
            return;
        }
    }
    // Then the sequences prove less than they seem to.
    let (accepted, refused) = &*ground.met.borrow();
    panic!("every kind of call is refused at times: {refused:?}; these are accepted at times: {accepted:?}");
}
