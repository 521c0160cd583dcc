//! Which volumes are probed on a node, as a statement that stays small and changes only when a volume begins or ceases
//! to be probed.
//!
//! Healthy volumes are named, each once, in groups: one name of a volume that a provisioner made takes about 43 bytes, so
//! that a node with 1,000 of them stays within one object of 64 KiB. There are no times in it. That the statement is still
//! true is said by the agent's Lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use volmedic_api::resource::{Coverage, CoverageGroup, NodeVantage, limit};
use volmedic_health::NotProbed;

/// All names together take no more bytes than this.
const NAMES: usize = 56 * 1024;
const LONGEST_SENTENCE: usize = 512;

/// How one volume is probed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probing {
    /// From these vantages; at least one.
    From(BTreeSet<NodeVantage>),
    /// From nowhere, and why. The sentence must say the same of many volumes, and no time.
    Not(NotProbed, String),
}

/// The statement about these PersistentVolumes. One that comes twice counts as probed if it is probed once. Where there
/// is too much to say, volumes that are not probed are left out first: for a reader they are not probed either way.
pub fn coverage(within: Duration, volumes: impl IntoIterator<Item = (Box<str>, Probing)>) -> Coverage {
    let mut states: BTreeMap<Box<str>, Probing> = BTreeMap::new();
    for (name, probing) in volumes {
        // The better of both: what is probed comes first in the order.
        match states.get(&name) {
            Some(known) if *known <= probing => {}
            _ => drop(states.insert(name, probing)),
        }
    }
    let all = states.len();
    let mut groups: BTreeMap<Probing, Vec<Box<str>>> = BTreeMap::new();
    for (name, probing) in states {
        groups.entry(probing).or_default().push(name);
    }
    if groups.len() > limit::COVERAGE_GROUPS {
        groups = in_general_terms(groups);
    }
    let mut room = NAMES;
    let groups: Vec<_> = groups
        .into_iter()
        .take(limit::COVERAGE_GROUPS)
        .filter_map(|(probing, names)| group(probing, names, &mut room))
        .collect();
    let named: usize = groups.iter().map(|group| group.persistent_volumes.len()).sum();
    Coverage {
        within_seconds: u32::try_from(within.as_secs().max(1)).unwrap_or(u32::MAX),
        groups,
        omitted: u32::try_from(all - named).unwrap_or(u32::MAX),
    }
}

/// One group for each reason, with the sentence that always holds.
fn in_general_terms(groups: BTreeMap<Probing, Vec<Box<str>>>) -> BTreeMap<Probing, Vec<Box<str>>> {
    let mut fewer: BTreeMap<Probing, Vec<Box<str>>> = BTreeMap::new();
    for (probing, names) in groups {
        let general = match probing {
            Probing::Not(why, _) => Probing::Not(why, why.meaning().to_owned()),
            from @ Probing::From(_) => from,
        };
        fewer.entry(general).or_default().extend(names);
    }
    for names in fewer.values_mut() {
        names.sort_unstable();
    }
    fewer
}

fn group(probing: Probing, names: Vec<Box<str>>, room: &mut usize) -> Option<CoverageGroup> {
    let mut fitting = Vec::with_capacity(names.len());
    for name in names {
        // Two quotes and a comma.
        let bytes = name.len() + 3;
        if fitting.len() == limit::COVERED || name.len() > limit::NAME || bytes > *room {
            continue;
        }
        *room -= bytes;
        fitting.push(name.into());
    }
    let (probed_from, reason, mut message) = match probing {
        Probing::From(vantages) => (vantages.into_iter().collect(), String::new(), String::new()),
        Probing::Not(why, message) => (Vec::new(), why.name().to_owned(), message),
    };
    message.truncate(message.floor_char_boundary(LONGEST_SENTENCE));
    let group = CoverageGroup { probed_from, reason, message, persistent_volumes: fitting };
    (!group.persistent_volumes.is_empty()).then_some(group)
}

/// The same statement where an earlier run of the agent said more of some volumes. After a restart this run has to probe
/// each volume again first; what the earlier run probed shortly before still holds meanwhile.
pub(super) fn with_earlier(now: &Coverage, earlier: &Coverage) -> Coverage {
    let before: BTreeMap<Box<str>, Probing> = entries(earlier).collect();
    let volumes = entries(now).map(|(name, probing)| {
        let probing = match (probing, before.get(&name)) {
            (Probing::From(now), Some(Probing::From(before))) => Probing::From(&now | before),
            (Probing::Not(..), Some(before)) => before.clone(),
            (probing, _) => probing,
        };
        (name, probing)
    });
    let mut merged = coverage(Duration::from_secs(now.within_seconds.into()), volumes);
    merged.omitted = merged.omitted.saturating_add(now.omitted);
    merged
}

fn entries(coverage: &Coverage) -> impl Iterator<Item = (Box<str>, Probing)> {
    coverage.groups.iter().flat_map(|group| {
        let probing = if group.probed_from.is_empty() {
            // A word of another version keeps its sentence.
            let why = group.reason.parse().unwrap_or(NotProbed::ProbeFailed);
            Probing::Not(why, group.message.clone())
        } else {
            Probing::From(group.probed_from.iter().copied().collect())
        };
        group.persistent_volumes.iter().map(move |name| (name.as_str().into(), probing.clone()))
    })
}

#[cfg(test)]
mod tests {
    use volmedic_api::resource::{Check, NodeReport, NodeVolumeHealth, NodeVolumeHealthSpec};

    use super::*;

    const WITHIN: Duration = Duration::from_secs(150);

    fn from(vantages: &[NodeVantage]) -> Probing {
        Probing::From(vantages.iter().copied().collect())
    }

    fn not(why: NotProbed) -> Probing {
        Probing::Not(why, why.meaning().to_owned())
    }

    fn shown(coverage: &Coverage) -> Vec<String> {
        let line = |group: &CoverageGroup| {
            let vantages: Vec<_> = group.probed_from.iter().map(|vantage| format!("{vantage:?}")).collect();
            format!("{}{}: {}", vantages.join("+"), group.reason, group.persistent_volumes.join(" "))
        };
        let omitted = (coverage.omitted > 0).then(|| format!("and {}", coverage.omitted));
        coverage.groups.iter().map(line).chain(omitted).collect()
    }

    fn check(volumes: &[(&str, Probing)], expected: &[&str]) {
        let given = |volumes: &[(&str, Probing)]| -> Vec<(Box<str>, Probing)> {
            volumes.iter().map(|(name, probing)| ((*name).into(), probing.clone())).collect()
        };
        let made = coverage(WITHIN, given(volumes));
        assert_eq!(shown(&made), expected);
        let mut turned = given(volumes);
        turned.reverse();
        assert_eq!(coverage(WITHIN, turned), made, "it does not depend on who comes first");
    }

    #[test]
    fn volumes_of_which_the_same_is_to_be_said_are_one_group() {
        use NodeVantage::{Host, Node};
        check(&[], &[]);
        check(
            &[
                ("c", from(&[Host])),
                ("b", from(&[Host, Node])),
                ("e", not(NotProbed::BeingMounted)),
                ("a", from(&[Node, Host])),
                ("d", not(NotProbed::AccessDenied)),
                ("f", not(NotProbed::BeingMounted)),
            ],
            &["Node+Host: a b", "Host: c", "BeingMounted: e f", "AccessDenied: d"],
        );
    }

    #[test]
    fn one_that_is_probed_at_all_is_probed() {
        check(&[("a", not(NotProbed::BeingMounted)), ("a", from(&[NodeVantage::Host]))], &["Host: a"]);
    }

    /// The whole object, as it is stored.
    fn bytes(coverage: Coverage) -> usize {
        let checks =
            (0..12).map(|n| Check { name: format!("check-{n}"), running: false, why: "w".repeat(200) });
        let report =
            NodeReport { coverage: Some(coverage), checks: checks.collect(), ..NodeReport::default() };
        let node_name = "worker-0123456789.example.net".to_owned();
        let spec = NodeVolumeHealthSpec { node_name: node_name.clone(), report };
        let object = NodeVolumeHealth::new(&node_name, spec);
        serde_json::to_vec(&object).expect("JSON").len()
    }

    #[test]
    fn a_thousand_healthy_volumes_are_all_named_in_one_small_object() {
        let names = (0..1000).map(|n| format!("pvc-{n:08x}-8a54-4d2b-9d4f-2f1a6c8e{n:04x}").into());
        let made = coverage(WITHIN, names.map(|name| (name, from(&[NodeVantage::Node, NodeVantage::Host]))));
        assert_eq!((made.omitted, made.groups.len()), (0, 1));
        let size = bytes(made);
        assert!(size <= 64 * 1024, "{size} bytes");
    }

    #[test]
    fn where_there_is_too_much_to_say_it_is_counted_and_the_probed_stay() {
        let long = |n: usize| -> Box<str> { format!("{n:04}{}", "x".repeat(200)).into() };
        let probed = (0..200).map(|n| (long(n), from(&[NodeVantage::Host])));
        let others = (200..2000).map(|n| (long(n), not(NotProbed::BeingMounted)));
        let made = coverage(WITHIN, probed.chain(others));
        assert_eq!(made.groups[0].persistent_volumes.len(), 200);
        let named: usize = made.groups.iter().map(|group| group.persistent_volumes.len()).sum();
        assert_eq!(made.omitted as usize + named, 2000);
        let size = bytes(made);
        assert!(size <= 64 * 1024, "{size} bytes");
        // The API server refuses a name that is longer, and more names in one group.
        let wrong = coverage(WITHIN, [("x".repeat(300).into(), from(&[NodeVantage::Host]))]);
        assert_eq!(shown(&wrong), ["and 1"]);
        let many = (0..2000).map(|n| (format!("v{n}").into(), from(&[NodeVantage::Host])));
        let many = coverage(WITHIN, many);
        assert_eq!((many.groups[0].persistent_volumes.len(), many.omitted), (limit::COVERED, 500));
    }

    #[test]
    fn more_sentences_than_groups_become_one_for_each_reason() {
        let why = NotProbed::DriverNotRegistered;
        let volumes = (0..200).map(|n| (format!("v{n:03}").into(), Probing::Not(why, format!("driver {n}"))));
        let made = coverage(WITHIN, volumes.chain([("a".into(), from(&[NodeVantage::Host]))]));
        assert_eq!(made.groups.len(), 2);
        assert_eq!((&*made.groups[1].message, made.groups[1].persistent_volumes.len()), (why.meaning(), 200));
        assert_eq!(made.omitted, 0);
    }

    #[test]
    fn what_an_earlier_run_probed_holds_until_this_run_has_probed() {
        use NodeVantage::{Host, Node};
        let of = |volumes: &[(&str, Probing)]| {
            coverage(WITHIN, volumes.iter().map(|(name, probing)| ((*name).into(), probing.clone())))
        };
        let earlier =
            of(&[("a", from(&[Node, Host])), ("b", not(NotProbed::AccessDenied)), ("gone", from(&[Host]))]);
        let first = of(&[
            ("a", from(&[Host])),
            ("b", not(NotProbed::NotProbedYet)),
            ("new", not(NotProbed::NotProbedYet)),
        ]);
        let merged = with_earlier(&first, &earlier);
        assert_eq!(shown(&merged), ["Node+Host: a", "NotProbedYet: new", "AccessDenied: b"]);
        let same = of(&[
            ("a", not(NotProbed::NotProbedYet)),
            ("b", not(NotProbed::NotProbedYet)),
            ("gone", from(&[Host])),
        ]);
        assert_eq!(with_earlier(&same, &earlier), earlier, "a restart changes nothing");
    }
}
