use volmedic_api::Kind;

use super::*;
use crate::node::volume::{Access, Mode, Phase};

fn part(pod: &str, driver: &str, handle: &str, pv: Option<&str>) -> Part {
    Part {
        key: Key { driver: driver.into(), handle: handle.into() },
        mode: Mode::Filesystem,
        staging: Some("/staging".into()),
        source: None,
        fs_type: None,
        used: Use {
            pod: Arc::new(ObjectRef::new(Kind::Pod, "ns", pod, pod)),
            volume: Some("data".into()),
            claim: None,
            pv: pv.map(Into::into),
            target: format!("/pods/{pod}/{handle}").into(),
            sub_paths: Box::default(),
            access: Access::ReadWrite,
            phase: Phase::InUse,
            kubelet: None,
        },
    }
}

fn volumes() -> Volumes {
    Volumes::new(Arc::new(Notify::new()))
}

/// `+`, `-` or `~` and the handle.
fn changes(volumes: &Volumes) -> Vec<String> {
    let show = |change| match change {
        Change::Added(key) => format!("+{}", key.handle),
        Change::Removed(key) => format!("-{}", key.handle),
        Change::Changed(key) => format!("~{}", key.handle),
        Change::Resync => "resync".to_owned(),
    };
    volumes.changes().into_iter().map(show).collect()
}

#[test]
fn a_volume_of_several_pods_is_one() {
    let volumes = volumes();
    volumes.set("b", vec![part("b", "d", "h", Some("pv-2"))]);
    volumes.set("a", vec![part("a", "d", "h", Some("pv-1"))]);
    assert_eq!(changes(&volumes), ["+h", "~h"]);
    let volume = volumes.get("d", "h").unwrap();
    assert_eq!((volume.pv.as_deref(), volume.uses.len()), (Some("pv-1"), 2));
    assert!(volume.is_in_use());
    let names =
        |volume: &NodeVolume| volume.pods().iter().map(|pod| pod.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&volume), ["a", "b"]);
    // The same again is no news.
    volumes.set("a", vec![part("a", "d", "h", Some("pv-1"))]);
    assert_eq!(changes(&volumes), [""; 0]);
    volumes.set("a", Vec::new());
    assert_eq!(changes(&volumes), ["~h"]);
    assert_eq!(names(&volumes.get("d", "h").unwrap()), ["b"]);
    volumes.set("b", Vec::new());
    assert_eq!(changes(&volumes), ["-h"]);
    assert!(volumes.is_empty() && volumes.drivers().is_empty());
    assert!(volumes.read().pods.is_empty());
}

#[test]
fn whatever_differs_is_a_change() {
    let volumes = volumes();
    volumes.set("a", vec![part("a", "d", "h", None)]);
    let mut going = part("a", "d", "h", None);
    going.used.phase = Phase::Going;
    volumes.set("a", vec![going]);
    assert_eq!(changes(&volumes), ["+h", "~h"]);
    assert!(!volumes.get("d", "h").unwrap().is_in_use());
    let mut unstaged = part("a", "d", "h", None);
    unstaged.staging = None;
    volumes.set("a", vec![unstaged]);
    assert_eq!((changes(&volumes), &volumes.get("d", "h").unwrap().staging), (vec!["~h".to_owned()], &None));
    volumes.set("a", vec![part("a", "d", "i", None)]);
    assert_eq!(changes(&volumes), ["-h", "+i"]);
}

#[test]
fn volumes_come_in_order_and_by_driver() {
    let volumes = volumes();
    volumes.set("a", vec![part("a", "e", "1", None), part("a", "d", "2", None), part("a", "d", "1", None)]);
    volumes.set("b", vec![part("b", "d", "2", None), part("b", "dd", "0", None)]);
    let show = |volumes: Vec<Arc<NodeVolume>>| {
        volumes.iter().map(|volume| format!("{}/{}", volume.driver, volume.handle)).collect::<Vec<_>>()
    };
    assert_eq!(show(volumes.all()), ["d/1", "d/2", "dd/0", "e/1"]);
    assert_eq!(show(volumes.of("d")), ["d/1", "d/2"]);
    assert_eq!(show(volumes.of("none")), [""; 0]);
    assert_eq!(volumes.drivers(), [("d".into(), 2), ("dd".into(), 1), ("e".into(), 1)]);
    assert_eq!(volumes.pods("d", "2").len(), 2);
    assert_eq!(volumes.pods("d", "3"), []);
}

#[test]
fn too_much_to_report_is_a_resync() {
    let volumes = volumes();
    for index in 0..5000 {
        volumes.set("a", vec![part("a", "d", &index.to_string(), None)]);
    }
    assert_eq!(changes(&volumes), ["resync"]);
    assert_eq!(volumes.len(), 1);
}
