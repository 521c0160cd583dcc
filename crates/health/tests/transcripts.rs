//! Each rule of the ledger as one line: what was seen, and what was reported of it.
//!
//! Steps are a minute apart: `ok`, `unlisted`, `gone`, `fail`, `bad(Reason)`, `lost(Reason)`, `down(Reason)`,
//! several together with `+`, `words(Reason,text)`; `left` (the inventory), `nodegone`, `restart`, `tick`, and
//! `wait30` for minutes in which nobody looks. The answer lists what was reported at which step, counted from one.

use jiff::Timestamp;
use volmedic_health::{
    Change, Condition, Ending, Ledger, Policy, Reason, Sight, Status, Subject, Transition, Vantage, WhyKind,
};

#[track_caller]
fn check(script: &str, expected: &str) {
    check_with(&Policy { remind_every: None, ..Policy::default() }, script, expected);
}

#[track_caller]
fn check_with(policy: &Policy, script: &str, expected: &str) {
    assert_eq!(run(policy, script), expected, "for: {script}");
}

fn run(policy: &Policy, script: &str) -> String {
    let subject = Subject::volume("disk.example.net", "v");
    let vantage = Vantage::Node("n".into());
    let mut ledger = Ledger::new(policy.clone());
    let mut now = Timestamp::UNIX_EPOCH;
    let mut reported = Vec::new();
    for (step, word) in (1..).zip(script.split_whitespace()) {
        now += jiff::SignedDuration::from_mins(1);
        let news = match word {
            "left" => ledger.forget(now, &subject),
            "nodegone" => ledger.forget_vantage(now, &vantage),
            "tick" => ledger.tick(now),
            "restart" => {
                let memos = ledger.memos();
                ledger = Ledger::new(policy.clone());
                for memo in memos {
                    ledger.recall(memo);
                }
                Vec::new()
            }
            wait if wait.starts_with("wait") => {
                now += jiff::SignedDuration::from_mins(wait[4..].parse().expect("minutes"));
                Vec::new()
            }
            sight => ledger.record(now, &subject, &vantage, sight_of(sight)),
        };
        reported.extend(news.iter().map(|transition| format!("{step}:{}", short(transition))));
    }
    reported.join(" ")
}

fn sight_of(word: &str) -> Sight {
    match word {
        "ok" => Sight::Healthy,
        "unlisted" => Sight::Unlisted,
        "gone" => Sight::missing("not known"),
        "fail" => Sight::not_seen(WhyKind::Failed, "error"),
        adverse => Sight::adverse(adverse.split('+').map(condition_of)),
    }
}

fn condition_of(word: &str) -> Condition {
    let (kind, rest) = word.trim_end_matches(')').split_once('(').expect("kind(Reason)");
    let (reason, text) = rest.split_once(',').unwrap_or((rest, ""));
    let status = match kind {
        "bad" | "words" => Status::Degraded,
        "down" => Status::Inaccessible,
        "lost" => Status::DataLoss,
        "odd" => Status::Unrecognized(9),
        other => panic!("no such step: {other}"),
    };
    Condition::new(status, Reason::new(reason), text)
}

fn short(transition: &Transition) -> String {
    let end = |ending: &Ending| match ending {
        Ending::Recovered => "",
        Ending::LeftInventory => ",left",
        Ending::VantageGone => ",vantage",
    };
    let age = |since: &Timestamp| since.as_second() / 60;
    match &transition.change {
        Change::Appeared { condition, since } => format!("appeared({condition},since{})", age(since)),
        Change::Changed { from, to, .. } => format!("changed({from}>{to})"),
        Change::Reworded { condition, .. } => format!("reworded({})", condition.message),
        Change::Reminder { condition, since } => format!("reminder({condition},since{})", age(since)),
        Change::Cleared { condition, ending, .. } => format!("cleared({condition}{})", end(ending)),
        Change::Flapping { changes, now, .. } => format!("flapping({changes},{})", now.len()),
        Change::Settled { ending, .. } => format!("settled{}", end(ending)),
        Change::WentBlind { looks, since, .. } => format!("blind({looks},since{})", age(since)),
        Change::SeesAgain { ending, .. } => format!("sees{}", end(ending)),
    }
}

#[test]
fn health_is_no_news() {
    check("ok ok ok", "");
    check("unlisted unlisted", "");
}

#[test]
fn trouble_is_reported_once_and_its_end_once() {
    check("ok bad(X) bad(X) ok ok", "2:appeared(Degraded/X,since2) 4:cleared(Degraded/X)");
    check("bad(X) bad(X)", "1:appeared(Degraded/X,since1)");
}

#[test]
fn each_condition_has_its_own_life() {
    check(
        "bad(X) bad(X)+down(Y) down(Y) ok",
        "1:appeared(Degraded/X,since1) 2:appeared(Inaccessible/Y,since2) 3:cleared(Degraded/X) 4:cleared(Inaccessible/Y)",
    );
}

#[test]
fn the_same_reason_under_another_status_is_one_story() {
    check(
        "bad(X) lost(X) ok",
        "1:appeared(Degraded/X,since1) 2:changed(Degraded/X>DataLoss/X) 3:cleared(DataLoss/X)",
    );
    check(
        "bad(X)+lost(X) bad(X)",
        "1:appeared(DataLoss/X,since1) 1:appeared(Degraded/X,since1) 2:cleared(DataLoss/X)",
    );
}

#[test]
fn absence_and_failure_never_heal() {
    check("bad(X) fail fail bad(X)", "1:appeared(Degraded/X,since1)");
    check("bad(X) fail ok", "1:appeared(Degraded/X,since1) 3:cleared(Degraded/X)");
}

#[test]
fn a_missing_volume_is_reported_on_the_second_sighting() {
    check("ok gone", "");
    check("ok gone ok gone ok", "");
    check("gone gone gone", "2:appeared(Inaccessible/VolumeNotFound,since1)");
    check(
        "gone gone ok",
        "2:appeared(Inaccessible/VolumeNotFound,since1) 3:cleared(Inaccessible/VolumeNotFound)",
    );
}

#[test]
fn a_failed_look_neither_confirms_nor_denies_that_a_volume_is_missing() {
    check("gone fail gone", "3:appeared(Inaccessible/VolumeNotFound,since1)");
    check("gone fail fail", "");
}

#[test]
fn a_missing_volume_keeps_its_other_troubles_until_it_is_surely_gone() {
    check(
        "bad(X) gone gone",
        "1:appeared(Degraded/X,since1) 3:appeared(Inaccessible/VolumeNotFound,since2) 3:cleared(Degraded/X)",
    );
}

#[test]
fn a_list_of_the_unhealthy_clears_by_two_passes_or_one_confirmation() {
    check("bad(X) unlisted unlisted", "1:appeared(Degraded/X,since1) 3:cleared(Degraded/X)");
    check("bad(X) unlisted ok", "1:appeared(Degraded/X,since1) 3:cleared(Degraded/X)");
    check("bad(X) unlisted bad(X) unlisted", "1:appeared(Degraded/X,since1)");
    check("bad(X) unlisted fail unlisted", "1:appeared(Degraded/X,since1) 4:cleared(Degraded/X)");
}

#[test]
fn a_status_we_do_not_know_is_reported_and_never_healthy() {
    check("odd(X) ok", "1:appeared(Unrecognized(9)/X,since1) 2:cleared(Unrecognized(9)/X)");
}

#[test]
fn the_time_without_probes_is_reported_once_and_so_is_its_end() {
    check("ok fail fail", "");
    check("ok fail fail fail fail fail ok", "4:blind(3,since2) 7:sees");
    check("fail fail fail", "3:blind(3,since1)");
    check("ok fail fail ok fail fail", "");
}

#[test]
fn what_was_known_before_probes_failed_stands() {
    check(
        "bad(X) fail fail fail bad(X) ok",
        "1:appeared(Degraded/X,since1) 4:blind(3,since2) 5:sees 6:cleared(Degraded/X)",
    );
}

#[test]
fn new_words_are_reported_rarely() {
    check("words(X,a) words(X,b) words(X,c)", "1:appeared(Degraded/X,since1)");
    check(
        "words(X,a) words(X,b) wait20 words(X,c) words(X,d)",
        "1:appeared(Degraded/X,since1) 4:reworded(c)",
    );
}

#[test]
fn what_lasts_is_reminded_of() {
    let policy = Policy::default();
    check_with(
        &policy,
        "bad(X) tick wait30 tick tick wait30 tick ok tick",
        "1:appeared(Degraded/X,since1) 4:reminder(Degraded/X,since1) 7:reminder(Degraded/X,since1) 8:cleared(Degraded/X)",
    );
    check_with(&policy, "ok wait300 tick gone tick", "");
}

#[test]
fn a_restart_neither_repeats_nor_loses() {
    check("bad(X) restart bad(X) restart ok ok", "1:appeared(Degraded/X,since1) 5:cleared(Degraded/X)");
    check(
        "bad(X) restart down(Y)",
        "1:appeared(Degraded/X,since1) 3:appeared(Inaccessible/Y,since3) 3:cleared(Degraded/X)",
    );
    check("fail fail fail restart fail fail fail fail ok", "3:blind(3,since1) 9:sees");
    check(
        "gone gone restart gone ok",
        "2:appeared(Inaccessible/VolumeNotFound,since1) 5:cleared(Inaccessible/VolumeNotFound)",
    );
}

#[test]
fn a_restart_keeps_the_rhythm_of_reminders_and_their_age() {
    check_with(
        &Policy::default(),
        "bad(X) wait20 restart tick wait10 tick",
        "1:appeared(Degraded/X,since1) 6:reminder(Degraded/X,since1)",
    );
}

#[test]
fn who_leaves_the_inventory_closes_the_door() {
    check(
        "bad(X)+down(Y) left ok",
        "1:appeared(Inaccessible/Y,since1) 1:appeared(Degraded/X,since1) 2:cleared(Inaccessible/Y,left) 2:cleared(Degraded/X,left)",
    );
    check("ok left left", "");
    check("gone left gone", "");
    check("fail fail fail left", "3:blind(3,since1) 4:sees,left");
    check("bad(X) nodegone ok", "1:appeared(Degraded/X,since1) 2:cleared(Degraded/X,vantage)");
}

#[test]
fn flapping_is_reported_once_and_then_on_settling() {
    let policy = Policy { flap_limit: 3, remind_every: None, ..Policy::default() };
    check_with(
        &policy,
        "bad(X) ok bad(X) ok bad(X) ok wait60 ok ok",
        "1:appeared(Degraded/X,since1) 2:cleared(Degraded/X) 3:appeared(Degraded/X,since3) 4:flapping(4,0) \
         8:settled 8:cleared(Degraded/X)",
    );
    // It settles in trouble: the trouble that was reported stands and is not reported again.
    check_with(
        &policy,
        "bad(X) ok bad(X) ok bad(X) wait60 bad(X) bad(X) ok",
        "1:appeared(Degraded/X,since1) 2:cleared(Degraded/X) 3:appeared(Degraded/X,since3) 4:flapping(4,0) \
         7:settled 9:cleared(Degraded/X)",
    );
    // Trouble that never ends but changes its face every time is flapping too.
    check_with(
        &policy,
        "bad(X) bad(Y) bad(X) bad(Y) bad(X) left",
        "1:appeared(Degraded/X,since1) 2:appeared(Degraded/Y,since2) 2:cleared(Degraded/X) \
         3:appeared(Degraded/X,since3) 3:cleared(Degraded/Y) 4:flapping(4,1) 6:cleared(Degraded/X,left) 6:settled,left",
    );
    check_with(
        &policy,
        "bad(X) ok bad(X) ok restart bad(X) ok wait60 ok",
        "1:appeared(Degraded/X,since1) 2:cleared(Degraded/X) 3:appeared(Degraded/X,since3) 4:flapping(4,0) \
         9:settled 9:cleared(Degraded/X)",
    );
    // Slow changes are no flapping.
    check_with(
        &policy,
        "bad(X) wait60 ok wait60 bad(X) wait60 ok wait60 bad(X)",
        "1:appeared(Degraded/X,since1) 3:cleared(Degraded/X) 5:appeared(Degraded/X,since125) 7:cleared(Degraded/X) \
         9:appeared(Degraded/X,since249)",
    );
}

#[test]
fn flapping_that_lasts_is_reminded_of_with_its_count() {
    let policy = Policy { flap_limit: 3, ..Policy::default() };
    check_with(
        &policy,
        "bad(X) ok bad(X) ok bad(X) wait30 tick tick",
        "1:appeared(Degraded/X,since1) 2:cleared(Degraded/X) 3:appeared(Degraded/X,since3) 4:flapping(4,0) 7:flapping(5,1)",
    );
}

#[test]
fn the_scenarios_of_the_first_proposals() {
    check(
        "ok gone gone gone ok",
        "3:appeared(Inaccessible/VolumeNotFound,since2) 5:cleared(Inaccessible/VolumeNotFound)",
    );
    check(
        "ok bad(OutOfCapacity) ok",
        "2:appeared(Degraded/OutOfCapacity,since2) 3:cleared(Degraded/OutOfCapacity)",
    );
    check(
        "ok down(VolumeUnmounted) fail restart down(VolumeUnmounted) ok",
        "2:appeared(Inaccessible/VolumeUnmounted,since2) 6:cleared(Inaccessible/VolumeUnmounted)",
    );
    check(
        "ok down(NodeDown) nodegone",
        "2:appeared(Inaccessible/NodeDown,since2) 3:cleared(Inaccessible/NodeDown,vantage)",
    );
}
