//! Each rule as a line: what happens at which second, and where the candidate then stands.
//!
//! `5 try` renews or reads; what it reads is the last `other`/`ours`/`free`/`none` given. `ok`, `fail` and
//! `conflict` say how the API server answers from then on. The answer lists state and step of every try.

use super::*;

struct Script {
    start: Instant,
    election: Election,
    stored: Option<Record>,
    answer: String,
}

fn wall(second: u64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + i64::try_from(second).unwrap()).unwrap()
}

fn record(holder: &str, seconds: i32, renewed: u64) -> Record {
    Record {
        holder: holder.to_owned(),
        seconds,
        acquired: Some(wall(0)),
        renewed: Some(wall(renewed)),
        transitions: 3,
    }
}

impl Script {
    fn new() -> Self {
        let election = Election::new(Config::new("ns", "lease", "me"));
        Self { start: Instant::now(), election, stored: None, answer: "ok".to_owned() }
    }

    fn at(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }

    fn step(&mut self, second: u64, word: &str) -> Option<String> {
        match word.split_once(':').unwrap_or((word, "15")) {
            ("ok" | "fail" | "conflict", _) => self.answer = word.to_owned(),
            ("other", seconds) => self.stored = Some(record("other", seconds.parse().unwrap(), second)),
            ("ours", _) => self.stored = Some(record("me", 15, second)),
            ("free", _) => self.stored = Some(record("", 1, second)),
            ("none", _) => self.stored = None,
            ("try", _) => return Some(self.attempt(second)),
            ("state", _) => return Some(self.election.state().to_string()),
            (odd, _) => panic!("no such step: {odd}"),
        }
        None
    }

    fn attempt(&mut self, second: u64) -> String {
        let (now, wall) = (self.at(second), wall(second));
        let mut step = self.election.begin(now, wall);
        let mut path = String::new();
        loop {
            match step {
                Step::Read if self.answer == "fail" => {
                    self.election.failed(now);
                    path.push_str("read!");
                    break;
                }
                Step::Read => {
                    path.push_str("read,");
                    step = self.election.saw(now, wall, self.stored.clone());
                }
                Step::Create(_) | Step::Replace(_) if self.answer == "fail" => {
                    self.election.failed(now);
                    path.push_str("write!");
                    break;
                }
                Step::Create(_) | Step::Replace(_) if self.answer == "conflict" => {
                    self.answer = "ok".to_owned();
                    path.push_str("conflict,");
                    step = Step::Read;
                }
                Step::Create(record) => {
                    path.push_str("create");
                    self.stored = Some(record.clone());
                    self.election.wrote(now, record);
                    break;
                }
                Step::Replace(record) => {
                    path.push_str("replace");
                    self.stored = Some(record.clone());
                    self.election.wrote(now, record);
                    break;
                }
                Step::Wait => {
                    path.push_str("wait");
                    break;
                }
            }
        }
        format!("{}({path})", self.election.state())
    }
}

#[track_caller]
fn check(script: &str, expected: &str) -> Script {
    let mut run = Script::new();
    let mut steps = Vec::new();
    for line in script.split(';') {
        let (second, words) = line.trim().split_once(' ').expect("second and words");
        for word in words.split_whitespace() {
            steps.extend(run.step(second.parse().expect("second"), word));
        }
    }
    assert_eq!(steps.join(" "), expected, "for: {script}");
    run
}

#[test]
fn the_first_creates_and_then_only_renews() {
    let run = check("0 try; 5 try; 10 try", "leading(read,create) leading(replace) leading(replace)");
    let stored = run.stored.unwrap();
    assert_eq!(stored.acquired, Some(wall(0)));
    assert_eq!(stored.renewed, Some(wall(10)));
    assert_eq!((stored.seconds, stored.transitions), (15, 0));
}

#[test]
fn a_holder_is_respected_for_as_long_as_it_asks_since_we_saw_it_change() {
    check("0 other; 0 try; 14 try; 15 try", "standby(read,wait) standby(read,wait) leading(read,replace)");
    check("0 other:60; 0 try; 59 try; 60 try", "standby(read,wait) standby(read,wait) leading(read,replace)");
    // It renews: the wait begins again.
    check(
        "0 other; 0 try; 10 other; 10 try; 24 try",
        "standby(read,wait) standby(read,wait) standby(read,wait)",
    );
}

#[test]
fn the_holders_clock_does_not_matter() {
    let mut run = Script::new();
    for skew in [-86_400_i64, 86_400] {
        let mut odd = record("other", 15, 0);
        odd.renewed = Some(wall(0) + jiff::SignedDuration::from_secs(skew));
        run.stored = Some(odd);
        assert_eq!(run.attempt(1), "standby(read,wait)", "a clock {skew} s off");
    }
}

#[test]
fn taking_over_counts_a_transition() {
    let run = check("0 other; 0 try; 20 try", "standby(read,wait) leading(read,replace)");
    let stored = run.stored.unwrap();
    assert_eq!((stored.holder.as_str(), stored.transitions), ("me", 4));
    assert_eq!(stored.acquired, Some(wall(20)));
}

#[test]
fn a_released_lease_is_free_immediately() {
    check("0 other; 0 try; 5 free; 5 try", "standby(read,wait) leading(read,replace)");
}

#[test]
fn a_restart_under_the_same_name_leads_immediately_and_is_no_transition() {
    let run = check("0 ours; 1 try", "leading(read,replace)");
    let stored = run.stored.unwrap();
    assert_eq!((stored.transitions, stored.acquired), (3, Some(wall(0))));
}

#[test]
fn without_a_renewal_until_the_deadline_the_lease_is_lost_for_good() {
    check(
        "0 try; 5 fail try; 9 try; 10 try; 11 ok try",
        "leading(read,create) leading(write!) leading(write!) lost(wait) lost(wait)",
    );
    check(
        "0 try; 5 fail try; 9 ok try; 15 try",
        "leading(read,create) leading(write!) leading(replace) leading(replace)",
    );
    // A frozen process wakes up late: it does not write first and ask later.
    check("0 try; 500 try", "leading(read,create) lost(wait)");
}

#[test]
fn a_leader_that_sees_another_holder_stops_immediately() {
    check("0 try; 5 other conflict try; 6 state", "leading(read,create) lost(conflict,read,wait) lost");
}

#[test]
fn a_write_of_ours_that_went_through_unnoticed_is_found_again() {
    check("0 try; 5 ours conflict try", "leading(read,create) leading(conflict,read,replace)");
}

#[test]
fn a_deleted_lease_is_created_again() {
    check("0 try; 5 none conflict try", "leading(read,create) leading(conflict,read,create)");
}

#[test]
fn standby_outlasts_an_api_server_that_is_away() {
    check("0 fail try; 100 try; 200 ok try", "standby(read!) standby(read!) leading(read,create)");
}

#[test]
fn giving_up_writes_client_gos_empty_record() {
    let mut run = check("0 other; 0 try; 20 try", "standby(read,wait) leading(read,replace)");
    let free = run.election.give_up(wall(21)).unwrap();
    assert_eq!((free.holder.as_str(), free.seconds, free.transitions), ("", 1, 4));
    assert_eq!(run.election.state(), State::Standby);
    assert_eq!(run.election.give_up(wall(22)), None, "nothing left to give");
    let mut waiting = check("0 other; 0 try", "standby(read,wait)");
    assert_eq!(waiting.election.give_up(wall(1)), None, "not ours to give");
}

#[test]
fn healthy_until_long_after_the_lease_should_have_been_renewed() {
    let grace = Duration::from_secs(20);
    let run = check("0 other; 0 try", "standby(read,wait)");
    assert_eq!(run.election.healthy(run.at(9_999), grace), Ok(()), "standing by is healthy");
    let run = check("0 try", "leading(read,create)");
    assert_eq!(run.election.healthy(run.at(35), grace), Ok(()));
    assert_eq!(run.election.healthy(run.at(36), grace), Err(NotHealthy { age: 36, limit: 35 }));
    assert!(run.election.holds(run.at(9)) && !run.election.holds(run.at(10)));
    let run = check("0 try; 12 try", "leading(read,create) lost(wait)");
    assert!(run.election.healthy(run.at(34), grace).is_ok(), "it has this long to end");
    assert!(run.election.healthy(run.at(36), grace).is_err());
}
