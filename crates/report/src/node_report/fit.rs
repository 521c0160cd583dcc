//! Bounded in size whatever happens on the node.

use std::cmp::Reverse;

use volmedic_api::resource::{
    ConditionStatus, ConditionType, HealthCondition, NodeReport, NodeVolume, limit,
};
use volmedic_health::Status;

/// The API server takes about 1.5 MiB; far less is kind to everybody who watches.
const BYTES: usize = 256 * 1024;
const LONGEST_LINE: usize = 512;
const LONGEST_WORD: usize = 64;

/// The same report with no list and no text beyond its bound: the worst volumes stay, and how many had to go is said.
pub(super) fn within_bounds(mut report: NodeReport) -> NodeReport {
    cut(&mut report.agent.version, LONGEST_WORD);
    report.checks.truncate(limit::CHECKS);
    for check in &mut report.checks {
        cut(&mut check.name, LONGEST_WORD);
        cut(&mut check.why, LONGEST_LINE);
    }
    for volume in &mut report.volumes {
        trim(volume);
    }
    report.volumes.sort_by_cached_key(rank);
    let all = report.volumes.len();
    report.volumes.truncate(limit::NODE_VOLUMES);
    let mut bytes = 0;
    let fitting = report.volumes.iter().take_while(|volume| {
        bytes += serde_json::to_vec(volume).map_or(BYTES, |text| text.len());
        bytes <= BYTES
    });
    let fitting = fitting.count();
    report.volumes.truncate(fitting);
    report.omitted = report.omitted.saturating_add(u32::try_from(all - fitting).unwrap_or(u32::MAX));
    report
}

/// Worst first, and always in the same order.
fn rank(volume: &NodeVolume) -> impl Ord + use<> {
    // Its conditions are in order already.
    let worst = volume.health_conditions.first().map(severity);
    (Reverse(worst), volume.driver.clone(), volume.volume_handle.clone(), volume.vantage)
}

fn severity(condition: &HealthCondition) -> (ConditionType, Option<Status>) {
    let kind =
        if condition.status == ConditionStatus::True { condition.kind } else { ConditionType::HealthUnknown };
    (kind, condition.condition().map(|condition| condition.status))
}

fn trim(volume: &mut NodeVolume) {
    cut(&mut volume.driver, limit::NAME);
    cut(&mut volume.volume_handle, limit::HANDLE);
    volume.health_conditions.sort_by_cached_key(|condition| Reverse(severity(condition)));
    volume.health_conditions.truncate(limit::CONDITIONS);
    for condition in &mut volume.health_conditions {
        cut(&mut condition.message, limit::MESSAGE);
    }
    volume.pods.truncate(limit::PODS);
    volume.evidence.truncate(limit::EVIDENCE);
    for line in &mut volume.evidence {
        cut(line, LONGEST_LINE);
    }
}

fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use volmedic_api::resource::{Check, NodeVantage};
    use volmedic_health::{Condition, Reason};

    use super::*;

    fn volume(handle: &str, status: Status, message: &str) -> NodeVolume {
        let condition = Condition::new(status, Reason::new("X"), message);
        NodeVolume {
            vantage: NodeVantage::Host,
            driver: "disk.example.net".to_owned(),
            volume_handle: handle.to_owned(),
            persistent_volume_name: None,
            claim: None,
            pods: Vec::new(),
            health_conditions: vec![HealthCondition::new(&condition, Timestamp::UNIX_EPOCH)],
            evidence: Vec::new(),
        }
    }

    #[test]
    fn what_fits_stays_as_it_is_but_for_the_order() {
        let report = NodeReport {
            volumes: vec![volume("b", Status::Degraded, ""), volume("a", Status::Degraded, "")],
            ..NodeReport::default()
        };
        let fitted = within_bounds(report.clone());
        let handles: Vec<_> = fitted.volumes.iter().map(|volume| volume.volume_handle.as_str()).collect();
        assert_eq!(handles, ["a", "b"]);
        assert_eq!(within_bounds(fitted.clone()), fitted);
    }

    #[test]
    fn of_too_many_the_worst_stay() {
        let mut volumes: Vec<_> =
            (0..2_000).map(|n| volume(&format!("v{n:04}"), Status::Degraded, "slow")).collect();
        volumes.push(volume("zz-lost", Status::DataLoss, ""));
        volumes.push(volume("zz-gone", Status::Inaccessible, ""));
        let fitted = within_bounds(NodeReport { volumes, ..NodeReport::default() });
        assert_eq!(fitted.volumes.len(), limit::NODE_VOLUMES);
        assert_eq!(fitted.omitted, 2_002 - 500);
        let first: Vec<_> = fitted.volumes[..3].iter().map(|volume| volume.volume_handle.as_str()).collect();
        assert_eq!(first, ["zz-lost", "zz-gone", "v0000"]);
    }

    #[test]
    fn however_long_everything_is_the_whole_is_not() {
        let long = "ü".repeat(5_000);
        let mut each = volume(&long, Status::Inaccessible, &long);
        each.health_conditions = vec![each.health_conditions[0].clone(); 40];
        each.health_conditions[0].message.clone_from(&long);
        each.evidence = vec![long.clone(); 100];
        let checks = vec![Check { name: long.clone(), running: false, why: long }; 100];
        let report = NodeReport { volumes: vec![each; 300], checks, ..NodeReport::default() };
        let fitted = within_bounds(report);
        let bytes = serde_json::to_vec(&fitted).unwrap().len();
        assert!(bytes < BYTES + 100 * 1024, "{bytes} bytes");
        assert!(!fitted.volumes.is_empty());
        assert_eq!(fitted.omitted as usize + fitted.volumes.len(), 300);
    }
}
