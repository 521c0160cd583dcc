use std::collections::HashMap;

use serde_json::{Value, json};
use volmedic_api::Arrived;
use volmedic_api::slim::NodePersistentVolume;

use super::*;
use crate::fake::arrived;
use crate::node::kubelet::Dir;

/// A pod with these volumes, each mounted by its one container; those whose names begin with `raw` as devices.
fn pod(volumes: &Value) -> Record {
    let name = |volume: &Value| json!({"name": volume["name"]});
    let (devices, mounts): (Vec<_>, Vec<_>) = volumes
        .as_array()
        .unwrap()
        .iter()
        .partition(|volume| volume["name"].as_str().unwrap().starts_with("raw"));
    let container = json!({
        "name": "main",
        "volumeMounts": mounts.into_iter().map(name).collect::<Vec<_>>(),
        "volumeDevices": devices.into_iter().map(name).collect::<Vec<_>>(),
    });
    let object = arrived(&json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u1"},
        "spec": {"volumes": volumes, "containers": [container]},
        "status": {"phase": "Running"},
    }));
    Record::new(&object, object.body.as_ref().unwrap(), None)
}

fn claim(name: &str, claim: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": claim}})
}

fn dir(plugin: &str, name: &str, mode: Mode) -> Found {
    Found { dir: Dir::new(plugin, name, mode), note: None, staging: Staging::None }
}

/// A directory with a note about a persistent volume whose handle is `h-name`.
fn csi(name: &str) -> Found {
    let note = json!({"driverName": "d", "volumeHandle": format!("h-{name}")}).to_string();
    let note = VolData::parse(note.as_bytes(), name).unwrap();
    Found { note: Some(Ok(note)), staging: Staging::Hashed, ..dir(CSI, name, Mode::Filesystem) }
}

fn inline(name: &str, driver: &str) -> Found {
    let note = json!({"driverName": driver, "volumeHandle": "csi-1", "volumeLifecycleMode": "Ephemeral"})
        .to_string();
    let note = VolData::parse(note.as_bytes(), name).unwrap();
    Found { note: Some(Ok(note)), ..dir(CSI, name, Mode::Filesystem) }
}

/// A PersistentVolume that belongs to `ns/claim`.
fn volume(claim: &str, more: &Value) -> Facts {
    let (namespace, name) = claim.split_once('/').unwrap();
    let mut spec = json!({"claimRef": {"namespace": namespace, "name": name, "uid": format!("uid-{name}")}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let object: Arrived<NodePersistentVolume> = arrived(&json!({"metadata": {"name": "x"}, "spec": spec}));
    Facts::new(object.body.as_ref().unwrap())
}

/// `driver handle pv volume claim access` of each part.
#[track_caller]
fn check(
    record: &Record,
    found: &[Found],
    facts: &[(&str, Facts)],
    expected: &[&str],
    incomplete: bool,
) -> Placed {
    let facts: HashMap<&str, &Facts> = facts.iter().map(|(name, facts)| (*name, facts)).collect();
    let found = found.iter().map(|found| (found, record.phase));
    let placed = place(record, found, |name| facts.get(name).copied(), |_| None, &Layout::new("/k"));
    let show = |part: &Part| {
        let claim = part.used.claim.as_ref();
        let claim = claim.map_or("-".to_owned(), |claim| format!("{}/{}", claim.name, claim.uid));
        let pv = part.used.pv.as_deref().unwrap_or("-");
        let volume = part.used.volume.as_deref().unwrap_or("-");
        let Key { driver, handle } = &part.key;
        format!("{driver} {handle} {pv} {volume} {claim} {:?}", part.used.access)
    };
    let shown: Vec<_> = placed.parts.iter().map(show).collect();
    assert_eq!(shown, expected);
    assert_eq!(placed.incomplete, incomplete);
    placed
}

/// NFS, local volumes and the rest that the kubelet mounts by itself: it makes their directory only when it mounts them, and
/// removes it when that fails.
#[test]
fn a_volume_without_a_driver_that_a_pod_waits_for_is_known_before_it_is_mounted() {
    let sources = [
        ("nfs", json!({"nfs": {"server": "s", "path": "/"}})),
        ("local-volume", json!({"local": {"path": "/mnt/disk"}})),
        ("iscsi", json!({"iscsi": {"targetPortal": "s", "iqn": "q", "lun": 0}})),
    ];
    for (plugin, source) in sources {
        let facts = Facts { name: Some("pv".into()), ..volume("ns/data", &source) };
        let place = |record: &Record| {
            let of_claim = |name: &str| (name == "data").then_some(&facts);
            let placed = place(record, [], |_| None, of_claim, &Layout::new("/k"));
            assert!(placed.incomplete, "{plugin}: the kubelet will make its directory");
            placed.parts
        };
        for (volume, target) in [("a", "volumes"), ("raw", "volumeDevices")] {
            let record = pod(&json!([claim(volume, "data")]));
            assert!(place(&record).is_empty(), "{plugin}: a pod that runs has mounted all of its volumes");
            let parts = place(&Record { phase: Phase::Coming, ..record });
            let [part] = &parts[..] else { panic!("{plugin}: {parts:?}") };
            assert_eq!((&*part.key.driver, &*part.key.handle), (&*format!("kubernetes.io/{plugin}"), "pv"));
            let target = format!("/k/pods/u1/{target}/kubernetes.io~{plugin}/pv");
            assert_eq!((part.used.target.to_str(), part.used.phase), (Some(&*target), Phase::Coming));
        }
    }
}

#[test]
fn a_directory_of_the_node_is_found_by_its_claim() {
    let record = pod(&json!([claim("a", "data"), claim("b", "slow")]));
    let with = |claim: &str, more: &Value| Facts { name: Some("pv".into()), ..volume(claim, more) };
    let local = with("ns/data", &json!({"hostPath": {"path": "/opt/local/pv"}}));
    let csi = with("ns/slow", &json!({"csi": {"driver": "d", "volumeHandle": "h"}}));
    let place = |record: &Record| {
        let of_claim = |name: &str| {
            [("data", &local), ("slow", &csi)].into_iter().find(|(n, _)| *n == name).map(|f| f.1)
        };
        place(record, [], |_| None, of_claim, &Layout::new("/k"))
    };
    let placed = place(&record);
    let [part] = &placed.parts[..] else { panic!("{placed:?}") };
    assert_eq!((&*part.key.driver, &*part.key.handle), ("kubernetes.io/host-path", "pv"));
    assert_eq!(part.source.as_deref(), Some(std::path::Path::new("/opt/local/pv")));
    assert_eq!(part.used.target, std::path::Path::new("/k/pods/u1/volumes/kubernetes.io~host-path/pv"));
    assert_eq!(
        (part.used.access, placed.incomplete),
        (Access::ReadWrite, true),
        "the other one is not there yet"
    );
    assert_eq!(placed.without_directory, ["data".into(), "slow".into()]);
    // What a pod waits for is known before the kubelet has begun.
    let waiting = place(&Record { phase: Phase::Coming, ..record });
    let keys: Vec<_> =
        waiting.parts.iter().map(|part| format!("{} {}", part.key.driver, part.key.handle)).collect();
    assert_eq!(keys, ["kubernetes.io/host-path pv", "d h"]);
    // Nothing but a path of the host is one.
    for path in ["", "opt", "/opt/../etc"] {
        assert_eq!(with("ns/data", &json!({"hostPath": {"path": path}})).host_path, None, "{path}");
    }
}

#[test]
fn a_persistent_volume_says_whose_it_is() {
    let record = pod(&json!([claim("a", "one"), claim("b", "two")]));
    let found = [csi("pv-1"), csi("pv-2")];
    let facts = [("pv-1", volume("ns/two", &json!({}))), ("pv-2", volume("ns/one", &json!({})))];
    let expected = ["d h-pv-1 pv-1 b two/uid-two ReadWrite", "d h-pv-2 pv-2 a one/uid-one ReadWrite"];
    let placed = check(&record, &found, &facts, &expected, false);
    let part = &placed.parts[0];
    assert_eq!(part.used.target, PathBuf::from("/k/pods/u1/volumes/kubernetes.io~csi/pv-1/mount"));
    assert_eq!(part.staging, Layout::new("/k").staging("d", "h-pv-1").ok());
    // One of another namespace is not the pod's, whatever its claim is called.
    let facts = [("pv-1", volume("elsewhere/two", &json!({}))), ("pv-2", volume("ns/one", &json!({})))];
    let expected = ["d h-pv-2 pv-2 a one/uid-one ReadWrite", "d h-pv-1 pv-1 - - Unknown"];
    check(&record, &found, &facts, &expected, true);
}

#[test]
fn without_persistent_volumes_what_is_unambiguous_is_known() {
    let one = pod(&json!([claim("a", "one")]));
    check(&one, &[csi("pv-1")], &[], &["d h-pv-1 pv-1 a one/ Unknown"], false);
    let two = pod(&json!([claim("a", "one"), claim("b", "two")]));
    let found = [csi("pv-1"), csi("pv-2")];
    check(&two, &found, &[], &["d h-pv-1 pv-1 - - Unknown", "d h-pv-2 pv-2 - - Unknown"], true);
    // One of two is known, so the other is too.
    let facts = [("pv-2", volume("ns/one", &json!({})))];
    let expected = ["d h-pv-2 pv-2 a one/uid-one ReadWrite", "d h-pv-1 pv-1 b two/ Unknown"];
    check(&two, &found, &facts, &expected, false);
    // So is one of each kind.
    let mixed = pod(&json!([claim("a", "one"), claim("raw", "two")]));
    let mut raw = csi("pv-2");
    (raw.dir.mode, raw.staging) = (Mode::Block, Staging::Block);
    let expected = ["d h-pv-1 pv-1 a one/ Unknown", "d h-pv-2 pv-2 raw two/ Unknown"];
    let placed = check(&mixed, &[csi("pv-1"), raw], &[], &expected, false);
    let block = &placed.parts[1];
    assert_eq!(
        block.used.target,
        PathBuf::from("/k/plugins/kubernetes.io/csi/volumeDevices/publish/pv-2/u1")
    );
    assert_eq!(block.staging, Some("/k/plugins/kubernetes.io/csi/volumeDevices/staging/pv-2".into()));
    // Two claims and one directory: it could be either.
    check(&two, &[csi("pv-1")], &[], &["d h-pv-1 pv-1 - - Unknown"], true);
}

#[test]
fn inline_volumes_are_known_by_name() {
    let record = pod(&json!([
        {"name": "scratch", "csi": {"driver": "d", "fsType": "ext4"}},
        {"name": "ro", "csi": {"driver": "e", "readOnly": true}},
        claim("data", "db"),
    ]));
    let found = [inline("ro", "e"), inline("scratch", "d"), csi("pv-1")];
    let expected =
        ["e csi-1 - ro - ReadOnly", "d csi-1 - scratch - ReadWrite", "d h-pv-1 pv-1 data db/ Unknown"];
    let placed = check(&record, &found, &[], &expected, false);
    assert_eq!(placed.parts[1].fs_type.as_deref(), Some("ext4"));
    // Another driver's is not the one; nor is it a claim's.
    let found = [inline("ro", "other")];
    check(&record, &found, &[], &["other csi-1 - - - Unknown"], true);
}

#[test]
fn read_only_by_whose_wish() {
    let ro =
        |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": "one", "readOnly": true}});
    let shared = |facts: &Value| [("pv-1", volume("ns/one", facts))];
    let check = |record: &Record, facts: &[(&str, Facts)], access: Access| {
        let facts: HashMap<&str, &Facts> = facts.iter().map(|(name, facts)| (*name, facts)).collect();
        let found = csi("pv-1");
        let placed = place(
            record,
            [(&found, Phase::InUse)],
            |name| facts.get(name).copied(),
            |_| None,
            &Layout::new("/k"),
        );
        assert_eq!(placed.parts[0].used.access, access);
    };
    let writes = pod(&json!([claim("a", "one")]));
    check(&writes, &shared(&json!({})), Access::ReadWrite);
    check(&writes, &shared(&json!({"mountOptions": ["ro"]})), Access::ReadOnly);
    check(&writes, &[], Access::Unknown);
    let reads = pod(&json!([ro("a")]));
    check(&reads, &shared(&json!({})), Access::ReadOnly);
    check(&reads, &[], Access::ReadOnly);
    // Twice in one pod it is mounted once, and it is unknown how.
    check(&pod(&json!([claim("a", "one"), ro("b")])), &shared(&json!({})), Access::Unknown);
    check(&pod(&json!([ro("a"), ro("b")])), &shared(&json!({})), Access::ReadOnly);
    check(&pod(&json!([claim("a", "one"), claim("b", "one")])), &shared(&json!({})), Access::ReadWrite);
}

#[test]
fn other_plugins_serve_claims_too() {
    let record = pod(&json!([claim("a", "one"), {"name": "own", "nfs": {"server": "s", "path": "/"}}]));
    let found = [
        dir("kubernetes.io~local-volume", "disk-7", Mode::Filesystem),
        dir("kubernetes.io~nfs", "own", Mode::Filesystem),
    ];
    let facts = [("disk-7", volume("ns/one", &json!({"local": {"path": "/mnt"}})))];
    let expected = ["kubernetes.io/local-volume disk-7 disk-7 a one/uid-one ReadWrite"];
    let placed = check(&record, &found, &facts, &expected, false);
    assert_eq!(
        placed.parts[0].used.target,
        PathBuf::from("/k/pods/u1/volumes/kubernetes.io~local-volume/disk-7")
    );
    assert_eq!(placed.parts[0].staging, None);
    // Without its PersistentVolume it could be anything that the pod brought.
    check(&record, &found, &[], &[], true);
    let raw = pod(&json!([claim("raw", "one")]));
    let found = [dir("kubernetes.io~local-volume", "disk-7", Mode::Block)];
    let placed = check(
        &raw,
        &found,
        &facts,
        &["kubernetes.io/local-volume disk-7 disk-7 raw one/uid-one ReadWrite"],
        false,
    );
    let link = "/k/pods/u1/volumeDevices/kubernetes.io~local-volume/disk-7";
    assert_eq!(placed.parts[0].used.target, PathBuf::from(link));
}

#[test]
fn a_note_that_cannot_be_read_is_made_up_for_by_the_persistent_volume() {
    let record = pod(&json!([claim("a", "one")]));
    let found = [Found { note: Some(Err("the note is torn".into())), ..dir(CSI, "pv-1", Mode::Filesystem) }];
    let placed = check(&record, &found, &[], &[], false);
    assert_eq!(placed.troubles, ["the note is torn; the volume is left out until it can be"]);
    let facts = [("pv-1", volume("ns/one", &json!({"csi": {"driver": "x", "volumeHandle": "y"}})))];
    check(&record, &found, &facts, &["x y pv-1 a one/uid-one ReadWrite"], false);
}

#[test]
fn a_driver_that_cannot_be_a_directory_is_left_out() {
    let record = pod(&json!([claim("a", "one")]));
    let note = VolData::parse(br#"{"driverName":"../../etc","volumeHandle":"h"}"#, "pv-1").unwrap();
    let found =
        [Found { note: Some(Ok(note)), staging: Staging::Hashed, ..dir(CSI, "pv-1", Mode::Filesystem) }];
    let placed = check(&record, &found, &[], &[], false);
    assert_eq!(placed.troubles, [r#""../../etc" cannot be the name of a file, so it is left out"#]);
}
