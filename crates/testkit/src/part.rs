//! The programs a cluster is made of.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One program of a cluster, in the order in which they are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The store behind the API server.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// Carries connections of pods to the API server.
    Forward,
    /// The container runtime of the node.
    Containerd,
    /// The node's agent.
    Kubelet,
}

impl Part {
    /// All of them, in the order in which they are started.
    pub const ALL: [Self; 7] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Forward,
        Self::Containerd,
        Self::Kubelet,
    ];

    /// The name of its program, its log and its line in `status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Forward => "forward",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|part| part.name() == text)
            .with_context(|| format!("there is no part `{text}`; the parts are {}", known()))
    }
}
