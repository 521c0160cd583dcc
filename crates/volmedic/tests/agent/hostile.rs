//! Names and files that nobody means well with.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rustix::mount::{MountFlags, mount};
use serde_json::json;
use volmedic_driver::fault::Fault;
use volmedic_testkit::objects;

use crate::stage::{ABNORMAL, NORMAL, Stage, unmount};

/// A volume of a driver that is not there, with a handle that wants to break a log line, a terminal, and an event.
#[tokio::test]
async fn a_handle_that_is_no_name_is_reported_in_words_that_harm_nobody() {
    let stage = Stage::new().await;
    let handle = format!("a\n2026-01-01 FAKE LINE\u{1b}[31m\t\"'\\ {}", "x".repeat(1500));
    let driver = format!("{}.elsewhere.example.net", stage.namespace);
    let bound =
        objects::bound_claim(&stage.client, &stage.namespace, "data", &driver, &handle).await.unwrap();
    let pv = bound.volume.metadata.name.unwrap();
    let pod = json!({
        "metadata": {"name": "p".repeat(200)},
        "spec": {"nodeName": stage.node, "automountServiceAccountToken": false,
                 "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                 "containers": [{"name": "main", "image": "none",
                                 "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]},
    });
    let name = "p".repeat(200);
    let pod = serde_json::from_value(pod).unwrap();
    let uid =
        stage.pods().create(&kube::api::PostParams::default(), &pod).await.unwrap().metadata.uid.unwrap();
    let target = stage.kubelet.publish(&uid, &pv).unwrap();
    fs::create_dir_all(&target).unwrap();
    let note = json!({"driverName": driver, "volumeHandle": handle, "specVolID": pv, "nodeName": stage.node,
                      "volumeLifecycleMode": "Persistent"});
    fs::write(stage.kubelet.vol_data(&uid, &pv).unwrap(), note.to_string()).unwrap();
    mount_tmpfs(&target);
    stage.set_status(&name, json!({"phase": "Running"})).await;
    let agent = stage.watching(&[]).await;
    unmount(&target);
    let event = stage.event(&name, ABNORMAL, &["VolumeUnmounted"]).await;
    let message = event.message.unwrap_or_default();
    assert!(!message.chars().any(char::is_control), "{message:?}");
    assert!(message.len() <= 1024);
    let fake = agent.log().lines().filter(|line| line.starts_with("2026-01-01")).count();
    assert_eq!(fake, 0, "a line that is not ours: {}", agent.log());
    mount_tmpfs(&target);
    stage.event(&name, NORMAL, &["VolumeUnmounted"]).await;
    unmount(&target);
}

fn mount_tmpfs(target: &PathBuf) {
    mount("tmpfs", target, "tmpfs", MountFlags::empty(), None).unwrap();
}

/// Whatever lies in the kubelet's directory, other volumes are watched.
#[tokio::test]
async fn planted_files_are_neither_followed_nor_waited_for() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let pods = stage.kubelet.pods();
    // A pod's directory that is a link, a note that is a pipe, a note that is a link, names that are none.
    symlink("/etc", pods.join("11111111-1111-1111-1111-111111111111")).unwrap();
    let odd = pods.join("22222222-2222-2222-2222-222222222222/volumes/kubernetes.io~csi");
    for name in ["pipe", "link", "new\nline", "\u{1b}[2J"] {
        fs::create_dir_all(odd.join(name)).unwrap();
    }
    let status = std::process::Command::new("mkfifo").arg(odd.join("pipe/vol_data.json")).status().unwrap();
    assert!(status.success());
    symlink("/etc/shadow", odd.join("link/vol_data.json")).unwrap();
    symlink("/", odd.join("link/mount")).unwrap();
    let agent = stage.watching(&[]).await;
    stage.harm(Fault::ReadOnly, &data);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem", "host checks"]).await;
    assert_eq!(agent.says("root:"), 0, "nothing of what a link leads to is reported");
    assert_eq!(agent.terminate(), Some(0));
}
