//! A node's report, made of what its agent has told.

use volmedic_api::ObjectRef;
use volmedic_api::resource::{
    Agent, Check, ClaimName, Counts, HealthCondition, NodeReport, NodeVantage, NodeVolume, PodName,
};
use volmedic_health::{Memo, Subject, Tally, Vantage, Volume};

/// Who uses a volume on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whereabouts {
    pub persistent_volume: Option<Box<str>>,
    /// Namespace and name.
    pub claim: Option<(Box<str>, Box<str>)>,
    pub pods: Vec<ObjectRef>,
}

/// What an agent has to say of its node.
///
/// `memos` is [`Ledger::memos`](volmedic_health::Ledger::memos), `tally` counts the volumes of all drivers, and
/// `whereabouts` answers `None` for a volume that is no longer used here, which is then left out.
pub fn node_report(
    version: &str,
    memos: &[Memo],
    tally: Tally,
    checks: Vec<Check>,
    whereabouts: impl Fn(&Volume) -> Option<Whereabouts>,
) -> NodeReport {
    let volumes = memos.iter().filter_map(|memo| entry(memo, &whereabouts)).collect();
    NodeReport {
        agent: Agent { version: version.to_owned() },
        counts: counts(tally),
        volumes,
        omitted: 0,
        checks,
    }
}

fn entry(memo: &Memo, whereabouts: impl Fn(&Volume) -> Option<Whereabouts>) -> Option<NodeVolume> {
    let Subject::Volume(volume) = &memo.subject else { return None };
    let vantage = match memo.vantage {
        Vantage::Node(_) => NodeVantage::Node,
        Vantage::Host(_) => NodeVantage::Host,
        Vantage::Controller | Vantage::Cluster | Vantage::Pushed(_) => return None,
    };
    let told = memo.told.iter().map(|held| HealthCondition::new(&held.condition, held.since));
    let blind = memo.blind_since.map(|since| {
        let message = format!("it could not be looked at since {since:.0}; what was known of it stands");
        HealthCondition::unknown("NotSeen", &message, since)
    });
    let health_conditions: Vec<_> = told.chain(blind).collect();
    if health_conditions.is_empty() {
        return None;
    }
    let Whereabouts { persistent_volume, claim, pods } = whereabouts(volume)?;
    Some(NodeVolume {
        vantage,
        driver: volume.driver.to_string(),
        volume_handle: volume.handle.to_string(),
        persistent_volume_name: persistent_volume.map(Into::into),
        claim: claim.map(|(namespace, name)| ClaimName { namespace: namespace.into(), name: name.into() }),
        pods: pods
            .into_iter()
            .map(|pod| PodName {
                namespace: pod.namespace.into(),
                name: pod.name.into(),
                uid: pod.uid.into(),
            })
            .collect(),
        health_conditions,
        evidence: Vec::new(),
    })
}

fn counts(tally: Tally) -> Counts {
    let Tally { healthy, degraded, inaccessible, data_loss, unrecognized, unknown } = tally;
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Counts {
        volumes: number(healthy + degraded + inaccessible + data_loss + unrecognized + unknown),
        healthy: number(healthy),
        degraded: number(degraded),
        inaccessible: number(inaccessible),
        data_loss: number(data_loss),
        unrecognized: number(unrecognized),
        unknown: number(unknown),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use volmedic_api::Kind;
    use volmedic_health::{Condition, Ledger, Policy, Reason, Sight, Status, WhyKind};

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    #[test]
    fn what_was_told_from_this_node_is_in_it_and_nothing_else() {
        let mut ledger = Ledger::new(Policy::default());
        let host = Vantage::Host("n".into());
        let sick = || Sight::adverse([Condition::new(Status::Inaccessible, Reason::new("IOHung"), "stuck")]);
        for handle in ["a", "gone", "well", "dark"] {
            let sight = if handle == "well" || handle == "dark" { Sight::Healthy } else { sick() };
            ledger.record(at(1), &Subject::volume("d", handle), &host, sight);
        }
        ledger.record(at(2), &Subject::volume("d", "a"), &Vantage::Node("n".into()), sick());
        ledger.record(at(2), &Subject::volume("d", "a"), &Vantage::Controller, sick());
        for minute in 2..20 {
            let dark = Sight::not_seen(WhyKind::TimedOut, "no answer");
            ledger.record(at(minute), &Subject::volume("d", "dark"), &host, dark);
        }
        let pod = ObjectRef::new(Kind::Pod, "shop", "web-0", "u");
        let whereabouts = |volume: &Volume| {
            (&*volume.handle != "gone").then(|| Whereabouts {
                persistent_volume: Some("pv".into()),
                claim: Some(("shop".into(), "data".into())),
                pods: vec![pod.clone()],
            })
        };
        let tally = Tally { healthy: 1, inaccessible: 2, unknown: 1, ..Tally::default() };
        let report = node_report("1.2.3", &ledger.memos(), tally, Vec::new(), whereabouts);
        let mut lines: Vec<String> = report
            .volumes
            .iter()
            .map(|v| format!("{:?} {} {}", v.vantage, v.volume_handle, v.health_conditions[0].reason))
            .collect();
        lines.sort_unstable();
        assert_eq!(lines, ["Host a IOHung", "Host dark NotSeen", "Node a IOHung"]);
        assert_eq!((report.counts.volumes, report.counts.inaccessible), (4, 2));
        assert_eq!(report.volumes[0].pods[0].name, "web-0");
    }
}
