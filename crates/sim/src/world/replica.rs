//! One replica of the controller: its process, which dies and is started again, as a kubelet would.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Parser;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;
use volmedic_lease::{Candidate, State};

use super::{DRIVER, Flags, NAMESPACE, Window};
use crate::dice::Dice;
use crate::driver::Driver;
use crate::history::{Dialect, History, When};
use crate::log::Log;
use crate::server::{Connection, Death, Server};

#[derive(Debug)]
pub(crate) struct Replica(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    flags: Vec<String>,
    election: bool,
    server: Server,
    driver: Driver,
    log: Log,
    life: Mutex<Life>,
    /// SIGTERM.
    terminated: Notify,
}

#[derive(Debug, Default)]
struct Life {
    connection: Option<Connection>,
    away: Vec<Window>,
    /// How long it stays away after it was terminated.
    down: Duration,
    deaths: u64,
}

impl Replica {
    pub(crate) fn start(
        number: usize,
        history: &History,
        server: &Server,
        driver: &Driver,
        log: &Log,
        dice: Dice,
    ) -> Self {
        let interval = history.interval.as_secs();
        let every = match history.dialect {
            Dialect::Get => format!("--monitor-interval={interval}s"),
            Dialect::ListHealth | Dialect::ListVolumes => format!("--list-volumes-interval={interval}s"),
        };
        // Without reminders every occurrence of an event is a transition, and can be counted.
        let flags = ["controller", "--reminder-interval=0", &every].map(str::to_owned).into();
        let inner = Arc::new(Inner {
            name: format!("replica-{number}"),
            flags,
            election: history.election,
            server: server.clone(),
            driver: driver.clone(),
            log: log.clone(),
            life: Mutex::default(),
            terminated: Notify::new(),
        });
        tokio::spawn(inner.clone().live(dice));
        Self(inner)
    }

    pub(crate) fn kill(&self, when: When, down: Duration) {
        if let Some(connection) = &self.0.life.lock().connection {
            connection.kill(when, Death { down });
        }
    }

    pub(crate) fn stop(&self, down: Duration) {
        let mut life = self.0.life.lock();
        if life.connection.is_some() {
            life.down = down;
            self.0.terminated.notify_waiters();
        }
    }

    pub(crate) fn disarm(&self) {
        if let Some(connection) = &self.0.life.lock().connection {
            connection.disarm();
        }
    }

    pub(crate) fn away(&self) -> Vec<Window> {
        self.0.life.lock().away.clone()
    }

    pub(crate) fn up_again(&self) -> Duration {
        self.0.life.lock().away.iter().map(|away| away.to).max().unwrap_or_default()
    }

    pub(crate) fn deaths(&self) -> u64 {
        self.0.life.lock().deaths
    }
}

impl Inner {
    /// One process after the other.
    async fn live(self: Arc<Self>, mut dice: Dice) {
        loop {
            let (deaths, mut death) = mpsc::unbounded_channel();
            let connection = Connection::new(&self.server, &self.name, deaths);
            self.life.lock().connection = Some(connection.clone());
            self.log.add(format!("{} starts", self.name));
            let mut process = tokio::spawn(self.clone().process(connection.clone()));
            let down = tokio::select! {
                biased;
                Some(Death { down }) = death.recv() => {
                    self.log.add(format!("{} was killed", self.name));
                    self.life.lock().deaths += 1;
                    down
                }
                ended = &mut process => {
                    let why = match ended {
                        Ok(Ok(())) => "ended".to_owned(),
                        Ok(Err(error)) => format!("ended: {error:#}"),
                        Err(error) => format!("VIOLATION: broke off: {error}"),
                    };
                    self.log.add(format!("{} {why}", self.name));
                    let down = std::mem::take(&mut self.life.lock().down);
                    down.max(dice.between(Duration::from_secs(1), Duration::from_secs(10)))
                }
            };
            connection.cut();
            process.abort();
            let now = self.log.now();
            {
                let mut life = self.life.lock();
                life.connection = None;
                life.away.push(Window { from: now, to: now + down });
            }
            sleep(down).await;
        }
    }

    /// What `volmedic controller` does between its start and its end.
    async fn process(self: Arc<Self>, connection: Connection) -> anyhow::Result<()> {
        let client = connection.client();
        let flags = Flags::try_parse_from(&self.flags).map_err(|error| anyhow!("{error}"))?;
        let probe = Arc::new(self.driver.clone());
        let terminated = self.terminated.notified();
        if !self.election {
            let over = async {
                terminated.await;
                Ok(())
            };
            return volmedic_roles::controller::lead(flags.controller, client, DRIVER, probe, over).await;
        }
        let config = volmedic_lease::Config::new(NAMESPACE, &volmedic_lease::lock_name(DRIVER), &self.name);
        let candidate = Candidate::start(client.clone(), config)?;
        let mut terminated = std::pin::pin!(terminated);
        tokio::select! {
            state = candidate.elected() => if state != State::Leading {
                bail!("the lease was lost before it was held");
            },
            () = &mut terminated => return Ok(()),
        }
        self.log.add(format!("{} leads", self.name));
        let over = async {
            tokio::select! {
                () = candidate.lost() => bail!("the lease was lost"),
                () = &mut terminated => Ok(()),
            }
        };
        let ended = volmedic_roles::controller::lead(flags.controller, client, DRIVER, probe, over).await;
        candidate.release().await;
        ended
    }
}
