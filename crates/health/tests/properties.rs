//! What holds for every history, whatever a driver and a network may do.

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use volmedic_health::{
    Change, Condition, Ledger, Policy, Reason, Sight, Status, Subject, Transition, Vantage, WhyKind,
};

#[derive(Debug, Clone)]
enum Step {
    Look { volume: usize, vantage: usize, sight: Sight, after: i64 },
    Forget { volume: usize },
    Tick { after: i64 },
}

fn sights() -> impl Strategy<Value = Sight> {
    let statuses = prop_oneof![
        Just(Status::Degraded),
        Just(Status::Inaccessible),
        Just(Status::DataLoss),
        Just(Status::Unrecognized(7))
    ];
    let condition = (statuses, 0..3_u8, 0..3_u8).prop_map(|(status, reason, text)| {
        Condition::new(status, Reason::new(&format!("R{reason}")), &text.to_string())
    });
    prop_oneof![
        3 => Just(Sight::Healthy),
        2 => Just(Sight::Unlisted),
        4 => prop::collection::vec(condition, 1..4).prop_map(Sight::adverse),
        2 => Just(Sight::missing("gone")),
        3 => Just(Sight::not_seen(WhyKind::Failed, "no")),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let look = (0..3_usize, 0..3_usize, sights(), 0..40_i64)
        .prop_map(|(volume, vantage, sight, after)| Step::Look { volume, vantage, sight, after });
    let step = prop_oneof![
        20 => look,
        1 => (0..3_usize).prop_map(|volume| Step::Forget { volume }),
        3 => (0..90_i64).prop_map(|after| Step::Tick { after }),
    ];
    prop::collection::vec(step, 0..120)
}

fn volume(number: usize) -> Subject {
    Subject::volume("disk.example.net", format!("v{number}"))
}

fn vantage(number: usize) -> Vantage {
    [Vantage::Controller, Vantage::Node("a".into()), Vantage::Host("a".into())][number].clone()
}

fn policy() -> Policy {
    Policy { flap_limit: 4, ..Policy::default() }
}

fn play(ledger: &mut Ledger, now: &mut Timestamp, step: &Step) -> Vec<Transition> {
    match step {
        Step::Look { volume: v, vantage: w, sight, after } => {
            *now += SignedDuration::from_mins(*after);
            ledger.record(*now, &volume(*v), &vantage(*w), sight.clone())
        }
        Step::Forget { volume: v } => ledger.forget(*now, &volume(*v)),
        Step::Tick { after } => {
            *now += SignedDuration::from_mins(*after);
            ledger.tick(*now)
        }
    }
}

/// What somebody knows who only hears what is reported.
#[derive(Default)]
struct Listener {
    open: HashSet<(Subject, Vantage, Status, String)>,
    blind: HashSet<(Subject, Vantage)>,
    flapping: HashSet<(Subject, Vantage)>,
}

impl Listener {
    fn hear(&mut self, transition: &Transition) -> Result<(), TestCaseError> {
        let place = (transition.subject.clone(), transition.vantage.clone());
        let key = |c: &Condition| (place.0.clone(), place.1.clone(), c.status, c.reason.to_string());
        match &transition.change {
            Change::Appeared { condition, .. } => {
                prop_assert!(self.open.insert(key(condition)), "twice");
            }
            Change::Cleared { condition, .. } => {
                prop_assert!(self.open.remove(&key(condition)), "never appeared");
            }
            Change::Changed { from, to, .. } => {
                prop_assert!(self.open.remove(&key(from)));
                prop_assert!(self.open.insert(key(to)));
            }
            Change::Reworded { condition, .. } | Change::Reminder { condition, .. } => {
                prop_assert!(self.open.contains(&key(condition)), "speaks of what is not open");
            }
            // While it lasts it is reported again as a reminder.
            Change::Flapping { .. } => drop(self.flapping.insert(place)),
            Change::Settled { .. } => prop_assert!(self.flapping.remove(&place)),
            Change::WentBlind { .. } => prop_assert!(self.blind.insert(place)),
            Change::SeesAgain { .. } => prop_assert!(self.blind.remove(&place)),
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_appears_ends_at_most_once_and_nothing_ends_that_never_began(history in steps()) {
        let (mut ledger, mut now, mut listener) = (Ledger::new(policy()), Timestamp::UNIX_EPOCH, Listener::default());
        for step in &history {
            for transition in play(&mut ledger, &mut now, step) {
                listener.hear(&transition)?;
            }
        }
        // Who forgets everything closes everything: nothing stays open in anybody's dashboard.
        for v in 0..3 {
            for transition in ledger.forget(now, &volume(v)) {
                listener.hear(&transition)?;
            }
        }
        prop_assert!(listener.open.is_empty() && listener.blind.is_empty() && listener.flapping.is_empty());
    }

    #[test]
    fn no_number_of_failed_looks_clears_anything(history in steps(), fails in 1..50_usize) {
        let (mut ledger, mut now) = (Ledger::new(policy()), Timestamp::UNIX_EPOCH);
        for step in &history {
            play(&mut ledger, &mut now, step);
        }
        let conditions = |ledger: &Ledger| -> Vec<_> {
            (0..3).flat_map(|v| ledger.beliefs(&volume(v)).into_iter().map(|(_, b)| b.conditions).collect::<Vec<_>>())
                .filter(|conditions| !conditions.is_empty()).collect()
        };
        let before = conditions(&ledger);
        for _ in 0..fails {
            for v in 0..3 {
                for w in 0..3 {
                    now += SignedDuration::from_mins(1);
                    let reported = ledger.record(now, &volume(v), &vantage(w), Sight::not_seen(WhyKind::TimedOut, ""));
                    let only_failed_probes = reported.iter().all(|t| matches!(t.change, Change::WentBlind { .. }));
                    prop_assert!(only_failed_probes, "{reported:?}");
                }
            }
        }
        prop_assert_eq!(before, conditions(&ledger));
    }

    #[test]
    fn troubles_are_all_that_is_believed_to_be_wrong(history in steps()) {
        let (mut ledger, mut now) = (Ledger::new(policy()), Timestamp::UNIX_EPOCH);
        for step in &history {
            drop(play(&mut ledger, &mut now, step));
        }
        let mut believed = Vec::new();
        for subject in ledger.subjects() {
            let beliefs = ledger.beliefs(&subject).into_iter().filter(|(_, belief)| !belief.conditions.is_empty());
            believed.extend(beliefs.map(|(vantage, belief)| (subject.clone(), vantage.clone(), belief.conditions)));
        }
        believed.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        prop_assert_eq!(ledger.troubles(), believed);
    }

    #[test]
    fn seeing_the_same_again_after_a_restart_reports_nothing(history in steps()) {
        let (mut ledger, mut now) = (Ledger::new(policy()), Timestamp::UNIX_EPOCH);
        let mut last: HashMap<(usize, usize), Sight> = HashMap::new();
        for step in &history {
            drop(play(&mut ledger, &mut now, step));
            match step {
                Step::Look { volume, vantage, sight, .. } => drop(last.insert((*volume, *vantage), sight.clone())),
                Step::Forget { volume } => last.retain(|(v, _), _| v != volume),
                Step::Tick { .. } => {}
            }
        }
        // One more tick, so that what is due by time alone is not mistaken for a repetition.
        drop(ledger.tick(now));
        let mut again = Ledger::new(policy());
        ledger.memos().into_iter().for_each(|memo| again.recall(memo));
        prop_assert_eq!(again.memos(), ledger.memos());
        for ((v, w), sight) in &last {
            let reported = again.record(now, &volume(*v), &vantage(*w), sight.clone());
            // New words that had to wait are due at some time, restart or not.
            let due = ledger.record(now, &volume(*v), &vantage(*w), sight.clone());
            let nothing_new = reported.iter().all(|t| matches!(t.change, Change::Reworded { .. }) && due.contains(t));
            prop_assert!(nothing_new, "{sight:?} told {reported:?}");
        }
        prop_assert!(again.tick(now).is_empty());
    }

    #[test]
    fn the_order_in_which_vantages_report_does_not_matter(
        sights in prop::collection::vec((0..3_usize, 0..3_usize, sights()), 0..60),
        seed in any::<u64>(),
    ) {
        // The same sights at the same times, interleaved differently between vantages.
        let looks: Vec<_> = sights.into_iter().enumerate().collect();
        let mut shuffled = looks.clone();
        let mut random = seed;
        for i in 1..shuffled.len() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let swap = ((random >> 33) as usize).is_multiple_of(2);
            // Only neighbours of different volume or vantage may change places.
            let (a, b) = (&shuffled[i - 1].1, &shuffled[i].1);
            if swap && (a.0, a.1) != (b.0, b.1) {
                shuffled.swap(i - 1, i);
            }
        }
        let result = |looks: &[(usize, (usize, usize, Sight))]| {
            let mut ledger = Ledger::new(policy());
            let mut reported = Vec::new();
            for (minute, (v, w, sight)) in looks {
                let now = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(i64::try_from(*minute).expect("few steps"));
                reported.extend(ledger.record(now, &volume(*v), &vantage(*w), sight.clone()).iter().map(|t| format!("{t:?}")));
            }
            reported.sort();
            (reported, (0..3).map(|v| ledger.headline(&volume(v))).collect::<Vec<_>>(), ledger.tally("disk.example.net"))
        };
        prop_assert_eq!(result(&looks), result(&shuffled));
    }

    #[test]
    fn the_headline_is_the_worst_of_the_vantages(history in steps()) {
        let (mut ledger, mut now) = (Ledger::new(policy()), Timestamp::UNIX_EPOCH);
        for step in &history {
            play(&mut ledger, &mut now, step);
        }
        let mut counted = 0;
        for v in 0..3 {
            let worst = ledger.beliefs(&volume(v)).iter().map(|(_, belief)| belief.health()).max();
            if let Some(worst) = worst {
                prop_assert_eq!(ledger.headline(&volume(v)).health, worst);
                counted += 1;
            }
        }
        let tally = ledger.tally("disk.example.net");
        let all = tally.healthy + tally.degraded + tally.inaccessible + tally.data_loss + tally.unrecognized + tally.unknown;
        prop_assert!(all >= counted, "{tally:?}");
    }
}
