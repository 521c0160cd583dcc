//! A driver that ends leaves its volumes in use; the next one knows them all.

use std::fs;
use std::io::Write;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use tonic::Code;

use crate::calls::{Calls, GIB, assert_code};
use crate::ground::{Ground, SOON};

#[tokio::test]
async fn volumes_in_use_survive_and_are_found_again() {
    let mut ground = Ground::new();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let mut volumes = Vec::new();
    for (name, kind) in [("disk", "loop"), ("user", "fuse")] {
        let id = csi.create(name, GIB, &[("kind", kind)], false).await.unwrap();
        let (staging, target) = (ground.kubelet(&format!("{name}-staging")), ground.kubelet(name));
        csi.stage(&id, &staging, false).await.unwrap();
        csi.publish(&id, &staging, &target, false, false).await.unwrap();
        let open = fs::File::create(Path::new(&target).join("log")).unwrap();
        volumes.push((id, staging, target, open));
    }
    let (devices, mounters, mounts) = (ground.loop_devices(), ground.mounters(), ground.mounts());
    assert_eq!((devices.len(), mounters.len(), mounts.len()), (1, 1, 4));

    for graceful in [true, false] {
        if graceful {
            ground.stop();
        } else {
            ground.kill();
        }
        for (_, _, _, open) in &mut volumes {
            open.write_all(b"still here\n").unwrap();
        }
        ground.start(&[]);
        csi = Calls::to(&ground).await;
        for (id, staging, target, _) in &volumes {
            csi.stage(id, staging, false).await.unwrap();
            csi.publish(id, staging, target, false, false).await.unwrap();
            assert!(!csi.stats(id, target).await.unwrap().volume_condition.unwrap().abnormal);
        }
        assert_eq!(
            (ground.loop_devices(), ground.mounters(), ground.mounts()),
            (devices.clone(), mounters.clone(), mounts.clone())
        );
    }
    for (id, staging, target, open) in volumes {
        drop(open);
        assert_eq!(fs::read_to_string(Path::new(&target).join("log")).unwrap(), "still here\n".repeat(2));
        csi.unpublish(&id, &target).await.unwrap();
        csi.unstage(&id, &staging).await.unwrap();
        csi.delete(&id).await.unwrap();
    }
    ground.assert_clean();
}

#[tokio::test]
async fn a_dead_mounter_is_reported_and_staging_again_heals_it() {
    let mut ground = Ground::new();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let (staging, target) = (ground.kubelet("staging"), ground.kubelet("target"));
    let id = csi.create("user", GIB, &[("kind", "fuse")], false).await.unwrap();
    csi.stage(&id, &staging, false).await.unwrap();
    csi.publish(&id, &staging, &target, false, false).await.unwrap();
    fs::write(Path::new(&target).join("file"), "kept").unwrap();

    let first = ground.mounter(&id);
    kill_process(Pid::from_raw(first.pid).unwrap(), Signal::KILL).unwrap();
    let condition = csi.stats(&id, &target).await.unwrap().volume_condition.unwrap();
    assert!(condition.abnormal && condition.message.contains("MounterDead"), "{condition:?}");

    csi.unpublish(&id, &target).await.unwrap();
    csi.stage(&id, &staging, false).await.unwrap();
    csi.publish(&id, &staging, &target, false, false).await.unwrap();
    assert_ne!(ground.mounter(&id).pid, first.pid);
    assert_eq!(fs::read_to_string(Path::new(&target).join("file")).unwrap(), "kept");
    assert!(!csi.stats(&id, &target).await.unwrap().volume_condition.unwrap().abnormal);
    csi.unpublish(&id, &target).await.unwrap();
    csi.unstage(&id, &staging).await.unwrap();
    csi.delete(&id).await.unwrap();
    ground.assert_clean();
}

#[tokio::test]
async fn a_frozen_mounter_is_reported_and_holds_up_neither_others_nor_the_way_out() {
    let mut ground = Ground::new();
    ground.start(&["--check-deadline=20"]);
    let mut csi = Calls::to(&ground).await;
    let mut ids = Vec::new();
    for name in ["frozen", "well"] {
        let id = csi.create(name, GIB, &[("kind", "fuse")], false).await.unwrap();
        let staging = ground.kubelet(&format!("{name}-staging"));
        csi.stage(&id, &staging, false).await.unwrap();
        csi.publish(&id, &staging, &ground.kubelet(name), false, false).await.unwrap();
        fs::write(Path::new(&ground.kubelet(name)).join("file"), "x").unwrap();
        ids.push(id);
    }
    let frozen = ground.mounter(&ids[0]);
    kill_process(Pid::from_raw(frozen.pid).unwrap(), Signal::STOP).unwrap();
    assert!(volmedic_host::process::wait_until_stopped(frozen.pid, SOON));
    let target = ground.kubelet("frozen");
    let looking = {
        let (mut csi, id, target) = (csi.clone(), ids[0].clone(), target.clone());
        tokio::spawn(async move { csi.stats(&id, &target).await })
    };
    // The frozen one is asked about first, and takes all of its time. Each answer about the other asks for one more, so that
    // all but the first are asked for while the driver waits.
    tokio::task::yield_now().await;
    for _ in 0..10 {
        let well = csi.stats(&ids[1], &ground.kubelet("well")).await.unwrap();
        assert!(!well.volume_condition.unwrap().abnormal);
    }
    assert!(!looking.is_finished(), "the other volume had to wait");
    let condition = looking.await.unwrap().unwrap().volume_condition.unwrap();
    assert!(condition.abnormal && condition.message.contains("IOHung"), "{condition:?}");

    csi.unpublish(&ids[0], &target).await.unwrap();
    csi.unstage(&ids[0], &ground.kubelet("frozen-staging")).await.unwrap();
    csi.unpublish(&ids[1], &ground.kubelet("well")).await.unwrap();
    csi.unstage(&ids[1], &ground.kubelet("well-staging")).await.unwrap();
    for id in ids {
        csi.delete(&id).await.unwrap();
    }
    ground.assert_clean();
}

#[tokio::test]
async fn a_second_driver_on_the_same_state_is_refused() {
    let mut ground = Ground::new();
    ground.start(&[]);
    let refuse = |socket: &Path| {
        let output = ground.command(socket).stderr(std::process::Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refuse(&ground.path().join("other.sock")).contains("is another driver running"));
    // The first one is still there and well.
    assert_eq!(Calls::to(&ground).await.list(0).await.unwrap(), Vec::<String>::new());
    ground.assert_clean();
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_the_new_one_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let mut ground = Ground::new();
    ground.start(&[]);
    ground.kill();
    assert!(ground.socket().exists(), "a killed driver leaves its socket");
    ground.start(&[]);
    assert_eq!(fs::metadata(ground.socket()).unwrap().permissions().mode() & 0o777, 0o600);
    ground.assert_clean();
}

#[tokio::test]
async fn controller_and_node_can_be_apart() {
    let mut ground = Ground::new();
    let socket = ground.path().join("node.sock");
    ground.start(&["--services", "controller"]);
    ground.start_at(&socket, &["--services", "node"]);
    let (mut controller, mut node) = (Calls::to(&ground).await, Calls::at(&socket).await);
    assert_code(controller.stage("x", "/x", false).await, Code::Unimplemented);
    assert_code(node.create("x", GIB, &[], false).await, Code::Unimplemented);

    let staging = ground.kubelet("staging");
    let id = controller.create("pvc-1", GIB, &[("fsType", "xfs")], false).await.unwrap();
    node.stage(&id, &staging, false).await.unwrap();
    assert_code(controller.delete(&id).await, Code::FailedPrecondition);
    let range = Some(volmedic_proto::csi::CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 });
    let request = volmedic_proto::csi::ControllerExpandVolumeRequest {
        volume_id: id.clone(),
        capacity_range: range,
        ..Default::default()
    };
    controller.controller.controller_expand_volume(request).await.unwrap();
    let request = volmedic_proto::csi::NodeExpandVolumeRequest {
        volume_id: id.clone(),
        volume_path: staging.clone(),
        capacity_range: range,
        ..Default::default()
    };
    assert_eq!(node.node.node_expand_volume(request).await.unwrap().into_inner().capacity_bytes, 2 * GIB);
    node.unstage(&id, &staging).await.unwrap();
    controller.delete(&id).await.unwrap();
    assert_code(node.stage(&id, &staging, false).await, Code::NotFound);
    ground.assert_clean();
}
