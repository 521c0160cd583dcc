//! The configuration of the driver.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::health::Settings;

/// The way in which health is reported to callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `VOLUME_CONDITION`: one flag and a message inside of other answers (CSI up to 1.12).
    Legacy,
    /// Dedicated health calls (CSI from 1.13).
    Health,
    Both,
}

impl Dialect {
    pub fn legacy(self) -> bool {
        matches!(self, Self::Legacy | Self::Both)
    }

    pub fn health(self) -> bool {
        matches!(self, Self::Health | Self::Both)
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "legacy" => Ok(Self::Legacy),
            "health" => Ok(Self::Health),
            "both" => Ok(Self::Both),
            other => Err(format!("{other:?} is not a dialect; choose legacy, health or both")),
        }
    }
}

/// Which services one process serves beside Identity. Apart, they share the state directory of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Services {
    pub controller: bool,
    pub node: bool,
}

impl FromStr for Services {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut services = Self { controller: false, node: false };
        for name in text.split(',') {
            match name.trim() {
                "controller" => services.controller = true,
                "node" => services.node = true,
                other => return Err(format!("{other:?} is not a service; choose from controller,node")),
            }
        }
        Ok(services)
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    /// A unix socket, as a path or as `unix://` followed by one.
    pub endpoint: String,
    pub socket_mode: u32,
    pub state_dir: PathBuf,
    pub node_id: String,
    pub name: String,
    pub version: String,
    pub dialect: Dialect,
    pub services: Services,
    /// Staging and target paths must lie below one of these. A symbolic link in a root itself is trusted, one
    /// below it is not.
    pub allowed_roots: Vec<PathBuf>,
    /// The sum of all volumes may not exceed this; without it only the space of the state directory counts.
    pub total_bytes: Option<u64>,
    pub max_volume_bytes: u64,
    /// How long a caller waits for one call. The work itself is bounded by its own, shorter or longer, deadlines.
    pub call_deadline: Duration,
    /// Our own program: started as `<program> mounter …` for every volume of kind `fuse`, and as the helper that checks
    /// at volumes.
    pub program: PathBuf,
    /// How volumes are checked.
    pub checks: Settings,
    /// The side of csi-addons: who we are, and healing. Needs the node service to heal.
    pub addons: Option<Addons>,
}

/// Healing, and who may ask for it.
#[derive(Clone, Debug)]
pub struct Addons {
    /// A unix socket, as the other endpoint.
    pub endpoint: String,
    /// How long users of a volume wait after the death of its mounter before they get errors instead. Only while
    /// they wait can a heal bring back the mounts that they have.
    pub session_grace: Duration,
    /// Whether a file system that the kernel made read-only is made writable again. An error made it so, and writing on
    /// may make it worse.
    pub remount_writable: bool,
    /// Callers must know what is in this file: the secret `token` of a request. Read again for every call.
    pub token_file: Option<PathBuf>,
}

impl Config {
    /// The topology key of volumes and nodes.
    pub fn topology_key(&self) -> String {
        format!("topology.{}/node", self.name)
    }
}
