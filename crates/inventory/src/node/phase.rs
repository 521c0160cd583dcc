//! How far a pod is with its volumes.

use jiff::{SignedDuration, Timestamp};
use volmedic_api::slim::{ContainerState, ContainerStatus, NodePodStatus};

use super::volume::Phase;

/// Clocks are set while a machine starts, so a container that started this long before the machine may have started after it.
const SLACK: SignedDuration = SignedDuration::from_mins(2);

/// The kubelet mounts all volumes of a pod before it starts the first container, init containers included, and keeps them
/// mounted until the pod is finished or deleted, however often containers end and start again meanwhile. So what counts is
/// whether any container ever started.
///
/// It counts only if that was after the machine did. A machine that starts again finds its pods running, by what the API
/// server remembers, while the kubelet still has to mount everything again.
pub(super) fn phase(status: &NodePodStatus, deleted: bool, boot: Option<Timestamp>) -> Phase {
    if deleted || matches!(&*status.phase, "Succeeded" | "Failed") {
        return Phase::Going;
    }
    let mut seen = false;
    let mut started = false;
    for state in containers(status).flat_map(|container| [&container.state, &container.last_state]) {
        seen = true;
        started |= has_started(state, boot);
    }
    // A pod that is said to run while nothing is said of its containers runs.
    if started || !seen && status.phase == "Running" { Phase::InUse } else { Phase::Coming }
}

/// Whether the container runs now, since the machine started.
pub(super) fn is_running(container: &ContainerStatus, boot: Option<Timestamp>) -> bool {
    container.state.running.is_some() && has_started(&container.state, boot)
}

pub(super) fn containers(status: &NodePodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten()
}

fn has_started(state: &ContainerState, boot: Option<Timestamp>) -> bool {
    let at = |started: &volmedic_api::slim::Started| started.started_at.as_ref().map(|time| time.0);
    match (&state.running, &state.terminated) {
        (Some(running), _) => at(running).is_none_or(|at| is_after(at, boot)),
        // The kubelet says "terminated" without a start of containers that it lost sight of, or that never started.
        (None, Some(ended)) => at(ended).is_some_and(|at| at > Timestamp::UNIX_EPOCH && is_after(at, boot)),
        (None, None) => false,
    }
}

fn is_after(at: Timestamp, boot: Option<Timestamp>) -> bool {
    boot.is_none_or(|boot| at >= boot.saturating_sub(SLACK).unwrap_or(boot))
}

/// When this machine started, from the text of `/proc/stat`.
pub(super) fn boot_time(stat: &str) -> Option<Timestamp> {
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    Timestamp::from_second(seconds.trim().parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const BOOT: &str = "2026-03-01T10:00:00Z";

    fn status(phase: &str, containers: &Value) -> NodePodStatus {
        serde_json::from_value(json!({"phase": phase, "containerStatuses": containers})).unwrap()
    }

    #[track_caller]
    fn check(what: &str, phase_of_pod: &str, containers: &Value, expected: Phase) {
        let status = status(phase_of_pod, containers);
        let boot = Some(BOOT.parse().unwrap());
        assert_eq!(phase(&status, false, boot), expected, "{what}");
        assert_eq!(phase(&status, true, boot), Phase::Going, "{what}, deleted");
    }

    fn one(state: &Value, last: &Value) -> Value {
        json!([{"name": "main", "state": state, "lastState": last}])
    }

    #[test]
    fn how_far_a_pod_is() {
        let none = &json!({});
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let running = |at: &str| json!({"running": {"startedAt": at}});
        let ended = |at: &Value| json!({"terminated": {"exitCode": 1, "startedAt": at}});
        let (before, after) = ("2026-03-01T09:00:00Z", "2026-03-01T10:00:05Z");
        check("nothing said yet", "Pending", &json!(null), Phase::Coming);
        check("not said at all", "", &json!([]), Phase::Coming);
        check("waits for its volumes", "Pending", &one(&waiting("ContainerCreating"), none), Phase::Coming);
        check("waits for its image", "Pending", &one(&waiting("ImagePullBackOff"), none), Phase::Coming);
        check("runs", "Running", &one(&running(after), none), Phase::InUse);
        check("runs by what is said", "Running", &json!(null), Phase::InUse);
        check(
            "crashes again and again",
            "Running",
            &one(&waiting("CrashLoopBackOff"), &ended(&json!(after))),
            Phase::InUse,
        );
        check("has just ended", "Running", &one(&ended(&json!(after)), none), Phase::InUse);
        check("succeeded", "Succeeded", &one(&ended(&json!(after)), none), Phase::Going);
        check("failed", "Failed", &json!(null), Phase::Going);
        check("runs since before the machine", "Running", &one(&running(before), none), Phase::Coming);
        check("clock set meanwhile", "Running", &one(&running("2026-03-01T09:59:00Z"), none), Phase::InUse);
        check(
            "ended with the machine, starts again",
            "Running",
            &one(&waiting("ContainerCreating"), &ended(&json!(before))),
            Phase::Coming,
        );
        check("lost sight of", "Pending", &one(&ended(&json!(null)), none), Phase::Coming);
        check("never started", "Pending", &one(&ended(&json!("1970-01-01T00:00:00Z")), none), Phase::Coming);
        check(
            "one of two runs",
            "Pending",
            &json!([{"name": "a"}, {"name": "b", "state": running(after)}]),
            Phase::InUse,
        );
    }

    #[test]
    fn init_and_ephemeral_containers_count() {
        for list in ["initContainerStatuses", "ephemeralContainerStatuses"] {
            let mut object = json!({"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": {}}}]});
            object[list] =
                json!([{"name": "first", "state": {"running": {"startedAt": "2026-03-01T10:00:05Z"}}}]);
            let status: NodePodStatus = serde_json::from_value(object).unwrap();
            assert_eq!(phase(&status, false, None), Phase::InUse, "{list}");
        }
    }

    #[test]
    fn when_the_machine_started() {
        assert_eq!(boot_time("cpu 1 2\nbtime 1772359200\nprocesses 7\n"), Some(BOOT.parse().unwrap()));
        for text in ["", "btime", "btime x", "btime 99999999999999999999"] {
            assert_eq!(boot_time(text), None, "{text}");
        }
    }
}
