//! What a driver says it can do, as raw numbers. An unknown number is kept and harms nothing.

use std::collections::BTreeSet;
use std::fmt;

use volmedic_proto::csi;
use volmedic_proto::csi::controller_service_capability::rpc::Type as ControllerType;
use volmedic_proto::csi::node_service_capability::rpc::Type as NodeType;
use volmedic_proto::csi::plugin_capability::service::Type as PluginType;

use crate::wire::{Malformed, Value, fields};

/// No driver has this many capabilities; one that lists more is cut off.
const MAX_CAPABILITIES: usize = 256;

/// The field of csi-addons' Capability that announces a healer. Upstream has not handed the number out, so a
/// caller may be configured with another one.
pub const HEALER_FIELD: u32 = 7;
const HEALER_TYPE: u64 = 1;

/// Capability numbers, in order and without repeats.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Numbers(BTreeSet<i32>);

impl Numbers {
    pub fn has(&self, number: i32) -> bool {
        self.0.contains(&number)
    }

    pub fn iter(&self) -> impl Iterator<Item = i32> {
        self.0.iter().copied()
    }
}

impl FromIterator<i32> for Numbers {
    fn from_iter<I: IntoIterator<Item = i32>>(numbers: I) -> Self {
        let mut kept = BTreeSet::new();
        for number in numbers {
            if kept.len() >= MAX_CAPABILITIES {
                break;
            }
            kept.insert(number);
        }
        Self(kept)
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.0).finish()
    }
}

/// All capabilities of one driver, as read right after the connection was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `PluginCapability.Service.Type`
    pub plugin: Numbers,
    /// `ControllerServiceCapability.RPC.Type`; empty if the driver has no controller service.
    pub controller: Numbers,
    /// `NodeServiceCapability.RPC.Type`; empty if the socket has no node service.
    pub node: Numbers,
    /// Capabilities of csi-addons; empty on a plain CSI socket.
    pub addons: Addons,
}

impl Features {
    pub fn has_controller_service(&self) -> bool {
        self.plugin.has(PluginType::ControllerService as i32)
    }

    pub fn lists_volumes(&self) -> bool {
        self.controller.has(ControllerType::ListVolumes as i32)
    }

    pub fn gets_volumes(&self) -> bool {
        self.controller.has(ControllerType::GetVolume as i32)
    }

    /// The controller reports conditions in the old dialect.
    pub fn controller_condition(&self) -> bool {
        self.controller.has(ControllerType::VolumeCondition as i32)
    }

    pub fn lists_volume_health(&self) -> bool {
        self.controller.has(ControllerType::ListVolumeHealth as i32)
    }

    pub fn gets_volume_health(&self) -> bool {
        self.controller.has(ControllerType::GetVolumeHealth as i32)
    }

    /// The controller's capabilities as the specification spells them; a number it does not have is shown as such.
    pub fn controller_names(&self) -> Vec<String> {
        let known = |number| ControllerType::try_from(number).ok().map(|known| known.as_str_name());
        spell(&self.controller, known)
    }

    /// The node's capabilities, in the same way.
    pub fn node_names(&self) -> Vec<String> {
        spell(&self.node, |number| NodeType::try_from(number).ok().map(|known| known.as_str_name()))
    }

    pub fn stages(&self) -> bool {
        self.node.has(NodeType::StageUnstageVolume as i32)
    }

    pub fn node_stats(&self) -> bool {
        self.node.has(NodeType::GetVolumeStats as i32)
    }

    /// The node reports conditions in the old dialect.
    pub fn node_condition(&self) -> bool {
        self.node.has(NodeType::VolumeCondition as i32)
    }

    pub fn node_volume_health(&self) -> bool {
        self.node.has(NodeType::GetVolumeHealth as i32)
    }

    pub fn node_storage_health(&self) -> bool {
        self.node.has(NodeType::GetStorageHealth as i32)
    }
}

fn spell(numbers: &Numbers, known: impl Fn(i32) -> Option<&'static str>) -> Vec<String> {
    let name = |number| known(number).map_or_else(|| format!("UNKNOWN({number})"), str::to_owned);
    numbers.iter().map(name).collect()
}

/// Capabilities of csi-addons: pairs of the field that names the feature and the number inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addons(BTreeSet<(u32, u64)>);

impl Addons {
    pub fn has(&self, field: u32, number: u64) -> bool {
        self.0.contains(&(field, number))
    }

    /// Does the driver announce a healer under this field? Whether it has one shows when it is called.
    pub fn announces_healer(&self, field: u32) -> bool {
        self.has(field, HEALER_TYPE)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.0.iter().copied()
    }

    /// From a GetCapabilities answer, features that no one has heard of included.
    pub(crate) fn read(answer: &[u8]) -> Result<Self, Malformed> {
        let mut addons = BTreeSet::new();
        for field in fields(answer) {
            let (1, value) = field? else { continue };
            for feature in fields(value.bytes()?) {
                let (feature, Value::Bytes(value)) = feature? else { continue };
                let mut number = 0;
                for field in fields(value) {
                    if let (1, Value::Number(found)) = field? {
                        number = found;
                    }
                }
                if addons.len() < MAX_CAPABILITIES {
                    addons.insert((feature, number));
                }
            }
        }
        Ok(Self(addons))
    }
}

pub(crate) fn plugin_numbers(answer: &csi::GetPluginCapabilitiesResponse) -> Numbers {
    let service = |capability: &csi::PluginCapability| match &capability.r#type {
        Some(csi::plugin_capability::Type::Service(service)) => Some(service.r#type),
        Some(csi::plugin_capability::Type::VolumeExpansion(_)) | None => None,
    };
    answer.capabilities.iter().filter_map(service).collect()
}

pub(crate) fn controller_numbers(answer: &csi::ControllerGetCapabilitiesResponse) -> Numbers {
    use csi::controller_service_capability::Type;
    let rpc = |capability: &csi::ControllerServiceCapability| {
        capability.r#type.as_ref().map(|Type::Rpc(rpc)| rpc.r#type)
    };
    answer.capabilities.iter().filter_map(rpc).collect()
}

pub(crate) fn node_numbers(answer: &csi::NodeGetCapabilitiesResponse) -> Numbers {
    use csi::node_service_capability::Type;
    let rpc =
        |capability: &csi::NodeServiceCapability| capability.r#type.as_ref().map(|Type::Rpc(rpc)| rpc.r#type);
    answer.capabilities.iter().filter_map(rpc).collect()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use volmedic_proto::identity;

    use super::*;

    #[test]
    fn unknown_addons_are_kept() {
        use identity::capability::{Type, VolumeHealer, volume_healer};
        let healer = VolumeHealer { r#type: volume_healer::Type::VolumeHealer as i32 };
        let known = identity::Capability { r#type: Some(Type::VolumeHealer(healer)) };
        let sent = identity::GetCapabilitiesResponse { capabilities: vec![known] };
        let mut bytes = sent.encode_to_vec();
        // A capability in field 15 with type 300, which no version of the specification has.
        bytes.extend([0x0a, 5, 0x7a, 3, 0x08, 0xac, 0x02]);
        let addons = Addons::read(&bytes).unwrap();
        assert_eq!(addons.iter().collect::<Vec<_>>(), [(HEALER_FIELD, 1), (15, 300)]);
        assert!(addons.announces_healer(HEALER_FIELD));
        assert!(!addons.announces_healer(15));
    }

    #[test]
    fn capabilities_are_spelt_as_the_specification_does() {
        let features = Features {
            controller: [17, 3, 999].into_iter().collect(),
            node: [1].into_iter().collect(),
            ..Features::default()
        };
        assert_eq!(features.controller_names(), ["LIST_VOLUMES", "LIST_VOLUME_HEALTH", "UNKNOWN(999)"]);
        assert_eq!(features.node_names(), ["STAGE_UNSTAGE_VOLUME"]);
    }

    #[test]
    fn capabilities_are_bounded() {
        let numbers: Numbers = (0..100_000).collect();
        assert_eq!(numbers.iter().count(), MAX_CAPABILITIES);
        let repeated: Numbers = std::iter::repeat_n(3, 100_000).chain([17]).collect();
        assert_eq!(repeated.iter().collect::<Vec<_>>(), [3, 17]);
    }
}
