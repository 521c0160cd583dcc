//! Carries an election out against the API server.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::config::ConfigError;
use crate::election::{Election, NotHealthy, State, Step};
use crate::{Config, Record};

/// client-go's jitter: a standby waits between the retry period and 2.2 times the retry period, so that candidates that started
/// together do not write together.
const SPREAD: f64 = 1.2;
/// How long past its end a lease may go unrenewed before the process counts as stuck.
const GRACE: Duration = Duration::from_secs(20);
/// Reads and writes within one attempt: a fast renewal that conflicts, the read after it, and the write after that.
const STEPS: usize = 4;

/// One replica that stands for election. Dropping it gives the lease up as soon as the runtime gets to it;
/// [`release`](Self::release) waits for that.
#[derive(Debug)]
pub struct Candidate {
    view: watch::Receiver<Election>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    patience: Duration,
}

impl Candidate {
    /// Stands for election from now on.
    pub fn start(client: Client, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let patience = config.renew_deadline;
        let (publish, view) = watch::channel(Election::new(config.clone()));
        let (stop, stopped) = oneshot::channel();
        let runner = Runner {
            api: Api::namespaced(client, &config.namespace),
            election: Election::new(config.clone()),
            config,
            publish,
            lease: None,
            trouble: None,
            logged_holder: String::new(),
        };
        Ok(Self { view, stop, task: tokio::spawn(runner.run(stopped)), patience })
    }

    pub fn state(&self) -> State {
        self.view.borrow().state()
    }

    /// The leader when this candidate last read the Lease; empty if there is none.
    pub fn holder(&self) -> String {
        self.view.borrow().holder().to_owned()
    }

    /// Waits until the state is another than standby: leading, or lost before this was asked.
    pub async fn elected(&self) -> State {
        let mut view = self.view.clone();
        // The task outlives its last message only by ending, and it ends only when lost or stopped.
        match view.wait_for(|election| election.state() != State::Standby).await {
            Ok(election) => election.state(),
            Err(_) => State::Lost,
        }
    }

    /// Waits until leading is over.
    pub async fn lost(&self) {
        let mut view = self.view.clone();
        let _ = view.wait_for(|election| election.state() == State::Lost).await;
    }

    /// Whether no other candidate can be leading right now.
    pub fn holds(&self, now: Instant) -> bool {
        self.view.borrow().holds(now)
    }

    /// For `/healthz/leader-election`.
    pub fn healthy(&self, now: Instant) -> Result<(), NotHealthy> {
        self.view.borrow().healthy(now, GRACE)
    }

    /// Gives the lease up if it is ours, so that the next leader need not wait. Stop all work that needs it first.
    /// Answers whether the election ended within the renew deadline.
    pub async fn release(self) -> bool {
        let Self { stop, mut task, patience, view: _ } = self;
        let _ = stop.send(());
        let ended = timeout(patience, &mut task).await.is_ok();
        if !ended {
            task.abort();
        }
        ended
    }
}

struct Runner {
    api: Api<Lease>,
    config: Config,
    election: Election,
    publish: watch::Sender<Election>,
    /// As it was last read or written: what the next write is based on.
    lease: Option<Lease>,
    /// The last error, so that it is logged once and not at every attempt.
    trouble: Option<String>,
    logged_holder: String,
}

impl Runner {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            let failed = tokio::select! {
                biased;
                _ = &mut stopped => return self.release().await,
                failed = self.attempt() => failed,
            };
            self.log(failed.as_deref());
            self.publish.send_replace(self.election.clone());
            if self.election.state() == State::Lost {
                return;
            }
            let pause = self.pause(failed.is_some());
            tokio::select! {
                biased;
                _ = &mut stopped => return self.release().await,
                () = sleep(pause) => {}
            }
        }
    }

    /// One attempt, within a deadline; returns its error.
    async fn attempt(&mut self) -> Option<String> {
        let half = self.config.renew_deadline / 2;
        let limit = self.election.remaining(now()).map_or(half, |left| left.min(half));
        let failed = match timeout(limit, self.steps()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(sentence(&error)),
            Err(_) => Some(format!("no answer within {limit:?}")),
        };
        if failed.is_some() {
            // Whatever was written or not: read before the next write.
            self.lease = None;
            self.election.failed(now());
        }
        failed
    }

    async fn steps(&mut self) -> Result<(), Error> {
        let begun = now();
        let mut step = self.election.begin(begun, Timestamp::now());
        for _ in 0..STEPS {
            if matches!(step, Step::Replace(_)) && self.lease.is_none() {
                step = Step::Read;
            }
            let written = match &step {
                Step::Wait => return Ok(()),
                Step::Read => {
                    self.lease = self.api.get_opt(&self.config.name).await?;
                    let record = self.lease.as_ref().map(|lease| Record::of(lease.spec.as_ref()));
                    step = self.election.saw(now(), Timestamp::now(), record);
                    continue;
                }
                Step::Create(record) => self.create(record).await,
                Step::Replace(record) => self.replace(record).await,
            };
            match written {
                Ok(lease) => {
                    // What the server stored, not what was sent: its times are rounded.
                    self.election.wrote(begun, Record::of(lease.spec.as_ref()));
                    self.lease = Some(lease);
                    return Ok(());
                }
                // Another candidate was faster, or our own earlier write got through: read again.
                Err(Error::Api(status)) if matches!(status.code, 404 | 409) => {
                    self.lease = None;
                    step = Step::Read;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn create(&self, record: &Record) -> Result<Lease, Error> {
        let mut lease = Lease::default();
        lease.metadata.name = Some(self.config.name.clone());
        lease.metadata.namespace = Some(self.config.namespace.clone());
        self.fill(&mut lease, record);
        self.api.create(&PostParams::default(), &lease).await
    }

    async fn replace(&self, record: &Record) -> Result<Lease, Error> {
        let mut lease = self.lease.clone().unwrap_or_default();
        self.fill(&mut lease, record);
        self.api.replace(&self.config.name, &PostParams::default(), &lease).await
    }

    fn fill(&self, lease: &mut Lease, record: &Record) {
        record.write_to(lease.spec.get_or_insert_default());
        if !self.config.labels.is_empty() {
            lease.metadata.labels.get_or_insert_default().extend(self.config.labels.clone());
        }
        let annotations = self.config.annotations.borrow();
        if !annotations.is_empty() {
            lease.metadata.annotations.get_or_insert_default().extend(annotations.clone());
        }
    }

    /// Gives the lease up. The last renewal may have got through unnoticed, so it is read again on a conflict.
    async fn release(mut self) {
        let free = self.election.give_up(Timestamp::now());
        self.publish.send_replace(self.election.clone());
        let Some(free) = free else { return };
        match timeout(self.config.renew_deadline, self.write_free(&free)).await {
            Ok(Ok(())) => tracing::info!(lease = self.config.name, "gave the lease up"),
            Ok(Err(error)) => tracing::warn!(
                lease = self.config.name,
                "cannot give the lease up: {}; the next leader waits until it ends by itself",
                sentence(&error)
            ),
            Err(_) => tracing::warn!(lease = self.config.name, "no answer while giving the lease up"),
        }
    }

    async fn write_free(&mut self, free: &Record) -> Result<(), Error> {
        for _ in 0..STEPS {
            if self.lease.is_none() {
                self.lease = self.api.get_opt(&self.config.name).await?;
            }
            let record = self.lease.as_ref().map(|lease| Record::of(lease.spec.as_ref()));
            if record.is_none_or(|record| record.holder != self.config.identity) {
                return Ok(());
            }
            match self.replace(free).await {
                Err(Error::Api(status)) if status.code == 409 => self.lease = None,
                other => return other.map(drop),
            }
        }
        Ok(())
    }

    fn pause(&self, failed: bool) -> Duration {
        match self.election.remaining(now()) {
            // A leader that cannot renew tries more often than it renews, and stops when its time is over.
            Some(left) => {
                left.min(if failed { self.config.retry_period / 4 } else { self.config.retry_period })
            }
            None => self.config.retry_period.mul_f64(1.0 + SPREAD * fastrand::f64()),
        }
    }

    /// Logs what changed, once.
    fn log(&mut self, failed: Option<&str>) {
        let lease = format!("{}/{}", self.config.namespace, self.config.name);
        let (before, after) = (self.publish.borrow().state(), self.election.state());
        match failed {
            Some(why) if self.trouble.as_deref() != Some(why) => {
                tracing::warn!(lease, "cannot read or write the lease: {why}; trying again");
            }
            None if self.trouble.is_some() => {
                tracing::info!(lease, "the lease can be read and written again");
            }
            _ => {}
        }
        self.trouble = failed.map(str::to_owned);
        if before != after {
            match after {
                State::Leading => tracing::info!(lease, identity = self.config.identity, "leading"),
                State::Lost => tracing::error!(lease, "lost the lease; stopping"),
                State::Standby => {}
            }
        }
        if after == State::Standby
            && !self.election.holder().is_empty()
            && self.election.holder() != self.logged_holder
        {
            self.logged_holder = self.election.holder().to_owned();
            tracing::info!(lease, "standing by while {} leads", self.logged_holder);
        }
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// What the API server said, or the whole chain of causes below it.
fn sentence(error: &Error) -> String {
    if let Error::Api(status) = error {
        return format!("{} ({})", status.message, status.code);
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        let more = deeper.to_string();
        if !text.contains(&more) {
            let _ = write!(text, ": {more}");
        }
        cause = deeper.source();
    }
    text
}
