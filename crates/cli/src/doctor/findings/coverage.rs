//! What is not probed.

use std::collections::BTreeMap;

use super::{Area, Findings, NAMED, list, many, readable};
use crate::doctor::examine::{Facts, NodeFacts};
use crate::look::Unread;

/// Nodes, drivers and claims that are not probed, or not by all that could.
pub(super) fn note(facts: &Facts, found: &mut Findings) {
    if readable(facts, "leases") && readable(facts, "nodes") {
        let bare = facts.nodes.iter().filter(|(_, node)| node.agent.is_none());
        let (used, idle): (Vec<_>, Vec<_>) = bare.partition(|(_, node)| node.claims > 0 || node.drivers > 0);
        let names = |nodes: &[(&String, &NodeFacts)]| -> String {
            list(&nodes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>())
        };
        if !used.is_empty() {
            let claims: usize = used.iter().map(|(_, node)| node.claims).sum();
            found.problem(
                Area::Coverage,
                format!(
                    "no agent on {} with storage: {} ({} in use there)",
                    many(used.len(), "node", "nodes"),
                    names(&used),
                    many(claims, "claim", "claims")
                ),
                "Run the agent's DaemonSet there: check its nodeSelector and tolerations (helm values \
                 agent.nodeSelector and agent.tolerations).",
            );
        }
        if !idle.is_empty() {
            found.note(
                Area::Coverage,
                format!(
                    "no agent on {} without storage: {}",
                    many(idle.len(), "node", "nodes"),
                    names(&idle)
                ),
                None,
            );
        }
        for (name, driver) in facts.drivers.iter().filter(|(_, driver)| driver.controller.is_none()) {
            let what = format!(
                "driver {name} has no controller sidecar: its controller is not asked, and volumes that no pod \
                 uses are not probed"
            );
            let fix = format!(
                "Run `volmedic controller --leader-election` beside the controller plugin of {name}."
            );
            if driver.unknown > 0 {
                found.problem(Area::Coverage, what, &fix);
            } else if driver.registered || driver.claims > 0 {
                found.note(Area::Coverage, what, Some(&fix));
            }
        }
    }
    let mut unread = BTreeMap::<String, Vec<&str>>::new();
    for (kind, why) in facts.unread.iter().filter(|(_, why)| **why != Unread::Missing) {
        unread.entry(why.to_string()).or_default().push(kind);
    }
    for (why, kinds) in unread {
        let kinds = kinds.join(", ");
        let fix = format!("Ask an administrator for `list` on {kinds}.");
        found.note(Area::Coverage, format!("{kinds} cannot be read: {why}"), Some(&fix));
    }
    if facts.malformed > 0 {
        found.note(
            Area::Coverage,
            format!("{} could not be parsed and were left out", many(facts.malformed, "object", "objects")),
            None,
        );
    }
    let unknown: usize = facts.unknown.values().map(|(count, _)| count).sum();
    if unknown == 0 && readable(facts, "persistentvolumeclaims") {
        let claims = many(facts.claims, "claim", "claims");
        return found.good(
            Area::Coverage,
            if facts.claims == 0 {
                "there are no claims".to_owned()
            } else {
                format!("all {claims} are probed")
            },
        );
    }
    let mut whys: Vec<_> = facts.unknown.iter().collect();
    whys.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    for (why, (count, next)) in whys.iter().take(NAMED) {
        found.note(
            Area::Coverage,
            format!("{} unknown: {why}", many(*count, "claim is", "claims are")),
            Some(next),
        );
    }
    if whys.len() > NAMED {
        let rest: usize = whys[NAMED..].iter().map(|(_, (count, _))| count).sum();
        found.note(
            Area::Coverage,
            format!("{} unknown for other reasons", many(rest, "claim is", "claims are")),
            Some("volmedic status --health unknown -o wide"),
        );
    }
}
