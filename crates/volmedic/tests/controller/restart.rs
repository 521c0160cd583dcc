//! A restart neither loses nor repeats anything, however it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Event;
use volmedic_testkit::{objects, seed, sim::capability as can};

use crate::process::PATIENCE;
use crate::stage::{DATA_LOSS, DEGRADED, INACCESSIBLE, Stage};

/// More changes of one volume than six in an hour are flapping, which is reported in another way; so the 200 changes go to
/// forty claims, five each.
const CLAIMS: usize = 40;
const CHANGES_EACH: usize = 5;
const KILLS: usize = 10;
/// What can be wrong; `None` is health.
const STATES: [Option<(i32, &str, &str)>; 4] = [
    None,
    Some((DEGRADED, "Degraded", "OutOfCapacity")),
    Some((INACCESSIBLE, "Inaccessible", "NetworkError")),
    Some((DATA_LOSS, "DataLoss", "DiskFailure")),
];

/// Numbers that are the same again for the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).expect("below end")
    }
}

fn set(stage: &Stage, claim: usize, state: usize) {
    let claim = format!("c{claim}");
    match STATES[state] {
        None => stage.repair(&claim),
        Some((status, _, reason)) => stage.harm(&claim, status, reason, "as the dice fell"),
    }
}

/// How often a condition of a claim was reported to be there, and to be over.
type Reported = BTreeMap<(String, String), (i32, i32)>;

/// What all events together say, by claim and condition.
async fn reported(stage: &Stage) -> Reported {
    let mut reported = Reported::new();
    for event in stage.all_events().await {
        let Event { message, reason, count, involved_object, .. } = event;
        let message = message.unwrap_or_default();
        let condition = STATES.iter().flatten().map(|(_, status, reason)| format!("{status}/{reason}"));
        let mut named = condition.filter(|condition| message.contains(condition.as_str()));
        let condition = named.next().unwrap_or_else(|| panic!("no condition in {message:?}"));
        assert_eq!(named.next(), None, "one event, one condition: {message}");
        let (began, ended) =
            reported.entry((involved_object.name.unwrap_or_default(), condition)).or_default();
        let count = count.unwrap_or_default();
        match reason.as_deref() {
            Some("VolumeConditionAbnormal") => *began += count,
            Some("VolumeConditionNormal") => *ended += count,
            other => panic!("{other:?} is no reason that belongs here: {message}"),
        }
    }
    reported
}

/// The conditions that were reported and are not over.
fn open(reported: &Reported) -> BTreeSet<(String, String)> {
    reported.iter().filter(|(_, (began, ended))| began > ended).map(|(key, _)| key.clone()).collect()
}

/// Waits until what is stored and what is open are both this.
async fn settle(stage: &Stage, expected: &BTreeSet<(String, String)>) -> Reported {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let reported = reported(stage).await;
        let mut stored = BTreeSet::new();
        for claim in (0..CLAIMS).map(|claim| format!("c{claim}")) {
            stored.extend(stage.stored(&claim).await.into_iter().map(|condition| (claim.clone(), condition)));
        }
        if open(&reported) == *expected && stored == *expected {
            return reported;
        }
        assert!(
            Instant::now() < deadline,
            "open: {:#?}\nstored: {stored:#?}\nexpected: {expected:#?}",
            open(&reported)
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test]
async fn ten_kills_during_two_hundred_changes_end_where_an_uninterrupted_run_ends() {
    let mut dice = Dice(seed("ten_kills_during_two_hundred_changes_end_where_an_uninterrupted_run_ends"));
    let (killed, whole) =
        tokio::join!(Stage::new(&[can::GET_VOLUME_HEALTH]), Stage::new(&[can::GET_VOLUME_HEALTH]));
    for stage in [&killed, &whole] {
        for claim in 0..CLAIMS {
            stage.claim(&format!("c{claim}")).await;
        }
    }
    // Each volume is checked several times a second, so that most changes are seen.
    let quick: &[&str] = &["--monitor-interval=200ms"];
    let _uninterrupted = whole.watching(quick).await;
    let mut controller = killed.watching(quick).await;

    let mut changes: Vec<usize> = (0..CLAIMS * CHANGES_EACH).map(|change| change % CLAIMS).collect();
    for place in (1..changes.len()).rev() {
        changes.swap(place, dice.below(place + 1));
    }
    let mut kills: Vec<usize> = (0..KILLS).map(|kill| kill * 20 + dice.below(20)).collect();
    kills.reverse();
    let mut states = [0_usize; CLAIMS];
    let mut began: BTreeMap<(String, String), i32> = BTreeMap::new();
    for (number, claim) in changes.into_iter().enumerate() {
        states[claim] = (states[claim] + 1 + dice.below(STATES.len() - 1)) % STATES.len();
        set(&killed, claim, states[claim]);
        set(&whole, claim, states[claim]);
        if let Some((_, status, reason)) = STATES[states[claim]] {
            *began.entry((format!("c{claim}"), format!("{status}/{reason}"))).or_default() += 1;
        }
        tokio::time::sleep(Duration::from_millis(20 + dice.below(100) as u64)).await;
        if kills.pop_if(|kill| *kill == number).is_some() {
            controller.kill();
            // Changes go on while it starts, and the next kill may come before it has read what was reported.
            controller = killed.controller(quick);
        }
    }
    assert!(kills.is_empty());

    let condition = |(claim, state): (usize, &usize)| {
        STATES[*state].map(|(_, status, reason)| (format!("c{claim}"), format!("{status}/{reason}")))
    };
    let expected: BTreeSet<(String, String)> = states.iter().enumerate().filter_map(condition).collect();
    for stage in [&whole, &killed] {
        let reported = settle(stage, &expected).await;
        for (key, (opened, closed)) in &reported {
            let most = began.get(key).copied().unwrap_or_default();
            assert!(
                *opened >= 1 && *opened <= most,
                "{key:?} began {most} times and was told {opened} times"
            );
            let standing = i32::from(expected.contains(key));
            assert_eq!(opened - closed, standing, "{key:?} was told {opened} times, its end {closed} times");
        }
    }
}

#[tokio::test]
async fn a_recovery_during_a_restart_is_reported_once_and_a_plain_restart_reports_nothing() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["recovers", "stays", "well"]).await;
    let mut controller = stage.watching(&[]).await;
    for claim in ["recovers", "stays"] {
        stage.harm(claim, DEGRADED, "OutOfCapacity", "99 % used");
        stage.event(claim, "VolumeConditionAbnormal", "Degraded/OutOfCapacity").await;
        stage.wait_stored(claim, &["Degraded/OutOfCapacity"]).await;
    }
    controller.kill();
    stage.repair("recovers");
    let mut controller = stage.watching(&[]).await;
    let reported = stage.event("recovers", "VolumeConditionNormal", "recovered from").await;
    assert_eq!(reported.count, Some(1));
    stage.wait_stored("recovers", &[]).await;
    stage.rounds("ControllerListVolumeHealth", 3).await;
    controller.kill();

    // From here on nothing changes, whether it is killed or ended in good order.
    let before = (stage.all_events().await, stage.requests_noted().await);
    assert_eq!(before.0.len(), 3, "two troubles and one end: {:#?}", before.0);
    let mut controller = stage.watching(&[]).await;
    stage.rounds("ControllerListVolumeHealth", 4).await;
    controller.kill();
    let controller = stage.watching(&[]).await;
    stage.rounds("ControllerListVolumeHealth", 4).await;
    assert_eq!(controller.terminate(), Some(0));
    assert_eq!(stage.all_events().await, before.0, "not even a resourceVersion moved");
    assert_eq!(stage.writes_after(before.1), [], "nothing changed");
}

#[tokio::test]
async fn who_joins_during_or_after_a_restart_is_reported_and_nobody_else_again() {
    let stage = Stage::new(&[can::GET_VOLUME_HEALTH]).await;
    stage.claims(&["first"]).await;
    let mut controller = stage.watching(&[]).await;
    stage.harm("first", INACCESSIBLE, "NetworkError", "no path");
    stage.event("first", "VolumeConditionAbnormal", "Inaccessible/NetworkError").await;
    stage.wait_stored("first", &["Inaccessible/NetworkError"]).await;
    controller.kill();
    // More claims of the same volume, as drivers with shared volumes have them.
    let handle = stage.handle("first");
    let share = |name: &'static str| {
        objects::bound_claim(&stage.client, &stage.namespace, name, &stage.driver, &handle)
    };
    share("second").await.expect("a bound claim");
    let _controller = stage.watching(&[]).await;
    share("third").await.expect("a bound claim");
    for newcomer in ["second", "third"] {
        stage.event(newcomer, "VolumeConditionAbnormal", "Inaccessible/NetworkError").await;
        stage.wait_stored(newcomer, &["Inaccessible/NetworkError"]).await;
    }
    let counts: Vec<_> = stage.events("first").await.iter().map(|event| event.count).collect();
    assert_eq!(counts, [Some(1)], "who was told before the restart is not told again");
}
