//! Asks a CSI node plugin, in whichever of its ways it can be asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;
use volmedic_csi::dialect::{self, NodeChoice, NodeProbe};
use volmedic_csi::{
    BackendHealth, CallError, Driver, Kind, Secrets, Session, State, Stats, Usage as Reported,
};
use volmedic_health::{Condition, Conditions, Reason, Sight, Status, Why, WhyKind};
use volmedic_monitor::{Seen, Way};

use crate::pulse::Pulse;
use crate::sights::{self, Answer};
use crate::{Amount, Usage};

#[cfg(test)]
mod tests;

/// A volume of many pods is asked about at no more than this number of their places. The rest differ in nothing but the pod.
const MOST_TARGETS: usize = 16;

/// Units of usage as they are on the wire.
const BYTES: i32 = 1;
const INODES: i32 = 2;

/// A volume and where the driver was asked to put it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    pub handle: Arc<str>,
    /// Left out of the question when the driver does not stage.
    pub staging: Option<PathBuf>,
    pub targets: Vec<PathBuf>,
}

/// What one look came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    pub seen: Seen,
    /// How full the volume is, if it was asked and reported.
    pub usage: Option<Usage>,
}

/// The node plugin of one driver.
#[derive(Debug)]
pub struct Node {
    driver: Driver,
    /// Kept, so that a change between two waits is not missed.
    changes: AsyncMutex<watch::Receiver<State>>,
    /// Also ask for usage where the call that reports health does not include it.
    usage: bool,
    pulse: Pulse,
}

impl Node {
    /// `usage` asks for the usage of volumes as well, which takes a second call of those drivers that tell health in a
    /// call of its own.
    pub fn new(driver: Driver, usage: bool) -> Self {
        let changes = AsyncMutex::new(driver.watch());
        Self { driver, changes, usage, pulse: Pulse::default() }
    }

    /// How the plugin can be asked right now, or why it cannot be reached.
    pub fn choice(&self) -> Result<NodeChoice, Why> {
        let session = self.driver.session().map_err(|error| sights::why(&error))?;
        Ok(dialect::node(session.features()))
    }

    /// How the pipe asks for the health of its volumes.
    pub fn way(&self) -> Way {
        match self.choice() {
            Ok(choice) if choice.volume == NodeProbe::None => Way::Nothing,
            Ok(_) => Way::Look,
            Err(why) => Way::Blind(why),
        }
    }

    /// Returns when the driver came or went.
    pub async fn changed(&self) {
        // The sender lives as long as the driver does, and the driver as long as we do.
        let _ = self.changes.lock().await.changed().await;
    }

    /// Checks one volume, at each of its targets; the worst counts.
    pub async fn look(&self, volume: &Published) -> Looked {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Looked { seen: Seen::DriverGone(sights::why(&error)), usage: None },
        };
        let mut usage = None;
        let mut seen: Vec<Sight> = Vec::new();
        for target in volume.targets.iter().take(MOST_TARGETS) {
            let began = Instant::now();
            let (answer, reported) = self.ask(&session, volume, target, usage.is_none()).await;
            usage = usage.or(reported);
            match self.pulse.settle(answer, &session, began).await {
                // A volume that keeps us waiting does so at every place.
                Seen::Volume(Sight::NotSeen(why)) if why.kind == WhyKind::TimedOut => {
                    seen.push(Sight::NotSeen(why));
                    break;
                }
                Seen::Volume(sight) => seen.push(sight),
                seen => return Looked { seen, usage },
            }
        }
        Looked { seen: Seen::Volume(worst(seen)), usage }
    }

    /// How the storage behind this node is. `None` when the driver does not tell.
    pub async fn storage(&self) -> Option<Sight> {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Some(Sight::NotSeen(sights::why(&error))),
        };
        if !dialect::node(session.features()).storage {
            return None;
        }
        let began = Instant::now();
        let reported = session.storage_health(Secrets::none()).await;
        let answer = sights::answer(reported, |backends| of_backends(&backends));
        match self.pulse.settle(answer, &session, began).await {
            Seen::Volume(sight) => Some(sight),
            Seen::Overloaded(why) | Seen::DriverGone(why) => Some(Sight::NotSeen(why)),
            Seen::Nothing => None,
        }
    }

    async fn ask(
        &self,
        session: &Session,
        volume: &Published,
        target: &Path,
        measure: bool,
    ) -> (Answer, Option<Usage>) {
        let choice = dialect::node(session.features());
        let staging = volume.staging.as_deref().filter(|_| choice.stages).map_or(Some(""), Path::to_str);
        let (Some(target), Some(staging)) = (target.to_str(), staging) else {
            let why = "a path of the volume is not valid UTF-8, so the driver cannot be asked about it";
            return (Answer::Came(Seen::Volume(Sight::not_seen(WhyKind::Malformed, why))), None);
        };
        if choice.volume == NodeProbe::VolumeHealth {
            let reported = session.node_volume_health(&volume.handle, target, staging).await;
            // A driver that announces what it lacks may still speak the older dialect.
            if !(is_unimplemented(&reported) && session.features().node_condition()) {
                let answer = sights::answer(reported, |health| sights::of_health(&health));
                let fine = matches!(answer, Answer::Came(Seen::Volume(_)));
                let usage = if fine && measure && self.usage && choice.usage {
                    session
                        .volume_stats(&volume.handle, target, staging)
                        .await
                        .ok()
                        .and_then(|reported| usage(&reported))
                } else {
                    None
                };
                return (answer, usage);
            }
        }
        if !choice.usage {
            return (Answer::Came(Seen::Volume(Sight::not_seen(WhyKind::NoAnswer, choice.sentence))), None);
        }
        let reported = session.volume_stats(&volume.handle, target, staging).await;
        let usage = reported.as_ref().ok().and_then(usage);
        let answer = sights::answer(reported, |stats| match choice.volume {
            NodeProbe::None => Sight::not_seen(WhyKind::NoAnswer, choice.sentence),
            NodeProbe::VolumeHealth | NodeProbe::StatsCondition => of_stats(&stats),
        });
        (answer, usage)
    }
}

fn is_unimplemented<T>(reported: &Result<T, CallError>) -> bool {
    reported.as_ref().is_err_and(|error| error.kind() == Kind::Unimplemented)
}

/// What several places of one volume make together. What is wrong at one of them is wrong; health takes all of them.
fn worst(seen: Vec<Sight>) -> Sight {
    let mut adverse: Vec<Condition> = Vec::new();
    let mut other = None;
    let rank = |sight: &Sight| match sight {
        Sight::Healthy | Sight::Unlisted | Sight::Adverse(_) => 0,
        Sight::NotSeen(_) => 1,
        Sight::Missing(_) => 2,
    };
    for sight in seen {
        match sight {
            Sight::Adverse(conditions) => adverse.extend(conditions),
            sight if other.as_ref().is_none_or(|other| rank(&sight) > rank(other)) => other = Some(sight),
            _ => {}
        }
    }
    if !adverse.is_empty() {
        return Sight::Adverse(Conditions::new(adverse));
    }
    other.unwrap_or_else(|| Sight::not_seen(WhyKind::NoAnswer, "no pod uses the volume now"))
}

fn of_stats(stats: &Stats) -> Sight {
    let condition = stats.condition.as_ref();
    Sight::from_volume_condition(condition.map(|condition| (condition.abnormal, condition.message.as_str())))
}

/// Reports that concern only some volumes say so; two that differ in nothing else become one.
fn of_backends(backends: &[BackendHealth]) -> Sight {
    Sight::adverse(backends.iter().map(|backend| {
        let status = Status::from_storage_number(backend.status);
        Condition::new(status, Reason::new(&backend.reason), &backend.message)
    }))
}

/// Negative numbers mean that the driver does not know, or cannot count.
fn usage(stats: &Stats) -> Option<Usage> {
    let amount = |unit: i32| {
        let reported: &Reported = stats.usage.iter().find(|usage| usage.unit == unit)?;
        let known = |number: i64| u64::try_from(number).ok();
        let total = known(reported.total)?;
        // Of a raw device only the size is reported; zeros then mean "not reported".
        let only_size = reported.used == 0 && reported.available == 0 && total > 0;
        let known = |number: i64| known(number).filter(|_| !only_size);
        (total > 0).then_some(Amount {
            total,
            used: known(reported.used),
            available: known(reported.available),
        })
    };
    let usage = Usage { bytes: amount(BYTES), inodes: amount(INODES) };
    (usage != Usage::default()).then_some(usage)
}
