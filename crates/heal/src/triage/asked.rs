//! What a person gets to hear.

use jiff::Timestamp;
use volmedic_health::Remedy;

use super::{Exam, Triage, World, ladder};
use crate::place::Place;
use crate::refusal::Refusal;

impl Triage {
    /// Which remedy would be used right now, were a person to ask; else everything that stands in the way.
    pub fn preview(
        &self,
        now: Timestamp,
        place: &Place,
        exam: &Exam,
        world: &impl World,
    ) -> Result<Remedy, Vec<Refusal>> {
        let mut case = self.cases.get(place).cloned().unwrap_or_default();
        let in_flight = case.in_flight.then_some(Refusal::InFlight);
        case.person();
        let mut refusals: Vec<Refusal> = Self::admitted(exam).err().into_iter().collect();
        let mut chosen = None;
        let mut closed = Vec::new();
        for remedy in self.ladder(&case) {
            let before = closed.len();
            closed.extend(self.ruled(now, &case, exam, remedy, true));
            // A person's wish ends what recreating pods has to wait for.
            if remedy == Remedy::NodeHealer {
                closed.extend(self.rung(now, place, &case, world, remedy));
            }
            if closed.len() == before {
                chosen = Some(remedy);
                break;
            }
        }
        if chosen.is_none() && closed.is_empty() {
            closed.push(ladder::nothing_to_heal());
        }
        if chosen.is_none() {
            refusals.extend(closed);
        }
        refusals.extend(self.around(now, place, &case, world, false));
        refusals.extend(self.braked(place));
        refusals.extend(in_flight.clone());
        if in_flight.is_none() {
            refusals.extend(self.flights.objection(place, &self.policy));
        }
        match chosen {
            Some(remedy) if refusals.is_empty() => Ok(remedy),
            _ => Err(refusals),
        }
    }

    /// Why a person's wish for this place will not come true by waiting. `None` while it may, or is under way.
    pub fn hopeless(&self, now: Timestamp, place: &Place, world: &impl World) -> Option<Refusal> {
        let case = self.cases.get(place).filter(|case| case.person && !case.in_flight)?;
        match self.guard(now, place, case, world, false).err()? {
            Refusal::Pause { .. } | Refusal::Debounce { .. } | Refusal::ClusterBudget { .. } => None,
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
