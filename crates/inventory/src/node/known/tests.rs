use super::*;
use crate::node::kubelet::{CSI, Staging, VolData};
use crate::node::volume::Mode;

fn found(name: &str, note: Result<&str, &str>) -> Found {
    let note = note
        .map(|handle| {
            let note = format!(r#"{{"driverName":"d","volumeHandle":"{handle}"}}"#);
            VolData::parse(note.as_bytes(), name).unwrap()
        })
        .map_err(Into::into);
    let dir = Dir::new(CSI, name, Mode::Filesystem);
    Found { dir, note: Some(note), staging: Staging::Hashed }
}

#[track_caller]
fn check(phase: Phase, before: &[&Found], now: &[&Found], expected: &[&Found], gone: &[&Found]) {
    let owned = |found: &[&Found]| found.iter().copied().cloned().collect::<Vec<_>>();
    let gone = gone.iter().map(|found| found.dir.clone()).collect::<Vec<_>>();
    assert_eq!(merge(owned(before), owned(now), phase), (owned(expected), gone));
}

#[test]
fn what_a_running_pod_had_is_remembered() {
    let (a, b, torn) = (&found("a", Ok("1")), &found("b", Ok("2")), &found("a", Err("gone")));
    for phase in [Phase::Coming, Phase::Going] {
        check(phase, &[a], &[], &[], &[]);
        check(phase, &[a], &[torn], &[torn], &[]);
    }
    let phase = Phase::InUse;
    check(phase, &[], &[a], &[a], &[]);
    check(phase, &[a], &[], &[a], &[a]);
    check(phase, &[a], &[b], &[a, b], &[a]);
    check(phase, &[a], &[torn], &[a], &[]);
    check(phase, &[torn], &[a], &[a], &[]);
    check(phase, &[torn], &[torn], &[torn], &[]);
    // What is there now is newer than what is remembered.
    let newer = &found("a", Ok("3"));
    check(phase, &[a], &[newer], &[newer], &[]);
}

/// A kubelet that cleans up is ahead of what the API server says of the pod.
#[test]
fn what_is_gone_is_missed_after_a_while() {
    let (a, now) = (found("a", Ok("1")), Instant::now());
    let mut known = Known::default();
    known.read("u", vec![a.clone()], Phase::InUse, now);
    known.read("u", vec![], Phase::InUse, now);
    let phase =
        |known: &Known, in_touch, after| known.phase("u", &a.dir, Phase::InUse, in_touch, now + after);
    let nearly = GRACE.checked_sub(Duration::from_secs(1)).unwrap();
    assert_eq!(phase(&known, true, nearly), Phase::Going);
    assert_eq!(phase(&known, true, GRACE), Phase::InUse);
    // Who hears nothing of the pod cannot know.
    assert_eq!(phase(&known, false, GRACE * 9), Phase::Going);
    assert_eq!(known.phase("u", &a.dir, Phase::Coming, true, now), Phase::Coming);
    // A second reading does not restart it; being there again ends it.
    known.read("u", vec![], Phase::InUse, now + nearly);
    assert_eq!((phase(&known, true, GRACE), known.bereft()), (Phase::InUse, vec!["u".into()]));
    known.read("u", vec![a.clone()], Phase::InUse, now + GRACE);
    assert_eq!((phase(&known, true, nearly), known.bereft()), (Phase::InUse, vec![]));
    known.read("u", vec![], Phase::Going, now + GRACE);
    assert_eq!((known.of("u"), known.len(), known.bereft()), (&[][..], 1, vec![]));
    assert!(known.forget("u") && !known.forget("u"));
}
