//! Where the rooms meet: each port of the monitor, served by the crate that has what it needs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, mpsc};
use volmedic_api::ObjectRef;
use volmedic_csi::dialect::ControllerProbe;
use volmedic_health::{Subject, Transition};
use volmedic_inventory::Change;
use volmedic_monitor::{Absent, Arrival, Board, ListEnd, Listed, Seen, Way, read};
use volmedic_probe::{Answer, Passed};
use volmedic_report::{Notice, ProbeResult, Probes, Reporter};

/// The handles under which inline volumes are kept: they have none of their own.
const INLINE: &str = "inline:";

/// The volumes there should be, and whom to tell about them.
#[derive(Debug)]
pub(super) struct Volumes {
    inventory: Arc<volmedic_inventory::Inventory>,
    first: Mutex<bool>,
    pub(super) woken: Notify,
    /// Inline volumes on nodes that are down, by the handle that stands for them.
    inline: Mutex<HashMap<Box<str>, ObjectRef>>,
}

impl Volumes {
    pub(super) fn new(inventory: Arc<volmedic_inventory::Inventory>) -> Self {
        Self { inventory, first: Mutex::new(true), woken: Notify::new(), inline: Mutex::default() }
    }

    /// The handle that stands for a pod's inline volumes.
    pub(super) fn inline(&self, pod: &ObjectRef) -> Arc<str> {
        let handle = format!("{INLINE}{}/{}", pod.namespace, pod.name);
        let mut inline = self.inline.lock().unwrap_or_else(PoisonError::into_inner);
        inline.insert(handle.as_str().into(), pod.clone());
        handle.into()
    }

    pub(super) fn forget_inline(&self, keep: impl Fn(&str) -> bool) {
        self.inline.lock().unwrap_or_else(PoisonError::into_inner).retain(|handle, _| keep(handle));
    }

    fn all(&self) -> Arrival {
        let mut all = Vec::with_capacity(self.inventory.volumes().len());
        self.inventory.volumes().for_each(|handle| all.push(handle.clone()));
        Arrival::All(all)
    }
}

impl volmedic_monitor::Inventory for Volumes {
    fn drain(&self) -> Vec<Arrival> {
        let changes = self.inventory.volumes().changes();
        let first = std::mem::take(&mut *self.first.lock().unwrap_or_else(PoisonError::into_inner));
        if first || changes.contains(&Change::Resync) {
            return vec![self.all()];
        }
        let arrival = |change| match change {
            Change::Added(handle) => Some(Arrival::Added(handle)),
            Change::Removed(handle) => Some(Arrival::Removed(handle)),
            Change::ClaimsChanged(handle) => Some(Arrival::AudienceChanged(handle)),
            Change::Resync => None,
        };
        changes.into_iter().filter_map(arrival).collect()
    }

    async fn changed(&self) {
        self.woken.notified().await;
    }

    fn about(&self, handle: &str) -> Vec<ObjectRef> {
        if handle.starts_with(INLINE) {
            let inline = self.inline.lock().unwrap_or_else(PoisonError::into_inner);
            return inline.get(handle).cloned().into_iter().collect();
        }
        self.inventory.volumes().claims(handle).into_iter().map(|bound| bound.claim).collect()
    }
}

/// The driver's controller plugin, and a count of how its answers went.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) name: Arc<str>,
    pub(super) probe: volmedic_probe::Controller,
    pub(super) counts: Probes,
    /// What the driver can do is told once, and again when it changes.
    pub(super) told: Mutex<Option<&'static str>>,
}

impl Driver {
    fn tell(&self, sentence: &'static str, nothing: bool) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.replace(sentence) != Some(sentence) {
            if nothing {
                tracing::warn!(driver = &*self.name, "{sentence}");
            } else {
                tracing::info!(driver = &*self.name, "{sentence}");
            }
        }
    }

    fn count(&self, method: &'static str, well: bool, began: Instant) {
        let result = if well { ProbeResult::Success } else { ProbeResult::Error };
        self.counts.probed(&self.name, method, result, began.elapsed());
    }
}

/// The full name of a call, as the metrics have it.
fn method(probe: ControllerProbe) -> &'static str {
    match probe {
        ControllerProbe::ListHealth => "/csi.v1.Controller/ControllerListVolumeHealth",
        ControllerProbe::GetHealth => "/csi.v1.Controller/ControllerGetVolumeHealth",
        ControllerProbe::ListVolumes => "/csi.v1.Controller/ListVolumes",
        ControllerProbe::GetVolume => "/csi.v1.Controller/ControllerGetVolume",
        ControllerProbe::None => "none",
    }
}

impl volmedic_monitor::Probe for Driver {
    fn way(&self) -> Way {
        let choice = match self.probe.way() {
            volmedic_probe::Way::Asked(choice) => choice,
            volmedic_probe::Way::Gone(why) => return Way::Blind(why),
        };
        self.tell(choice.sentence, choice.probe == ControllerProbe::None);
        match choice.probe {
            ControllerProbe::ListHealth => Way::List { absent: Absent::Unlisted, looks: choice.confirms },
            ControllerProbe::ListVolumes => Way::List { absent: Absent::Missing, looks: choice.confirms },
            ControllerProbe::GetHealth | ControllerProbe::GetVolume => Way::Look,
            ControllerProbe::None => Way::Nothing,
        }
    }

    async fn changed(&self) {
        self.probe.changed().await;
    }

    async fn list(&self, pages: mpsc::Sender<Vec<Listed>>) -> ListEnd {
        let began = Instant::now();
        let (sender, mut entries) = mpsc::unbounded_channel();
        let forward = async {
            let mut batch = Vec::new();
            while entries.recv_many(&mut batch, PAGE).await > 0 {
                // Nobody reads on only when the list is given up; then so is this.
                if pages.send(std::mem::take(&mut batch)).await.is_err() {
                    return;
                }
            }
        };
        let walk = async move {
            self.probe
                .list(|volmedic_probe::Listed { handle, sight, again }| {
                    let _ = sender.send(Listed { handle, sight, again });
                })
                .await
        };
        let (passed, ()) = tokio::join!(walk, forward);
        match passed {
            Passed::Gone(why) => ListEnd::Broken(why),
            Passed::Walked(end) => {
                self.count(end.method.path(), end.complete(), began);
                match &end.broken {
                    None => {
                        tracing::debug!("{end}");
                        ListEnd::Complete
                    }
                    Some(broken) => {
                        tracing::warn!("{end}");
                        ListEnd::Broken(volmedic_probe::broken(broken))
                    }
                }
            }
        }
    }

    async fn look(&self, handle: &str) -> Seen {
        let began = Instant::now();
        let probe = match self.probe.way() {
            volmedic_probe::Way::Asked(choice) => choice.fallback.unwrap_or(choice.probe),
            volmedic_probe::Way::Gone(why) => return Seen::DriverGone(why),
        };
        let answer = self.probe.look(handle).await;
        let well =
            matches!(&answer, Answer::Volume(sight) if !matches!(sight, volmedic_health::Sight::NotSeen(_)));
        self.count(method(probe), well, began);
        match answer {
            Answer::Volume(sight) => Seen::Volume(sight),
            Answer::Overloaded(why) => Seen::Overloaded(why),
            Answer::Late(why) | Answer::DriverGone(why) => Seen::DriverGone(why),
        }
    }
}

/// Entries handed over at once.
const PAGE: usize = 500;

/// Tells transitions, with all that stands beside them.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) reporter: Arc<Reporter>,
    pub(super) board: Board,
}

impl volmedic_monitor::Outlet for Outlet {
    fn tell(&mut self, transition: &Transition, about: Vec<ObjectRef>) {
        let standing = standing(&self.board, &transition.subject);
        self.reporter.tell(&Notice { transition: transition.clone(), about, standing });
    }
}

/// Everything that is wrong with a subject, from all vantages.
pub(super) fn standing(board: &Board, subject: &Subject) -> Vec<volmedic_health::Held> {
    let ledger = read(board);
    ledger.beliefs(subject).into_iter().flat_map(|(_, belief)| belief.conditions).collect()
}
