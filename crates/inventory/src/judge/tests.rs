use super::*;

/// Nodes of these tests are as old as time, so their conditions have changed since they joined.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000_000 + seconds).unwrap()
}

/// A name, a digit for another node of that name, and what is said about it.
fn sight(now: i64, word: &str) -> NodeSight {
    let (name, said) = word.split_at(1);
    let (uid, said) = said.split_at(said.find(|c: char| !c.is_ascii_digit()).unwrap());
    let ready =
        |status, reason: &str, since| Some(Ready { status, reason: reason.into(), since: Some(since) });
    let (old, new) = (at(-86_400), at(now));
    let (created, ready) = match said {
        "+" => (old, ready(ReadyStatus::True, "KubeletReady", old)),
        "-" | "-oos" => (old, ready(ReadyStatus::False, "KubeletNotReady", new)),
        "-ahead" => (old, ready(ReadyStatus::False, "KubeletNotReady", at(now + 3600))),
        "-behind" => (old, ready(ReadyStatus::False, "KubeletNotReady", at(now - 3600))),
        "?" | "?taint" => (old, ready(ReadyStatus::Unknown, "NodeStatusUnknown", new)),
        "-joining" => (new, ready(ReadyStatus::False, "KubeletNotReady", at(now + 5))),
        "?never" => (old, ready(ReadyStatus::Unknown, "NodeStatusNeverUpdated", new)),
        "+taint" => (old, ready(ReadyStatus::True, "KubeletReady", new)),
        "." => (old, None),
        _ => panic!("{word}"),
    };
    NodeSight {
        name: name.into(),
        uid: uid.into(),
        created: Some(created),
        ready,
        unreachable: said.ends_with("taint"),
        out_of_service: said.ends_with("oos"),
    }
}

fn show(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Down(Down { node, since, why }) => {
            let why = match why {
                DownWhy::NotReady { status, .. } => format!("{status:?}"),
                DownWhy::Unreachable => "unreachable".to_owned(),
                DownWhy::OutOfService => "out-of-service".to_owned(),
                DownWhy::Deleted => "deleted".to_owned(),
            };
            format!("{node} down since {} {why}", since.duration_since(at(0)).as_secs())
        }
        Verdict::Back { node } => format!("{node} back"),
    }
}

/// `seconds node node; ...` against `seconds verdict, verdict; ...`.
#[track_caller]
fn run(judge: &mut Judge, script: &str, expected: &str) {
    let mut said = Vec::new();
    for step in script.split("; ") {
        let mut words = step.split_whitespace();
        let now: i64 = words.next().unwrap().parse().unwrap();
        let sights: Vec<_> = words.map(|word| sight(now, word)).collect();
        let verdicts: Vec<_> = judge.pass(at(now), &sights).iter().map(show).collect();
        if !verdicts.is_empty() {
            said.push(format!("{now} {}", verdicts.join(", ")));
        }
    }
    assert_eq!(said.join("; "), expected, "{script}");
}

fn judge() -> Judge {
    Judge::new(Judge::GRACE)
}

#[track_caller]
fn check(script: &str, expected: &str) {
    run(&mut judge(), script, expected);
}

#[test]
fn not_ready_counts_after_the_grace() {
    check("0 a+; 10 a-; 49 a-; 50 a-; 60 a-; 70 a+; 80 a+", "50 a down since 10 False; 70 a back");
    check("0 a+; 10 a?; 50 a?", "50 a down since 10 Unknown");
}

#[test]
fn what_passes_within_the_grace_is_not_reported() {
    check("0 a+; 10 a-; 40 a+; 50 a-; 89 a-; 90 a-", "90 a down since 50 False");
    check("0 a+; 10 a-; 30 a?; 49 a-; 50 a?", "50 a down since 10 Unknown");
}

#[test]
fn the_word_of_the_node_controller_counts_immediately() {
    check("0 a+; 10 a?taint; 20 a?taint; 30 a+taint; 40 a+", "10 a down since 10 unreachable; 30 a back");
    check("0 a+; 10 a?; 20 a?taint", "20 a down since 10 unreachable");
}

#[test]
fn so_does_the_word_of_an_administrator() {
    check("0 a+; 10 a-oos", "10 a down since 10 out-of-service");
}

#[test]
fn a_deleted_node_is_down_immediately_and_back_when_one_of_its_name_is_ready() {
    check(
        "0 a+ b+; 10 b+; 20 b+; 30 a2. b+; 40 a2-joining b+; 50 a2+ b+",
        "10 a down since 10 deleted; 50 a back",
    );
    check("0 a+; 10 a-; 20", "20 a down since 10 deleted");
}

#[test]
fn a_node_that_is_down_already_and_then_deleted_is_reported_once() {
    let mut judge = judge();
    run(&mut judge, "0 a+; 10 a?taint; 20; 30", "10 a down since 10 unreachable");
    assert_eq!(judge.down().next().unwrap().why, DownWhy::Deleted);
}

#[test]
fn a_node_replaced_between_two_looks_starts_over() {
    check("0 a+; 10 a-; 45 a2-joining; 60 a2-; 200 a2-", "");
    check("0 a+; 10 a2+; 20 a2-; 60 a2-", "60 a down since 20 False");
}

#[test]
fn a_joining_node_raises_nothing() {
    check("0 a.; 10 a-joining; 100 a-; 200 a?taint; 300", "");
    check("0 a?never; 100 a?never", "");
    check("0 a-joining; 10 a+; 20 a-; 60 a-", "60 a down since 20 False");
}

#[test]
fn a_node_that_was_down_before_we_looked_is_reported() {
    check("0 a-; 39 a-; 40 a-", "40 a down since 0 False");
    check("0 a?taint", "0 a down since 0 unreachable");
}

#[test]
fn no_word_about_ready_is_no_news() {
    check("0 a+; 10 a-; 60 a.; 70 a-", "70 a down since 10 False");
    check("0 a+; 10 a?taint; 20 a.; 30 a+", "10 a down since 10 unreachable; 30 a back");
}

#[test]
fn other_clocks_do_not_matter() {
    check("0 a+; 10 a-ahead; 49 a-ahead; 50 a-ahead", "50 a down since 10 False");
    check("0 a+; 10 a-behind; 49 a-behind; 50 a-behind", "50 a down since -3550 False");
    // Our own clock is put back by an hour.
    check("0 a+; 10 a-; -3590 a-; -3551 a-; -3550 a-", "-3550 a down since -3590 False");
}

#[test]
fn a_restart_neither_repeats_nor_forgets() {
    let recalled = || {
        let mut judge = judge();
        let why = DownWhy::Unreachable;
        judge.recall(Down { node: "a".into(), since: at(-100), why });
        judge
    };
    run(&mut recalled(), "0 a?taint b+; 10 a?taint b+; 20 a+ b+", "20 a back");
    run(&mut recalled(), "0 a-joining; 10 a+", "10 a back");
    // It was deleted meanwhile.
    run(&mut recalled(), "0 b+; 10 b+; 20 a+ b+", "20 a back");
    assert_eq!(recalled().down().next().unwrap().since, at(-100));
}

#[test]
fn only_deleted_nodes_can_be_forgotten() {
    let mut judge = judge();
    run(&mut judge, "0 a+ b+; 10 a?taint", "10 a down since 10 unreachable, b down since 10 deleted");
    judge.forget("a");
    judge.forget("b");
    judge.forget("c");
    let down: Vec<_> = judge.down().map(|down| down.node).collect();
    assert_eq!(down, ["a".into()]);
    run(&mut judge, "20 a+ b+", "20 a back");
}

#[test]
fn it_says_when_to_look_again() {
    let mut judge = judge();
    let mut due = |script| {
        run(&mut judge, script, "");
        judge.next_due().map(|due| due.duration_since(at(0)).as_secs())
    };
    assert_eq!(due("0 a+ b+ c."), None);
    assert_eq!(due("10 a- b+ c-joining"), Some(50));
    assert_eq!(due("20 a- b- c-"), Some(50));
    assert_eq!(due("30 a+ b- c-"), Some(60));
    run(&mut judge, "60 a+ b- c-", "60 b down since 20 False");
    assert_eq!(judge.next_due(), None);
}

#[test]
fn deleted_nodes_do_not_pile_up() {
    let mut judge = judge();
    for index in 0..MOST_DELETED + 50 {
        let now = i64::try_from(index).unwrap();
        let mut node = sight(now, "a+");
        node.name = format!("n{index:05}").into();
        let verdicts = judge.pass(at(now), [&node]);
        assert_eq!(verdicts.len(), usize::from(index > 0));
    }
    assert_eq!(judge.down().count(), MOST_DELETED);
    assert_eq!(&*judge.down().next().unwrap().node, "n00049");
}

#[test]
fn why_is_a_sentence() {
    let why = DownWhy::NotReady { status: ReadyStatus::Unknown, reason: "NodeStatusUnknown".into() };
    assert_eq!(why.to_string(), "the node controller does not hear from it (NodeStatusUnknown)");
    let why = DownWhy::NotReady { status: ReadyStatus::False, reason: "".into() };
    assert_eq!(why.to_string(), "it says that it is not ready");
}
