//! Persons who wait for an answer.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::place::Place;
use crate::refusal::Refusal;
use crate::triage::{Triage, World};

/// Who waits; more are turned away.
const MOST: usize = 1024;

/// What a person gets to hear about one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The driver says that it is healthy, and what it did.
    Healed(String),
    StillUnhealthy(String),
    Failed(String),
    /// Nothing was done, and everything that stands in the way.
    Refused(Vec<String>),
    /// What a dry run says when nothing stands in the way: which remedy would be used, and which rule allows it.
    WouldHeal(String),
    /// It is still waiting for its turn or under way.
    Waiting,
}

#[derive(Debug)]
struct Wish {
    number: u64,
    open: BTreeMap<Place, Option<Answer>>,
    sender: oneshot::Sender<Vec<(Place, Answer)>>,
    until: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Wishes {
    all: Vec<Wish>,
    count: u64,
}

impl Wishes {
    pub(super) fn add(
        &mut self,
        places: impl Iterator<Item = Place>,
        sender: oneshot::Sender<Vec<(Place, Answer)>>,
        patience: Duration,
    ) -> u64 {
        self.count += 1;
        let open: BTreeMap<_, _> = places.map(|place| (place, None)).collect();
        if self.all.len() < MOST {
            self.all.push(Wish { number: self.count, open, sender, until: Instant::now() + patience });
        }
        self.settle();
        self.count
    }

    /// For everybody who waits for this place.
    pub(super) fn answer(&mut self, place: &Place, answer: &Answer) {
        for wish in &mut self.all {
            if let Some(open @ None) = wish.open.get_mut(place) {
                *open = Some(answer.clone());
            }
        }
        self.settle();
    }

    pub(super) fn answer_one(&mut self, number: u64, place: &Place, answer: Answer) {
        let wish = self.all.iter_mut().find(|wish| wish.number == number);
        if let Some(open) = wish.and_then(|wish| wish.open.get_mut(place)) {
            *open = Some(answer);
        }
        self.settle();
    }

    /// Places whose wish will not come true by waiting, and why.
    pub(super) fn stuck(&self, triage: &Triage, now: Timestamp, world: &impl World) -> Vec<(Place, Refusal)> {
        let open = self.all.iter().flat_map(|wish| wish.open.iter());
        let waiting = open.filter(|(_, answer)| answer.is_none()).map(|(place, _)| place);
        waiting.filter_map(|place| Some((place.clone(), triage.hopeless(now, place, world)?))).collect()
    }

    /// Nobody waits for ever.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        for wish in &mut self.all {
            if wish.until <= now || wish.sender.is_closed() {
                for answer in wish.open.values_mut() {
                    answer.get_or_insert(Answer::Waiting);
                }
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        for wish in self.all.extract_if(.., |wish| wish.open.values().all(Option::is_some)) {
            let answers = wish.open.into_iter().filter_map(|(place, answer)| Some((place, answer?)));
            // Who asked may have gone.
            let _ = wish.sender.send(answers.collect());
        }
    }
}
