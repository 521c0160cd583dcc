//! A node's report, made of what its agent has reported.

use jiff::Timestamp;
use volmedic_api::ObjectRef;
use volmedic_api::resource::{
    Agent, Check, ClaimName, Counts, Coverage, HealthCondition, NodeReport, NodeVantage, NodeVolume, PodName,
};
use volmedic_health::{Held, Subject, Tally, Vantage, Volume};

/// Who uses a volume on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whereabouts {
    pub persistent_volume: Option<Box<str>>,
    /// Namespace and name.
    pub claim: Option<(Box<str>, Box<str>)>,
    pub pods: Vec<ObjectRef>,
}

/// What is wrong with one volume as seen from one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub subject: Subject,
    pub vantage: Vantage,
    /// What is believed to be wrong, whether or not it was reported.
    pub conditions: Vec<Held>,
    /// Since when it could not be probed.
    pub blind_since: Option<Timestamp>,
    /// Since when it comes and goes.
    pub flapping_since: Option<Timestamp>,
    /// What speaks for it.
    pub evidence: Vec<String>,
}

/// What an agent has to say of its node.
///
/// `tally` counts the volumes of all drivers, and `whereabouts` answers `None` for a volume that is no longer used here,
/// which is then left out.
pub fn node_report(
    version: &str,
    troubles: &[Trouble],
    tally: Tally,
    checks: Vec<Check>,
    coverage: Coverage,
    whereabouts: impl Fn(&Volume) -> Option<Whereabouts>,
) -> NodeReport {
    let volumes = troubles.iter().filter_map(|trouble| entry(trouble, &whereabouts)).collect();
    NodeReport {
        agent: Agent { version: version.to_owned() },
        counts: counts(tally),
        volumes,
        omitted: 0,
        checks,
        coverage: Some(coverage),
    }
}

fn entry(trouble: &Trouble, whereabouts: impl Fn(&Volume) -> Option<Whereabouts>) -> Option<NodeVolume> {
    let Subject::Volume(volume) = &trouble.subject else { return None };
    let vantage = match trouble.vantage {
        Vantage::Node(_) => NodeVantage::Node,
        Vantage::Host(_) => NodeVantage::Host,
        Vantage::Controller | Vantage::Kubelet(_) | Vantage::Cluster | Vantage::Pushed(_) => return None,
    };
    let wrong = trouble.conditions.iter().map(|held| HealthCondition::new(&held.condition, held.since));
    let blind = trouble.blind_since.map(|since| {
        let message = format!("it could not be checked since {since:.0}; what was known before is kept");
        HealthCondition::unknown("NotSeen", &message, since)
    });
    let flapping = trouble.flapping_since.map(|since| {
        let message = format!("what is wrong comes and goes since {since:.0}; what was seen last stands");
        HealthCondition::unknown("Flapping", &message, since)
    });
    let health_conditions: Vec<_> = wrong.chain(blind).chain(flapping).collect();
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
        evidence: trouble.evidence.clone(),
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
    use volmedic_api::Kind;
    use volmedic_health::{Condition, Reason, Status};

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    #[test]
    fn what_is_wrong_as_seen_from_this_node_is_in_it_and_nothing_else() {
        let stuck = Condition::new(Status::Inaccessible, Reason::new("IOHung"), "stuck");
        let host = Vantage::Host("n".into());
        let trouble = |handle: &str, vantage: &Vantage| Trouble {
            subject: Subject::volume("d", handle),
            vantage: vantage.clone(),
            conditions: vec![Held { condition: stuck.clone(), since: at(1) }],
            blind_since: None,
            flapping_since: None,
            evidence: vec!["the kernel said: so".to_owned()],
        };
        let nothing = |handle: &str| Trouble { conditions: Vec::new(), ..trouble(handle, &host) };
        let troubles = [
            trouble("a", &host),
            trouble("a", &Vantage::Node("n".into())),
            trouble("a", &Vantage::Controller),
            trouble("gone", &host),
            nothing("well"),
            Trouble { blind_since: Some(at(9)), ..nothing("dark") },
            Trouble { flapping_since: Some(at(9)), ..trouble("unsteady", &host) },
            Trouble { subject: Subject::Backend("d".into()), ..trouble("", &host) },
        ];
        let pod = ObjectRef::new(Kind::Pod, "shop", "web-0", "u");
        let whereabouts = |volume: &Volume| {
            (&*volume.handle != "gone").then(|| Whereabouts {
                persistent_volume: Some("pv".into()),
                claim: Some(("shop".into(), "data".into())),
                pods: vec![pod.clone()],
            })
        };
        let tally = Tally { healthy: 1, inaccessible: 2, unknown: 1, ..Tally::default() };
        let report = node_report("1.2.3", &troubles, tally, Vec::new(), Coverage::default(), whereabouts);
        let reasons = |volume: &NodeVolume| {
            let all: Vec<&str> = volume.health_conditions.iter().map(|one| one.reason.as_str()).collect();
            format!("{:?} {} {}", volume.vantage, volume.volume_handle, all.join(" "))
        };
        let lines: Vec<String> = report.volumes.iter().map(reasons).collect();
        assert_eq!(
            lines,
            ["Host a IOHung", "Node a IOHung", "Host dark NotSeen", "Host unsteady IOHung Flapping"]
        );
        assert_eq!((report.counts.volumes, report.counts.inaccessible), (4, 2));
        assert_eq!(report.volumes[0].pods[0].name, "web-0");
        assert_eq!(report.volumes[0].evidence, ["the kernel said: so"]);
    }
}
