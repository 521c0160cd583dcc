//! Which calls to use for which driver: pure choices from its capabilities, each with a sentence for people.

use crate::features::Features;

/// How the controller plugin is asked about volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerProbe {
    /// ControllerListVolumeHealth: new dialect, all volumes in one pass.
    ListHealth,
    /// ControllerGetVolumeHealth: new dialect, volume by volume.
    GetHealth,
    /// ListVolumes with conditions: old dialect, all volumes in one pass.
    ListVolumes,
    /// ControllerGetVolume with conditions: old dialect, volume by volume.
    GetVolume,
    /// The driver does not report health.
    None,
}

/// The choice for the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerChoice {
    pub probe: ControllerProbe,
    /// What to use for a round in which `probe`, a list, fails.
    pub fallback: Option<ControllerProbe>,
    /// One volume can be asked about on its own, to confirm what a list seems to say.
    pub confirms: bool,
    /// What is used, or what is missing and what works without it.
    pub sentence: &'static str,
}

/// The new dialect before the old, lists before single questions.
pub fn controller(features: &Features) -> ControllerChoice {
    use ControllerProbe as P;
    let controller = features.has_controller_service();
    let list_health = controller && features.lists_volume_health();
    let get_health = controller && features.gets_volume_health();
    let condition = controller && features.controller_condition();
    let list = condition && features.lists_volumes();
    let get = condition && features.gets_volumes();

    let (probe, fallback, sentence) = if list_health && get_health {
        (
            P::ListHealth,
            Some(P::GetHealth),
            "the driver lists the health of its volumes and confirms it one by one",
        )
    } else if list_health {
        (
            P::ListHealth,
            None,
            "the driver lists the health of its volumes, but lacks GET_VOLUME_HEALTH, which the specification wants \
             with it: a recovery is believed after two complete lists",
        )
    } else if get_health {
        (P::GetHealth, None, "the driver reports the health of one volume at a time")
    } else if list && get {
        (
            P::ListVolumes,
            Some(P::GetVolume),
            "the driver lists its volumes with a condition (old dialect): normal or abnormal and a message, no reason",
        )
    } else if list {
        (
            P::ListVolumes,
            None,
            "the driver lists its volumes with a condition (old dialect), but cannot be asked about one of them",
        )
    } else if get {
        (
            P::GetVolume,
            None,
            "the driver reports the condition of one volume at a time (old dialect): normal or abnormal and a message",
        )
    } else {
        (P::None, None, nothing_from_the_controller(features))
    };
    let confirms = match probe {
        P::ListHealth | P::GetHealth => get_health,
        P::ListVolumes | P::GetVolume => get,
        P::None => false,
    };
    ControllerChoice { probe, fallback, confirms, sentence }
}

fn nothing_from_the_controller(features: &Features) -> &'static str {
    if !features.has_controller_service() {
        "the driver has no controller service (CONTROLLER_SERVICE), so it is not asked about its volumes; node \
         failures, node-side checks and host checks still work"
    } else if features.controller_condition() {
        "the driver has VOLUME_CONDITION but neither LIST_VOLUMES nor GET_VOLUME to report it with, so it is not asked \
         about its volumes; node failures, node-side checks and host checks still work"
    } else {
        "the driver's controller reports nothing about health: it has neither LIST_VOLUME_HEALTH nor \
         GET_VOLUME_HEALTH nor VOLUME_CONDITION; node failures, node-side checks and host checks still work"
    }
}

/// How the node plugin is asked about the health of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeProbe {
    /// NodeGetVolumeHealth: new dialect.
    VolumeHealth,
    /// NodeGetVolumeStats with a condition: old dialect.
    StatsCondition,
    /// The driver does not report health.
    None,
}

/// The choice for the node. The three parts do not depend on each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeChoice {
    pub volume: NodeProbe,
    /// NodeGetStorageHealth reports on the storage behind the node.
    pub storage: bool,
    /// NodeGetVolumeStats reports how full volumes are.
    pub usage: bool,
    /// Requests may carry a staging path.
    pub stages: bool,
    pub sentence: &'static str,
}

pub fn node(features: &Features) -> NodeChoice {
    let volume = if features.node_volume_health() {
        NodeProbe::VolumeHealth
    } else if features.node_condition() {
        NodeProbe::StatsCondition
    } else {
        NodeProbe::None
    };
    let storage = features.node_storage_health();
    // In the old dialect a driver with VOLUME_CONDITION must also answer NodeGetVolumeStats.
    let usage = features.node_stats() || features.node_condition();
    let sentence = match (volume, storage, usage) {
        (NodeProbe::VolumeHealth, true, _) => {
            "the node plugin reports the health of its volumes and of the storage behind them"
        }
        (NodeProbe::VolumeHealth, false, _) => {
            "the node plugin reports the health of its volumes, but not of the storage behind them (GET_STORAGE_HEALTH)"
        }
        (NodeProbe::StatsCondition, true, _) => {
            "the node plugin reports a condition with the usage of its volumes (old dialect) and the health of the \
             storage behind them"
        }
        (NodeProbe::StatsCondition, false, _) => {
            "the node plugin reports a condition with the usage of its volumes (old dialect): normal or abnormal and a \
             message, no reason"
        }
        (NodeProbe::None, true, true) => {
            "the node plugin reports the health of its storage and the usage of its volumes, but not the health of a \
             volume (GET_VOLUME_HEALTH or VOLUME_CONDITION); host checks still work"
        }
        (NodeProbe::None, true, false) => {
            "the node plugin reports the health of its storage, but nothing about a volume (GET_VOLUME_HEALTH or \
             VOLUME_CONDITION); host checks still work"
        }
        (NodeProbe::None, false, true) => {
            "the node plugin reports only the usage of its volumes, not their health (GET_VOLUME_HEALTH or \
             VOLUME_CONDITION); full volumes are noticed and host checks still work"
        }
        (NodeProbe::None, false, false) => {
            "the node plugin reports nothing about its volumes: it has neither GET_VOLUME_HEALTH nor VOLUME_CONDITION \
             nor GET_VOLUME_STATS; host checks still work"
        }
    };
    NodeChoice { volume, storage, usage, stages: features.stages(), sentence }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(plugin: &[i32], controller: &[i32], node: &[i32]) -> Features {
        Features {
            plugin: plugin.iter().copied().collect(),
            controller: controller.iter().copied().collect(),
            node: node.iter().copied().collect(),
            ..Features::default()
        }
    }

    /// `capabilities` are the numbers on the wire.
    fn check_controller(capabilities: &[i32], expected: &str) {
        let ControllerChoice { probe, fallback, confirms, sentence } =
            controller(&features(&[1], capabilities, &[]));
        let got = format!("{probe:?} else {fallback:?} confirms {confirms}: {sentence}");
        assert!(got.starts_with(expected), "{capabilities:?} gave {got:?}, expected {expected:?}");
    }

    #[test]
    fn the_controller_table() {
        check_controller(
            &[16, 17],
            "ListHealth else Some(GetHealth) confirms true: the driver lists the health",
        );
        check_controller(&[17], "ListHealth else None confirms false: the driver lists the health");
        check_controller(&[16], "GetHealth else None confirms true: the driver reports the health of one");
        check_controller(&[3, 11], "ListVolumes else None confirms false: the driver lists its volumes");
        check_controller(&[3, 11, 12], "ListVolumes else Some(GetVolume) confirms true: the driver lists");
        check_controller(&[11, 12], "GetVolume else None confirms true: the driver reports the condition");
        check_controller(&[11], "None else None confirms false: the driver has VOLUME_CONDITION but neither");
        check_controller(&[3, 12], "None else None confirms false: the driver's controller reports nothing");
        check_controller(&[], "None else None confirms false: the driver's controller reports nothing");
        // Both dialects: the new one, all the way down to its fallback.
        check_controller(&[3, 11, 12, 16, 17], "ListHealth else Some(GetHealth) confirms true");
        check_controller(&[3, 11, 12, 16], "GetHealth else None confirms true");
        // Unknown numbers change nothing.
        check_controller(&[-1, 0, 16, 17, 4000], "ListHealth else Some(GetHealth) confirms true");
    }

    #[test]
    fn no_controller_service_means_no_controller_probe() {
        let choice = controller(&features(&[2], &[3, 11, 12, 16, 17], &[]));
        assert_eq!(choice.probe, ControllerProbe::None);
        assert!(choice.sentence.contains("no controller service"));
        assert!(choice.sentence.contains("node failures"));
    }

    fn check_node(capabilities: &[i32], expected: &str) {
        let NodeChoice { volume, storage, usage, stages, sentence } = node(&features(&[], &[], capabilities));
        let yes = |flag, word| if flag { word } else { "" };
        let got = format!(
            "{volume:?}{}{}{}: {sentence}",
            yes(storage, "+storage"),
            yes(usage, "+usage"),
            yes(stages, "+stages")
        );
        assert!(got.starts_with(expected), "{capabilities:?} gave {got:?}, expected {expected:?}");
    }

    #[test]
    fn the_node_table() {
        check_node(
            &[1, 2, 7, 8],
            "VolumeHealth+storage+usage+stages: the node plugin reports the health of its volumes and",
        );
        check_node(&[7], "VolumeHealth: the node plugin reports the health of its volumes, but not");
        check_node(&[4], "StatsCondition+usage: the node plugin reports a condition");
        check_node(&[4, 7], "VolumeHealth+usage: ");
        check_node(&[4, 8], "StatsCondition+storage+usage: ");
        check_node(&[8], "None+storage: the node plugin reports the health of its storage, but nothing");
        check_node(&[2, 8], "None+storage+usage: the node plugin reports the health of its storage and");
        check_node(&[2], "None+usage: the node plugin reports only the usage");
        check_node(&[], "None: the node plugin reports nothing");
        check_node(&[99], "None: the node plugin reports nothing");
    }
}
