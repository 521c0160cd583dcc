//! A driver's node plugin as a probe, or the kubelet's word for it where the kubelet asks the plugin already.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use volmedic_api::resource::NodeVantage;
use volmedic_csi::dialect::{NodeChoice, NodeProbe};
use volmedic_health::{Condition, NotProbed, Reason, Sight, Status, WellKnown};
use volmedic_inventory::node::{Key, KubeletCondition, NodeVolume};
use volmedic_monitor::{Seen, Way};
use volmedic_panics::blocking;
use volmedic_probe::node::{Node, Published};
use volmedic_report::ProbeResult;

use super::args::KubeletHealth;
use super::host_eyes::Eyes;
use super::ports::in_use;

/// What may be the kubelet at work is asked again after this long before it is reported.
const CONFIRM: Duration = Duration::from_secs(1);

/// One driver's volumes through its node plugin.
#[derive(Debug)]
pub(super) struct DriverEyes {
    driver: Arc<str>,
    node: Node,
    eyes: Arc<Eyes>,
    kubelet: KubeletHealth,
    /// The kubelet was seen to say something about volumes.
    kubelet_speaks: AtomicBool,
    /// Whether something was wrong with volumes when they were last seen.
    seen: Mutex<HashMap<Arc<str>, bool>>,
    /// Ask even a driver that reports nothing about health, for the figures.
    usage: bool,
    reported: Mutex<Option<&'static str>>,
}

impl DriverEyes {
    pub(super) fn new(
        driver: Arc<str>,
        connection: volmedic_csi::Driver,
        eyes: Arc<Eyes>,
        kubelet: KubeletHealth,
        usage: bool,
    ) -> Self {
        Self {
            driver,
            node: Node::new(connection, usage),
            eyes,
            kubelet,
            kubelet_speaks: AtomicBool::new(false),
            seen: Mutex::default(),
            usage,
            reported: Mutex::default(),
        }
    }

    /// What the driver can do is reported once, and again when it changes.
    fn tell(&self, choice: &NodeChoice) {
        let mut reported = self.reported.lock();
        if reported.replace(choice.sentence) != Some(choice.sentence) {
            tracing::info!(driver = &*self.driver, "{}", choice.sentence);
        }
    }

    /// Whether the kubelet's word is to be taken: it asks in the new way only, and not about inline volumes.
    fn reads_kubelet(&self, volume: &NodeVolume, choice: &NodeChoice) -> bool {
        if choice.volume != NodeProbe::VolumeHealth || volume.pv.is_none() {
            return false;
        }
        match self.kubelet {
            KubeletHealth::Ask => false,
            KubeletHealth::Read => true,
            KubeletHealth::Auto => {
                if self.kubelet_speaks.load(Ordering::Relaxed) {
                    return true;
                }
                let speaks = self.eyes.inventory.volumes().kubelet_speaks();
                if speaks && !self.kubelet_speaks.swap(true, Ordering::Relaxed) {
                    tracing::info!(
                        driver = &*self.driver,
                        "the kubelet asks the driver about volumes already; what it finds is read from the pods' status"
                    );
                }
                speaks
            }
        }
    }

    /// What the kubelet says, where that can be believed without asking the driver. The kubelet wrote it some time ago, or
    /// has not asked about this volume yet: it may be older than what we saw ourselves. So it is believed only where it
    /// says what we know already; whether something changed, the driver is asked.
    fn kubelet_agrees(&self, volume: &NodeVolume) -> Option<Sight> {
        let said = kubelet_said(volume);
        let seen = self.seen.lock().get(&volume.handle).copied();
        let agrees = seen == Some(matches!(said, Sight::Adverse(_)));
        (agrees || self.kubelet == KubeletHealth::Read).then_some(said)
    }

    fn saw(&self, handle: &Arc<str>, seen: &Seen) {
        let wrong = match seen {
            Seen::Volume(Sight::Healthy | Sight::Unlisted) => false,
            Seen::Volume(Sight::Adverse(_) | Sight::Missing(_)) => true,
            _ => return,
        };
        let mut last = self.seen.lock();
        if last.len() == last.capacity() {
            let volumes = self.eyes.inventory.volumes();
            last.retain(|handle, _| volumes.get(&self.driver, handle).is_some());
        }
        last.insert(handle.clone(), wrong);
    }

    /// Keeps the evidence.
    fn note(&self, handle: &Arc<str>, answered: bool) {
        let key = Key { driver: self.driver.clone(), handle: handle.clone() };
        let evidence = &self.eyes.evidence;
        if answered {
            evidence.saw(&key, NodeVantage::Node, Instant::now());
        } else {
            let why = NotProbed::DriverNotResponding;
            evidence.missed(&key, NodeVantage::Node, why, why.meaning());
        }
    }

    async fn ask(&self, volume: &Arc<NodeVolume>) -> Option<Seen> {
        let eyes = self.eyes.clone();
        let (mine, handle) = (volume.clone(), volume.handle.clone());
        let targets: Vec<PathBuf> = blocking(move || eyes.targets(&mine)).await;
        if targets.is_empty() {
            return None;
        }
        let published = Published { handle, staging: volume.staging.clone(), targets };
        let looked = self.node.look(&published).await;
        if let (true, Some(usage)) = (self.usage, looked.usage) {
            self.eyes.usages.put(&self.driver, &volume.handle, usage);
        }
        Some(looked.seen)
    }
}

/// The full name of a call, as the metrics have it.
fn method(probe: NodeProbe) -> &'static str {
    match probe {
        NodeProbe::VolumeHealth => "/csi.v1.Node/NodeGetVolumeHealth",
        NodeProbe::StatsCondition | NodeProbe::None => "/csi.v1.Node/NodeGetVolumeStats",
    }
}

/// Whether this could be seen of a volume that the kubelet takes from a pod just now.
fn may_be_a_goodbye(seen: &Seen) -> bool {
    match seen {
        Seen::Volume(Sight::Missing(_)) => true,
        Seen::Volume(Sight::Adverse(conditions)) => conditions.iter().any(|condition| {
            matches!(
                condition.reason.well_known(),
                None | Some(
                    WellKnown::VolumeUnmounted
                        | WellKnown::WrongMount
                        | WellKnown::VolumeNotFound
                        | WellKnown::VolumeConditionAbnormal
                )
            )
        }),
        _ => false,
    }
}

/// What the kubelet wrote into the status of the pods that use the volume now.
fn kubelet_said(volume: &NodeVolume) -> Sight {
    let said = in_use(volume).filter_map(|used| used.kubelet.as_ref());
    Sight::adverse(said.flat_map(|said| &said.conditions).map(
        |KubeletCondition { status, reason, message }| {
            // A word of a later kubelet is no health.
            let status = Status::from_api_value(status).unwrap_or(Status::Unrecognized(0));
            Condition::new(status, Reason::new(reason), message)
        },
    ))
}

impl volmedic_monitor::Probe for DriverEyes {
    fn way(&self) -> Way {
        match self.node.choice() {
            Err(why) => Way::Blind(why),
            Ok(choice) => {
                self.tell(&choice);
                let asked = choice.volume != NodeProbe::None || self.usage && choice.usage;
                if asked { Way::Look } else { Way::Nothing }
            }
        }
    }

    async fn changed(&self) {
        self.node.changed().await;
    }

    async fn look(&self, handle: &str) -> Seen {
        let get = || self.eyes.inventory.volumes().get(&self.driver, handle);
        let (Some(volume), Ok(choice)) = (get(), self.node.choice()) else { return Seen::Nothing };
        if self.reads_kubelet(&volume, &choice) {
            if !volume.is_in_use() {
                return Seen::Nothing;
            }
            if let Some(said) = self.kubelet_agrees(&volume) {
                self.note(&volume.handle, true);
                return Seen::Volume(said);
            }
        }
        let began = Instant::now();
        let Some(mut seen) = self.ask(&volume).await else { return Seen::Nothing };
        if may_be_a_goodbye(&seen) {
            tokio::time::sleep(CONFIRM).await;
            let Some(volume) = get() else { return Seen::Nothing };
            let Some(again) = self.ask(&volume).await else { return Seen::Nothing };
            seen = again;
        }
        self.saw(&volume.handle, &seen);
        let result = if seen.is_answer() { ProbeResult::Success } else { ProbeResult::Error };
        self.eyes.counts.probed(&self.driver, method(choice.volume), result, began.elapsed());
        match seen {
            // It was asked for its figures only.
            Seen::Volume(_) if choice.volume == NodeProbe::None => Seen::Nothing,
            seen => {
                self.note(&volume.handle, seen.is_answer());
                seen
            }
        }
    }

    async fn storage(&self) -> Option<Sight> {
        self.node.storage().await
    }
}

#[cfg(test)]
mod tests {
    use volmedic_api::{Kind, ObjectRef};
    use volmedic_inventory::node::{Access, KubeletSaid, Mode, Phase, Use};

    use super::*;

    fn used(pod: &str, phase: Phase, said: Option<&[(&str, &str)]>) -> Arc<Use> {
        let condition = |(status, reason): &(&str, &str)| KubeletCondition {
            status: (*status).into(),
            reason: (*reason).into(),
            message: "words".into(),
        };
        Arc::new(Use {
            pod: Arc::new(ObjectRef::new(Kind::Pod, "shop", pod, pod)),
            volume: Some("data".into()),
            claim: None,
            pv: Some("pv".into()),
            target: format!("/k/{pod}").into(),
            sub_paths: Box::default(),
            access: Access::ReadWrite,
            phase,
            kubelet: said.map(|said| {
                Box::new(KubeletSaid { conditions: said.iter().map(condition).collect(), since: None })
            }),
        })
    }

    fn check(uses: Vec<Arc<Use>>, expected: &str) {
        let volume = NodeVolume {
            driver: "d".into(),
            handle: "h".into(),
            pv: Some("pv".into()),
            mode: Mode::Filesystem,
            staging: None,
            source: None,
            fs_type: None,
            uses,
        };
        let shown = match kubelet_said(&volume) {
            Sight::Healthy => "healthy".to_owned(),
            Sight::Adverse(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            other => format!("{other:?}"),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_the_kubelet_says_of_pods_that_use_the_volume_counts() {
        let unhealthy: &[(&str, &str)] = &[("Degraded", "SlowIO")];
        check(vec![used("a", Phase::InUse, None)], "healthy");
        check(vec![used("a", Phase::InUse, Some(&[]))], "healthy");
        check(
            vec![used("a", Phase::InUse, None), used("b", Phase::InUse, Some(unhealthy))],
            "Degraded/SlowIO",
        );
        check(
            vec![used("a", Phase::InUse, Some(unhealthy)), used("b", Phase::InUse, Some(unhealthy))],
            "Degraded/SlowIO",
        );
        check(vec![used("a", Phase::Going, Some(unhealthy)), used("b", Phase::InUse, None)], "healthy");
        check(vec![used("a", Phase::InUse, Some(&[("Haunted", "Boo")]))], "Unrecognized(0)/Boo");
    }
}
