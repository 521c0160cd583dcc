//! What a person gets to hear.

use jiff::Timestamp;

use super::{Exam, Triage, World};
use crate::place::Place;
use crate::refusal::Refusal;

impl Triage {
    /// Everything that stands in the way right now, were a person to ask; nothing if the volume would be mended.
    pub fn preview(&self, now: Timestamp, place: &Place, exam: &Exam, world: &impl World) -> Vec<Refusal> {
        let mut case = self.cases.get(place).cloned().unwrap_or_default();
        let in_flight = case.in_flight.then_some(Refusal::InFlight);
        case.person();
        let ruled = self.ruled(now, &case, exam, true).err();
        let guards = self.guards(now, place, &case, world, false);
        let flights = if in_flight.is_some() { None } else { self.flights.objection(place, &self.policy) };
        ruled.into_iter().chain(guards).chain(in_flight).chain(flights).collect()
    }

    /// Why a person's wish for this place will not come true by waiting. `None` while it may, or is under way.
    pub fn hopeless(&self, now: Timestamp, place: &Place, world: &impl World) -> Option<Refusal> {
        let case = self.cases.get(place).filter(|case| case.person && !case.in_flight)?;
        match self.guard(now, place, case, world, false)? {
            Refusal::Pause { .. } | Refusal::Debounce { .. } => None,
            refusal => Some(refusal),
        }
    }

    /// A person's wish is withdrawn, because it cannot come true.
    pub fn withdraw_person(&mut self, place: &Place) {
        if let Some(case) = self.cases.get_mut(place).filter(|case| !case.in_flight) {
            case.person = false;
        }
    }
}
