//! What a ledger knows and how it came to know it, for the page of a role that has one.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use volmedic_health::{Change, Health, Ledger, Subject, Transition, Volume};
use volmedic_monitor::Board;
use volmedic_view::{History, Moment, Row, Sighting};

/// Reasons why volumes are not seen, kept at most.
const WHYS: usize = 10_000;

#[derive(Debug)]
pub struct Chronicle {
    pub board: Board,
    pub history: Arc<History>,
    /// Why volumes could not be seen.
    whys: Mutex<HashMap<Volume, Arc<str>>>,
}

impl Chronicle {
    pub fn new(board: Board, history: Arc<History>) -> Self {
        Self { board, history, whys: Mutex::default() }
    }

    /// Keeps what changed, and pushes it to open pages. `known_as` is the name of the volume where it is used.
    pub fn record(&self, transition: &Transition, known_as: Option<String>) {
        let moment = {
            let ledger = self.board.lock_ledger();
            let beliefs = ledger.beliefs(&transition.subject);
            let belief = beliefs.iter().find(|(vantage, _)| **vantage == transition.vantage);
            Moment::new(transition, belief.map(|(_, belief)| belief))
        };
        if let Subject::Volume(volume) = &transition.subject {
            let mut whys = self.whys();
            match &transition.change {
                Change::WentBlind { why, .. } if whys.len() < WHYS || whys.contains_key(volume) => {
                    whys.insert(volume.clone(), why.to_string().into());
                }
                Change::SeesAgain { .. } => {
                    whys.remove(volume);
                }
                _ => {}
            }
        }
        self.history.record(Moment { known_as: known_as.map(Into::into), ..moment });
    }

    /// A row with what the ledger says of its volume. `otherwise` is why nothing is known, where no prober gave a reason.
    pub fn fill(&self, ledger: &Ledger, row: Row, otherwise: impl FnOnce() -> Arc<str>) -> Row {
        let volume = Volume { driver: row.driver.clone(), handle: row.volume.clone() };
        let subject = Subject::Volume(volume.clone());
        let seen_by: Vec<Sighting> = ledger.beliefs(&subject).into_iter().map(Sighting::from).collect();
        let row = row.with(ledger.headline(&subject), seen_by);
        if row.health != Health::Unknown {
            return row;
        }
        let why = self.whys().get(&volume).cloned();
        Row { why: Some(why.unwrap_or_else(otherwise)), ..row }
    }

    fn whys(&self) -> MutexGuard<'_, HashMap<Volume, Arc<str>>> {
        self.whys.lock()
    }
}
