//! What a scrape shows of what is believed, and whether the agent is ready.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use volmedic_health::{Ledger, Subject, Tally};
use volmedic_inventory::node::Inventory;
use volmedic_monitor::Board;
use volmedic_probe::host::{self, Host};
use volmedic_report::{AgentPicture, ClaimDevice, DriverPicture, HelperCounts, Sick};

use super::ports::in_use;
use super::usage::Usages;
use volmedic_runtime::http;

/// Out of touch with the API server for longer is not ready.
const STALE_FOR: Duration = Duration::from_mins(10);

/// Empty until there is something to show.
#[derive(Debug, Clone, Default)]
pub(super) struct Picture(Arc<Mutex<Option<Source>>>);

#[derive(Debug)]
pub(super) struct Source {
    /// The name of this node.
    pub(super) node: Arc<str>,
    pub(super) board: Board,
    pub(super) inventory: Arc<Inventory>,
    pub(super) host: Arc<Host>,
    /// Ways of being informed by the kernel, beside the checks.
    pub(super) more_checks: Vec<(&'static str, bool)>,
    pub(super) usages: Arc<Usages>,
    pub(super) show_usage: bool,
}

impl Picture {
    pub(super) fn attach(&self, source: Source) {
        *self.0.lock() = Some(source);
    }

    pub(super) fn agent(&self) -> AgentPicture {
        let source = self.0.lock();
        source.as_ref().map_or_else(Default::default, Source::agent)
    }
}

impl volmedic_report::View for Picture {
    fn picture(&self, limit: usize) -> volmedic_report::Picture {
        let source = self.0.lock();
        source.as_ref().map_or_else(Default::default, |source| source.picture(limit))
    }
}

impl Source {
    fn agent(&self) -> AgentPicture {
        let counts = self.host.helpers().counts();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let checks = self.host.checks().into_iter().map(|check| (check.name, check.off.is_none()));
        AgentPicture {
            helpers: HelperCounts {
                running: number(counts.running),
                stuck: number(counts.stuck),
                started: counts.started,
                hung: counts.hung,
            },
            checks: checks.chain(self.more_checks.iter().copied()).collect(),
            usage: if self.show_usage {
                self.usages.of_claims(&self.inventory.volumes().all())
            } else {
                Vec::new()
            },
            node: self.node.clone(),
            devices: self.devices(),
        }
    }

    /// The block devices under the claims that pods on this node use.
    fn devices(&self) -> Vec<ClaimDevice> {
        let mut devices = Vec::new();
        for volume in self.inventory.volumes().all() {
            let key = host::Key { driver: volume.driver.clone(), handle: volume.handle.clone() };
            let below = self.host.devices(&key);
            for used in in_use(&volume) {
                let Some(claim) = &used.claim else { continue };
                let volume_name = used.pv.as_ref().or(volume.pv.as_ref());
                devices.extend(below.iter().map(|(layer, device)| ClaimDevice {
                    driver: volume.driver.clone(),
                    namespace: (&*claim.namespace).into(),
                    claim: (&*claim.name).into(),
                    volume: volume_name.cloned().unwrap_or_default(),
                    device: device.as_str().into(),
                    layer: layer.name(),
                }));
            }
        }
        devices
    }

    fn picture(&self, limit: usize) -> volmedic_report::Picture {
        let ledger = self.board.lock_ledger();
        let drivers = self.inventory.volumes().drivers().into_iter().map(|(driver, _)| {
            let tally = tally_of(&ledger, &self.inventory, &driver);
            let backend = ledger.beliefs(&Subject::Backend(driver.clone()));
            let blind_since = backend.iter().find_map(|(_, belief)| belief.blind_since);
            DriverPicture { driver, tally, blind_since }
        });
        let drivers = drivers.collect();
        let (mut sick, mut omitted) = (Vec::new(), 0);
        // Also what flaps too much to be reported: it is no less wrong for that.
        for (subject, _, conditions) in ledger.troubles() {
            let Subject::Volume(volume) = &subject else { continue };
            let Some(found) = self.inventory.volumes().get(&volume.driver, &volume.handle) else { continue };
            for held in conditions {
                for used in in_use(&found) {
                    if sick.len() >= limit {
                        omitted += 1;
                        continue;
                    }
                    sick.push(Sick {
                        driver: volume.driver.clone(),
                        namespace: (&*used.pod.namespace).into(),
                        pod: Some((&*used.pod.name).into()),
                        claim: used
                            .claim
                            .as_ref()
                            .map_or_else(Default::default, |claim| (&*claim.name).into()),
                        condition: held.condition.clone(),
                    });
                }
            }
        }
        volmedic_report::Picture { drivers, sick, omitted }
    }
}

/// How many volumes of a driver are in which state. Those that nobody has checked yet are unknown, not absent.
pub(super) fn tally_of(ledger: &Ledger, inventory: &Inventory, driver: &str) -> Tally {
    let volumes = inventory.volumes().of(driver);
    let used = volumes.iter().filter(|volume| volume.is_in_use()).count();
    let mut tally = ledger.tally(driver);
    tally.unknown += used.saturating_sub(all(&tally));
    tally
}

fn all(tally: &Tally) -> usize {
    let Tally { healthy, degraded, inaccessible, data_loss, unrecognized, unknown } = tally;
    healthy + degraded + inaccessible + data_loss + unrecognized + unknown
}

/// Not ready until everything was read once, nor while out of touch with the API server for long.
pub(super) fn ready_check(inventory: &Arc<Inventory>) -> http::Check {
    let inventory = inventory.clone();
    Box::new(move || match inventory.staleness() {
        Some(stale) if !inventory.is_ready() || stale.age > STALE_FOR => {
            Err(format!("what runs on this node cannot be found out: {}", stale.why))
        }
        None if !inventory.is_ready() => Err("reading what runs on this node".to_owned()),
        _ => Ok(()),
    })
}
