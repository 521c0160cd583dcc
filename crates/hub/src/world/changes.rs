//! Which claims may have changed, for each part that does something about it.

use std::collections::BTreeSet;

use volmedic_api::resource::LeaseName;

use super::World;
use crate::ClaimKey;

impl World {
    pub(super) fn touch(&mut self, key: ClaimKey) {
        if !self.untracked {
            self.judgements.waiting.insert(key.clone());
            self.dirty.insert(key);
        }
    }

    pub(super) fn touch_all(&mut self, keys: impl IntoIterator<Item = ClaimKey>) {
        for key in keys {
            self.touch(key);
        }
    }

    /// The claims that may have changed since this was last asked.
    pub fn take_dirty(&mut self) -> BTreeSet<ClaimKey> {
        let dirty = std::mem::take(&mut self.dirty);
        if let Some(followed) = &mut self.followed {
            followed.extend(dirty.iter().cloned());
        }
        dirty
    }

    pub(super) fn touch_all_stored(&mut self) {
        if !self.untracked {
            self.dirty.extend(self.stored.keys().cloned());
            self.judgements.waiting.extend(self.claims.keys().cloned());
        }
    }

    pub(super) fn touch_node(&mut self, node: &str) {
        let touched: Vec<ClaimKey> = self.users.on(node).cloned().collect();
        self.touch_all(touched);
    }

    /// The claims with an object whose controller renews this Lease, or any. Those without one are judged for the counts,
    /// and when they are shown.
    pub(super) fn touch_controlled(&mut self, lease: Option<&LeaseName>) {
        self.touch_where(|world, key| {
            let volume = world.volume_of(key).map(|volume| &volume.id);
            let renewed = world.lease_of_controller(key, volume);
            renewed.is_some() && (lease.is_none() || renewed == lease)
        });
    }

    /// The claims of which this is true, in the same way.
    pub(super) fn touch_where(&mut self, is_concerned: impl Fn(&Self, &ClaimKey) -> bool) {
        if self.untracked {
            return;
        }
        let concerned = self.claims.keys().filter(|key| is_concerned(self, key)).cloned();
        let concerned: Vec<ClaimKey> = concerned.collect();
        self.dirty.extend(concerned.iter().filter(|key| self.stored.contains_key(*key)).cloned());
        self.judgements.waiting.extend(concerned);
    }

    pub(super) fn touch_claim_of(&mut self, volume: &str) {
        let claim = self.volumes.get(volume).and_then(|volume| volume.claim.as_deref());
        if let Some(key) = claim.map(|(key, _)| key.clone()) {
            self.touch(key);
        }
    }
}
