//! Whether recreating the pods of a volume would help, and whether it did: by what the hub knows of the volume.

use volmedic_api::resource::VantageKind;
use volmedic_health::{Condition, Remedy, Status};
use volmedic_hub::{View, What};

/// Why a new mount on the node would not help now; nothing if it would. Evicting pods too early ends in pods that do not
/// start, so each cause that lies below the mount has to be gone first.
pub(super) fn prevents_new_mount(views: &[View], node: &str) -> Option<String> {
    cause_below_mount(views, node).or_else(|| {
        let mut there = near(views, node).filter(|view| view.node.is_some()).flat_map(|view| &view.seen);
        let reported_there =
            there.any(|seen| matches!(&seen.what, What::Wrong(condition) if helps_against(condition)));
        // A report from elsewhere, as a pushed one, is enough to be shown, but not to end pods.
        (!reported_there).then(|| format!("nothing on node {node} itself reports that its mount is broken"))
    })
}

/// What lies below the mount and prevents a new one, or is not known there. Once the first pods of a volume were replaced,
/// nothing may report a broken mount any more, and this alone counts.
pub(super) fn cause_below_mount(views: &[View], node: &str) -> Option<String> {
    near(views, node).find_map(|view| {
        view.seen.iter().find_map(|seen| match &seen.what {
            What::Wrong(condition) if prevents(condition, view.kind) => {
                let who = reporter(view.kind);
                Some(format!(
                    "{who} reports {}/{}: {}",
                    condition.status, condition.reason, condition.message
                ))
            }
            What::Unknown { message, .. } if view.node.is_some() => {
                Some(format!("{} does not know how it is: {message}", reporter(view.kind)))
            }
            What::Wrong(_) | What::Unknown { .. } => None,
        })
    })
}

/// What is still wrong with the volume on a node.
pub(super) fn still_wrong<'a>(views: &'a [View], node: &'a str) -> Option<&'a Condition> {
    let seen = near(views, node).filter(|view| view.node.is_some()).flat_map(|view| &view.seen);
    let mut wrong = seen.filter_map(|seen| match &seen.what {
        What::Wrong(condition) => Some(condition),
        What::Unknown { .. } => None,
    });
    wrong.find(|condition| condition.status != Status::Degraded || condition.reason.is_healable())
}

/// Those who report about the volume on this node, or about the volume as such.
fn near<'a>(views: &'a [View], node: &'a str) -> impl Iterator<Item = &'a View> {
    views.iter().filter(move |view| view.node.as_deref().is_none_or(|of| of == node))
}

fn helps_against(condition: &Condition) -> bool {
    condition.reason.remedies().contains(&Remedy::RecreatePods)
}

fn prevents(condition: &Condition, kind: VantageKind) -> bool {
    if helps_against(condition) {
        return false;
    }
    match condition.reason.well_known() {
        Some(known) if known.prevents_new_mount() => true,
        // The controller does not see mounts: whatever else it reports is about the backend.
        _ if kind == VantageKind::Controller => true,
        Some(_) => false,
        None => condition.status != Status::Degraded,
    }
}

fn reporter(kind: VantageKind) -> &'static str {
    match kind {
        VantageKind::Controller => "the driver's controller",
        VantageKind::Node => "the driver on the node",
        VantageKind::Host => "the agent on the node",
        VantageKind::Kubelet => "the kubelet",
        VantageKind::Cluster => "the cluster",
        VantageKind::Pushed => "an external detector",
    }
}

#[cfg(test)]
mod tests {
    use volmedic_health::{Reason, WellKnown};
    use volmedic_hub::{Seen, Since};

    use super::*;

    fn view(kind: VantageKind, node: Option<&str>, what: What) -> View {
        View { kind, node: node.map(Into::into), verified: None, seen: vec![Seen::new(what, Since::Unsaid)] }
    }

    fn wrong(kind: VantageKind, node: Option<&str>, reason: impl Into<Reason>) -> View {
        view(kind, node, What::Wrong(Condition::new(Status::Inaccessible, reason.into(), "m")))
    }

    #[track_caller]
    fn check(views: &[View], expected: Option<&str>) {
        let mut stale = vec![wrong(VantageKind::Host, Some("n1"), WellKnown::StaleHandle)];
        stale.extend(views.iter().cloned());
        let found = prevents_new_mount(&stale, "n1");
        match (&found, expected) {
            (None, None) => {}
            (Some(why), Some(part)) if why.contains(part) => {}
            _ => panic!("{found:?} instead of {expected:?}"),
        }
    }

    /// The hub and the healer name local volumes alike; the two crates do not know each other.
    #[test]
    fn local_volumes_have_one_name() {
        assert_eq!(volmedic_hub::LOCAL_VOLUME, volmedic_heal::Place::LOCAL_VOLUME);
    }

    #[test]
    fn a_cause_below_the_mount_prevents_a_new_one() {
        check(&[], None);
        check(
            &[wrong(VantageKind::Host, Some("n1"), WellKnown::DiskRemoved)],
            Some("the agent on the node reports"),
        );
        check(&[wrong(VantageKind::Host, Some("n2"), WellKnown::DiskRemoved)], None);
        check(
            &[wrong(VantageKind::Controller, None, WellKnown::NetworkError)],
            Some("driver's controller reports"),
        );
        check(
            &[wrong(VantageKind::Controller, None, WellKnown::VolumeConditionAbnormal)],
            Some("controller"),
        );
        check(&[wrong(VantageKind::Controller, None, WellKnown::MounterDead)], None);
        check(&[wrong(VantageKind::Node, Some("n1"), Reason::new("BackendOffline"))], Some("BackendOffline"));
        check(&[wrong(VantageKind::Node, Some("n1"), WellKnown::IOHung)], Some("IOHung"));
        check(&[wrong(VantageKind::Cluster, None, WellKnown::NodeDown)], Some("the cluster reports"));
    }

    /// After the first pod was replaced nothing is wrong any more, and the next pod has its turn; but not while the backend is
    /// away.
    #[test]
    fn between_two_pods_only_causes_below_the_mount_count() {
        let healthy: [View; 0] = [];
        assert_eq!(cause_below_mount(&healthy, "n1"), None);
        assert!(prevents_new_mount(&healthy, "n1").is_some());
        let broken = wrong(VantageKind::Controller, None, WellKnown::NetworkError);
        let why = cause_below_mount(&[broken], "n1");
        assert!(why.is_some_and(|why| why.contains("NetworkError")));
        let unknown = What::Unknown { reason: "NotSeen".into(), message: "its Lease has expired".into() };
        let why = cause_below_mount(&[view(VantageKind::Host, Some("n1"), unknown)], "n1");
        assert!(why.is_some_and(|why| why.contains("its Lease has expired")));
    }

    #[test]
    fn a_driver_that_does_not_answer_prevents_it_and_so_does_a_silent_agent() {
        let unknown = || What::Unknown { reason: "NotSeen".into(), message: "no answer".into() };
        check(
            &[view(VantageKind::Node, Some("n1"), unknown())],
            Some("the driver on the node does not know"),
        );
        check(&[view(VantageKind::Host, Some("n1"), unknown())], Some("no answer"));
        check(&[view(VantageKind::Node, Some("n2"), unknown())], None);
        check(&[view(VantageKind::Controller, None, unknown())], None);
    }

    #[test]
    fn only_the_node_itself_can_have_its_pods_recreated() {
        for (kind, node) in
            [(VantageKind::Pushed, None), (VantageKind::Controller, None), (VantageKind::Host, Some("n2"))]
        {
            let views = [wrong(kind, node, WellKnown::StaleHandle)];
            let why = prevents_new_mount(&views, "n1");
            assert!(why.is_some_and(|why| why.contains("nothing on node n1 itself")), "{kind:?}");
        }
        for kind in [VantageKind::Host, VantageKind::Node, VantageKind::Kubelet] {
            assert_eq!(prevents_new_mount(&[wrong(kind, Some("n1"), WellKnown::StaleHandle)], "n1"), None);
        }
    }
}
