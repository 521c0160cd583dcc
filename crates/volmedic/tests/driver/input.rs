//! A driver that cannot start says why. Malformed requests get the code that CSI names and a sentence, and change nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tonic::Code;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::volume_capability::{AccessMode, AccessType, MountVolume};

use crate::calls::{Calls, GIB, assert_code, capability};
use crate::ground::{Ground, SOON};

fn order() -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest {
        name: "x".to_owned(),
        capacity_range: Some(wire::CapacityRange { required_bytes: GIB, limit_bytes: 0 }),
        volume_capabilities: vec![capability(false)],
        ..Default::default()
    }
}

/// Refused before anything is created: one sentence that says what to do.
#[test]
fn a_driver_that_cannot_start_says_why_and_creates_nothing() {
    let mut ground = Ground::new();
    let refused = |command: &mut Command, expected: &str| {
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(expected), "{said}");
        assert!(!ground.state().root().exists(), "{said}");
    };
    let missing = ground.path().join("none/csi.sock");
    refused(&mut ground.command(&missing), "none is not a directory; create it or choose another path");
    let file = ground.path().join("file");
    fs::write(&file, "").unwrap();
    refused(&mut ground.command(&file), "file exists and is not a socket; choose another path");
    let taken = ground.path().join("taken.sock");
    let _listener = UnixListener::bind(&taken).unwrap();
    refused(&mut ground.command(&taken), "taken.sock; stop it or choose another path");

    // As somebody who may not mount.
    let socket = ground.socket();
    let driver = ground.command(&socket);
    let powerless = |services: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-all", "--inh-caps", "-all"]).arg(driver.get_program());
        command.args(driver.get_args()).args(["--services", services]);
        command
    };
    refused(&mut powerless("controller,node"), "needs root; run it as root, or without the node service");
    // The controller needs no rights.
    let mut child = powerless("controller").stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + SOON;
    while UnixStream::connect(&socket).is_err() {
        assert!(
            child.try_wait().unwrap().is_none() && Instant::now() < deadline,
            "the controller does not start"
        );
        sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    ground.start(&[]);
    ground.assert_clean();
}

#[tokio::test]
async fn volumes_that_cannot_be_made() {
    let mut ground = Ground::new();
    ground.start(&["--capacity", "10Gi", "--max-volume-size", "8Gi"]);
    let mut csi = Calls::to(&ground).await;
    let mut check = async |change: &dyn Fn(&mut wire::CreateVolumeRequest), code| {
        let mut request = order();
        change(&mut request);
        assert_code(csi.controller.create_volume(request).await, code);
    };
    let sized = |required_bytes, limit_bytes| Some(wire::CapacityRange { required_bytes, limit_bytes });
    check(&|r| r.name = String::new(), Code::InvalidArgument).await;
    check(&|r| r.name = "x".repeat(129), Code::InvalidArgument).await;
    check(&|r| r.name = "a\nb".to_owned(), Code::InvalidArgument).await;
    check(&|r| r.volume_capabilities.clear(), Code::InvalidArgument).await;
    check(&|r| r.volume_capabilities[0].access_type = None, Code::InvalidArgument).await;
    check(&|r| r.volume_capabilities[0].access_mode = None, Code::InvalidArgument).await;
    for mode in [0, 3, 4, 5, 99, -1] {
        check(&|r| r.volume_capabilities[0].access_mode = Some(AccessMode { mode }), Code::InvalidArgument)
            .await;
    }
    for flag in ["journal_path=/dev/vda", "device=/dev/vda", "context=x,y"] {
        let mount = MountVolume { mount_flags: vec![flag.to_owned()], ..Default::default() };
        check(
            &|r| r.volume_capabilities[0].access_type = Some(AccessType::Mount(mount.clone())),
            Code::InvalidArgument,
        )
        .await;
    }
    for (key, value) in [("kind", "tape"), ("fsType", "ntfs"), ("kinds", "loop"), ("kind", "")] {
        check(&|r| drop(r.parameters.insert(key.to_owned(), value.to_owned())), Code::InvalidArgument).await;
    }
    check(
        &|r| drop(r.parameters.insert("csi.storage.k8s.io/x".to_owned(), "y".repeat(5000))),
        Code::InvalidArgument,
    )
    .await;
    check(
        &|r| {
            r.parameters.insert("kind".to_owned(), "fuse".to_owned());
            r.volume_capabilities.push(capability(true));
        },
        Code::InvalidArgument,
    )
    .await;
    check(&|r| drop(r.mutable_parameters.insert("a".to_owned(), "b".to_owned())), Code::InvalidArgument)
        .await;
    check(&|r| r.capacity_range = sized(0, 0), Code::InvalidArgument).await;
    check(&|r| r.capacity_range = sized(-1, 0), Code::InvalidArgument).await;
    check(&|r| r.capacity_range = sized(2, 1), Code::InvalidArgument).await;
    check(&|r| r.capacity_range = sized(0, 4096), Code::OutOfRange).await;
    check(&|r| r.capacity_range = sized(i64::MAX, 0), Code::OutOfRange).await;
    check(&|r| r.capacity_range = sized(9 * GIB, 0), Code::OutOfRange).await;
    let elsewhere = wire::Topology {
        segments: [("topology.driver.volmedic.dev/node".to_owned(), "other".to_owned())].into(),
    };
    let requirement = wire::TopologyRequirement { requisite: vec![elsewhere], preferred: Vec::new() };
    check(&|r| r.accessibility_requirements = Some(requirement.clone()), Code::ResourceExhausted).await;

    let eight = csi.create("eight", 8 * GIB, &[], false).await.unwrap();
    assert_code(csi.create("more", 8 * GIB, &[], false).await, Code::ResourceExhausted);
    assert_code(csi.create("eight", 8 * GIB, &[("fsType", "xfs")], false).await, Code::AlreadyExists);
    csi.delete(&eight).await.unwrap();
    ground.assert_clean();
}

#[tokio::test]
async fn names_and_ids_never_become_paths() {
    let mut ground = Ground::new();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let name = "../../../../tmp/escape/\u{202e}x";
    let id = csi.create(name, GIB, &[], false).await.unwrap();
    assert_eq!(csi.list(0).await.unwrap(), *std::slice::from_ref(&id));
    let (staging, target) = (ground.kubelet("staging"), ground.kubelet("target"));
    for bad in [
        "../volumes",
        "..",
        "/etc",
        "vol-",
        &format!("{id}/"),
        &format!("../volumes/{id}"),
        &"x".repeat(10_000),
    ] {
        csi.delete(bad).await.unwrap();
        assert_code(csi.stage(bad, &staging, false).await, Code::NotFound);
        assert_code(csi.unstage(bad, &staging).await, Code::NotFound);
        assert_code(csi.publish(bad, &staging, &target, false, false).await, Code::NotFound);
        assert_code(csi.unpublish(bad, &target).await, Code::NotFound);
        assert_code(csi.stats(bad, &target).await, Code::NotFound);
        assert_code(csi.attach(bad, false).await, Code::NotFound);
        assert_code(csi.expand(bad, &target, GIB).await, Code::NotFound);
    }
    assert_eq!(csi.list(0).await.unwrap(), *std::slice::from_ref(&id));
    csi.delete(&id).await.unwrap();
    ground.assert_clean();
}

#[tokio::test]
async fn no_path_leads_outside() {
    let mut ground = Ground::new();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let id = csi.create("pvc-1", GIB, &[], false).await.unwrap();
    let outside = ground.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, ground.kubelet("link")).unwrap();
    fs::write(ground.kubelet("file"), "precious").unwrap();
    let staging = ground.kubelet("staging");
    let bad = [
        "relative".to_owned(),
        outside.join("x").to_str().unwrap().to_owned(),
        ground.kubelet("../outside/x"),
        ground.kubelet("link/x"),
        ground.kubelet("link"),
        ground.kubelet("file"),
        ground.kubelet("none/x"),
        ground.kubelet(""),
        ground.state().volumes().to_str().unwrap().to_owned(),
        format!("/{}", "x/".repeat(4_000)),
        "/".to_owned(),
        "/etc".to_owned(),
    ];
    for path in &bad {
        assert_code(csi.stage(&id, path, false).await, Code::InvalidArgument);
    }
    // Planned at a place that turned out to be impossible, it can still be staged at another.
    csi.unstage(&id, &ground.kubelet("file")).await.unwrap();
    csi.unstage(&id, &ground.kubelet("link")).await.unwrap();
    csi.stage(&id, &staging, false).await.unwrap();
    for path in &bad {
        assert_code(csi.publish(&id, &staging, path, false, false).await, Code::InvalidArgument);
        let reported = csi.unpublish(&id, path).await;
        assert!(
            reported.as_ref().is_ok() || reported.as_ref().is_err_and(|e| e.code() == Code::InvalidArgument),
            "{path}: {reported:?}"
        );
    }
    assert_eq!(ground.mounts().len(), 1, "{:?}", ground.mounts());
    assert_eq!(fs::read_to_string(ground.kubelet("file")).unwrap(), "precious");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    csi.unstage(&id, &staging).await.unwrap();
    csi.delete(&id).await.unwrap();
    ground.assert_clean();
}

#[tokio::test]
async fn one_operation_at_a_time_per_volume() {
    let mut ground = Ground::new();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let id = csi.create("pvc-1", 100 * GIB, &[("fsType", "btrfs")], false).await.unwrap();
    let staging = ground.kubelet("staging");
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (mut csi, id, staging) = (csi.clone(), id.clone(), staging.clone());
        set.spawn(async move { csi.stage(&id, &staging, false).await });
    }
    let outcomes = set.join_all().await;
    assert!(outcomes.iter().any(Result::is_ok));
    let refused: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert!(!refused.is_empty(), "sixteen stagings at once did not meet");
    for status in refused {
        assert_eq!(status.code(), Code::Aborted, "{status:?}");
    }
    csi.unstage(&id, &staging).await.unwrap();
    csi.delete(&id).await.unwrap();
    ground.assert_clean();
}
