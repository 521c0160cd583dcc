//! Persons and what they are answered.

use tokio::sync::oneshot;
use volmedic_health::Remedy;

use super::{Answer, Done, LOOK, View, Ward};
use crate::healer::cluster::Details;
use crate::healer::evict;
use crate::healer::ports::{Cluster, Eyes, Found, Nodes, Surgeon, Teller};
use crate::mode::{Mode, Ruling};
use crate::place::Place;
use crate::refusal::Refusal;
use crate::triage::{Again, Standing};

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
                let eyes = self.eyes.clone();
                let recreate = self.options.policy.recreate.clone();
                let rules = self.options.recreate_rules.clone();
                self.start(async move {
                    let look = async {
                        let details = cluster.details(&place, &pv).await?;
                        let standing = details.recreate(&rules);
                        let standing = match (&recreate, &details.claim) {
                            (Some(_), _) if standing.ruling.mode == Mode::Off => Some(standing),
                            (Some(recreate), Some(claim)) => {
                                let found =
                                    evict::examine(&*cluster, &*eyes, &place, claim, recreate, None).await?;
                                Some(evict::standing(standing, &found))
                            }
                            _ => None,
                        };
                        Ok((details, standing))
                    };
                    let details = look.await;
                    Done::Previewed { wish, place, details }
                });
            } else if self.triage.person(self.clock.now(), &place) {
                self.pvs.insert(place, pv);
            } else {
                self.wishes.answer(&place, &Answer::Refused(vec![Refusal::Crowded.to_string()]));
            }
        }
    }

    pub(super) fn previewed(
        &mut self,
        wish: u64,
        place: &Place,
        details: Result<(Details, Option<Standing>), String>,
    ) {
        let answer = match details {
            Ok((details, standing)) => {
                let view = View { eyes: &*self.eyes, nodes: &*self.nodes, relays: &self.relays };
                let exam = details.exam(&self.options.rules, Again::NotAsked, standing);
                match self.triage.preview(self.clock.now(), place, &exam, &view) {
                    Ok(remedy) => {
                        let rule = match (remedy, &exam.recreate) {
                            (Remedy::RecreatePods, Some(standing)) => &standing.ruling,
                            _ => &exam.ruling,
                        };
                        let Ruling { mode, source } = rule;
                        Answer::WouldHeal(format!("{}: {remedy}; the mode is {mode} {source}", remedy.name()))
                    }
                    Err(found) => Answer::Refused(found.iter().map(Refusal::to_string).collect()),
                }
            }
            Err(why) => Answer::Failed(why),
        };
        self.wishes.answer_one(wish, place, answer);
    }
}
