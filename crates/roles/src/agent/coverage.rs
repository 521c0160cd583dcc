//! Which volumes of this node are probed, from where, and why the others are not.
//!
//! A probe leaves its evidence here: when it last saw something of a volume, good or bad, or why it saw nothing. A report
//! asks what of that still counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use volmedic_api::resource::NodeVantage;
use volmedic_health::NotProbed;
use volmedic_inventory::node::{Key, NodeVolume, Phase};
use volmedic_report::Probing;

/// A pod that waits longer for a volume is stuck rather than starting.
const STARTS_WITHIN: Duration = Duration::from_mins(2);
/// The number of probes in a row that have to succeed before a volume whose probes had failed for too long counts as probed again.
const REGAIN: u32 = 2;
/// CSI drivers are named; the kubelet's own plugins are `kubernetes.io/…`.
const IN_TREE: &str = "kubernetes.io/";

/// How old evidence may be: one probe may fail, and the next one may take its whole deadline, and still count. A probe
/// takes three times the deadline of one call at most, and what must be seen twice a few seconds more.
pub(super) fn within(interval: Duration, deadline: Duration) -> Duration {
    interval * 2 + deadline * 3 + Duration::from_secs(10)
}

/// What the probes of all volumes saw lately.
#[derive(Debug)]
pub(super) struct Evidence {
    within: Duration,
    volumes: Mutex<HashMap<Key, Views>>,
    /// Since when a pod waits for a volume.
    waiting: Mutex<BTreeMap<Key, Instant>>,
}

/// From both vantages.
#[derive(Debug, Default)]
struct Views {
    node: View,
    host: View,
}

#[derive(Debug, Default)]
struct View {
    /// When something was seen last.
    seen: Option<Instant>,
    /// How often in a row.
    row: u32,
    /// It was not seen for too long at some time, and has not been seen often enough since.
    is_lost: bool,
    missed: Option<(NotProbed, Arc<str>)>,
}

impl View {
    fn counts(&self, within: Duration, now: Instant) -> bool {
        !self.is_lost && self.seen.is_some_and(|seen| now.duration_since(seen) <= within)
    }

    /// Notes that it was not seen for too long, if so.
    fn age(&mut self, within: Duration, now: Instant) {
        self.is_lost |= self.seen.is_some_and(|seen| now.duration_since(seen) > within);
    }
}

impl Evidence {
    pub(super) fn new(within: Duration) -> Self {
        Self { within, volumes: Mutex::default(), waiting: Mutex::default() }
    }

    pub(super) fn within(&self) -> Duration {
        self.within
    }

    /// A probe saw something of the volume, be it good or bad.
    pub(super) fn saw(&self, key: &Key, vantage: NodeVantage, now: Instant) {
        self.note(key, vantage, |view| {
            view.age(self.within, now);
            view.seen = Some(now);
            view.row = view.row.saturating_add(1);
            view.is_lost &= view.row < REGAIN;
            // While it is lost, the reason stays too, so that the statement does not change with every other probe.
            if !view.is_lost {
                view.missed = None;
            }
        });
    }

    /// A probe saw nothing. `message` says the same of many volumes, and no time.
    pub(super) fn missed(&self, key: &Key, vantage: NodeVantage, why: NotProbed, message: &str) {
        self.note(key, vantage, |view| {
            view.row = 0;
            if view.missed.as_ref().is_none_or(|(known, text)| (*known, &**text) != (why, message)) {
                view.missed = Some((why, message.into()));
            }
        });
    }

    fn note(&self, key: &Key, vantage: NodeVantage, change: impl FnOnce(&mut View)) {
        let mut volumes = self.volumes.lock();
        if !volumes.contains_key(key) {
            volumes.insert(key.clone(), Views::default());
        }
        if let Some(views) = volumes.get_mut(key) {
            change(match vantage {
                NodeVantage::Node => &mut views.node,
                NodeVantage::Host => &mut views.host,
            });
        }
    }

    /// Forgets what is not on this node any more.
    pub(super) fn keep(&self, volumes: &[Arc<NodeVolume>]) {
        let there = |key: &Key| {
            let found =
                volumes.binary_search_by(|v| (&*v.driver, &*v.handle).cmp(&(&*key.driver, &*key.handle)));
            found.is_ok()
        };
        self.volumes.lock().retain(|key, _| there(key));
        self.waiting.lock().retain(|key, _| there(key));
    }

    /// How the PersistentVolumes of these volumes are probed. `registered` answers whether a CSI driver is.
    pub(super) fn probing(
        &self,
        volumes: &[Arc<NodeVolume>],
        registered: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Vec<(Box<str>, Probing)> {
        let mut all = Vec::with_capacity(volumes.len());
        for volume in volumes {
            let names = volume.persistent_volumes();
            if names.is_empty() {
                continue;
            }
            let probing = self.of(volume, &registered, now);
            all.extend(names.into_iter().map(|name| (name.as_ref().into(), probing.clone())));
        }
        all
    }

    fn of(&self, volume: &NodeVolume, registered: &impl Fn(&str) -> bool, now: Instant) -> Probing {
        let key = Key { driver: volume.driver.clone(), handle: volume.handle.clone() };
        let phase = |phase: Phase| volume.uses.iter().any(|used| used.phase == phase);
        let is_in_use = phase(Phase::InUse);
        let waits = phase(Phase::Coming) && !is_in_use;
        let waits_since = {
            let mut waiting = self.waiting.lock();
            if waits {
                *waiting.entry(key.clone()).or_insert(now)
            } else {
                waiting.remove(&key);
                now
            }
        };
        let mut volumes = self.volumes.lock();
        let views = volumes.get_mut(&key);
        let mut missed = None;
        if let Some(views) = views {
            let mut from = BTreeSet::new();
            for (vantage, view) in
                [(NodeVantage::Node, &mut views.node), (NodeVantage::Host, &mut views.host)]
            {
                view.age(self.within, now);
                if view.counts(self.within, now) {
                    from.insert(vantage);
                }
            }
            if !from.is_empty() {
                return Probing::From(from);
            }
            // The host checks need no driver, so what keeps them is what there is to change.
            missed = views.host.missed.clone().or_else(|| views.node.missed.clone());
        }
        drop(volumes);
        let is_csi = !volume.driver.starts_with(IN_TREE);
        let general = |why: NotProbed| Probing::Not(why, why.meaning().to_owned());
        if is_in_use {
            return match missed {
                Some((why, message)) => Probing::Not(why, message.to_string()),
                None => general(NotProbed::NotProbedYet),
            };
        }
        if !waits {
            return general(NotProbed::BeingUnmounted);
        }
        if is_csi && !registered(&volume.driver) {
            let message =
                format!("The CSI driver {} is not registered with the kubelet of the node.", volume.driver);
            return Probing::Not(NotProbed::DriverNotRegistered, message);
        }
        let is_stuck = now.duration_since(waits_since) >= STARTS_WITHIN;
        general(if is_stuck { NotProbed::NotMounted } else { NotProbed::BeingMounted })
    }
}

#[cfg(test)]
mod tests {
    use volmedic_api::{Kind, ObjectRef};
    use volmedic_inventory::node::{Access, Mode, Use};

    use super::*;

    const WITHIN: Duration = Duration::from_secs(100);

    fn volume(handle: &str, phases: &[Phase]) -> Arc<NodeVolume> {
        let used = |(n, phase): (usize, &Phase)| {
            Arc::new(Use {
                pod: Arc::new(ObjectRef::new(Kind::Pod, "shop", "web", &n.to_string())),
                volume: None,
                claim: None,
                pv: Some(format!("pv-{handle}").into()),
                target: format!("/k/{n}/{handle}").into(),
                sub_paths: Box::default(),
                access: Access::ReadWrite,
                phase: *phase,
                kubelet: None,
            })
        };
        Arc::new(NodeVolume {
            driver: "d".into(),
            handle: handle.into(),
            pv: Some(format!("pv-{handle}").into()),
            mode: Mode::Filesystem,
            staging: None,
            source: None,
            fs_type: None,
            uses: phases.iter().enumerate().map(used).collect(),
        })
    }

    fn shown(evidence: &Evidence, volume: &Arc<NodeVolume>, at: Instant) -> String {
        let all = evidence.probing(std::slice::from_ref(volume), |driver| driver != "gone", at);
        let [(name, probing)] = &all[..] else { panic!("{all:?}") };
        assert_eq!(**name, *format!("pv-{}", volume.handle));
        match probing {
            Probing::From(vantages) => {
                vantages.iter().map(|vantage| format!("{vantage:?}")).collect::<Vec<_>>().join("+")
            }
            Probing::Not(why, _) => why.to_string(),
        }
    }

    fn key(handle: &str) -> Key {
        Key { driver: "d".into(), handle: handle.into() }
    }

    #[test]
    fn a_volume_is_probed_from_where_it_was_seen_within_the_bound() {
        let (evidence, start) = (Evidence::new(WITHIN), Instant::now());
        let at = |second: u64| start + Duration::from_secs(second);
        let one = volume("a", &[Phase::InUse]);
        assert_eq!(shown(&evidence, &one, at(0)), "NotProbedYet");
        evidence.missed(&key("a"), NodeVantage::Node, NotProbed::DriverNotResponding, "m");
        assert_eq!(shown(&evidence, &one, at(0)), "DriverNotResponding");
        evidence.saw(&key("a"), NodeVantage::Host, at(0));
        assert_eq!(shown(&evidence, &one, at(0)), "Host");
        evidence.saw(&key("a"), NodeVantage::Node, at(50));
        assert_eq!(shown(&evidence, &one, at(100)), "Node+Host");
        evidence.missed(&key("a"), NodeVantage::Host, NotProbed::NoHelper, "m");
        assert_eq!(shown(&evidence, &one, at(100)), "Node+Host", "one that fails is within the bound");
        assert_eq!(shown(&evidence, &one, at(101)), "Node");
        assert_eq!(
            shown(&evidence, &one, at(151)),
            "NoHelper",
            "what keeps the host checks is what to change"
        );
        evidence.keep(&[]);
        assert_eq!(shown(&evidence, &one, at(151)), "NotProbedYet");
    }

    #[test]
    fn one_that_was_lost_has_to_be_seen_twice_so_that_the_statement_does_not_come_and_go() {
        let (evidence, start) = (Evidence::new(WITHIN), Instant::now());
        let at = |second: u64| start + Duration::from_secs(second);
        let one = volume("a", &[Phase::InUse]);
        let miss = || evidence.missed(&key("a"), NodeVantage::Host, NotProbed::ProbeFailed, "m");
        evidence.saw(&key("a"), NodeVantage::Host, at(0));
        let mut reported = Vec::new();
        for round in 1..20 {
            miss();
            reported.push(shown(&evidence, &one, at(round * 110 + 105)));
            evidence.saw(&key("a"), NodeVantage::Host, at(round * 110 + 106));
            reported.push(shown(&evidence, &one, at(round * 110 + 107)));
        }
        reported.dedup();
        assert_eq!(reported, ["ProbeFailed", "NotProbedYet"].map(String::from)[..1], "it stays lost");
        evidence.saw(&key("a"), NodeVantage::Host, at(5000));
        evidence.saw(&key("a"), NodeVantage::Host, at(5010));
        assert_eq!(shown(&evidence, &one, at(5011)), "Host");
    }

    #[test]
    fn one_that_is_not_in_use_says_how_far_it_is() {
        let (evidence, start) = (Evidence::new(WITHIN), Instant::now());
        let coming = volume("a", &[Phase::Coming]);
        assert_eq!(shown(&evidence, &coming, start), "BeingMounted");
        assert_eq!(shown(&evidence, &coming, start + STARTS_WITHIN), "NotMounted");
        let used = volume("a", &[Phase::Coming, Phase::InUse]);
        assert_eq!(shown(&evidence, &used, start + STARTS_WITHIN), "NotProbedYet");
        assert_eq!(shown(&evidence, &coming, start + STARTS_WITHIN), "BeingMounted", "it begins again");
        assert_eq!(shown(&evidence, &volume("b", &[Phase::Going]), start), "BeingUnmounted");
        evidence.saw(&key("b"), NodeVantage::Host, start);
        assert_eq!(
            shown(&evidence, &volume("b", &[Phase::Going]), start),
            "Host",
            "what was seen just now counts while its pod ends"
        );
        let unknown = Arc::new(NodeVolume { driver: "gone".into(), ..(*coming).clone() });
        assert_eq!(shown(&evidence, &unknown, start), "DriverNotRegistered");
    }

    #[test]
    fn a_probe_that_fails_and_one_that_takes_long_are_within_the_bound() {
        let (interval, deadline) = (Duration::from_mins(1), Duration::from_secs(10));
        assert_eq!(within(interval, deadline), Duration::from_secs(160));
    }
}
