//! How the driver is asked about its volumes.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;
use volmedic_csi::dialect::{ControllerProbe, NodeProbe, controller, node};
use volmedic_csi::{Driver, Features, Limits, Pager};
use volmedic_health::{Sight, Why};
use volmedic_monitor::{Absent, ListEnd, Listed, Pages, Probe, Seen, Way};

use super::roll::Roll;

#[derive(Debug)]
pub(super) struct Eyes {
    driver: Driver,
    probe: volmedic_probe::Controller,
    /// For calling the roll, where the list of volumes does not carry their health; and when that was last begun.
    pager: Mutex<(Pager, Option<Instant>)>,
    roll: Arc<Roll>,
}

impl Eyes {
    pub(super) fn new(driver: Driver, limits: &Limits, roll: Arc<Roll>) -> Self {
        let probe = volmedic_probe::Controller::new(driver.clone(), limits.clone());
        Self { driver, probe, pager: Mutex::new((Pager::new(limits.clone()), None)), roll }
    }

    /// Whether the volumes must be asked for apart from their health.
    fn calls_the_roll(&self) -> bool {
        let lists = |features: &Features| {
            features.has_controller_service()
                && features.lists_volumes()
                && controller(features).probe != ControllerProbe::ListVolumes
        };
        !self.roll.is_named() && self.driver.session().is_ok_and(|session| lists(session.features()))
    }

    /// Asks which volumes there are, where that is needed and the driver can tell.
    pub(super) async fn call_the_roll(&self) -> Result<(), Why> {
        self.call_the_roll_after(Instant::now()).await
    }

    /// The same, unless it has been done since then.
    async fn call_the_roll_after(&self, then: Instant) -> Result<(), Why> {
        if !self.calls_the_roll() {
            return Ok(());
        }
        let mut pager = self.pager.lock().await;
        let (pager, begun) = &mut *pager;
        if begun.is_some_and(|begun| begun >= then) {
            return Ok(());
        }
        *begun = Some(Instant::now());
        let session = self.driver.session().map_err(|error| volmedic_probe::why(&error))?;
        let roll = &self.roll;
        roll.pass_began();
        let mark = |listed: volmedic_csi::Listed<volmedic_csi::ListedVolume>| {
            roll.listed(&listed.entry.volume_id);
        };
        let end = pager.list_volumes(&session, mark).await;
        match &end.broken {
            None => {
                roll.pass_ended();
                Ok(())
            }
            Some(broken) => Err(volmedic_probe::broken(broken)),
        }
    }

    /// Whether a volume that the driver says it does not know is one that it has just deleted, which is no trouble.
    async fn is_deleted(&self, handle: &str, asked: Instant) -> bool {
        if self.roll.is_named() {
            return false;
        }
        if matches!(self.way(), Way::List { absent: Absent::Missing, .. }) {
            // The next complete list says.
            return true;
        }
        self.calls_the_roll() && self.call_the_roll_after(asked).await.is_ok() && !self.roll.has(handle)
    }
}

impl Probe for Eyes {
    fn way(&self) -> Way {
        self.probe.way()
    }

    async fn changed(&self) {
        self.probe.changed().await;
    }

    async fn list(&self, pages: impl Pages) -> ListEnd {
        let all = matches!(self.way(), Way::List { absent: Absent::Missing, .. });
        if all {
            self.roll.pass_began();
        }
        let end = self.probe.list(AfterRoll { pages, roll: self.roll.clone() }).await;
        if all && end == ListEnd::Complete {
            self.roll.pass_ended();
            // Or the end of the list would miss what the driver deleted.
            self.roll.taken_in().await;
        }
        end
    }

    async fn look(&self, handle: &str) -> Seen {
        let asked = Instant::now();
        match self.probe.look(handle).await {
            Seen::Volume(Sight::Missing(_)) if self.is_deleted(handle, asked).await => Seen::Nothing,
            seen => seen,
        }
    }
}

/// Hands the pages of a list on, each after its volumes are known.
struct AfterRoll<P> {
    pages: P,
    roll: Arc<Roll>,
}

impl<P: Pages> Pages for AfterRoll<P> {
    async fn page(&mut self, page: Vec<Listed>) {
        let mut new = false;
        for listed in &page {
            new |= self.roll.listed(&listed.handle);
        }
        if new {
            self.roll.taken_in().await;
        }
        self.pages.page(page).await;
    }
}

/// What cannot be learnt from this driver here, and what that means: a sentence each.
pub(super) fn limits(features: &Features, named: bool) -> Vec<String> {
    let choice = controller(features);
    let mut limits = Vec::new();
    let old = matches!(choice.probe, ControllerProbe::ListVolumes | ControllerProbe::GetVolume);
    if choice.probe == ControllerProbe::None {
        limits.push(choice.sentence.to_owned());
    } else if old {
        limits.push(
            "the driver uses the older dialect (VOLUME_CONDITION): it reports normal or abnormal with a message, but \
             neither a severity nor a machine-readable reason"
                .to_owned(),
        );
    }
    if choice.probe != ControllerProbe::None && !choice.confirms {
        limits.push(
            "the driver cannot be asked about one volume (GET_VOLUME_HEALTH or GET_VOLUME), so its list is not confirmed, \
             and a recovery may be noticed one list later"
                .to_owned(),
        );
    }
    if !(named || features.has_controller_service() && features.lists_volumes()) {
        limits.push(match choice.probe {
            ControllerProbe::ListHealth => {
                "the driver cannot list its volumes (LIST_VOLUMES), so only those that it reported unhealthy are shown; \
                 name others with --volume"
            }
            _ => "the driver cannot list its volumes (LIST_VOLUMES), so there is nothing to check; name volumes with --volume",
        }.to_owned());
    }
    let on_node = node(features);
    if !features.node_names().is_empty() && on_node.volume == NodeProbe::None {
        limits.push(on_node.sentence.to_owned());
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `controller` and `node` are the numbers on the wire.
    fn check(controller: &[i32], node: &[i32], named: bool, expected: &[&str]) {
        let features = Features {
            plugin: [1].into_iter().collect(),
            controller: controller.iter().copied().collect(),
            node: node.iter().copied().collect(),
            ..Features::default()
        };
        let limits = limits(&features, named);
        assert_eq!(limits.len(), expected.len(), "{limits:#?}");
        for (limit, expected) in limits.iter().zip(expected) {
            assert!(limit.contains(expected), "{limits:#?}");
        }
    }

    #[test]
    fn what_a_driver_cannot_do_is_said_plainly() {
        check(&[3, 16, 17], &[], false, &[]);
        check(&[16, 17], &[], false, &["only those that it reported unhealthy are shown"]);
        check(&[16], &[], false, &["there is nothing to check"]);
        check(&[16], &[], true, &[]);
        check(&[3, 11], &[], false, &["older dialect", "cannot be asked about one volume"]);
        check(&[3, 11, 12], &[], false, &["older dialect"]);
        check(&[3], &[], false, &["reports nothing about health"]);
        check(&[3, 16, 17], &[1], false, &["the node plugin reports nothing"]);
        check(&[], &[], false, &["reports nothing about health", "there is nothing to check"]);
    }
}
