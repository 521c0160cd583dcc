use serde_json::{Value, json};
use volmedic_api::Arrived;

use super::*;
use crate::fake::arrived;
use crate::trouble::Verb;

fn facts(spec: &Value) -> Facts {
    let object: Arrived<NodePersistentVolume> = arrived(&json!({"metadata": {"name": "pv"}, "spec": spec}));
    Facts::new(object.body.as_ref().unwrap())
}

#[track_caller]
fn check(spec: &Value, read_only: bool) {
    assert_eq!(facts(spec).read_only, read_only, "{spec}");
}

#[test]
fn read_only_by_intent() {
    check(&json!({}), false);
    check(&json!({"csi": {"driver": "d", "volumeHandle": "h", "readOnly": true}}), true);
    check(&json!({"csi": {"driver": "d", "volumeHandle": "h"}}), false);
    check(&json!({"nfs": {"server": "s", "path": "/", "readOnly": true}}), true);
    check(&json!({"accessModes": ["ReadOnlyMany"]}), true);
    check(&json!({"accessModes": ["ReadOnlyMany", "ReadWriteOnce"]}), false);
    check(&json!({"accessModes": []}), false);
    check(&json!({"mountOptions": ["noatime", "ro"]}), true);
    check(&json!({"mountOptions": ["ro,noatime"]}), true);
    check(&json!({"mountOptions": ["ro", "rw"]}), false);
    check(&json!({"mountOptions": ["errors=remount-ro", "norecovery"]}), false);
}

#[test]
fn whose_it_is_and_what_it_is() {
    let spec = json!({
        "csi": {"driver": "d", "volumeHandle": "h", "fsType": "xfs", "nodeStageSecretRef": {"name": "s"}},
        "claimRef": {"namespace": "ns", "name": "db", "uid": "u", "kind": "PersistentVolumeClaim"},
    });
    let facts = facts(&spec);
    let claim = facts.claim.unwrap();
    assert_eq!((&*claim.namespace, &*claim.name, &*claim.uid), ("ns", "db", "u"));
    assert_eq!(facts.csi, Some(Box::new(Key { driver: "d".into(), handle: "h".into() })));
    assert_eq!(facts.fs_type.as_deref(), Some("xfs"));
    let other = self::facts(
        &json!({"local": {"path": "/mnt"}, "csi": {"driver": "", "volumeHandle": "h", "fsType": ""}}),
    );
    assert_eq!((other.claim, other.csi, other.fs_type), (None, None, None));
}

fn forbidden() -> Outcome {
    let resource = "persistentvolumes";
    Outcome::Failed(Trouble::Forbidden { verb: Verb::Get, resource, group: "", said: "no".to_owned() })
}

fn silent() -> Outcome {
    let (verb, resource) = (Verb::Get, "persistentvolumes");
    Outcome::Failed(Trouble::Silent { verb, resource, after: Duration::from_secs(10) })
}

fn read() -> Outcome {
    Outcome::Read(facts(&json!({})))
}

#[test]
fn each_is_asked_for_once_a_few_at_a_time() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    for index in 0..20 {
        cache.want(&format!("pv-{index:02}").into(), now);
        cache.want(&format!("pv-{index:02}").into(), now);
    }
    let first = cache.due(now);
    assert_eq!((first.len(), cache.next()), (TOGETHER, None));
    assert_eq!(cache.due(now), [] as [Arc<str>; 0]);
    assert!(!cache.is_settled());
    assert!(cache.answered(&first[0], read(), now));
    assert_eq!(cache.due(now), [Arc::from("pv-08")]);
    let mut asked = first[1..].to_vec();
    asked.push("pv-08".into());
    while let Some(name) = asked.pop() {
        cache.answered(&name, read(), now);
        asked.extend(cache.due(now));
    }
    assert!(cache.is_settled() && cache.get("pv-19").is_some());
    assert_eq!((cache.next(), cache.asking), (None, 0));
    // Forgotten means asked for again.
    cache.retain(|name| name == "pv-03");
    cache.want(&"pv-04".into(), now);
    assert_eq!(cache.due(now), [Arc::from("pv-04")]);
}

#[test]
fn names_that_no_object_has_are_not_asked_for() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    for name in ["", "a/b", "../x", "A", "a?b=c", "a b", "-a", ".a", "é", &"x".repeat(254)] {
        cache.want(&name.into(), now);
    }
    assert_eq!(cache.due(now), [] as [Arc<str>; 0]);
    assert!(cache.is_settled());
}

#[test]
fn a_right_that_is_missing_is_tried_for_all_by_one_now_and_then() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    for name in ["a", "b", "c"] {
        cache.want(&name.into(), now);
    }
    for name in cache.due(now) {
        assert!(!cache.answered(&name, forbidden(), now));
    }
    // Not knowing has to do.
    assert!(cache.is_settled());
    assert_eq!(cache.due(now + REFUSED / 2), [] as [Arc<str>; 0]);
    assert_eq!(cache.next(), Some(now + REFUSED));
    let later = now + REFUSED;
    assert_eq!(cache.due(later), [Arc::from("a")]);
    assert_eq!((cache.due(later), cache.next()), (vec![], None));
    cache.answered("a", read(), later);
    assert_eq!(cache.due(later), [Arc::from("b"), Arc::from("c")]);
}

#[test]
fn a_server_that_does_not_answer_is_asked_ever_more_rarely() {
    let (mut cache, mut now) = (Cache::default(), Instant::now());
    cache.want(&"a".into(), now);
    let mut waits = Vec::new();
    for _ in 0..12 {
        assert_eq!(cache.due(now), [Arc::from("a")]);
        cache.answered("a", silent(), now);
        let next = cache.next().unwrap();
        waits.push(next - now);
        now = next;
    }
    assert!(waits[0] < Duration::from_secs(3), "{waits:?}");
    assert!(waits[11] > Duration::from_secs(10) && waits[11] < Duration::from_mins(2), "{waits:?}");
}

#[test]
fn one_that_is_not_there_is_asked_for_again_ever_more_rarely() {
    let (mut cache, mut now) = (Cache::default(), Instant::now());
    cache.want(&"a".into(), now);
    for wait in [30, 60, 120, 240, 480, 600, 600] {
        assert_eq!(cache.due(now), [Arc::from("a")]);
        assert!(!cache.answered("a", Outcome::Absent, now));
        assert!(cache.is_settled());
        assert_eq!(cache.next(), Some(now + Duration::from_secs(wait)));
        now += Duration::from_secs(wait);
    }
    assert_eq!(cache.due(now), [Arc::from("a")]);
    assert!(cache.answered("a", read(), now));
}

#[test]
fn an_answer_that_nobody_waits_for_any_more_is_dropped() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    cache.want(&"a".into(), now);
    assert_eq!(cache.due(now).len(), 1);
    cache.retain(|_| false);
    assert!(!cache.answered("a", read(), now));
    assert_eq!(cache.asking, 0);
}
