//! What a scrape shows of what is believed.

use std::sync::Arc;

use parking_lot::Mutex;
use volmedic_health::{Subject, Tally};
use volmedic_inventory::Inventory;
use volmedic_monitor::Board;
use volmedic_report::{DriverPicture, Sick};

/// Empty until there is something to show.
#[derive(Debug, Clone, Default)]
pub(super) struct Picture(Arc<Mutex<Option<Source>>>);

#[derive(Debug)]
struct Source {
    driver: Arc<str>,
    board: Board,
    inventory: Arc<Inventory>,
}

impl Picture {
    pub(super) fn attach(&self, driver: &Arc<str>, board: &Board, inventory: &Arc<Inventory>) {
        let source = Source { driver: driver.clone(), board: board.clone(), inventory: inventory.clone() };
        *self.0.lock() = Some(source);
    }
}

impl volmedic_report::View for Picture {
    fn picture(&self, limit: usize) -> volmedic_report::Picture {
        let source = self.0.lock();
        source.as_ref().map_or_else(Default::default, |source| source.picture(limit))
    }
}

impl Source {
    fn picture(&self, limit: usize) -> volmedic_report::Picture {
        let ledger = self.board.lock_ledger();
        let mut tally = ledger.tally(&self.driver);
        // Volumes that nobody has checked yet are unknown, not absent.
        tally.unknown += self.inventory.volumes().len().saturating_sub(all(&tally));
        let backend = ledger.beliefs(&Subject::Backend(self.driver.clone()));
        let blind_since = backend.iter().find_map(|(_, belief)| belief.blind_since);
        let drivers = vec![DriverPicture { driver: self.driver.clone(), tally, blind_since }];
        let (mut sick, mut omitted) = (Vec::new(), 0);
        // Also what flaps too much to be reported: it is no less wrong for that.
        for (subject, _, conditions) in ledger.troubles() {
            let Subject::Volume(volume) = &subject else { continue };
            let claims = self.inventory.volumes().claims(&volume.handle);
            for held in conditions {
                for bound in &claims {
                    if sick.len() >= limit {
                        omitted += 1;
                        continue;
                    }
                    sick.push(Sick {
                        driver: self.driver.clone(),
                        namespace: (&*bound.claim.namespace).into(),
                        pod: None,
                        claim: (&*bound.claim.name).into(),
                        condition: held.condition.clone(),
                    });
                }
            }
        }
        volmedic_report::Picture { drivers, sick, omitted }
    }
}

fn all(tally: &Tally) -> usize {
    let Tally { healthy, degraded, inaccessible, data_loss, unrecognized, unknown } = tally;
    healthy + degraded + inaccessible + data_loss + unrecognized + unknown
}
