//! One entry for everything that is reported.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use volmedic_api::{Kind, ObjectRef};
use volmedic_health::Held;

use crate::events::{EventJob, Events, Voice};
use crate::healths::{HealthOptions, Healths};
use crate::sender::{Courier, Gate, Job, Limits, Outcome, Outlet, Sender};
use crate::status::{Desired, StatusJob, Statuses, Stored, Support};
use crate::{Metrics, Notice, log};

/// What a reporter reports, and how.
#[derive(Debug, Clone)]
pub struct Options {
    pub voice: Voice,
    /// The name under which claims' status is owned, the same for all replicas and after every restart; `None` to
    /// leave the status alone.
    pub field_manager: Option<String>,
    /// How the hub gets what a claim's status cannot hold; `None` not to report it. Needs a field manager.
    pub health: Option<HealthOptions>,
    /// Whether events may be read one by one, or only created and patched.
    pub reads_events: bool,
    pub limits: Limits,
}

impl Options {
    /// For the controller of a driver.
    pub fn of_controller(driver: &str, instance: &str) -> Self {
        Self {
            voice: Voice::of_controller(driver, instance),
            field_manager: Some(format!("volmedic-controller/{driver}")),
            health: None,
            reads_events: true,
            limits: Limits::default(),
        }
    }

    /// For the agent on a node: events on pods, and nothing on claims.
    pub fn of_agent(node: &str, instance: &str) -> Self {
        Self {
            voice: Voice::of_agent(node, instance),
            field_manager: None,
            health: None,
            reads_events: false,
            limits: Limits::default(),
        }
    }
}

/// Reports notices to the log, the metrics and the API server.
#[derive(Debug)]
pub struct Reporter {
    sender: Sender<Post>,
    post: Arc<Post>,
    metrics: Metrics,
}

impl Reporter {
    /// Begins with nothing to report. It must not report anything before it leads.
    ///
    /// Give it a client that does not try again by itself (`default_retry: false`), or those tries escape the limits.
    pub fn start(client: &Client, options: &Options, metrics: Metrics) -> Self {
        let Options { voice, field_manager, health, reads_events, limits } = options;
        let statuses = field_manager.as_ref().map(|manager| Statuses::new(client.clone(), manager));
        let healths = field_manager.as_ref().zip(health.clone());
        let healths = healths.map(|(manager, health)| Healths::new(client.clone(), manager, health));
        let events = Events::new(client.clone(), voice.clone(), *reads_events);
        let post = Arc::new(Post { events, statuses, healths });
        let sender = Sender::start(post.clone(), limits, metrics.reports.clone());
        Self { sender, post, metrics }
    }

    /// Reports a notice: to the log and the metrics now, to the API server as soon as possible.
    pub fn tell(&self, notice: &Notice) {
        log::tell(&notice.transition);
        self.metrics.changed(&notice.transition);
        self.send(notice);
    }

    /// Sends a notice to the API server only: what an earlier process reported, but perhaps could not send. A reader that
    /// has it already sees no difference.
    ///
    /// Events of an object go before its status, so that a status that is there was reported.
    pub fn send(&self, notice: &Notice) {
        let transition = Arc::new(notice.transition.clone());
        for object in &notice.about {
            if let Some(job) = EventJob::new(object, &transition, notice.known_as.as_ref()) {
                self.sender.push(Errand::event(object, job));
            }
            if self.post.statuses.is_some()
                && let Some(job) = StatusJob::new(object, notice)
            {
                self.sender.push(Errand::status(object, job));
            }
            if self.post.wants_health(object)
                && let Some(job) =
                    StatusJob::new(object, notice).or_else(|| StatusJob::reminder(object, notice))
            {
                self.sender.push(Errand::health(object, job));
            }
        }
    }

    /// Brings a claim's stored status to what stands, without reporting anything: after a restart, or when the server
    /// begins to keep it. Nothing is written where that is stored already.
    pub fn restate(&self, claim: &ObjectRef, standing: &[Held], at: Timestamp) {
        if self.post.statuses.is_some() && claim.kind == Kind::PersistentVolumeClaim {
            let job = StatusJob::restate(claim, standing, at);
            self.sender.push(Errand::status(claim, job.clone()));
            if self.post.wants_health(claim) {
                self.sender.push(Errand::health(claim, job));
            }
        }
    }

    /// The claims whose stored status says that something is wrong, as far as that is remembered.
    pub fn reported_unhealthy(&self) -> Vec<ObjectRef> {
        let mut unhealthy = self.post.statuses.as_ref().map(Statuses::reported_unhealthy).unwrap_or_default();
        unhealthy.extend(self.post.healths.iter().flat_map(Healths::reported_unhealthy));
        unhealthy.sort_unstable();
        unhealthy.dedup();
        unhealthy
    }

    /// Makes known what was stored before this process began, in the claims and for the hub.
    pub fn prime(&self, stored: &[Stored], reported: &[Stored]) {
        if let Some(statuses) = &self.post.statuses {
            statuses.prime(stored);
        }
        if let Some(healths) = &self.post.healths {
            healths.prime(reported);
        }
    }

    /// Whether the server keeps claims' status. When it begins to, restate everything that is wrong.
    pub fn support(&self) -> Option<watch::Receiver<Support>> {
        self.post.statuses.as_ref().map(Statuses::support)
    }

    /// The server may be another one than before: an upgrade, a changed feature gate. The next write finds out. Done
    /// by itself when the server was away and is back.
    pub fn look_again(&self) {
        self.post.reconnected();
    }

    /// Whether reports were lost and can be made good now; answers yes once. Too many waited and there is room again, or
    /// there was no place for them and now may be one. Then restate every claim that is not healthy.
    pub fn take_overflow(&self) -> bool {
        let room = self.sender.take_overflow();
        self.post.healths.as_ref().is_some_and(Healths::take_due) || room
    }

    /// How much waits to be sent or is on the way.
    pub fn backlog(&self) -> usize {
        self.sender.backlog()
    }

    /// Waits until all is sent, but no longer than `limit`; answers how much is left.
    pub async fn flush(&self, limit: Duration) -> usize {
        self.sender.flush(limit).await
    }
}

/// Brings errands to the API server.
struct Post {
    events: Events,
    statuses: Option<Statuses>,
    healths: Option<Healths>,
}

impl Post {
    fn support(&self) -> Support {
        self.statuses.as_ref().map_or(Support::Unknown, |statuses| *statuses.support().borrow())
    }

    fn wants_health(&self, claim: &ObjectRef) -> bool {
        let kept = self.support() == Support::Kept;
        claim.kind == Kind::PersistentVolumeClaim
            && self.healths.as_ref().is_some_and(|healths| healths.wants(claim, kept))
    }
}

impl std::fmt::Debug for Post {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Post").finish_non_exhaustive()
    }
}

/// One thing to bring, about one object.
#[derive(Debug)]
struct Errand {
    object: Arc<str>,
    what: What,
}

#[derive(Debug)]
enum What {
    Event(Box<EventJob>),
    Status(Box<StatusJob>),
    /// Goes after the status, which shows whether it is needed.
    Health(Box<StatusJob>),
}

impl Errand {
    fn event(object: &ObjectRef, job: EventJob) -> Self {
        Self { object: (&*object.uid).into(), what: What::Event(Box::new(job)) }
    }

    fn status(object: &ObjectRef, job: StatusJob) -> Self {
        Self { object: (&*object.uid).into(), what: What::Status(Box::new(job)) }
    }

    fn health(object: &ObjectRef, job: StatusJob) -> Self {
        Self { object: (&*object.uid).into(), what: What::Health(Box::new(job)) }
    }
}

impl Job for Errand {
    fn object(&self) -> &Arc<str> {
        &self.object
    }

    fn is_same_story(&self, other: &Self) -> bool {
        match (&self.what, &other.what) {
            (What::Event(mine), What::Event(theirs)) => mine.is_same_story(theirs),
            // A claim has one status.
            (What::Status(_), What::Status(_)) | (What::Health(_), What::Health(_)) => true,
            _ => false,
        }
    }

    fn absorb(&mut self, newer: Self) {
        match (&mut self.what, newer.what) {
            (What::Event(mine), What::Event(theirs)) => mine.absorb(*theirs),
            (What::Status(mine), What::Status(theirs)) | (What::Health(mine), What::Health(theirs)) => {
                mine.absorb(*theirs);
            }
            (mine, theirs) => *mine = theirs,
        }
    }

    fn is_minor(&self) -> bool {
        matches!(&self.what, What::Event(job) if job.is_minor())
    }
}

impl Courier for Post {
    type Job = Errand;

    fn outlet(job: &Errand) -> Outlet {
        match job.what {
            What::Event(_) => Outlet::Event,
            What::Status(_) => Outlet::Status,
            What::Health(_) => Outlet::Health,
        }
    }

    fn describe(job: &Errand) -> String {
        match &job.what {
            What::Event(job) => format!("an event on {}", job.object()),
            What::Status(job) => format!("the health status of {}", job.claim()),
            What::Health(job) => format!("the VolumeHealth of {}", job.claim()),
        }
    }

    fn reconnected(&self) {
        if let Some(statuses) = &self.statuses {
            statuses.look_again();
        }
        if let Some(healths) = &self.healths {
            healths.look_again();
        }
    }

    fn forbidden(&self, outlet: Outlet) {
        match (outlet, &self.statuses, &self.healths) {
            (Outlet::Status, Some(statuses), _) => statuses.forbidden(),
            (Outlet::Health, _, Some(healths)) => healths.forbidden(),
            _ => {}
        }
    }

    async fn send(&self, job: &Errand, gate: &Gate) -> Outcome {
        let sent = match (&job.what, &self.statuses, &self.healths) {
            (What::Event(event), _, _) => self.events.send(event, gate).await,
            (What::Status(status), Some(statuses), _) => statuses.send(status, gate).await,
            (What::Health(health), _, Some(healths)) => match (self.support(), &health.desired) {
                // Its status was not written, so there is no such claim any more.
                (Support::Unknown, Desired::Says { .. }) => Ok(crate::Verdict::Gone),
                // Taking our part away shows nothing about what the server keeps, and may be the first write of a process.
                (support, _) => healths.send(health, support == Support::Kept, gate).await,
            },
            (What::Status(_) | What::Health(_), ..) => Ok(crate::Verdict::Unsupported),
        };
        match sent {
            Ok(verdict) => Outcome::Done(verdict),
            Err(failure) => Outcome::Failed(failure),
        }
    }
}
