//! What people are shown of the world.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_api::resource::{HealthWord, NodeReport, VolumeHealthStatus};

use super::{DownNode, World};
use crate::agents::Life;
use crate::facts::{Facts, Unprobed, VolumeId};
use crate::unknown::advice;
use crate::{ClaimKey, merge};

/// A claim, its volume, who uses it, and how it is.
#[derive(Debug)]
pub struct ShownClaim<'a> {
    pub volume: Option<&'a VolumeId>,
    /// Each node and pod that uses it, in order.
    pub users: &'a [(Arc<str>, Arc<str>)],
    /// The name of the PersistentVolume, also if that is not there; empty if the claim names none.
    pub volume_name: &'a str,
    /// The driver that was asked to make the volume.
    pub provisioner: Option<&'a Arc<str>>,
    /// What is stored; or for a claim that has no object, what would be if there were one.
    pub status: Cow<'a, VolumeHealthStatus>,
    /// What to do about it, where its health is unknown.
    pub advice: Option<&'static str>,
}

/// A node, and who looks there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownNode {
    pub name: Box<str>,
    pub down: Option<DownNode>,
    pub agent: ShownAgent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownAgent {
    /// None has ever given a sign of life there.
    None,
    /// There is one, but it is not known for long enough to say whether it lives.
    Undetermined,
    Alive,
    Silent {
        since: Timestamp,
    },
}

/// Takes what was stored of a claim, and what is stored now. It is called while the world waits, so it must be quick.
pub(super) struct Listener(Box<Hear>);

type Hear = dyn Fn(&ClaimKey, Option<&VolumeHealthStatus>, &VolumeHealthStatus) + Send;

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

impl World {
    /// From now on, the viewer of what is stored is called when it changes: with the claim, what was stored, what is stored.
    pub fn listen(
        &mut self,
        hear: impl Fn(&ClaimKey, Option<&VolumeHealthStatus>, &VolumeHealthStatus) + Send + 'static,
    ) {
        self.listener = Some(Listener(Box::new(hear)));
    }

    pub(super) fn tell(
        &self,
        key: &ClaimKey,
        before: Option<&VolumeHealthStatus>,
        now: Option<&VolumeHealthStatus>,
    ) {
        if let (Some(Listener(hear)), Some(now)) = (&self.listener, now) {
            hear(key, before, now);
        }
    }

    /// All claims there are, in no order.
    pub fn claim_keys(&self) -> Vec<ClaimKey> {
        self.claims.keys().cloned().collect()
    }

    /// `None` if there is no such claim.
    pub fn show(&self, now: Timestamp, key: &ClaimKey) -> Option<ShownClaim<'_>> {
        match self.stored.get(key).and_then(|stored| stored.status.as_ref()) {
            Some(status) => self.shown(key, Cow::Borrowed(status), None),
            None => {
                let facts = self.facts(key);
                let status = merge(now, &facts, None);
                self.shown(key, Cow::Owned(status), facts.unprobed)
            }
        }
    }

    /// The same as it should be stored by now, whatever is stored: for a caller that is not the hub. `more` may add what
    /// else is known.
    pub fn show_merged(
        &self,
        now: Timestamp,
        key: &ClaimKey,
        more: impl FnOnce(&mut Facts),
    ) -> Option<ShownClaim<'_>> {
        let mut facts = self.facts(key);
        more(&mut facts);
        let status = merge(now, &facts, self.own_stored(key));
        self.shown(key, Cow::Owned(status), facts.unprobed)
    }

    fn shown<'a>(
        &'a self,
        key: &ClaimKey,
        status: Cow<'a, VolumeHealthStatus>,
        unprobed: Option<Unprobed>,
    ) -> Option<ShownClaim<'a>> {
        let claim = self.claims.get(key)?;
        let reason = status.headline.reason.as_deref();
        let unknown = status.headline.health == HealthWord::HealthUnknown && status.headline.status.is_none();
        let advice = unknown.then(|| {
            let unprobed = unprobed.filter(|_| status.vantages.is_empty());
            unprobed.map_or_else(|| advice(reason.unwrap_or_default()), |unprobed| unprobed.advice)
        });
        Some(ShownClaim {
            volume: self.volume_of(key).map(|volume| &volume.id),
            volume_name: &claim.volume,
            provisioner: claim.provisioner.as_ref(),
            users: self.users.all_of(key),
            status,
            advice,
        })
    }

    /// What is stored of this very claim, and not of an earlier one of the same name.
    pub fn own_stored(&self, key: &ClaimKey) -> Option<&VolumeHealthStatus> {
        let (claim, stored) = (self.claims.get(key)?, self.stored.get(key)?);
        stored.status.as_ref().filter(|_| stored.owner.as_ref() == Some(&claim.uid))
    }

    /// Each node and pod that uses a claim, in order.
    pub fn users_of(&self, key: &ClaimKey) -> &[(Arc<str>, Arc<str>)] {
        self.users.all_of(key)
    }

    /// Why a node is down, if it is.
    pub fn down(&self, node: &str) -> Option<&DownNode> {
        self.down.get(node)
    }

    /// The names of the PersistentVolumes that claims name.
    pub fn volume_names(&self) -> Vec<Arc<str>> {
        let names = self.claims.values().map(|claim| &claim.volume);
        names.filter(|name| !name.is_empty()).cloned().collect()
    }

    /// The name of the PersistentVolume of a claim; empty if it has none.
    pub fn volume_name_of(&self, key: &ClaimKey) -> &str {
        self.claims.get(key).map_or("", |claim| &claim.volume)
    }

    /// The StorageClass of a claim.
    pub fn class_of(&self, key: &ClaimKey) -> Option<&str> {
        self.claims.get(key)?.class.as_deref()
    }

    /// Whether the API server keeps in a claim what its driver's controller says.
    pub fn is_kept_in_claim(&self, key: &ClaimKey) -> bool {
        self.claims.get(key).is_some_and(|claim| claim.kept.is_some())
    }

    /// The report of the agent on a node.
    pub fn node_report(&self, node: &str) -> Option<&NodeReport> {
        self.reports.get(node)
    }

    /// What the agents report, by node.
    pub fn node_reports(&self) -> impl Iterator<Item = (&str, &NodeReport)> {
        self.reports.iter().map(|(node, report)| (&**node, report))
    }

    /// What is stored of a claim, if it is there.
    pub fn stored_of(&self, key: &ClaimKey) -> Option<&VolumeHealthStatus> {
        self.stored.get(key)?.status.as_ref()
    }

    /// What is stored of all claims, in no order.
    pub fn all_stored(&self) -> impl Iterator<Item = (&ClaimKey, &VolumeHealthStatus)> {
        self.stored.iter().filter_map(|(key, stored)| Some((key, stored.status.as_ref()?)))
    }

    /// All nodes, by name; also those that are gone while pods are still on them.
    pub fn show_nodes(&self) -> Vec<ShownNode> {
        let names: BTreeSet<&str> = self.nodes.iter().chain(self.down.keys()).map(AsRef::as_ref).collect();
        let node = |name: &str| ShownNode {
            name: name.into(),
            down: self.down.get(name).cloned(),
            agent: match self.agents.life(name) {
                None => ShownAgent::None,
                Some(Life::Undetermined) => ShownAgent::Undetermined,
                Some(Life::Alive) => ShownAgent::Alive,
                Some(Life::Silent { since }) => ShownAgent::Silent { since },
            },
        };
        names.into_iter().map(node).collect()
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::shape;
    use serde_json::{Value, json};

    fn world() -> World {
        let mut world = World::default();
        let claim: shape::Claim = from(json!({"spec": {"volumeName": "pv-1"}}));
        world.put_claim("shop", "data", "uid-1", &claim);
        world.put_claim("shop", "pending", "uid-2", &shape::Claim::default());
        let volume: shape::Volume = from(json!({"spec": {
            "csi": {"driver": "d", "volumeHandle": "v"},
            "claimRef": {"namespace": "shop", "name": "data", "uid": "uid-1"},
        }}));
        world.put_volume("pv-1", &volume);
        let pod: shape::Pod = from(json!({
            "spec": {"nodeName": "w", "volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "data"}}]},
        }));
        world.put_pod("shop", "web", &pod);
        world.set_nodes(["w".into()].into());
        for source in [super::super::Source::Reports, super::super::Source::Leases] {
            world.heard(source);
        }
        let now = crate::Now { day: Timestamp::UNIX_EPOCH, clock: std::time::Instant::now() };
        world.put_lease(now, "w", &from(json!({"spec": {"renewTime": "1970-01-01T00:00:00.000000Z"}})));
        world
    }

    fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("a shape")
    }

    fn stored(version: &str, health: &str) -> shape::StoredHealth {
        from(json!({
            "metadata": {"uid": "u", "resourceVersion": version},
            "status": {"headline": {"health": health, "message": ""}},
        }))
    }

    #[test]
    fn a_claim_without_an_object_is_shown_as_it_would_be_stored() {
        let mut world = world();
        let shown = |world: &World| {
            let shown = world.show(Timestamp::UNIX_EPOCH, &ClaimKey::new("shop", "data")).expect("a claim");
            (shown.status.headline.health, shown.users.len(), shown.status.vantages.len())
        };
        assert_eq!(shown(&world), (HealthWord::HealthUnknown, 1, 0), "no vantage probes it");
        let coverage = json!({"groups": [{"probedFrom": ["Host"], "persistentVolumes": ["pv-1"]}]});
        world.put_report("w", &from(json!({ "coverage": coverage })));
        assert_eq!(shown(&world), (HealthWord::Healthy, 1, 1), "the agent on its node does");
        world.put_stored("shop", "data", &stored("1", "HealthFailure"));
        assert_eq!(shown(&world), (HealthWord::HealthFailure, 1, 0), "what is stored counts");
        let pending = world.show(Timestamp::UNIX_EPOCH, &ClaimKey::new("shop", "pending")).expect("a claim");
        assert_eq!(pending.status.headline.reason.as_deref(), Some("NotBound"));
        assert!(pending.advice.is_some_and(|advice| advice.contains("kubectl describe pvc")));
        assert!(world.show(Timestamp::UNIX_EPOCH, &ClaimKey::new("shop", "nothing")).is_none());
    }

    #[test]
    fn a_listener_gets_each_change_once() {
        let mut world = world();
        let reported = Arc::new(Mutex::new(Vec::new()));
        let heard = reported.clone();
        world.listen(move |key, before, now| {
            let word = |status: &VolumeHealthStatus| status.headline.health.as_str();
            let line = format!("{} {:?} {}", key.name, before.map(word), word(now));
            heard.lock().push(line);
        });
        for (version, health) in
            [("1", "HealthFailure"), ("1", "HealthFailure"), ("2", "Healthy"), ("1", "HealthFailure")]
        {
            world.put_stored("shop", "data", &stored(version, health));
        }
        world.remove_stored("shop", "data");
        let reported = reported.lock();
        assert_eq!(*reported, ["data None HealthFailure", "data Some(\"HealthFailure\") Healthy"]);
    }
}
