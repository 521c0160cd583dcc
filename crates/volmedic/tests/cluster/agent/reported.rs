//! Everything the agent reported on pods.

use serde_json::Value;

use crate::stage::Stage;

pub(super) const ABNORMAL: &str = "VolumeConditionAbnormal";
pub(super) const NORMAL: &str = "VolumeConditionNormal";
pub(super) const UNWATCHED: &str = "VolumeConditionUnwatched";
const REASONS: [&str; 3] = [ABNORMAL, NORMAL, UNWATCHED];
/// What any of the faults here can be called.
const CONDITIONS: [&str; 4] = ["VolumeUnmounted", "ReadOnlyFilesystem", "OutOfCapacity", "MounterDead"];

/// One event on a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reported {
    pub(super) pod: String,
    pub(super) reason: String,
    pub(super) condition: String,
    pub(super) by_host: bool,
    pub(super) count: u64,
    pub(super) message: String,
}

/// All of it, in an order of its own.
pub(super) fn reported(stage: &Stage) -> Vec<Reported> {
    let events = stage.kubectl(&["get", "events", "-o", "json"]);
    let events: Value = serde_json::from_str(&events).unwrap();
    let mut reported: Vec<Reported> =
        events["items"].as_array().unwrap().iter().filter_map(of_agent).collect();
    reported.sort();
    reported
}

fn of_agent(event: &Value) -> Option<Reported> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ours = event["source"]["component"] == "volmedic-agent" && event["involvedObject"]["kind"] == "Pod";
    let message = text(&event["message"]);
    ours.then(|| Reported {
        pod: text(&event["involvedObject"]["name"]),
        reason: text(&event["reason"]),
        condition: CONDITIONS.into_iter().find(|name| message.contains(name)).unwrap_or("?").to_owned(),
        by_host: message.contains("host checks"),
        count: event["count"].as_u64().unwrap_or(1),
        message,
    })
}

/// What was reported on a pod by the host's own checks: reason, condition, how often.
pub(super) fn from_host(stage: &Stage, pod: &str) -> Vec<(&'static str, &'static str, u64)> {
    let known =
        |names: &[&'static str], name: &str| names.iter().copied().find(|one| *one == name).unwrap_or("?");
    let reported = reported(stage);
    let of_pod = reported.iter().filter(|one| one.by_host && one.pod == pod);
    of_pod.map(|one| (known(&REASONS, &one.reason), known(&CONDITIONS, &one.condition), one.count)).collect()
}

/// Waits until everything that was reported is reported to be over, by all who reported it, but this; and this to be reported by both
/// the host's own checks and the driver's. Then nothing more is on its way.
pub(super) fn settled(stage: &Stage, standing: Option<(&str, &str)>) {
    stage.wait(&format!("all is over but {standing:?}"), || {
        let all = reported(stage);
        let is_over = |one: &Reported| {
            let closes = |other: &&Reported| {
                other.reason != ABNORMAL
                    && (&other.pod, &other.condition, other.by_host)
                        == (&one.pod, &one.condition, one.by_host)
            };
            all.iter().any(|other| closes(&other))
        };
        let stands = |one: &Reported| standing == Some((&one.pod, &one.condition));
        let abnormal = || all.iter().filter(|one| one.reason == ABNORMAL);
        let open = abnormal().filter(|one| !stands(one) && !is_over(one)).count();
        let by_all = standing.is_none()
            || [true, false]
                .iter()
                .all(|by_host| abnormal().any(|one| stands(one) && one.by_host == *by_host));
        if open == 0 && by_all { Ok(()) } else { Err(format!("{all:#?}")) }
    });
}
