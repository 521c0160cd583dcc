//! Where the rooms meet: each port of the monitor, served by the crate that has what it needs.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;
use volmedic_api::{Kind, ObjectRef};
use volmedic_csi::dialect::ControllerProbe;
use volmedic_health::{Change, Subject, Transition, Volume};
use volmedic_inventory::Change as Listed;
use volmedic_monitor::{Arrival, Board, ListEnd, Pages, Probe, Seen, Way};
use volmedic_report::{Notice, ProbeResult, Probes, Reporter};

/// The handles under which inline volumes are kept: they have none of their own. The pod's namespace, name and uid
/// follow, so that after a restart the handle alone says on which pod to report.
const INLINE: &str = "inline:";

/// The handle that stands for a pod's inline volumes.
pub(super) fn inline_handle(pod: &ObjectRef) -> Arc<str> {
    format!("{INLINE}{}/{}/{}", pod.namespace, pod.name, pod.uid).into()
}

/// The pod that a handle of [`inline_handle`] stands for.
fn inline_pod(handle: &str) -> Option<ObjectRef> {
    let mut parts = handle.strip_prefix(INLINE)?.splitn(3, '/');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    Some(ObjectRef::new(Kind::Pod, namespace, name, uid))
}

/// The volumes there should be, and the pods to report on.
#[derive(Debug)]
pub(super) struct Volumes {
    inventory: Arc<volmedic_inventory::Inventory>,
    first: Mutex<bool>,
    pub(super) woken: Notify,
}

impl Volumes {
    pub(super) fn new(inventory: Arc<volmedic_inventory::Inventory>) -> Self {
        Self { inventory, first: Mutex::new(true), woken: Notify::new() }
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
        let first = std::mem::take(&mut *self.first.lock());
        if first || changes.contains(&Listed::Resync) {
            return vec![self.all()];
        }
        let arrival = |change| match change {
            Listed::Added(handle) => Some(Arrival::Added(handle)),
            Listed::Removed(handle) => Some(Arrival::Removed(handle)),
            Listed::ClaimsChanged(handle) => Some(Arrival::AudienceChanged(handle)),
            Listed::Resync => None,
        };
        changes.into_iter().filter_map(arrival).collect()
    }

    async fn changed(&self) {
        self.woken.notified().await;
    }

    fn about(&self, volume: &Volume) -> Vec<ObjectRef> {
        if let Some(pod) = inline_pod(&volume.handle) {
            return vec![pod];
        }
        self.inventory.volumes().claims(&volume.handle).into_iter().map(|bound| bound.claim).collect()
    }

    fn is_only_observed(&self, handle: &str) -> bool {
        inline_pod(handle).is_some()
    }
}

/// The driver's controller plugin, and a count of how its answers went.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) name: Arc<str>,
    pub(super) probe: volmedic_probe::Controller,
    pub(super) counts: Probes,
    /// What the driver can do is reported once, and again when it changes.
    pub(super) reported: Mutex<Option<&'static str>>,
}

impl Driver {
    fn tell(&self, sentence: &'static str, nothing: bool) {
        let mut reported = self.reported.lock();
        if reported.replace(sentence) != Some(sentence) {
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

impl Probe for Driver {
    fn way(&self) -> Way {
        if let Ok(choice) = self.probe.choice() {
            self.tell(choice.sentence, choice.probe == ControllerProbe::None);
        }
        self.probe.way()
    }

    async fn changed(&self) {
        self.probe.changed().await;
    }

    async fn list(&self, pages: impl Pages) -> ListEnd {
        let began = Instant::now();
        match self.probe.walk(pages).await {
            Err(why) => ListEnd::Broken(why),
            Ok(end) => {
                self.count(end.method.path(), end.complete(), began);
                volmedic_probe::list_end(&end)
            }
        }
    }

    async fn look(&self, handle: &str) -> Seen {
        let began = Instant::now();
        let probe = match self.probe.choice() {
            Ok(choice) => choice.fallback.unwrap_or(choice.probe),
            Err(why) => return Seen::DriverGone(why),
        };
        let seen = self.probe.look(handle).await;
        self.count(method(probe), seen.is_answer(), began);
        seen
    }
}

/// Reports transitions, with all that stands beside them.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) reporter: Arc<Reporter>,
    pub(super) board: Board,
}

impl volmedic_monitor::Outlet for Outlet {
    fn tell(&mut self, transition: &Transition, about: Vec<ObjectRef>) {
        let Transition { subject, vantage, change, at: _ } = transition;
        if matches!(change, Change::Reminder { .. } | Change::Flapping { .. })
            && self.board.lock_ledger().is_recalled(subject, vantage)
        {
            // The driver has not answered since the start, so nobody knows whether it still holds.
            return;
        }
        let standing = standing(&self.board, subject);
        self.reporter.tell(&Notice { transition: transition.clone(), about, known_as: None, standing });
    }
}

/// Everything that is wrong with a subject, from all vantages.
pub(super) fn standing(board: &Board, subject: &Subject) -> Vec<volmedic_health::Held> {
    let ledger = board.lock_ledger();
    ledger.beliefs(subject).into_iter().flat_map(|(_, belief)| belief.conditions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handle_of_inline_volumes_says_which_pod_to_report() {
        let pod = ObjectRef::new(Kind::Pod, "shop", "web-0", "0c5b8f0e-6ad8-4a6f-a0a5-3f6e3c7d9b11");
        assert_eq!(inline_pod(&inline_handle(&pod)), Some(pod));
        assert_eq!(inline_pod("vol-1"), None);
        assert_eq!(inline_pod("inline:shop/web-0"), None, "no uid");
    }
}
