//! Why nobody can say how a volume is, as a word, a sentence and what to do. Each text is made once.

use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    NotBound,
    /// It is bound, but its PersistentVolume is not there.
    NoVolume,
    /// PersistentVolumes may not be read, so nothing is known of the driver.
    VolumeUnread,
    /// Who looks may not be read.
    LookersUnread,
    /// No CSI driver serves it, and nobody uses it.
    NoDriver,
    /// No pod uses it; `mute` if the driver's controller has a sidecar that told nothing, `silent` if that is gone.
    Unused {
        driver: Arc<str>,
        mute: bool,
        silent: bool,
    },
    /// It is used where no agent is.
    NoAgent {
        driver: Arc<str>,
        node: Arc<str>,
        mute: bool,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) word: Arc<str>,
    pub(crate) why: Arc<str>,
    pub(crate) advice: Arc<str>,
}

#[derive(Debug, Default)]
pub(crate) struct Blind {
    texts: HashMap<Cause, Text>,
    advices: HashMap<Arc<str>, Arc<str>>,
}

impl Blind {
    pub(crate) fn text(&mut self, cause: Cause) -> Text {
        self.texts.entry(cause).or_insert_with_key(text).clone()
    }

    /// What to do about a word that somebody else gave as why he cannot say.
    pub(crate) fn advice(&mut self, word: &Arc<str>) -> Arc<str> {
        let advice = || match &**word {
            "AgentSilent" => {
                "Check the node and the agent's pod there: `kubectl get pods -A -o wide`; delete its Lease to stop waiting for it."
            }
            "ControllerSilent" => "Check the driver's controller plugin and Volmedic's sidecar beside it.",
            "ReportOverflow" => {
                "Mend what is worst on that node first; the report then has room for the rest."
            }
            _ => "Check that the storage driver runs and answers; `volmedic doctor` shows who looks.",
        };
        self.advices.entry(word.clone()).or_insert_with(|| advice().into()).clone()
    }
}

fn text(cause: &Cause) -> Text {
    let (word, why, advice): (&str, String, String) = match cause {
        Cause::NotBound => (
            "NotBound",
            "the claim is not bound to a volume".into(),
            "See why with `kubectl describe pvc`; a claim may wait for its first pod.".into(),
        ),
        Cause::NoVolume => (
            "NoVolume",
            "the claim says it is bound, but there is no PersistentVolume that is bound to it".into(),
            "See `kubectl describe pvc`; the volume may have been deleted by hand.".into(),
        ),
        Cause::VolumeUnread => (
            "CannotRead",
            "nobody says how it is, and you may not read PersistentVolumes, so who could say is not known"
                .into(),
            "Ask for `list` on persistentvolumes, or look with another context.".into(),
        ),
        Cause::LookersUnread => (
            "CannotRead",
            "nobody says how it is, and you may not read Leases, so who could say is not known".into(),
            "Ask for `list` on leases, or look with another context.".into(),
        ),
        Cause::NoDriver => (
            "NobodyLooks",
            "no CSI driver serves it and no pod uses it".into(),
            "Nothing to mend; Volmedic's agent looks at it as soon as a pod uses it.".into(),
        ),
        Cause::Unused { driver, mute: true, .. } => (
            "NothingTold",
            format!(
                "no pod uses it, and the controller of {driver} has told nothing of it, which is no proof of health"
            ),
            "Nothing to mend; a pod that uses it brings the agent's own checks.".into(),
        ),
        Cause::Unused { driver, silent: true, .. } => (
            "ControllerSilent",
            format!("no pod uses it, and the controller sidecar of {driver} is silent"),
            "Check the driver's controller plugin and Volmedic's sidecar beside it.".into(),
        ),
        Cause::Unused { driver, .. } => (
            "NobodyLooks",
            format!("no pod uses it, and driver {driver} has no controller sidecar that asks for its health"),
            format!("Run `volmedic controller` beside the controller plugin of {driver}."),
        ),
        Cause::NoAgent { driver, node, mute } => {
            let controller = match (driver.is_empty(), mute) {
                (true, _) => "no CSI driver serves it".to_owned(),
                (false, true) => format!("the controller of {driver} has told nothing of it"),
                (false, false) => {
                    format!("driver {driver} has no controller sidecar that asks for its health")
                }
            };
            (
                "NobodyLooks",
                format!("no agent looks on node {node}, where it is used, and {controller}"),
                format!(
                    "Run `volmedic agent` on node {node} (its DaemonSet); it needs nothing of the driver."
                ),
            )
        }
    };
    Text { word: word.into(), why: why.into(), advice: advice.into() }
}
