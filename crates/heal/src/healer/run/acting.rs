//! The last look before acting, the act, and what became of it.

use std::time::Duration;

use tokio::task::Id;
use tokio::time::{Instant, timeout};
use volmedic_api::ObjectRef;

use super::telling::audience;
use super::{Answer, Done, LOOK, View, Ward};
use crate::healer::cluster::Details;
use crate::healer::ports::{Cluster, Eyes, Nodes, Surgeon, Teller};
use crate::healer::record::{Attempt, News, Record};
use crate::place::Place;
use crate::refusal::Refusal;
use crate::table::Outcome;
use crate::triage::{Again, Ticket, Verdict};

impl<C: Cluster, S: Surgeon, E: Eyes, N: Nodes, T: Teller> Ward<C, S, E, N, T> {
    /// Looks once more, with the ticket in hand.
    pub(super) fn examine(&mut self, ticket: Ticket) {
        let (cluster, eyes) = (self.cluster.clone(), self.eyes.clone());
        let pv = self.pvs.get(&ticket.place).cloned().unwrap_or_default();
        let held = ticket.clone();
        let task = self.start(async move {
            let look = async {
                let details = cluster.details(&ticket.place, &pv).await?;
                let about = match &details.claim {
                    Some(claim) if ticket.ask_again || ticket.by_person => {
                        audience(&*cluster, &ticket.place, claim).await
                    }
                    Some(claim) => vec![claim.clone()],
                    None => Vec::new(),
                };
                // Last, so that it is as fresh as can be.
                let again = if ticket.ask_again { eyes.again(&ticket.place).await } else { Again::NotAsked };
                Ok((details, about, again))
            };
            let seen = timeout(LOOK, look).await.unwrap_or_else(|_| Err("looking took too long".to_owned()));
            Done::Examined { ticket, seen }
        });
        self.tickets.insert(task, held);
    }

    pub(super) fn examined(
        &mut self,
        ticket: Ticket,
        seen: Result<(Details, Vec<ObjectRef>, Again), String>,
    ) {
        let now = self.clock.now();
        let (details, about, again) = match seen {
            Ok(seen) => seen,
            Err(why) => {
                tracing::warn!("{} is not acted on: {why}", ticket.place);
                self.metrics.skip(&ticket.place.driver, "not_seen");
                self.triage.abandon(now, &ticket);
                return;
            }
        };
        if !self.eyes.may_act() {
            self.metrics.skip(&ticket.place.driver, Refusal::NotLeading.label());
            self.triage.abandon(now, &ticket);
            return;
        }
        let view = View { eyes: &*self.eyes, nodes: &self.nodes, relays: &self.relays };
        let exam = details.exam(&self.options.rules, again);
        match self.triage.examined(now, &ticket, &exam, &view) {
            Verdict::Act => self.act(ticket, about),
            Verdict::Well => tracing::info!("{} is well again by itself", ticket.place),
            Verdict::Skip { refusal, tell } => {
                self.metrics.skip(&ticket.place.driver, refusal.label());
                if ticket.by_person {
                    self.wishes.answer(&ticket.place, &Answer::Refused(vec![refusal.to_string()]));
                }
                if tell {
                    self.tell(&ticket, about, None, News::Skipped(refusal));
                }
            }
        }
    }

    fn act(&mut self, ticket: Ticket, about: Vec<ObjectRef>) {
        let key = (ticket.place.driver.clone(), ticket.place.node.clone());
        let (Some(relay), Some(pv)) = (self.relays.get(&key).cloned(), self.pvs.get(&ticket.place).cloned())
        else {
            self.triage.abandon(self.clock.now(), &ticket);
            return;
        };
        let attempt = Attempt { nth: ticket.nth, began: self.clock.now() };
        let news = News::Started { nth: ticket.nth };
        let started =
            Record { at: attempt.began, ..self.record(&ticket, about.clone(), Some(attempt), news) };
        let (surgeon, cluster) = (self.surgeon.clone(), self.cluster.clone());
        let (teller, eyes) = (self.teller.clone(), self.eyes.clone());
        let deadline = self.options.deadline;
        let held = ticket.clone();
        let task = self.start(async move {
            let began = Instant::now();
            let prepared = prepare(&*teller, &*eyes, &started, ticket.is_check());
            let (attempt, outcome) = match prepared.await {
                Ok(()) => {
                    // A successor waits this long from the beginning that is written down, so nothing may last longer.
                    let left = deadline.saturating_sub(began.elapsed());
                    (Some(attempt), surgeon.heal(&relay, &pv, &ticket, left).await)
                }
                Err(why) => (None, Outcome::NotReached { why }),
            };
            let took = began.elapsed();
            let about = match &about[..] {
                // Merely checked, and something is wrong: now the pods matter.
                [claim] if !outcome.is_well() => audience(&*cluster, &ticket.place, claim).await,
                _ => about,
            };
            Done::Healed { ticket, about, attempt, outcome, took }
        });
        self.tickets.insert(task, held);
    }

    /// A task panicked. That must not keep its volume from ever being healed; what became of the attempt is unknown.
    pub(super) fn broken(&mut self, task: Id, panic: &str) {
        tracing::error!(panic, "internal error (bug): a part of the healer panicked");
        if let Some(ticket) = self.tickets.remove(&task) {
            let why = "the healer failed in the middle of it".to_owned();
            let attempt = Attempt { nth: ticket.nth, began: self.clock.now() };
            self.healed(&ticket, Vec::new(), Some(attempt), Outcome::Lost { why }, Duration::ZERO);
        } else {
            self.surveying = false;
        }
    }

    pub(super) fn healed(
        &mut self,
        ticket: &Ticket,
        about: Vec<ObjectRef>,
        attempt: Option<Attempt>,
        outcome: Outcome,
        took: Duration,
    ) {
        let after = self.triage.done(self.clock.now(), ticket, &outcome);
        let code = outcome.label();
        let (message, asked) = match &outcome {
            Outcome::Well { message } => (message.clone(), true),
            Outcome::StillIll { message } => (format!("still ill: {message}"), true),
            Outcome::Failed { kind, message, secret: _ } => {
                (format!("{}: {message}", kind.code_name()), true)
            }
            Outcome::SecretUnchanged => {
                let why = "the driver was not asked: the secret that it did not accept has not changed";
                (why.to_owned(), false)
            }
            Outcome::NotReached { why } => (format!("the driver was not asked: {why}"), false),
            Outcome::Lost { why } => (format!("nobody knows what became of it: {why}"), true),
        };
        // Where something is found wrong, the driver was asked to heal it; all else was only a check.
        if ticket.is_check() && (outcome.is_well() || !asked) {
            self.checked(&ticket.place, outcome.is_well(), &message);
            return;
        }
        self.metrics.healed(&ticket.place.driver, code, took);
        let answer = match outcome {
            Outcome::Well { message } => Answer::Mended(message),
            Outcome::StillIll { message } => Answer::StillIll(message),
            _ => Answer::Failed(message.clone()),
        };
        let news = match answer {
            Answer::Mended(_) => News::Succeeded { message, took },
            _ => News::Failed { message, code, after, took, asked },
        };
        self.tell(ticket, about, attempt, news);
        if ticket.by_person {
            self.wishes.answer(&ticket.place, &answer);
        }
    }

    /// Checking is not healing: it is in the log only, and what is healthy is counted for one line about all.
    fn checked(&mut self, place: &Place, healthy: bool, message: &str) {
        if healthy {
            self.checked += 1;
            tracing::debug!("{place} was checked: the node plugin says that it is healthy ({message})");
        } else {
            tracing::warn!("{place} was not checked: {message}; retrying");
        }
    }
}

/// What must have happened before the driver is asked: the beginning is written down, and we may still act after that.
async fn prepare(
    teller: &impl Teller,
    eyes: &impl Eyes,
    started: &Record,
    is_check: bool,
) -> Result<(), String> {
    teller.begin(started).await?;
    if !eyes.may_act() {
        // The beginning stays as it is: whoever leads now waits until it must be over.
        return Err(Refusal::NotLeading.to_string());
    }
    // That a volume is checked is no news.
    if !is_check {
        started.log();
        teller.tell(started);
    }
    Ok(())
}
