//! From what was read to rows: for each claim what the hub would store of it.

use jiff::Timestamp;
use volmedic_api::resource::VantageKind;
use volmedic_health::{Reason, Vantage, WellKnown};
use volmedic_hub::{ClaimKey, Facts, Seen, Since, View, What};
use volmedic_roles::hub::rows::{Names, row};
use volmedic_view::Row;

use super::events::{self, Note};
use super::picture::Picture;
use super::who::Who;

/// Makes rows of a picture. What is the same for many rows is found out once.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    picture: &'a Picture,
    now: Timestamp,
    pub(crate) who: Who,
    names: Names,
}

impl<'a> Rows<'a> {
    /// The picture must be settled.
    pub(crate) fn new(picture: &'a Picture, now: Timestamp) -> Self {
        Self { picture, now, who: Who::new(picture, now), names: Names::default() }
    }

    /// Every claim, in no order.
    pub(crate) fn all(&mut self) -> Vec<Row> {
        let keys = self.picture.world.claim_keys();
        keys.iter().filter_map(|key| self.row(key)).collect()
    }

    pub(crate) fn row(&mut self, key: &ClaimKey) -> Option<Row> {
        let picture = self.picture;
        let shown = picture.world.show_merged(self.now, key, |facts| add_events(picture, key, facts))?;
        Some(row(key, &shown, &mut self.names))
    }
}

/// What events say, where nothing is stored. An event that something is over is no evidence of health.
fn add_events(picture: &Picture, key: &ClaimKey, facts: &mut Facts) {
    let Picture { world, reported_on_claims, reported_on_pods, .. } = picture;
    if reported_on_claims.is_empty() && reported_on_pods.is_empty()
        || world.own_stored(key).is_some()
        || world.is_kept_in_claim(key)
    {
        return;
    }
    let of_claim = reported_on_claims.get(&key.namespace, &key.name).into_iter().flatten();
    let pods = world.users_of(key).iter().map(|(_, pod)| pod);
    let of_pods = pods.filter_map(|pod| reported_on_pods.get(&key.namespace, pod)).flatten();
    let csi = facts.volume.as_ref().and_then(|volume| volume.csi.as_ref());
    let means_it = |note: &&Note| match (&note.volume, csi) {
        (Some((driver, handle)), Some((own_driver, own_handle))) => {
            **own_driver == **driver && **own_handle == **handle
        }
        (Some(_), None) => false,
        (None, _) => true,
    };
    let mut views: Vec<View> = Vec::new();
    for note in events::standing(of_claim.chain(of_pods).filter(means_it)) {
        let (what, since) = match &note.what {
            events::What::Wrong(condition, since) => (What::Wrong(condition.clone()), *since),
            events::What::Blind(since) => {
                let message = format!("{} has not seen it since {since:.0}, as an event says", note.vantage);
                (What::Unknown { reason: "NotSeen".to_owned(), message }, *since)
            }
            events::What::Over => continue,
        };
        let Some((kind, node)) = place(&note.vantage) else { continue };
        let seen = Seen::new(what, Since::Exactly(since));
        match views.iter_mut().find(|view| (view.kind, view.node.as_deref()) == (kind, node)) {
            Some(view) => view.seen.push(seen),
            None => views.push(View { kind, node: node.map(Into::into), verified: None, seen: vec![seen] }),
        }
    }
    let known = |view: &View| facts.views.iter().any(|one| (one.kind, &one.node) == (view.kind, &view.node));
    let new: Vec<View> = views.into_iter().filter(|view| !known(view)).collect();
    facts.views.extend(new);
}

fn place(vantage: &Vantage) -> Option<(VantageKind, Option<&str>)> {
    Some(match vantage {
        Vantage::Controller => (VantageKind::Controller, None),
        Vantage::Node(node) => (VantageKind::Node, Some(node)),
        Vantage::Host(node) => (VantageKind::Host, Some(node)),
        Vantage::Kubelet(node) => (VantageKind::Kubelet, Some(node)),
        Vantage::Cluster => (VantageKind::Cluster, None),
        Vantage::Pushed(_) => return None,
    })
}

/// The reason in words that are ours, for what `explain` says about it.
pub(crate) fn meaning(reason: &Reason) -> Option<&'static str> {
    reason.well_known().map(WellKnown::meaning)
}

#[cfg(test)]
mod tests;
