//! What was reported of volumes and of their healing, in that order.

use k8s_openapi::api::core::v1::Event;

use super::clinic::Clinic;

pub(super) const ABNORMAL: &str = "VolumeConditionAbnormal";
pub(super) const NORMAL: &str = "VolumeConditionNormal";
pub(super) const STARTED: &str = "HealingStarted";
pub(super) const SUCCEEDED: &str = "HealingSucceeded";
pub(super) const SKIPPED: &str = "HealingSkipped";

/// One event.
#[derive(Debug, Clone)]
pub(super) struct Reported {
    /// As in `pvc/data` and `pod/web`.
    pub(super) on: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) count: u64,
    order: u64,
}

/// Everything, oldest first.
pub(super) fn everything(clinic: &Clinic) -> Vec<Reported> {
    let mut reported: Vec<Reported> = clinic.events().into_iter().map(read).collect();
    reported.sort_by_key(|one| one.order);
    reported
}

fn read(event: Event) -> Reported {
    let object = event.involved_object;
    let kind = match object.kind.as_deref() {
        Some("PersistentVolumeClaim") => "pvc",
        Some("Pod") => "pod",
        _ => "other",
    };
    // The store counts up with every write, while times are reported in whole seconds.
    let order = event.metadata.resource_version.and_then(|version| version.parse().ok());
    Reported {
        on: format!("{kind}/{}", object.name.unwrap_or_default()),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
        count: event.count.map_or(1, |count| count.unsigned_abs().into()),
        order: order.unwrap_or_default(),
    }
}

/// What was reported on one object with this reason.
pub(super) fn on(clinic: &Clinic, object: &str, reason: &str) -> Vec<Reported> {
    story(clinic, object, &[reason])
}

/// How often this was reported on an object.
pub(super) fn times(clinic: &Clinic, object: &str, reason: &str) -> u64 {
    on(clinic, object, reason).iter().map(|one| one.count).sum()
}

/// Waits until this was reported on an object with all of these words.
pub(super) fn wait(clinic: &Clinic, object: &str, reason: &str, words: &[&str]) -> Reported {
    clinic.stage.wait(&format!("{reason} with {words:?} is reported on {object}"), || {
        let reported = everything(clinic);
        let is_it = |one: &&Reported| {
            one.on == object && one.reason == reason && words.iter().all(|word| one.message.contains(word))
        };
        let of_object = || reported.iter().filter(|one| one.on == object).collect::<Vec<_>>();
        reported.iter().find(is_it).cloned().ok_or_else(|| format!("{:#?}", of_object()))
    })
}

/// What was reported on an object with one of these reasons.
pub(super) fn story(clinic: &Clinic, object: &str, of: &[&str]) -> Vec<Reported> {
    let mut reported = everything(clinic);
    reported.retain(|one| one.on == object && of.contains(&one.reason.as_str()));
    reported
}
