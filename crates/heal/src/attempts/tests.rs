//! Every order in which a lost attempt is closed and the next one begins, with a kill after any step.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use jiff::SignedDuration;
use parking_lot::Mutex;
use proptest::prelude::*;
use volmedic_api::resource::{HealOutcome, time};

use super::*;

const DEADLINE: SignedDuration = SignedDuration::from_secs(8);

/// What the API server holds, and in which order it got it.
#[derive(Default)]
struct Server {
    heals: Mutex<Vec<Heal>>,
    /// Attempts that have an event, as `lost 1`, and those whose beginning is written, as `began 2`.
    history: Mutex<Vec<String>>,
}

/// Every request takes one step of the schedule.
async fn step() {
    let mut asked = false;
    poll_fn(|_| if std::mem::replace(&mut asked, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

impl AttemptStore for &Server {
    async fn read(&self) -> Result<Option<Vec<Heal>>, String> {
        step().await;
        Ok(Some(self.heals.lock().clone()))
    }

    async fn change(
        &self,
        change: impl Fn(&[Heal]) -> Result<Vec<Heal>, String> + Send + Sync,
    ) -> Result<(), Unchanged> {
        step().await;
        let mut heals = self.heals.lock();
        let after = change(&heals).map_err(Unchanged::Declined)?;
        if let Some(begun) = after.iter().find(|heal| heal.outcome == HealOutcome::Started) {
            self.history.lock().push(format!("began {}", begun.attempt));
        }
        *heals = after;
        Ok(())
    }

    async fn report_lost(&self, lost: &Heal) -> Result<(), String> {
        step().await;
        let event = format!("lost {}", lost.attempt);
        let mut history = self.history.lock();
        // An event of this name is there already.
        if !history.contains(&event) {
            history.push(event);
        }
        Ok(())
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn started(second: i64, attempt: u32) -> Heal {
    Heal {
        time: time(at(second)),
        outcome: HealOutcome::Started,
        remedy: "NodeHealer".to_owned(),
        node: Some("n".to_owned()),
        message: String::new(),
        code: String::new(),
        attempt,
        not_before: None,
    }
}

/// One life of a healer, as far as it gets: the lost attempt is closed while the next one begins. Answers how the
/// beginning went, if it came to an end.
fn live(server: &Server, turns: &mut impl Iterator<Item = Turn>) -> Option<Result<bool, String>> {
    let found = server.heals.lock().clone();
    let lost = found.iter().find(|heal| heal.outcome == HealOutcome::Started);
    let (lost, store) = (lost.filter(|heal| heal.attempt == 1).cloned(), server);
    let mut closing = pin!(async {
        match &lost {
            Some(lost) => close(&store, lost).await.map(drop),
            None => Ok(()),
        }
    });
    let entry = started(20, 2);
    let mut beginning = pin!(begin(&store, &entry, at(20), DEADLINE));
    let (mut closed, mut begun) = (None, None);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        // When no turns are left, nobody disturbs them any more.
        match turns.next() {
            Some(Turn::Close) | None if closed.is_none() => poll(closing.as_mut(), &mut context, &mut closed),
            Some(Turn::Begin) | None if begun.is_none() => poll(beginning.as_mut(), &mut context, &mut begun),
            Some(Turn::Close | Turn::Begin) => {}
            Some(Turn::Kill) | None => return begun,
        }
    }
}

fn poll<T>(future: Pin<&mut impl Future<Output = T>>, context: &mut Context<'_>, into: &mut Option<T>) {
    if let Poll::Ready(done) = future.poll(context) {
        *into = Some(done);
    }
}

#[derive(Debug, Clone, Copy)]
enum Turn {
    Close,
    Begin,
    Kill,
}

fn play(turns: &[Turn]) -> Vec<String> {
    let server = Server { heals: Mutex::new(vec![started(10, 1)]), ..Server::default() };
    let mut left = turns.iter().copied();
    let begun = || server.heals.lock().iter().any(|heal| heal.attempt == 2);
    // As many lives as there are kills, and each finds what the one before left; until attempt 2 is under way.
    while !begun() {
        // Whatever was decided while both were under way, a beginning that fails says so and is tried again.
        let _ = live(&server, &mut left);
    }
    let kept: Vec<_> = server.heals.lock().iter().map(|heal| (heal.attempt, heal.outcome)).collect();
    assert_eq!(kept, [(2, HealOutcome::Started), (1, HealOutcome::Failed)], "for {turns:?}");
    server.history.into_inner()
}

#[test]
fn a_lost_attempt_is_reported_once_before_the_next_begins_in_every_order() {
    // Each takes at most six requests. Both moments meet in each of the 4,096 orders of twelve turns.
    for order in 0..1_u32 << 12 {
        let turn = |bit: u32| if order >> bit & 1 == 0 { Turn::Close } else { Turn::Begin };
        let turns: Vec<Turn> = (0..12).map(turn).collect();
        assert_eq!(play(&turns), ["lost 1", "began 2"], "for {turns:?}");
    }
}

#[test]
fn an_attempt_that_may_still_be_under_way_is_neither_closed_nor_doubled() {
    let server = Server { heals: Mutex::new(vec![started(10, 1)]), ..Server::default() };
    let (entry, store) = (started(18, 2), &server);
    let mut context = Context::from_waker(Waker::noop());
    let (mut beginning, mut begun) = (pin!(begin(&store, &entry, at(18), DEADLINE)), None);
    while begun.is_none() {
        poll(beginning.as_mut(), &mut context, &mut begun);
    }
    assert!(begun.unwrap().unwrap_err().contains("may be at it until 1970-01-01T00:00:19Z"));
    assert!(server.history.lock().is_empty());
}

#[test]
fn an_attempt_whose_healer_lived_on_is_not_called_lost() {
    let server = Server::default();
    let (mine, store) = (started(10, 1), &server);
    let mut context = Context::from_waker(Waker::noop());
    let (mut closing, mut closed) = (pin!(close(&store, &mine)), None);
    while closed.is_none() {
        poll(closing.as_mut(), &mut context, &mut closed);
    }
    assert_eq!(closed, Some(Ok(false)));
    assert!(server.history.lock().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_killed_in_between(turns in prop::collection::vec(
        prop_oneof![4 => Just(Turn::Close), 4 => Just(Turn::Begin), 1 => Just(Turn::Kill)], 0..40,
    )) {
        prop_assert_eq!(play(&turns), ["lost 1", "began 2"]);
    }
}
