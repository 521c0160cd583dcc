//! Asks a CSI controller plugin, in whichever of its ways it can be asked.

use std::future::Future;

use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;
use volmedic_csi::dialect::{self, ControllerChoice, ControllerProbe};
use volmedic_csi::{Driver, Limits, ListedVolume, Pager, PassEnd, Secrets, State, Visit, VolumeHealth};
use volmedic_health::Why;
use volmedic_monitor::{Absent, ListEnd, Listed, Pages, Probe, Seen, Way};

use crate::pulse::Pulse;
use crate::sights;

/// Turns what the driver listed into what was seen, and hands it over in pieces.
struct Judge<P> {
    pages: P,
    page: Vec<Listed>,
}

impl<P: Pages> Judge<P> {
    async fn hand_over(&mut self) {
        if !self.page.is_empty() {
            self.pages.page(std::mem::take(&mut self.page)).await;
        }
    }
}

impl<P: Pages> Visit<VolumeHealth> for Judge<P> {
    fn entry(&mut self, volmedic_csi::Listed { entry, again }: volmedic_csi::Listed<VolumeHealth>) {
        let sight = sights::of_health(&entry);
        self.page.push(Listed { handle: entry.volume_id, sight, again });
    }

    fn breathe(&mut self) -> impl Future<Output = ()> + Send {
        self.hand_over()
    }
}

impl<P: Pages> Visit<ListedVolume> for Judge<P> {
    fn entry(&mut self, volmedic_csi::Listed { entry, again }: volmedic_csi::Listed<ListedVolume>) {
        let sight = sights::of_volume(&entry);
        self.page.push(Listed { handle: entry.volume_id, sight, again });
    }

    fn breathe(&mut self) -> impl Future<Output = ()> + Send {
        self.hand_over()
    }
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

    /// How the driver can be asked right now, or why it cannot be reached.
    pub fn choice(&self) -> Result<ControllerChoice, Why> {
        let session = self.driver.session().map_err(|error| sights::why(&error))?;
        Ok(dialect::controller(session.features()))
    }

    /// Walks the list that [`choice`](Self::choice) names, for a caller that wants to know how it went.
    pub async fn walk(&self, pages: impl Pages) -> Result<Box<PassEnd>, Why> {
        let session = self.driver.session().map_err(|error| sights::why(&error))?;
        let mut pager = self.pager.lock().await;
        let judge = Judge { pages, page: Vec::new() };
        let end = match dialect::controller(session.features()).probe {
            ControllerProbe::ListHealth => pager.list_health(&session, &self.secrets, judge).await,
            _ => pager.list_volumes(&session, judge).await,
        };
        Ok(Box::new(end))
    }
}

/// How a list ended, for the pipe and for the log.
pub fn list_end(end: &PassEnd) -> ListEnd {
    match &end.broken {
        None => {
            tracing::debug!("{end}");
            ListEnd::Complete
        }
        Some(broken) => {
            tracing::warn!("{end}");
            ListEnd::Broken(sights::broken(broken))
        }
    }
}

impl Probe for Controller {
    fn way(&self) -> Way {
        let choice = match self.choice() {
            Ok(choice) => choice,
            Err(why) => return Way::Blind(why),
        };
        match choice.probe {
            ControllerProbe::ListHealth => Way::List { absent: Absent::Unlisted, looks: choice.confirms },
            ControllerProbe::ListVolumes => Way::List { absent: Absent::Missing, looks: choice.confirms },
            ControllerProbe::GetHealth | ControllerProbe::GetVolume => Way::Look,
            ControllerProbe::None => Way::Nothing,
        }
    }

    async fn changed(&self) {
        // The sender lives as long as the driver does, and the driver as long as we do.
        let _ = self.changes.lock().await.changed().await;
    }

    async fn list(&self, pages: impl Pages) -> ListEnd {
        match self.walk(pages).await {
            Ok(end) => list_end(&end),
            Err(why) => ListEnd::Broken(why),
        }
    }

    async fn look(&self, handle: &str) -> Seen {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Seen::DriverGone(sights::why(&error)),
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
