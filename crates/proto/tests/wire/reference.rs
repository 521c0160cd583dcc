//! What we compare with, and in what we differ on purpose.

use std::sync::OnceLock;

use crate::descriptor;
use crate::facts::{self, Facts};
use crate::oracle::{self, Oracle};

/// One side of a comparison: facts from elsewhere about one package, and the differences from ours, by name.
pub(crate) struct Reference {
    pub(crate) name: String,
    pub(crate) package: &'static str,
    pub(crate) facts: Facts,
    /// Exactly these, no more and no fewer: a difference that is gone must leave the list.
    pub(crate) known: &'static [&'static str],
}

impl Reference {
    /// How the differences found depart from the known ones, as a list for people. Empty means as expected.
    pub(crate) fn surprises(&self, ours: &Facts) -> Vec<String> {
        let found = facts::differences(ours, &self.facts);
        let unexpected = found.iter().filter(|found| !self.known.contains(&found.as_str()));
        let mut surprises: Vec<String> = unexpected.map(|line| format!("unexpected: {line}")).collect();
        let gone = self.known.iter().filter(|known| !found.iter().any(|found| found == *known));
        surprises.extend(gone.map(|line| format!("listed as known, but not so any more: {line}")));
        surprises
    }

    /// With additions of ours, none of which the official side may have.
    fn plus(mut self, additions: Facts) -> Self {
        for (name, fact) in additions {
            if let Some(theirs) = self.facts.insert(name.clone(), fact) {
                panic!("{}: {name} was meant to be ours alone, but is there, too: {theirs}", self.name);
            }
        }
        self
    }
}

/// All of them. If one cannot be had, every test that needs it says why.
pub(crate) fn all() -> &'static [Reference] {
    static ALL: OnceLock<Vec<Reference>> = OnceLock::new();
    ALL.get_or_init(|| {
        vec![
            official(&oracle::OLD, "csi.v1", KNOWN_OLD),
            official(&oracle::NEW, "csi.v1", KNOWN_NEW),
            official(&oracle::NEW, "identity", &[]).plus(written(VOLUME_HEALER)),
            Reference {
                name: "the healer proposal".to_owned(),
                package: "healer",
                facts: written(HEALER),
                known: &[],
            },
        ]
    })
}

fn official(oracle: &'static Oracle, package: &'static str, known: &'static [&'static str]) -> Reference {
    let name = format!("package {package} in the Go oracle for {}", oracle.version);
    let file = descriptor::file(oracle.ask(), package).unwrap_or_else(|error| panic!("{name}: {error}"));
    Reference { name, package, facts: facts::of(&file), known }
}

/// Facts from lines of `name: fact`.
pub(crate) fn written(lines: &str) -> Facts {
    let split = |line: &str| {
        let (name, fact) =
            line.split_once(": ").unwrap_or_else(|| panic!("`{line}` is not of the form `name: fact`"));
        (name.to_owned(), fact.to_owned())
    };
    lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(split).collect()
}

/// Against v1.12.0: the new dialect is ours only, and nothing of theirs is missing.
const KNOWN_OLD: &[&str] = &[
    "only ours: csi.v1.Controller/ControllerGetVolumeHealth: \
     .csi.v1.ControllerGetVolumeHealthRequest -> .csi.v1.ControllerGetVolumeHealthResponse alpha",
    "only ours: csi.v1.Controller/ControllerListVolumeHealth: \
     .csi.v1.ControllerListVolumeHealthRequest -> .csi.v1.ControllerListVolumeHealthResponse alpha",
    "only ours: csi.v1.ControllerGetVolumeHealthRequest: message alpha",
    "only ours: csi.v1.ControllerGetVolumeHealthResponse: message alpha",
    "only ours: csi.v1.ControllerListVolumeHealthRequest: message alpha",
    "only ours: csi.v1.ControllerListVolumeHealthResponse: message alpha",
    "only ours: csi.v1.ControllerServiceCapability.RPC.Type.GET_VOLUME_HEALTH: 16 alpha",
    "only ours: csi.v1.ControllerServiceCapability.RPC.Type.LIST_VOLUME_HEALTH: 17 alpha",
    "only ours: csi.v1.Node/NodeGetStorageHealth: \
     .csi.v1.NodeGetStorageHealthRequest -> .csi.v1.NodeGetStorageHealthResponse alpha",
    "only ours: csi.v1.Node/NodeGetVolumeHealth: \
     .csi.v1.NodeGetVolumeHealthRequest -> .csi.v1.NodeGetVolumeHealthResponse alpha",
    "only ours: csi.v1.NodeGetStorageHealthRequest: message alpha",
    "only ours: csi.v1.NodeGetStorageHealthResponse: message alpha",
    "only ours: csi.v1.NodeGetVolumeHealthRequest: message alpha",
    "only ours: csi.v1.NodeGetVolumeHealthResponse: message alpha",
    "only ours: csi.v1.NodeServiceCapability.RPC.Type.GET_STORAGE_HEALTH: 8 alpha",
    "only ours: csi.v1.NodeServiceCapability.RPC.Type.GET_VOLUME_HEALTH: 7 alpha",
    "only ours: csi.v1.StorageHealthErrorType: enum",
    "only ours: csi.v1.VolumeHealth: message alpha",
    "only ours: csi.v1.VolumeHealthErrorType: enum",
];

/// Against the version Kubernetes requires: the old dialect is ours only, and its numbers are reserved there.
const KNOWN_NEW: &[&str] = &[
    "only ours: csi.v1.ControllerGetVolumeResponse.VolumeStatus.volume_condition: \
     2 message .csi.v1.VolumeCondition json volumeCondition",
    "only ours: csi.v1.ControllerServiceCapability.RPC.Type.VOLUME_CONDITION: 11 alpha",
    "only ours: csi.v1.ListVolumesResponse.VolumeStatus.volume_condition: \
     2 message .csi.v1.VolumeCondition json volumeCondition alpha",
    "only ours: csi.v1.NodeGetVolumeStatsResponse.volume_condition: \
     2 message .csi.v1.VolumeCondition json volumeCondition alpha",
    "only ours: csi.v1.NodeServiceCapability.RPC.Type.VOLUME_CONDITION: 4 alpha",
    "only ours: csi.v1.VolumeCondition: message alpha",
    "only theirs: csi.v1.ControllerGetVolumeResponse.VolumeStatus reserved 2: to 2",
    "only theirs: csi.v1.ControllerServiceCapability.RPC.Type reserved 11: to 11",
    "only theirs: csi.v1.ListVolumesResponse.VolumeStatus reserved 2: to 2",
    "only theirs: csi.v1.NodeGetVolumeStatsResponse reserved 2: to 2",
    "only theirs: csi.v1.NodeServiceCapability.RPC.Type reserved 4: to 4",
];

/// The capability that announces the healer: ours alone, on top of what csi-addons has.
const VOLUME_HEALER: &str = "
    identity.Capability.volume_healer: 7 message .identity.Capability.VolumeHealer json volumeHealer oneof type
    identity.Capability.VolumeHealer: message
    identity.Capability.VolumeHealer.type: 1 enum .identity.Capability.VolumeHealer.Type json type
    identity.Capability.VolumeHealer.Type: enum
    identity.Capability.VolumeHealer.Type.UNKNOWN: 0
    identity.Capability.VolumeHealer.Type.VOLUME_HEALER: 1
";

/// No module has the healer; these are the numbers as they were proposed to csi-addons.
const HEALER: &str = "
    healer syntax: proto3
    healer.HealerNode: service
    healer.HealerNode/NodeHealer: .healer.NodeHealerRequest -> .healer.NodeHealerResponse
    healer.NodeHealerRequest: message
    healer.NodeHealerRequest.volume_id: 1 string json volumeId
    healer.NodeHealerRequest.volume_path: 2 string json volumePath
    healer.NodeHealerRequest.staging_target_path: 3 string json stagingTargetPath
    healer.NodeHealerRequest.volume_capability: 4 message .csi.v1.VolumeCapability json volumeCapability
    healer.NodeHealerRequest.secrets: 5 repeated message .healer.NodeHealerRequest.SecretsEntry json secrets secret
    healer.NodeHealerRequest.volume_context: 6 repeated message .healer.NodeHealerRequest.VolumeContextEntry json volumeContext
    healer.NodeHealerRequest.SecretsEntry: message map-entry
    healer.NodeHealerRequest.SecretsEntry.key: 1 string json key
    healer.NodeHealerRequest.SecretsEntry.value: 2 string json value
    healer.NodeHealerRequest.VolumeContextEntry: message map-entry
    healer.NodeHealerRequest.VolumeContextEntry.key: 1 string json key
    healer.NodeHealerRequest.VolumeContextEntry.value: 2 string json value
    healer.NodeHealerResponse: message
    healer.NodeHealerResponse.abnormal: 1 bool json abnormal
    healer.NodeHealerResponse.message: 2 string json message
";
