//! Who hears what.

use volmedic_api::ObjectRef;
use volmedic_health::Remedy;

use super::{Done, Ward};
use crate::healer::ports::{Cluster, Eyes, Nodes, Surgeon, Teller};
use crate::healer::record::{Attempt, News, Record};
use crate::mode::Mode;
use crate::place::Place;
use crate::triage::{RefusalReport, Ticket};

impl<C: Cluster, S: Surgeon, E: Eyes, N: Nodes, T: Teller> Ward<C, S, E, N, T> {
    /// Reported without a ticket: whom it concerns has to be found out first, and whether they want an event.
    pub(super) fn skip(&mut self, reported: RefusalReport) {
        let RefusalReport { place, refusal, complaint } = reported;
        self.metrics.skip(&place.driver, refusal.label());
        let (cluster, teller) = (self.cluster.clone(), self.teller.clone());
        let (rules, recreate_rules) = (self.options.rules.clone(), self.options.recreate_rules.clone());
        let recreates = self.options.policy.has(Remedy::RecreatePods);
        let (pv, at) = (self.pvs.get(&place).cloned().unwrap_or_default(), self.clock.now());
        let reporting = self.reporting.clone();
        self.start(async move {
            let _turn = reporting.acquire().await;
            let mut about = Vec::new();
            if let Ok(details) = cluster.details(&place, &pv).await {
                let off = details.ruling(&rules).mode == Mode::Off;
                let all_off =
                    off && !(recreates && details.recreate(&recreate_rules).ruling.mode != Mode::Off);
                if all_off || details.filtered.is_some() {
                    return Done::RefusalReport;
                }
                if let Some(claim) = &details.claim {
                    about = audience(&*cluster, &place, claim).await;
                }
            }
            let record = Record {
                at,
                place: Some(place),
                pv,
                about,
                complaint,
                by_person: false,
                remedy: refusal.remedy(),
                rule: None,
                attempt: None,
                not_before: None,
                news: News::Skipped(refusal),
            };
            record.log();
            teller.tell(&record);
            Done::RefusalReport
        });
    }

    pub(super) fn tell(&self, ticket: &Ticket, about: Vec<ObjectRef>, attempt: Option<Attempt>, news: News) {
        let record = self.record(ticket, about, attempt, news);
        record.log();
        self.teller.tell(&record);
    }

    pub(super) fn record(
        &self,
        ticket: &Ticket,
        about: Vec<ObjectRef>,
        attempt: Option<Attempt>,
        news: News,
    ) -> Record {
        Record {
            at: self.clock.now(),
            place: Some(ticket.place.clone()),
            pv: self.pvs.get(&ticket.place).cloned().unwrap_or_default(),
            about,
            complaint: ticket.complaint.clone(),
            by_person: ticket.by_person,
            remedy: match &news {
                News::Skipped(refusal) => refusal.remedy(),
                _ => None,
            },
            rule: None,
            attempt,
            not_before: self.triage.not_before(&ticket.place),
            news,
        }
    }

    /// What concerns no volume in particular.
    pub(super) fn tell_all(&self, news: News) {
        let record = Record {
            at: self.clock.now(),
            place: None,
            pv: Box::default(),
            about: Vec::new(),
            complaint: None,
            by_person: false,
            remedy: None,
            rule: None,
            attempt: None,
            not_before: None,
            news,
        };
        record.log();
        self.teller.tell(&record);
    }
}

/// The claim, and the pods that use it on the node.
pub(super) async fn audience(cluster: &impl Cluster, place: &Place, claim: &ObjectRef) -> Vec<ObjectRef> {
    let mut about = vec![claim.clone()];
    about.extend(cluster.users(&place.node, claim).await);
    about
}
