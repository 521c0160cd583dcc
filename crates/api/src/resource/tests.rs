//! What an earlier version stored is read without a loss: in an upgrade both versions read and write the same objects.

use serde_json::Value;

use super::*;

fn check<T: serde::Serialize + serde::de::DeserializeOwned>(text: &str) -> T {
    let stored: Value = serde_json::from_str(text).unwrap();
    let read: T = serde_json::from_value(stored.clone()).unwrap();
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(written, stored, "what was read is not what was stored");
    read
}

#[test]
fn a_volume_health_of_version_0_1_is_read_without_a_loss() {
    let health: VolumeHealth = check(include_str!("../../fixtures/volumehealth-v0.1.json"));
    let status = health.status.unwrap();
    let kinds: Vec<VantageKind> = status.vantages.iter().map(|vantage| vantage.kind).collect();
    assert_eq!(kinds, [VantageKind::Host, VantageKind::Pushed, VantageKind::Controller]);
    let conditions = status.vantages.iter().flat_map(|vantage| &vantage.health_conditions);
    let conditions: Vec<_> = conditions.map(HealthCondition::condition).collect();
    // Of the last nobody knows, so it is no condition of the volume.
    assert_eq!(conditions.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
    let report = status.controller_report.unwrap();
    assert_eq!(
        report.health_conditions[0].condition().unwrap().status,
        volmedic_health::Status::Unrecognized(9)
    );
    assert_eq!(status.heals.iter().map(|heal| heal.attempt).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_node_volume_health_of_version_0_1_is_read_without_a_loss_and_claims_no_coverage() {
    let node: NodeVolumeHealth = check(include_str!("../../fixtures/nodevolumehealth-v0.1.json"));
    let report = node.spec.report;
    assert_eq!(report.coverage, None, "an agent of that version does not say what it probes");
    assert_eq!((report.counts.volumes, report.volumes.len(), report.omitted), (12, 2, 1));
    assert_eq!(report.checks.iter().filter(|check| !check.running).count(), 1);
}
