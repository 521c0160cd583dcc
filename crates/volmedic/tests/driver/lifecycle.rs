//! The whole life of a volume of each kind.

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use tonic::Code;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::volume_content_source::{SnapshotSource, Type};

use crate::calls::{Calls, GIB, assert_code};
use crate::ground::{Ground, SOON};

/// Everything a pod's volume goes through, every call twice where CSI says that it may be repeated.
async fn live(parameters: &[(&str, &str)], fs_type: &str) {
    let mut ground = Ground::new();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let (staging, one, two) = (ground.kubelet("staging"), ground.kubelet("one"), ground.kubelet("two"));

    let id = csi.create("pvc-1", GIB, parameters, false).await.unwrap();
    assert_eq!(csi.create("pvc-1", GIB, parameters, false).await.unwrap(), id);
    assert_code(csi.create("pvc-1", 2 * GIB, parameters, false).await, Code::AlreadyExists);
    assert_code(csi.publish(&id, &staging, &one, false, false).await, Code::FailedPrecondition);
    for _ in 0..2 {
        csi.attach(&id, false).await.unwrap();
        csi.stage(&id, &staging, false).await.unwrap();
        csi.publish(&id, &staging, &one, false, false).await.unwrap();
        csi.publish(&id, &staging, &two, false, true).await.unwrap();
    }
    assert_eq!(ground.mounts().len(), 3, "{:?}", ground.mounts());
    assert_code(csi.publish(&id, &staging, &one, false, true).await, Code::AlreadyExists);
    assert_code(csi.unstage(&id, &staging).await, Code::FailedPrecondition);
    assert_code(csi.delete(&id).await, Code::FailedPrecondition);

    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let shown = mounts.lines().find(|line| line.contains(&one)).unwrap();
    assert!(shown.split(' ').nth(2) == Some(fs_type), "{shown}");
    fs::write(Path::new(&one).join("file"), "kept").unwrap();
    assert_eq!(fs::read_to_string(Path::new(&two).join("file")).unwrap(), "kept");
    let refused = fs::write(Path::new(&two).join("file"), "changed").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);

    let before = csi.stats(&id, &one).await.unwrap();
    // btrfs has no fixed number of inodes to report.
    assert_eq!(before.usage.len(), if fs_type == "btrfs" { 1 } else { 2 });
    if fs_type == "ext4" && !may_grow_ext4() {
        let refused = csi.expand(&id, &one, 2 * GIB).await.unwrap_err();
        assert!(refused.message().contains("CAP_SYS_RESOURCE"), "{refused:?}");
        assert_code::<()>(Err(refused), Code::FailedPrecondition);
    } else {
        assert_eq!(csi.expand(&id, &one, 2 * GIB).await.unwrap(), 2 * GIB);
        wait_for_larger(&mut csi, &id, &one, &before).await;
    }
    assert!(!csi.stats(&id, &one).await.unwrap().volume_condition.unwrap().abnormal);
    assert!(!csi.stats_staged(&id, &one, &staging).await.unwrap().volume_condition.unwrap().abnormal);
    for wrong in [ground.kubelet("elsewhere"), "/not/allowed".to_owned(), one.clone()] {
        let condition = csi.stats_staged(&id, &one, &wrong).await.unwrap().volume_condition.unwrap();
        assert!(condition.abnormal && condition.message.contains("is not staged at"), "{condition:?}");
    }
    assert_code(csi.stats(&id, &ground.kubelet("elsewhere")).await, Code::NotFound);

    for _ in 0..2 {
        csi.unpublish(&id, &one).await.unwrap();
        csi.unpublish(&id, &two).await.unwrap();
        csi.unstage(&id, &staging).await.unwrap();
    }
    assert!(!Path::new(&one).exists() && !Path::new(&two).exists());
    assert_eq!(ground.loop_devices(), Vec::new());

    // What was written is still there the next time, also when that is read-only.
    let mut read_only = csi.attach(&id, false).await.unwrap();
    csi.detach(&id).await.unwrap();
    read_only.extend(csi.attach(&id, true).await.unwrap());
    let request = wire::NodeStageVolumeRequest {
        volume_id: id.clone(),
        staging_target_path: staging.clone(),
        volume_capability: Some(crate::calls::capability(false)),
        publish_context: read_only,
        ..Default::default()
    };
    csi.node.node_stage_volume(request).await.unwrap();
    csi.publish(&id, &staging, &one, false, false).await.unwrap();
    assert_eq!(fs::read_to_string(Path::new(&one).join("file")).unwrap(), "kept");
    fs::write(Path::new(&one).join("new"), "").unwrap_err();
    csi.unpublish(&id, &one).await.unwrap();
    csi.unstage(&id, &staging).await.unwrap();

    for _ in 0..2 {
        csi.detach(&id).await.unwrap();
        csi.delete(&id).await.unwrap();
    }
    assert_code(csi.unstage(&id, &staging).await, Code::NotFound);
    ground.assert_clean();
}

/// The kernel wants CAP_SYS_RESOURCE for it, which containers that run tests often lack.
fn may_grow_ext4() -> bool {
    const SYS_RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap() & SYS_RESOURCE != 0
}

/// The mounter learns of its new size within a moment; file systems have it immediately.
async fn wait_for_larger(csi: &mut Calls, id: &str, path: &str, before: &wire::NodeGetVolumeStatsResponse) {
    let deadline = std::time::Instant::now() + SOON;
    loop {
        let now = csi.stats(id, path).await.unwrap();
        assert_eq!(now.usage.len(), before.usage.len());
        for usage in &now.usage {
            assert!(usage.total > 0 && usage.used >= 0 && usage.available >= 0, "{usage:?}");
        }
        if now.usage[0].total > before.usage[0].total * 3 / 2 {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "it never grew: {before:?} {now:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn ext4() {
    live(&[], "ext4").await;
}

#[tokio::test]
async fn xfs() {
    live(&[("fsType", "xfs")], "xfs").await;
}

#[tokio::test]
async fn btrfs() {
    live(&[("csi.storage.k8s.io/fstype", "btrfs")], "btrfs").await;
}

#[tokio::test]
async fn fuse() {
    live(&[("kind", "fuse")], "fuse.volmedic").await;
}

#[tokio::test]
async fn raw_block() {
    let mut ground = Ground::new();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let (staging, target) = (ground.kubelet("staging"), ground.kubelet("device"));
    let id = csi.create("pvc-1", 64 << 20, &[], true).await.unwrap();
    for _ in 0..2 {
        csi.stage(&id, &staging, true).await.unwrap();
        csi.publish(&id, &staging, &target, true, false).await.unwrap();
    }
    assert_code(
        csi.publish(&id, &staging, &ground.kubelet("dir"), false, false).await,
        Code::InvalidArgument,
    );
    assert_code(
        csi.publish(&id, &staging, &ground.kubelet("ro"), true, true).await,
        Code::FailedPrecondition,
    );
    assert_eq!(ground.loop_devices().len(), 1);
    assert!(fs::metadata(&target).unwrap().file_type().is_block_device());
    let device = fs::File::options().read(true).write(true).open(&target).unwrap();
    device.write_all_at(b"raw data", 4096).unwrap();
    device.sync_all().unwrap();
    drop(device);

    assert_eq!(csi.expand(&id, &target, 128 << 20).await.unwrap(), 128 << 20);
    let stats = csi.stats(&id, &target).await.unwrap();
    assert_eq!(stats.usage.iter().map(|usage| usage.total).collect::<Vec<_>>(), [128 << 20]);
    csi.unpublish(&id, &target).await.unwrap();

    csi.publish(&id, &staging, &target, true, true).await.unwrap();
    let mut bytes = [0; 8];
    fs::File::open(&target).unwrap().read_exact_at(&mut bytes, 4096).unwrap();
    assert_eq!(&bytes, b"raw data");
    let refused = fs::File::options().write(true).open(&target).and_then(|file| file.write_all_at(b"x", 0));
    refused.unwrap_err();
    csi.unpublish(&id, &target).await.unwrap();
    csi.unstage(&id, &staging).await.unwrap();

    // Data that is no file system is never formatted over.
    assert_code(csi.stage(&id, &staging, false).await, Code::FailedPrecondition);
    csi.unstage(&id, &staging).await.unwrap();
    csi.delete(&id).await.unwrap();
    ground.assert_clean();
}

/// Copies hold what their source held, are independent of it, and can be mounted beside it.
async fn copies(fs_type: &str) {
    let mut ground = Ground::new();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let parameters = [("fsType", fs_type)];
    let staging = ground.kubelet("original");
    let original = csi.create("original", GIB, &parameters, false).await.unwrap();
    csi.stage(&original, &staging, false).await.unwrap();
    fs::write(Path::new(&staging).join("file"), "first").unwrap();
    let snapshot = |name: &str| wire::CreateSnapshotRequest {
        source_volume_id: original.clone(),
        name: name.to_owned(),
        ..Default::default()
    };
    assert_code(csi.controller.create_snapshot(snapshot("busy")).await, Code::FailedPrecondition);
    csi.unstage(&original, &staging).await.unwrap();
    let taken =
        csi.controller.create_snapshot(snapshot("snap")).await.unwrap().into_inner().snapshot.unwrap();
    assert!(taken.ready_to_use && taken.size_bytes == GIB);
    csi.stage(&original, &staging, false).await.unwrap();
    fs::write(Path::new(&staging).join("file"), "second").unwrap();

    let source = Type::Snapshot(SnapshotSource { snapshot_id: taken.snapshot_id.clone() });
    let request = wire::CreateVolumeRequest {
        name: "copy".to_owned(),
        capacity_range: Some(wire::CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 }),
        volume_capabilities: vec![crate::calls::capability(false)],
        parameters: parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        volume_content_source: Some(wire::VolumeContentSource { r#type: Some(source) }),
        ..Default::default()
    };
    let copy = csi.controller.create_volume(request).await.unwrap().into_inner().volume.unwrap().volume_id;
    let beside = ground.kubelet("copy");
    csi.stage(&copy, &beside, false).await.unwrap();
    assert_eq!(fs::read_to_string(Path::new(&beside).join("file")).unwrap(), "first");
    assert_eq!(fs::read_to_string(Path::new(&staging).join("file")).unwrap(), "second");
    let total = csi.stats(&copy, &beside).await.unwrap().usage[0].total;
    assert!(total > 3 * GIB / 2, "the copy's file system was not grown: {total}");

    csi.unstage(&copy, &beside).await.unwrap();
    csi.unstage(&original, &staging).await.unwrap();
    csi.delete(&copy).await.unwrap();
    csi.delete(&original).await.unwrap();
    let request = wire::DeleteSnapshotRequest { snapshot_id: taken.snapshot_id, ..Default::default() };
    csi.controller.delete_snapshot(request).await.unwrap();
    ground.assert_clean();
}

#[tokio::test]
async fn copies_of_ext4() {
    copies("ext4").await;
}

#[tokio::test]
async fn copies_of_xfs() {
    copies("xfs").await;
}

#[tokio::test]
async fn copies_of_btrfs() {
    copies("btrfs").await;
}
