//! The last look before acting, the act, and what became of it.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::Id;
use tokio::time::{Instant, timeout};
use volmedic_api::ObjectRef;
use volmedic_health::{Reason, Remedy};

use super::reporting::audience;
use super::{Answer, Done, LOOK, PROBE, Seen, View, Ward};
use crate::healer::evict::{self, Permit, Recreated};
use crate::healer::pods::UserPod;
use crate::healer::ports::{Cluster, Eyes, Nodes, Surgeon, Teller};
use crate::healer::record::{Attempt, News, Record};
use crate::mode::{Mode, Ruling};
use crate::place::Place;
use crate::refusal::Refusal;
use crate::table::Outcome;
use crate::triage::{Again, Exam, Ticket, Verdict};

impl<C: Cluster, S: Surgeon, E: Eyes, N: Nodes, T: Teller> Ward<C, S, E, N, T> {
    /// Looks again, with the ticket in hand.
    pub(super) fn examine(&mut self, ticket: Ticket) {
        let looking = self.looking(&ticket);
        let held = ticket.clone();
        let task = self.start(async move {
            let seen = looking.await;
            Done::Examined { ticket, seen, confirmed: None }
        });
        self.tickets.insert(task, (held, Remedy::NodeHealer));
    }

    /// Has it probed again, and examines it again if that confirms it, because a probe takes some seconds.
    fn confirm(&mut self, ticket: Ticket, reason: Reason, remedy: Remedy, about: Vec<ObjectRef>) {
        let looking = self.looking(&ticket);
        let eyes = self.eyes.clone();
        let held = ticket.clone();
        let task = self.start(async move {
            let probe = timeout(PROBE, eyes.confirm(&ticket.place, &reason, remedy)).await;
            let late = || Refusal::NotConfirmed { remedy, why: "no answer came in time".into() };
            match probe.unwrap_or_else(|_| Err(late())) {
                Ok(()) => {
                    let seen = looking.await;
                    Done::Examined { ticket, seen, confirmed: Some(remedy) }
                }
                Err(refusal) => Done::NotConfirmed { ticket, about, refusal },
            }
        });
        self.tickets.insert(task, (held, remedy));
    }

    fn looking(
        &self,
        ticket: &Ticket,
    ) -> impl Future<Output = Result<Seen, String>> + Send + use<C, S, E, N, T> {
        let (cluster, eyes) = (self.cluster.clone(), self.eyes.clone());
        let pv = self.pvs.get(&ticket.place).cloned().unwrap_or_default();
        let recreate = self.options.policy.recreate.clone().filter(|_| ticket.concerns(Remedy::RecreatePods));
        let rules = self.options.recreate_rules.clone();
        let ticket = ticket.clone();
        async move {
            let look = async {
                let details = cluster.details(&ticket.place, &pv).await?;
                let about = match &details.claim {
                    Some(claim) if ticket.ask_again || ticket.by_person => {
                        audience(&*cluster, &ticket.place, claim).await
                    }
                    Some(claim) => vec![claim.clone()],
                    None => Vec::new(),
                };
                let wanted = details.recreate(&rules).ruling.mode != Mode::Off;
                let pods = match (&recreate, &details.claim) {
                    (Some(recreate), Some(claim)) if wanted => {
                        let since = ticket.complaint.as_ref().map(|(_, since)| *since);
                        Some(evict::examine(&*cluster, &*eyes, &ticket.place, claim, recreate, since).await?)
                    }
                    // A claim that does not want it is not asked about.
                    (Some(_), _) => Some(Ok(Vec::new())),
                    (None, _) => None,
                };
                // Last, so that it is as fresh as can be.
                let again = if ticket.ask_again { eyes.again(&ticket.place).await } else { Again::NotAsked };
                Ok(Seen { details, about, again, pods })
            };
            timeout(LOOK, look).await.unwrap_or_else(|_| Err("looking took too long".to_owned()))
        }
    }

    pub(super) fn examined(&mut self, ticket: Ticket, seen: Result<Seen, String>, confirmed: Option<Remedy>) {
        let now = self.clock.now();
        let Seen { details, about, again, pods } = match seen {
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
        let view = View { eyes: &*self.eyes, nodes: &*self.nodes, relays: &self.relays };
        let standing = pods.as_ref().map(|found| {
            let mut standing = evict::standing(details.recreate(&self.options.recreate_rules), found);
            let busy = || self.recreating.values().flatten().collect::<BTreeSet<_>>();
            if found.as_ref().is_ok_and(|pods| owners(pods).iter().any(|owner| busy().contains(owner))) {
                standing.obstacle = Some(Refusal::WorkloadBusy);
            }
            standing
        });
        let exam = details.exam(&self.options.rules, again, standing);
        let verdict = self.triage.examined(now, &ticket, &exam, &view);
        match (verdict, &ticket.complaint) {
            // Only what somebody reported: a mere check is a probe itself, and a person who asks knows why.
            (Verdict::Act { remedy, .. }, Some((reason, _)))
                if ticket.ask_again && confirmed != Some(remedy) =>
            {
                let reason = reason.clone();
                self.confirm(ticket, reason, remedy, about);
            }
            (Verdict::Act { remedy: Remedy::RecreatePods, nth }, _) => {
                let pods = pods.and_then(Result::ok).unwrap_or_default();
                let claim = details.claim.clone();
                self.recreate(ticket, about, nth, &exam, claim, pods);
            }
            (Verdict::Act { .. }, _) => self.act(ticket, about, &exam),
            (verdict, _) => self.spared(&ticket, about, verdict),
        }
    }

    /// Nothing is done.
    pub(super) fn spared(&mut self, ticket: &Ticket, about: Vec<ObjectRef>, verdict: Verdict) {
        match verdict {
            Verdict::Act { .. } => {}
            Verdict::Well => tracing::info!("{} recovered by itself", ticket.place),
            Verdict::Skip { refusal, tell } => {
                self.metrics.skip(&ticket.place.driver, refusal.label());
                if ticket.by_person {
                    self.wishes.answer(&ticket.place, &Answer::Refused(vec![refusal.to_string()]));
                }
                if tell {
                    self.tell(ticket, about, None, News::Skipped(refusal));
                }
            }
        }
    }

    /// What is written down and reported before anything is done.
    fn started(
        &self,
        ticket: &Ticket,
        about: &[ObjectRef],
        remedy: Remedy,
        rule: Option<Ruling>,
        nth: u32,
    ) -> (Attempt, Record) {
        let attempt = Attempt { nth, began: self.clock.now() };
        let record = self.record(ticket, about.to_vec(), Some(attempt), News::Started { nth });
        (attempt, Record { at: attempt.began, remedy: Some(remedy), rule, ..record })
    }

    fn act(&mut self, ticket: Ticket, about: Vec<ObjectRef>, exam: &Exam) {
        let key = (ticket.place.driver.clone(), ticket.place.node.clone());
        let (Some(relay), Some(pv)) = (self.relays.get(&key).cloned(), self.pvs.get(&ticket.place).cloned())
        else {
            self.triage.abandon(self.clock.now(), &ticket);
            return;
        };
        let remedy = Remedy::NodeHealer;
        let rule = (!ticket.by_person).then(|| exam.ruling.clone());
        let (attempt, started) = self.started(&ticket, &about, remedy, rule, ticket.nth);
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
                [claim] if !outcome.is_healthy() => audience(&*cluster, &ticket.place, claim).await,
                _ => about,
            };
            Done::Healed { ticket, about, attempt, remedy, outcome, nodes: BTreeSet::new(), took }
        });
        self.tickets.insert(task, (held, remedy));
    }

    fn recreate(
        &mut self,
        ticket: Ticket,
        about: Vec<ObjectRef>,
        nth: u32,
        exam: &Exam,
        claim: Option<ObjectRef>,
        pods: Vec<UserPod>,
    ) {
        let known = (self.options.policy.recreate.clone(), claim, exam.recreate.clone());
        let (Some(recreate), Some(claim), Some(began)) = known else {
            self.triage.abandon(self.clock.now(), &ticket);
            return;
        };
        let remedy = Remedy::RecreatePods;
        let rule = (!ticket.by_person).then(|| began.ruling.clone());
        let permit = Permit {
            pv: self.pvs.get(&ticket.place).cloned().unwrap_or_default(),
            by_person: ticket.by_person,
            since: ticket.complaint.as_ref().map(|(_, since)| *since),
            began,
            rules: self.options.recreate_rules.clone(),
            policy: self.options.policy.clone(),
            brakes: self.brakes.clone(),
            clock: self.clock,
        };
        let (attempt, started) = self.started(&ticket, &about, remedy, rule, nth);
        self.recreating.insert(ticket.place.clone(), owners(&pods));
        let (cluster, teller, eyes) = (self.cluster.clone(), self.teller.clone(), self.eyes.clone());
        let nodes = self.nodes.clone();
        let held = ticket.clone();
        let task = self.start(async move {
            let began = Instant::now();
            let deadline = Duration::try_from(recreate.deadline).unwrap_or_default();
            let (attempt, Recreated { outcome, nodes: came_to }) =
                match prepare(&*teller, &*eyes, &started, false).await {
                    Ok(()) => {
                        let what = evict::Attempt {
                            cluster: &*cluster,
                            eyes: &*eyes,
                            nodes: &*nodes,
                            place: &ticket.place,
                            claim: &claim,
                            recreate: &recreate,
                            permit: &permit,
                            // A successor waits this long from the beginning that is written down.
                            end: began + deadline,
                        };
                        (Some(attempt), what.carry_out(&pods).await)
                    }
                    Err(why) => {
                        (None, Recreated { outcome: Outcome::NotReached { why }, nodes: BTreeSet::new() })
                    }
                };
            let took = began.elapsed();
            Done::Healed { ticket, about, attempt, remedy, outcome, nodes: came_to, took }
        });
        self.tickets.insert(task, (held, remedy));
    }

    /// A task panicked. That must not keep its volume from ever being healed; what became of the attempt is unknown.
    pub(super) fn broken(&mut self, task: Id, panic: &str) {
        tracing::error!(panic, "internal error (bug): a part of the healer panicked");
        if let Some((ticket, remedy)) = self.tickets.remove(&task) {
            let why = "the healer failed in the middle of it".to_owned();
            let attempt = Attempt { nth: ticket.nth, began: self.clock.now() };
            self.recreating.remove(&ticket.place);
            self.healed(&ticket, Vec::new(), remedy, Some(attempt), Outcome::Lost { why }, Duration::ZERO);
        } else {
            self.surveying = false;
        }
    }

    pub(super) fn healed(
        &mut self,
        ticket: &Ticket,
        about: Vec<ObjectRef>,
        remedy: Remedy,
        attempt: Option<Attempt>,
        outcome: Outcome,
        took: Duration,
    ) {
        let after = self.triage.done(self.clock.now(), ticket, &outcome);
        let code = outcome.label();
        let (message, asked) = match &outcome {
            Outcome::Well { message } => (message.clone(), true),
            Outcome::StillUnhealthy { message } => (format!("still unhealthy: {message}"), true),
            Outcome::Failed { kind, message, secret: _ } => {
                (format!("{}: {message}", kind.code_name()), true)
            }
            Outcome::SecretUnchanged => {
                let why = "the driver was not asked: the secret that it did not accept has not changed";
                (why.to_owned(), false)
            }
            Outcome::NotReached { why } if remedy == Remedy::RecreatePods => {
                (format!("no pod was evicted: {why}"), false)
            }
            Outcome::NotReached { why } => (format!("the driver was not asked: {why}"), false),
            Outcome::Lost { why } => (format!("nobody knows what became of it: {why}"), true),
        };
        // Where something is found wrong, the driver was asked to heal it; all else was only a check.
        if remedy == Remedy::NodeHealer && ticket.is_check() && (outcome.is_healthy() || !asked) {
            self.checked(&ticket.place, outcome.is_healthy(), &message);
            return;
        }
        self.metrics.healed(&ticket.place.driver, remedy, code, took);
        let answer = match outcome {
            Outcome::Well { message } => Answer::Healed(message),
            Outcome::StillUnhealthy { message } => Answer::StillUnhealthy(message),
            _ => Answer::Failed(message.clone()),
        };
        let news = match answer {
            Answer::Healed(_) => News::Succeeded { message, took },
            _ => News::Failed { message, code, after, took, asked },
        };
        let record = Record { remedy: Some(remedy), ..self.record(ticket, about, attempt, news) };
        record.log();
        self.teller.tell(&record);
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

/// The workloads that lose a pod.
fn owners(pods: &[UserPod]) -> BTreeSet<Box<str>> {
    pods.iter().filter_map(|pod| pod.owner.as_ref()).map(|owner| owner.uid.clone()).collect()
}

/// What must have happened before anything is done: the beginning is written down, and we may still act after that.
async fn prepare(
    teller: &impl Teller,
    eyes: &impl Eyes,
    started: &Record,
    is_check: bool,
) -> Result<(), String> {
    teller.begin(started).await?;
    if !eyes.may_act() {
        // The beginning stays as it is: the new leader waits until it must be over.
        return Err(Refusal::NotLeading.to_string());
    }
    // That a volume is checked is no news.
    if !is_check {
        started.log();
        teller.tell(started);
    }
    Ok(())
}
