use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fake::{DRIVER, arrived, volume};

fn volumes() -> Volumes {
    Volumes::new(DRIVER, Arc::new(Notify::new()))
}

/// `+handle` for added, `-` for removed, `*` for other claims, `.` for nothing.
fn drained(volumes: &Volumes) -> String {
    let reported: Vec<_> = volumes
        .changes()
        .into_iter()
        .map(|change| match change {
            Change::Added(handle) => format!("+{handle}"),
            Change::Removed(handle) => format!("-{handle}"),
            Change::ClaimsChanged(handle) => format!("*{handle}"),
            Change::Resync => "resync".to_owned(),
        })
        .collect();
    if reported.is_empty() { ".".to_owned() } else { reported.join(" ") }
}

/// One step: `name handle claim` is an object with the claim `namespace/name/uid`, `-` for none; `going name handle claim`
/// is one that is being deleted; `gone name handle`; `begin` and `end` of a list.
fn step(volumes: &Volumes, step: &str) {
    let words: Vec<_> = step.split(' ').collect();
    let object = |name: &str, handle: &str, claim: &str| volume(name, handle, claim.trim_matches('-'));
    let put = |object: &serde_json::Value| {
        let object = arrived(object);
        volumes.put(&object, object.body.as_ref().unwrap()).unwrap();
    };
    match *words {
        ["begin"] => volumes.begin(),
        ["end"] => volumes.sweep(&Spared::default()),
        ["gone", name, handle] => volumes.take(&arrived(&object(name, handle, "-"))),
        ["going", name, handle, claim] => {
            let mut object = object(name, handle, claim);
            object["metadata"]["deletionTimestamp"] = json!("2026-03-01T10:00:00Z");
            put(&object);
        }
        [name, handle, claim] => put(&object(name, handle, claim)),
        _ => panic!("{step}"),
    }
}

#[track_caller]
fn check(script: &[(&str, &str)]) -> Volumes {
    let volumes = volumes();
    for (index, (what, reported)) in script.iter().enumerate() {
        step(&volumes, what);
        assert_eq!(drained(&volumes), *reported, "step {index}: {what}");
    }
    volumes
}

fn claims(volumes: &Volumes, handle: &str) -> Vec<String> {
    let mut claims: Vec<_> = volumes
        .claims(handle)
        .iter()
        .map(|BoundClaim { claim, volume }| {
            format!("{}/{}/{} {volume}", claim.namespace, claim.name, claim.uid)
        })
        .collect();
    claims.sort();
    claims
}

#[test]
fn a_volume_counts_from_binding_to_release() {
    let volumes = check(&[
        ("a h -", "."),
        ("a h ns/data/u1", "+h"),
        ("a h ns/data/u1", "."),
        ("a h -", "-h"),
        ("a h -", "."),
        ("a h other/data/u2", "+h"),
    ]);
    assert_eq!((volumes.len(), volumes.known(), volumes.contains("h")), (1, 1, true));
    assert_eq!(claims(&volumes, "h"), ["other/data/u2 a"]);
    step(&volumes, "gone a h");
    assert_eq!((volumes.len(), volumes.known(), volumes.contains("h")), (0, 0, false));
}

#[test]
fn a_claim_recreated_under_the_same_name_is_another_claim() {
    let volumes = check(&[("a h ns/data/u1", "+h"), ("a h ns/data/u2", "*h")]);
    assert_eq!(claims(&volumes, "h"), ["ns/data/u2 a"]);
}

#[test]
fn a_claim_of_another_namespace_is_another_claim() {
    check(&[("a h one/data/u1", "+h"), ("a h two/data/u1", "*h"), ("a h two/data/u1", ".")]);
}

#[test]
fn a_volume_that_is_being_deleted_is_not_checked() {
    let volumes = check(&[("a h ns/data/u1", "+h"), ("going a h ns/data/u1", "-h"), ("gone a h", ".")]);
    assert_eq!(volumes.known(), 0);
}

#[test]
fn a_shared_handle_is_one_volume_with_several_claims() {
    let volumes = check(&[
        ("a h ns/x/u1", "+h"),
        ("b h ns/y/u2", "*h"),
        ("c h -", "."),
        ("c h ns/z/u3", "*h"),
        ("other i ns/o/u4", "+i"),
    ]);
    assert_eq!(claims(&volumes, "h"), ["ns/x/u1 a", "ns/y/u2 b", "ns/z/u3 c"]);
    assert_eq!((volumes.len(), volumes.known()), (2, 4));
    for (what, reported) in [("gone a h", "*h"), ("gone c h", "*h"), ("gone c h", "."), ("gone b h", "-h")] {
        step(&volumes, what);
        assert_eq!(drained(&volumes), reported, "{what}");
    }
    assert_eq!((volumes.len(), volumes.known()), (1, 1));
}

#[test]
fn a_list_removes_what_it_does_not_show() {
    let volumes = check(&[
        ("begin", "."),
        ("a h ns/x/u1", "+h"),
        ("b i ns/y/u2", "+i"),
        ("c j -", "."),
        ("end", "."),
        // This one breaks off.
        ("begin", "."),
        ("a h ns/x/u1", "."),
        ("begin", "."),
        ("b i ns/y/u2", "."),
        ("end", "-h"),
    ]);
    assert_eq!((volumes.len(), volumes.known()), (1, 1));
}

#[test]
fn a_volume_recreated_with_another_handle_replaces_the_old_one() {
    let volumes = check(&[("begin", "."), ("a h ns/x/u1", "+h"), ("end", ".")]);
    step(&volumes, "begin");
    step(&volumes, "a i ns/x/u2");
    step(&volumes, "end");
    assert_eq!(drained(&volumes), "+i -h");
}

#[test]
fn what_is_not_ours_or_not_bound_does_not_count() {
    let volumes = volumes();
    let mut others = [(); 6].map(|()| volume("a", "h", "ns/x/u1"));
    others[0]["spec"]["csi"]["driver"] = json!("other.example.net");
    others[1]["spec"]["csi"] = json!(null);
    others[2]["spec"]["csi"]["volumeHandle"] = json!("");
    others[3]["spec"]["claimRef"]["uid"] = json!("");
    others[4]["status"] = json!({});
    others[5]["status"]["phase"] = json!("Failed");
    for object in &others {
        let object = arrived(object);
        volumes.put(&object, object.body.as_ref().unwrap()).unwrap();
        assert!(volumes.is_empty(), "{object:?}");
    }
    assert_eq!(volumes.known(), 1);
}

#[test]
fn names_that_no_object_can_have_are_refused() {
    let object = arrived(&volume("a", "h", "ns/x/u1"));
    let mut body: PersistentVolume = object.body.clone().unwrap();
    body.spec.claim_ref.as_mut().unwrap().name = "x/y".to_owned();
    let refused = volumes().put(&object, &body).unwrap_err();
    assert!(refused.contains("x/y"), "{refused}");
}

#[test]
fn a_deletion_that_cannot_be_read_is_still_a_deletion() {
    let volumes = check(&[("a h ns/x/u1", "+h"), ("b i ns/y/u2", "+i")]);
    volumes.take(&arrived(&json!({"metadata": {"name": "a"}, "spec": 3})));
    assert_eq!(drained(&volumes), "-h");
}

#[test]
fn handles_are_shared_not_copied() {
    let volumes = check(&[("a h ns/x/u1", "+h"), ("b h ns/y/u2", "*h")]);
    let mut seen = Vec::new();
    volumes.for_each(|handle| seen.push(handle.clone()));
    step(&volumes, "a h ns/x/u9");
    let Some(Change::ClaimsChanged(reported)) = volumes.changes().pop() else { panic!("nothing told") };
    assert_eq!(seen.len(), 1);
    assert!(Arc::ptr_eq(&seen[0], &reported));
}

/// Handle, and claim if bound, by name.
type Model = BTreeMap<u8, (u8, Option<u8>)>;

fn bound(model: &Model) -> BTreeMap<u8, BTreeSet<(u8, u8)>> {
    let mut handles: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (&name, &(handle, claim)) in model {
        if let Some(claim) = claim {
            handles.entry(handle).or_default().insert((name, claim));
        }
    }
    handles
}

proptest! {
    /// The handle follows from the name, as it never changes for one PersistentVolume.
    #[test]
    fn any_history_gives_what_a_plain_map_gives(
        history in prop::collection::vec((0u8..12, prop::option::of(prop::option::of(0u8..3))), 0..80),
    ) {
        let volumes = volumes();
        let mut model = Model::new();
        for (name, event) in history {
            let handle = name % 4;
            let before = bound(&model);
            match event {
                Some(claim) => {
                    model.insert(name, (handle, claim));
                    let claim = claim.map_or("-".to_owned(), |claim| format!("ns{claim}/c/u{claim}"));
                    step(&volumes, &format!("pv{name} h{handle} {claim}"));
                }
                None => {
                    model.remove(&name);
                    step(&volumes, &format!("gone pv{name} h{handle}"));
                }
            }
            let after = bound(&model);
            let expected = match (before.get(&handle), after.get(&handle)) {
                (None, Some(_)) => format!("+h{handle}"),
                (Some(_), None) => format!("-h{handle}"),
                (Some(a), Some(b)) if a != b => format!("*h{handle}"),
                _ => ".".to_owned(),
            };
            prop_assert_eq!(drained(&volumes), expected);
            prop_assert_eq!((volumes.len(), volumes.known()), (after.len(), model.len()));
        }
        let expected = bound(&model);
        let mut seen = BTreeSet::new();
        volumes.for_each(|handle| { seen.insert(handle.to_string()); });
        prop_assert_eq!(seen, expected.keys().map(|handle| format!("h{handle}")).collect::<BTreeSet<_>>());
        for (handle, users) in expected {
            let mut users: Vec<_> = users.iter().map(|(name, claim)| format!("ns{claim}/c/u{claim} pv{name}")).collect();
            users.sort();
            prop_assert_eq!(claims(&volumes, &format!("h{handle}")), users);
        }
    }
}
