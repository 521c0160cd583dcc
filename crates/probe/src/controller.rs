//! Asks a CSI controller plugin, in whichever of its ways it can be asked.

use std::future::{Future, ready};

use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;
use volmedic_csi::dialect::{self, ControllerChoice, ControllerProbe};
use volmedic_csi::{Driver, Limits, ListedVolume, Pager, PassEnd, Secrets, State, VolumeHealth};
use volmedic_health::{Sight, Why};

use crate::pulse::Pulse;
use crate::sights::{self, Answer};

/// How the driver can be asked right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    Asked(ControllerChoice),
    Gone(Why),
}

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub handle: String,
    pub sight: Sight,
    /// The volume came before in this pass.
    pub again: bool,
}

/// Gets the entries of a list.
pub trait Visit: Send {
    /// One more entry.
    fn entry(&mut self, listed: Listed);

    /// Called every so often, and at the end. The list goes on when this returns.
    fn breathe(&mut self) -> impl Future<Output = ()> + Send {
        ready(())
    }
}

impl<F: FnMut(Listed) + Send> Visit for F {
    fn entry(&mut self, listed: Listed) {
        self(listed);
    }
}

/// Turns what the driver listed into what was seen.
struct Judge<V>(V);

impl<V: Visit> volmedic_csi::Visit<VolumeHealth> for Judge<V> {
    fn entry(&mut self, volmedic_csi::Listed { entry, again }: volmedic_csi::Listed<VolumeHealth>) {
        let sight = sights::of_health(&entry);
        self.0.entry(Listed { handle: entry.volume_id, sight, again });
    }

    fn breathe(&mut self) -> impl Future<Output = ()> + Send {
        self.0.breathe()
    }
}

impl<V: Visit> volmedic_csi::Visit<ListedVolume> for Judge<V> {
    fn entry(&mut self, volmedic_csi::Listed { entry, again }: volmedic_csi::Listed<ListedVolume>) {
        let sight = sights::of_volume(&entry);
        self.0.entry(Listed { handle: entry.volume_id, sight, again });
    }

    fn breathe(&mut self) -> impl Future<Output = ()> + Send {
        self.0.breathe()
    }
}

/// How a list ended; without details where the driver was not even there.
#[derive(Debug)]
pub enum Passed {
    Walked(Box<PassEnd>),
    Gone(Why),
}

/// The controller plugin of one driver.
#[derive(Debug)]
pub struct Controller {
    driver: Driver,
    pager: AsyncMutex<Pager>,
    /// Kept, so that a change between two waits is not missed.
    changes: AsyncMutex<watch::Receiver<State>>,
    secrets: Secrets,
    pulse: Pulse,
}

impl Controller {
    pub fn new(driver: Driver, limits: Limits) -> Self {
        let changes = AsyncMutex::new(driver.watch());
        Self {
            driver,
            changes,
            pager: AsyncMutex::new(Pager::new(limits)),
            secrets: Secrets::default(),
            pulse: Pulse::default(),
        }
    }

    pub fn way(&self) -> Way {
        match self.driver.session() {
            Ok(session) => Way::Asked(dialect::controller(session.features())),
            Err(error) => Way::Gone(sights::why(&error)),
        }
    }

    /// Returns when the driver came or went.
    pub async fn changed(&self) {
        // The sender lives as long as the driver does, and the driver as long as we do.
        let _ = self.changes.lock().await.changed().await;
    }

    /// Walks the list that [`way`](Self::way) names and hands over each entry as it comes.
    pub async fn list(&self, visit: impl Visit) -> Passed {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Passed::Gone(sights::why(&error)),
        };
        let mut pager = self.pager.lock().await;
        let end = match dialect::controller(session.features()).probe {
            ControllerProbe::ListHealth => pager.list_health(&session, &self.secrets, Judge(visit)).await,
            _ => pager.list_volumes(&session, Judge(visit)).await,
        };
        Passed::Walked(Box::new(end))
    }

    /// Looks at one volume.
    pub async fn look(&self, handle: &str) -> Answer {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Answer::DriverGone(sights::why(&error)),
        };
        let choice = dialect::controller(session.features());
        let began = Instant::now();
        let answer = match choice.fallback.unwrap_or(choice.probe) {
            ControllerProbe::GetHealth | ControllerProbe::ListHealth => {
                sights::answer(session.volume_health(handle, &self.secrets).await, |h| sights::of_health(&h))
            }
            ControllerProbe::GetVolume | ControllerProbe::ListVolumes | ControllerProbe::None => {
                sights::answer(session.volume(handle).await, |volume| sights::of_volume(&volume))
            }
        };
        self.pulse.settle(answer, &session, began).await
    }
}
