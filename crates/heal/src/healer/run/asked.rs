//! Persons and what they are answered.

use tokio::sync::oneshot;

use super::{Answer, Done, LOOK, View, Ward};
use crate::healer::cluster::Details;
use crate::healer::ports::{Cluster, Eyes, Found, Nodes, Surgeon, Teller};
use crate::place::Place;
use crate::refusal::Refusal;
use crate::triage::Again;

impl<C: Cluster, S: Surgeon, E: Eyes, N: Nodes, T: Teller> Ward<C, S, E, N, T> {
    pub(super) fn located(
        &mut self,
        found: Result<Vec<Found>, String>,
        dry_run: bool,
        answer: oneshot::Sender<Vec<(Place, Answer)>>,
    ) {
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                let nowhere = Place::new("", "", "");
                // Who asked may have gone.
                let _ = answer.send(vec![(nowhere, Answer::Failed(why))]);
                return;
            }
        };
        let places = found.iter().map(|found| found.place.clone());
        let wish = self.wishes.add(places, answer, self.options.deadline + LOOK);
        for Found { place, pv } in found {
            if dry_run {
                let cluster = self.cluster.clone();
                self.start(async move {
                    let details = cluster.details(&place, &pv).await;
                    Done::Previewed { wish, place, details }
                });
            } else if self.triage.person(self.clock.now(), &place) {
                self.pvs.insert(place, pv);
            } else {
                self.wishes.answer(&place, &Answer::Refused(vec![Refusal::Crowded.to_string()]));
            }
        }
    }

    pub(super) fn previewed(&mut self, wish: u64, place: &Place, details: Result<Details, String>) {
        let answer = match details {
            Ok(details) => {
                let view = View { eyes: &*self.eyes, nodes: &self.nodes, relays: &self.relays };
                let exam = details.exam(&self.options.rules, Again::NotAsked);
                let found = self.triage.preview(self.clock.now(), place, &exam, &view);
                if found.is_empty() {
                    Answer::WouldMend
                } else {
                    Answer::Refused(found.iter().map(Refusal::to_string).collect())
                }
            }
            Err(why) => Answer::Failed(why),
        };
        self.wishes.answer_one(wish, place, answer);
    }
}
