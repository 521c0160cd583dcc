//! What an agent says about its node: one NodeVolumeHealth, written only when it changes, and a Lease that says that
//! the agent lives.

mod compose;
mod coverage;
mod fit;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use volmedic_api::resource::{Coverage, GROUP, NodeReport, NodeVolumeHealth, VERSION};
use volmedic_api::{PROBE_ANSWERS, ProbeAnswer, ProbeRequest, answers_text};

use crate::failure::{Failure, call};
use crate::heartbeat::Heartbeat;
pub use compose::{Trouble, Whereabouts, node_report};
pub use coverage::{Probing, coverage};

/// Who owns what an agent applies.
const FIELD_MANAGER: &str = "volmedic-agent";
/// The Lease's name: this and the node's name.
const LEASE: &str = "volmedic-agent-";
/// Reports that come this close to each other are one.
const COALESCE: Duration = Duration::from_millis(100);
/// Somebody may have changed or deleted what we wrote.
const LOOK_AGAIN: Duration = Duration::from_mins(10);
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(2);
/// An API server that is away comes back; what is not installed or not allowed stays so until somebody does something.
const LONGEST_WAIT_FOR_SERVER: Duration = Duration::from_secs(10);

/// How the agent of a node reports.
#[derive(Debug, Clone)]
pub struct NodeReporterOptions {
    pub node: String,
    /// Where the Lease is: the agent's own namespace.
    pub namespace: String,
    /// How often a sign of life is given. The hub gives an agent up after about six times that.
    pub heartbeat: Duration,
}

impl NodeReporterOptions {
    pub fn new(node: &str, namespace: &str) -> Self {
        Self { node: node.to_owned(), namespace: namespace.to_owned(), heartbeat: Duration::from_secs(10) }
    }
}

/// Keeps a node's report and its Lease up to date until dropped. It never waits for the API server, and never fails
/// for good: where the resources are not installed it says so once and tries on.
#[derive(Debug)]
pub struct NodeReporter {
    report: watch::Sender<Option<Wanted>>,
    written: watch::Receiver<u64>,
    requests: watch::Receiver<Vec<ProbeRequest>>,
    answers: watch::Sender<BTreeMap<String, String>>,
    /// Dropping them ends the work.
    _tasks: JoinSet<Infallible>,
}

impl NodeReporter {
    /// Begins to give signs of life. Must be called inside a tokio runtime.
    pub fn start(client: &Client, options: &NodeReporterOptions) -> Self {
        let (report, news) = watch::channel(None);
        let (count, written) = watch::channel(0);
        let mut tasks = JoinSet::new();
        let writer = Writer {
            api: Api::all(client.clone()),
            node: options.node.clone(),
            stored: None,
            was_read: false,
            earlier: None,
            trouble: None,
            count,
        };
        tasks.spawn(writer.run(news));
        let lease = format!("{LEASE}{}", options.node);
        let heartbeat = Heartbeat::new(client, &options.namespace, &lease, &options.node, options.heartbeat);
        let (asked, requests) = watch::channel(Vec::new());
        let (answers, annotations) = watch::channel(BTreeMap::new());
        tasks.spawn(heartbeat.answering(asked, annotations).run());
        Self { report, written, requests, answers, _tasks: tasks }
    }

    /// The requests for new probes that are on the node's Lease. They are read with every sign of life.
    pub fn probe_requests(&self) -> watch::Receiver<Vec<ProbeRequest>> {
        self.requests.clone()
    }

    /// Where the answers go, which are written immediately.
    pub fn probe_answers(&self) -> ProbeAnswers {
        ProbeAnswers(self.answers.clone())
    }

    /// What there is to say from now on. The same again costs nothing. What is too much is cut down to the worst.
    pub fn set(&self, report: NodeReport) {
        self.put(report, true);
    }

    /// The same after a start, until every volume was probed once. What the stored report of an earlier run says about
    /// the probes of volumes holds meanwhile, so that a restart changes nothing.
    pub fn set_unsettled(&self, report: NodeReport) {
        self.put(report, false);
    }

    fn put(&self, report: NodeReport, settled: bool) {
        let wanted = Wanted { report: fit::within_bounds(report), settled };
        self.report.send_if_modified(|known| {
            let changed = known.as_ref() != Some(&wanted);
            if changed {
                *known = Some(wanted);
            }
            changed
        });
    }

    /// How often a report was written so far.
    pub fn written(&self) -> u64 {
        *self.written.borrow()
    }
}

/// Writes the answers to requests for new probes into the node's Lease.
#[derive(Debug, Clone)]
pub struct ProbeAnswers(watch::Sender<BTreeMap<String, String>>);

impl ProbeAnswers {
    /// These are all answers from now on.
    pub fn set(&self, answers: Vec<ProbeAnswer>) {
        self.0.send_replace(BTreeMap::from([(PROBE_ANSWERS.to_owned(), answers_text(answers))]));
    }
}

/// What the agent says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    report: NodeReport,
    settled: bool,
}

struct Writer {
    api: Api<NodeVolumeHealth>,
    node: String,
    /// What we know to be there.
    stored: Option<NodeReport>,
    /// Whether what is there was ever read, and what it said then.
    was_read: bool,
    earlier: Option<Coverage>,
    /// What went wrong last, so that it is reported once.
    trouble: Option<String>,
    count: watch::Sender<u64>,
}

impl Writer {
    async fn run(mut self, mut news: watch::Receiver<Option<Wanted>>) -> Infallible {
        let mut wait = FIRST_WAIT;
        // Nothing to say yet, and nothing that is stored is touched before there is.
        let mut next = None;
        loop {
            tokio::select! {
                changed = news.changed() => match changed {
                    // While it cannot be written, news is no reason to try more often.
                    Ok(()) if self.trouble.is_some() => {}
                    // That a start is settled need not change what there is to say.
                    Ok(()) if self.is_stored(&news) => {}
                    Ok(()) => next = Some(Instant::now() + COALESCE),
                    // Nothing can be sent any more; this is about to be dropped.
                    Err(_) => std::future::pending().await,
                },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    let wanted = news.borrow_and_update().clone();
                    let Some(wanted) = wanted else { continue };
                    match self.bring_about(&wanted).await {
                        Ok(()) => {
                            self.tell(None);
                            wait = FIRST_WAIT;
                            next = Some(Instant::now() + LOOK_AGAIN);
                        }
                        Err(failure) => {
                            self.stored = None;
                            self.tell(Some(sentence(&failure)));
                            let passing = matches!(failure, Failure::Away(_) | Failure::Busy { .. });
                            wait = wait.min(if passing { LONGEST_WAIT_FOR_SERVER } else { LONGEST_WAIT });
                            next = Some(Instant::now() + wait);
                            wait *= 2;
                        }
                    }
                }
            }
        }
    }

    /// Reads what is stored where we do not know it, and writes only if it is not what it should be.
    async fn bring_about(&mut self, Wanted { report, settled }: &Wanted) -> Result<(), Failure> {
        let known = self.stored.take();
        let mut wanted = self.with_earlier(report, *settled);
        if known.is_none_or(|known| known == wanted) {
            let stored = call(self.api.get_opt(&self.node)).await?.map(|stored| stored.spec.report);
            if !std::mem::replace(&mut self.was_read, true) {
                self.earlier = stored.as_ref().and_then(|report| report.coverage.clone());
                wanted = self.with_earlier(report, *settled);
            }
            if stored.is_some_and(|stored| stored == wanted) {
                self.stored = Some(wanted);
                return Ok(());
            }
        }
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "NodeVolumeHealth",
            "metadata": {"name": self.node},
            "spec": {"nodeName": self.node, "report": wanted},
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        call(self.api.patch(&self.node, &params, &Patch::Apply(object))).await?;
        self.count.send_modify(|count| *count += 1);
        self.stored = Some(wanted);
        Ok(())
    }

    fn is_stored(&self, news: &watch::Receiver<Option<Wanted>>) -> bool {
        let news = news.borrow();
        let (Some(Wanted { report, settled }), Some(stored)) = (&*news, &self.stored) else { return false };
        *stored == self.with_earlier(report, *settled)
    }

    fn with_earlier(&self, report: &NodeReport, settled: bool) -> NodeReport {
        let mut wanted = report.clone();
        if let (false, Some(earlier), Some(now)) = (settled, &self.earlier, &wanted.coverage) {
            wanted.coverage = Some(coverage::with_earlier(now, earlier));
        }
        wanted
    }

    fn tell(&mut self, trouble: Option<String>) {
        match (&trouble, &self.trouble) {
            (Some(new), old) if old.as_ref() != Some(new) => {
                tracing::warn!("this node's volume health is not reported to the hub: {new}; retrying");
            }
            (None, Some(_)) => tracing::info!("this node's volume health is reported to the hub again"),
            _ => {}
        }
        self.trouble = trouble;
    }
}

fn sentence(failure: &Failure) -> String {
    match failure {
        Failure::Gone => {
            "the API server does not know the resource NodeVolumeHealth; install deploy/chart/files/crds"
                .to_owned()
        }
        Failure::Exists | Failure::Conflict => "somebody else writes it at the same time".to_owned(),
        Failure::Forbidden(why) => {
            format!(
                "we may not write it: {why}; apply deploy/chart/files/rbac-agent.yaml, and use a token that is bound to \
                 our pod"
            )
        }
        Failure::Owned(why)
        | Failure::Refused(why)
        | Failure::UnknownField(why)
        | Failure::Away(why)
        | Failure::Busy { why, .. } => why.clone(),
    }
}
