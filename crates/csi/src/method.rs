//! The calls we make: which request goes to which path, and how large its answer may be.

use volmedic_proto::{csi, healer, identity};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Every RPC this crate can call. A closed list, so that the metric label is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    GetPluginInfo,
    GetPluginCapabilities,
    Probe,
    ControllerGetCapabilities,
    ListVolumes,
    ControllerGetVolume,
    ControllerListVolumeHealth,
    ControllerGetVolumeHealth,
    NodeGetCapabilities,
    NodeGetVolumeStats,
    NodeGetVolumeHealth,
    NodeGetStorageHealth,
    AddonsGetIdentity,
    AddonsGetCapabilities,
    AddonsProbe,
    NodeHealer,
}

impl Method {
    pub const fn path(self) -> &'static str {
        match self {
            Self::GetPluginInfo => "/csi.v1.Identity/GetPluginInfo",
            Self::GetPluginCapabilities => "/csi.v1.Identity/GetPluginCapabilities",
            Self::Probe => "/csi.v1.Identity/Probe",
            Self::ControllerGetCapabilities => "/csi.v1.Controller/ControllerGetCapabilities",
            Self::ListVolumes => "/csi.v1.Controller/ListVolumes",
            Self::ControllerGetVolume => "/csi.v1.Controller/ControllerGetVolume",
            Self::ControllerListVolumeHealth => "/csi.v1.Controller/ControllerListVolumeHealth",
            Self::ControllerGetVolumeHealth => "/csi.v1.Controller/ControllerGetVolumeHealth",
            Self::NodeGetCapabilities => "/csi.v1.Node/NodeGetCapabilities",
            Self::NodeGetVolumeStats => "/csi.v1.Node/NodeGetVolumeStats",
            Self::NodeGetVolumeHealth => "/csi.v1.Node/NodeGetVolumeHealth",
            Self::NodeGetStorageHealth => "/csi.v1.Node/NodeGetStorageHealth",
            Self::AddonsGetIdentity => "/identity.Identity/GetIdentity",
            Self::AddonsGetCapabilities => "/identity.Identity/GetCapabilities",
            Self::AddonsProbe => "/identity.Identity/Probe",
            Self::NodeHealer => "/healer.HealerNode/NodeHealer",
        }
    }

    /// The last part of the path, as people call it.
    pub fn name(self) -> &'static str {
        self.path().rsplit('/').next().unwrap_or_default()
    }

    /// The largest answer taken. Lists may be 64 MiB and a little; an answer about one volume, or about the driver
    /// itself, is small.
    pub(crate) const fn limit(self) -> usize {
        match self {
            Self::ListVolumes | Self::ControllerListVolumeHealth => 65 * MIB,
            Self::ControllerGetVolume
            | Self::ControllerGetVolumeHealth
            | Self::NodeGetVolumeStats
            | Self::NodeGetVolumeHealth
            | Self::NodeGetStorageHealth
            | Self::NodeHealer => 4 * MIB,
            Self::GetPluginInfo
            | Self::GetPluginCapabilities
            | Self::Probe
            | Self::ControllerGetCapabilities
            | Self::NodeGetCapabilities
            | Self::AddonsGetIdentity
            | Self::AddonsGetCapabilities
            | Self::AddonsProbe => 256 * KIB,
        }
    }
}

/// A request that knows where it goes.
pub(crate) trait Request: prost::Message + 'static {
    const METHOD: Method;
}

macro_rules! requests {
    ($($request:ty => $method:ident;)*) => {
        $(impl Request for $request { const METHOD: Method = Method::$method; })*
    };
}

requests! {
    csi::GetPluginInfoRequest => GetPluginInfo;
    csi::GetPluginCapabilitiesRequest => GetPluginCapabilities;
    csi::ProbeRequest => Probe;
    csi::ControllerGetCapabilitiesRequest => ControllerGetCapabilities;
    csi::ListVolumesRequest => ListVolumes;
    csi::ControllerGetVolumeRequest => ControllerGetVolume;
    csi::ControllerListVolumeHealthRequest => ControllerListVolumeHealth;
    csi::ControllerGetVolumeHealthRequest => ControllerGetVolumeHealth;
    csi::NodeGetCapabilitiesRequest => NodeGetCapabilities;
    csi::NodeGetVolumeStatsRequest => NodeGetVolumeStats;
    csi::NodeGetVolumeHealthRequest => NodeGetVolumeHealth;
    csi::NodeGetStorageHealthRequest => NodeGetStorageHealth;
    identity::GetIdentityRequest => AddonsGetIdentity;
    identity::GetCapabilitiesRequest => AddonsGetCapabilities;
    identity::ProbeRequest => AddonsProbe;
    healer::NodeHealerRequest => NodeHealer;
}
