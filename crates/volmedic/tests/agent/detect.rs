//! What happens to a volume is on its pods: what, from where, and that it is over.

use std::time::Instant;

use volmedic_driver::fault::Fault;

use crate::stage::{ABNORMAL, NORMAL, Stage, unmount};

/// An accident is on the pod within two seconds; this prints how long it took.
#[tokio::test]
#[allow(clippy::print_stderr, reason = "a figure for whoever reads the test's output")]
async fn an_unmounted_volume_is_reported_on_the_pod_and_so_is_its_recovery() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    let uid = stage.pod("web", &[&data]).await;
    // Nothing but the kernel can tell so soon.
    let agent = stage.watching(&["--monitor-interval=10m"]).await;
    agent.wait_log("connected to the driver").await;
    let target = stage.kubelet.publish(&uid, &data.pv).unwrap();
    let began = Instant::now();
    unmount(&target);
    let event = stage.event("web", ABNORMAL, &["VolumeUnmounted", "host checks"]).await;
    eprintln!("from unmount to event: {} ms", began.elapsed().as_millis());
    let message = event.message.unwrap_or_default();
    for word in ["claim ", &format!("{}/data", stage.namespace), &data.id, &stage.node, "Next: "] {
        assert!(message.contains(word), "{word} is not in {message}");
    }
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.source.unwrap().host.as_deref(), Some(&*stage.node));
    assert_eq!(event.involved_object.uid.as_deref(), Some(&*uid));
    stage.publish(&uid, &data).await;
    let event = stage.event("web", NORMAL, &["VolumeUnmounted", "host checks"]).await;
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(agent.terminate(), Some(0));
}

#[tokio::test]
async fn everybody_who_uses_a_volume_is_reported() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "xfs").await;
    stage.pod("first", &[&data]).await;
    stage.pod("second", &[&data]).await;
    let _agent = stage.watching(&[]).await;
    stage.harm(Fault::ReadOnly, &data);
    for pod in ["first", "second"] {
        stage.event(pod, ABNORMAL, &["ReadOnlyFilesystem", "host checks"]).await;
    }
    // What comes later is reported as well.
    stage.pod("third", &[&data]).await;
    stage.event("third", ABNORMAL, &["ReadOnlyFilesystem"]).await;
    stage.repair(Fault::ReadOnly, &data);
    for pod in ["first", "second", "third"] {
        stage.event(pod, NORMAL, &["ReadOnlyFilesystem", "host checks"]).await;
    }
}

#[tokio::test]
async fn a_dead_mounter_is_reported() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "fuse").await;
    stage.pod("web", &[&data]).await;
    let _agent = stage.watching(&[]).await;
    stage.harm(Fault::MounterKilled, &data);
    stage.event("web", ABNORMAL, &["MounterDead", "host checks"]).await;
}
