//! Keeps a driver connected: connects, asks for its name and capabilities, and connects again for as long as it takes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use volmedic_panics::caught;

use crate::address::Address;
use crate::backoff::Backoff;
use crate::error::{CallError, Kind};
use crate::link::Link;
use crate::metrics::Metrics;
use crate::session::{Session, introduce};

/// A connection that lived this long was a good one; the next failure starts with a short pause again.
const STEADY: Duration = Duration::from_secs(10);

/// Which services the socket is asked for when the driver introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A CSI socket. Capabilities are read only of the services that matter to the caller.
    Csi { controller: bool, node: bool },
    /// A csi-addons socket.
    Addons,
}

/// How to talk to a driver.
#[derive(Clone, Debug)]
pub struct Settings {
    pub protocol: Protocol,
    /// For connecting, for each call of the introduction, and for calls that have no deadline of their own.
    pub deadline: Duration,
    /// The first pause after a failed connection, and the longest.
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// Maximum number of concurrent calls; no limit if absent.
    pub max_in_flight: Option<usize>,
    /// The name the driver must have. If absent, the first name it reports is the one it must keep.
    pub expected_name: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            protocol: Protocol::Csi { controller: true, node: true },
            deadline: Duration::from_secs(15),
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(30),
            max_in_flight: None,
            expected_name: None,
        }
    }
}

/// Whether the driver can be talked to right now.
#[derive(Clone, Debug)]
pub enum State {
    /// Not connected, and why. It is being tried again.
    Waiting(CallError),
    Ready(Session),
}

/// Keeps a driver connected in the background, with growing pauses between failures. Dropping the last clone
/// ends that.
#[derive(Clone, Debug)]
pub struct Driver {
    state: watch::Receiver<State>,
    _keeper: Arc<Keeper>,
}

impl Driver {
    /// Starts to connect. Needs a tokio runtime; returns immediately.
    pub fn start(address: Address, settings: Settings, metrics: Metrics) -> Self {
        let place = format!("at {address}").into();
        let early = CallError::new(place, None, Kind::Unreachable, "it has not been tried yet");
        let (sender, state) = watch::channel(State::Waiting(early));
        let task = tokio::spawn(keep(address, settings, metrics, sender));
        Self { state, _keeper: Arc::new(Keeper { task }) }
    }

    /// The driver as it is now; if it is not connected, why not. Does not wait.
    pub fn session(&self) -> Result<Session, CallError> {
        match &*self.state.borrow() {
            State::Ready(session) => Ok(session.clone()),
            State::Waiting(why) => Err(why.clone()),
        }
    }

    /// The driver as soon as it is ready; after the deadline, why it is not.
    pub async fn ready_within(&self, deadline: Duration) -> Result<Session, CallError> {
        let mut state = self.state.clone();
        let ready = async { state.wait_for(|state| matches!(state, State::Ready(_))).await.is_ok() };
        // Whether it came in time or not, the state says.
        let _ = timeout(deadline, ready).await;
        self.session()
    }

    /// Changes on every connection and disconnection, such as a restart of the driver.
    pub fn watch(&self) -> watch::Receiver<State> {
        self.state.clone()
    }
}

#[derive(Debug)]
struct Keeper {
    task: JoinHandle<()>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(address: Address, settings: Settings, metrics: Metrics, state: watch::Sender<State>) {
    let slots =
        settings.max_in_flight.map(|max| Arc::new(Semaphore::new(max.clamp(1, Semaphore::MAX_PERMITS))));
    let mut backoff = Backoff::new(settings.first_pause, settings.longest_pause);
    let mut known_as = settings.expected_name.clone();
    let mut generation = 0;
    let mut logged = None;
    loop {
        let connecting = async {
            let link = Link::dial(&address, settings.deadline, metrics.clone(), slots.clone()).await?;
            introduce(link, &settings, known_as.as_deref(), generation + 1).await
        };
        let introduced = caught(connecting).await.unwrap_or_else(|panic| {
            let why = format!("internal error (bug): connecting to the driver panicked: {panic}");
            Err(CallError::new(format!("at {address}").into(), None, Kind::Unreachable, &why))
        });
        let why = match introduced {
            Ok(session) => {
                generation += 1;
                known_as = Some(session.driver().to_owned());
                let (driver, version) = (session.driver(), session.version());
                tracing::info!(driver, version, generation, "connected to the driver");
                let lost = CallError::new(session.name().clone(), None, Kind::Lost, "the driver closed it");
                let since = Instant::now();
                state.send_replace(State::Ready(session.clone()));
                session.ended().await;
                if since.elapsed() >= STEADY {
                    backoff.succeeded();
                }
                lost
            }
            Err(why) => why,
        };
        // The same failure again and again is logged once.
        if logged.replace(why.kind()) == Some(why.kind()) {
            tracing::debug!("{why}");
        } else {
            tracing::warn!("{why}");
        }
        state.send_replace(State::Waiting(why));
        sleep(backoff.failed()).await;
    }
}
