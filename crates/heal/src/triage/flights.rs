//! What is under way, and the budgets for it.

use std::collections::HashMap;
use std::sync::Arc;

use volmedic_health::{Remedy, Volume};

use crate::place::Place;
use crate::policy::Policy;
use crate::refusal::Refusal;

#[derive(Debug, Default)]
pub(super) struct Flights {
    tickets: HashMap<u64, Flight>,
    /// How many on each.
    nodes: HashMap<Arc<str>, usize>,
    /// Whatever the node: a driver takes one call for a volume at a time.
    volumes: HashMap<Volume, u64>,
}

#[derive(Debug)]
struct Flight {
    place: Place,
    /// What is being done, once that is decided.
    remedy: Option<Remedy>,
}

impl Flights {
    pub(super) fn len(&self) -> usize {
        self.tickets.len()
    }

    pub(super) fn has(&self, ticket: u64) -> bool {
        self.tickets.contains_key(&ticket)
    }

    /// It is decided what is done.
    pub(super) fn acts(&mut self, ticket: u64, remedy: Remedy) {
        if let Some(flight) = self.tickets.get_mut(&ticket) {
            flight.remedy = Some(remedy);
        }
    }

    pub(super) fn remedy(&self, ticket: u64) -> Option<Remedy> {
        self.tickets.get(&ticket)?.remedy
    }

    /// How many volumes this is being done to.
    pub(super) fn acting(&self, remedy: Remedy) -> usize {
        self.tickets.values().filter(|flight| flight.remedy == Some(remedy)).count()
    }

    pub(super) fn objection(&self, place: &Place, policy: &Policy) -> Option<Refusal> {
        if self.volumes.contains_key(&place.volume()) {
            return Some(Refusal::InFlight);
        }
        if self.tickets.len() >= policy.cluster_budget {
            return Some(Refusal::ClusterBudget { limit: policy.cluster_budget });
        }
        let here = self.nodes.get(&place.node).copied().unwrap_or(0);
        (here >= policy.node_budget).then_some(Refusal::NodeBudget { limit: policy.node_budget })
    }

    pub(super) fn depart(&mut self, ticket: u64, place: &Place) {
        self.tickets.insert(ticket, Flight { place: place.clone(), remedy: None });
        self.volumes.insert(place.volume(), ticket);
        *self.nodes.entry(place.node.clone()).or_default() += 1;
    }

    pub(super) fn land(&mut self, ticket: u64) {
        let Some(Flight { place, remedy: _ }) = self.tickets.remove(&ticket) else { return };
        self.volumes.remove(&place.volume());
        if let Some(here) = self.nodes.get_mut(&place.node) {
            *here -= 1;
            if *here == 0 {
                self.nodes.remove(&place.node);
            }
        }
    }
}
