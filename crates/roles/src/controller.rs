//! The controller role: beside a CSI controller plugin, about every volume of its driver, on every claim.

mod args;
mod coverage;
mod nodes;
mod page;
mod ports;
mod recalled;
mod strangers;
mod view;

use std::collections::HashSet;
use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use volmedic_api::resource::LeaseName;
use volmedic_csi::{AddressError, Limits, Protocol, Settings};
use volmedic_health::{Ledger, Policy, Vantage};
use volmedic_inventory::Inventory;
use volmedic_monitor::{Board, Pipe, Way};
use volmedic_report::{Beats, HealthOptions, Reporter};

use args::Config;
pub use args::{Args, with_two_dashes};
use nodes::NodeWatcher;
use ports::{Driver, Outlet, Volumes};

use volmedic_runtime::cluster;
use volmedic_runtime::election::Leadership;
use volmedic_runtime::http::{self, Health};
use volmedic_runtime::page::Chronicle;
use volmedic_runtime::process::{self, Process};
use volmedic_runtime::signals::clock;

/// What is still to be reported when a signal comes gets this long.
const FLUSH: Duration = Duration::from_secs(5);
/// Observations that may wait for the ledger.
const OBSERVATIONS: usize = 256;
/// How often it is asked whether reports were lost because too many waited.
const OVERFLOW_CHECK: Duration = Duration::from_secs(15);
/// The Lease that says that we live, where no leader election does: this and the driver's name.
pub const LEASE: &str = "volmedic-controller-";
/// The label on our Lease that says how the driver reports health, or `nothing`.
pub const REPORTS_HEALTH: &str = volmedic_api::REPORTS_HEALTH;
/// Series of single volumes in one scrape.
const SICK_SERIES: usize = 1000;

pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    Ok(process::run(serve(args.resolve()))?)
}

/// Runs until a signal comes or the lease is lost.
async fn serve(config: Config) -> anyhow::Result<()> {
    let mut process = Process::start()?;
    for note in &config.notes {
        tracing::warn!("{note}");
    }
    if let Err(error @ (AddressError::NotASocket { .. } | AddressError::Unreadable { .. })) =
        config.address.check()
    {
        return Err(error).context("cannot talk to the driver");
    }
    let client = cluster::client(config.kubeconfig.as_ref()).await?;

    let mut registry = Registry::default();
    let csi_metrics = volmedic_csi::Metrics::register(&mut registry);
    let inventory_metrics = volmedic_inventory::Metrics::register(&mut registry);
    let report_metrics = volmedic_report::Metrics::register(&mut registry);
    let picture = view::Picture::default();
    volmedic_report::register_view(&mut registry, SICK_SERIES, picture.clone());
    process.serve_http(&config.http, registry, &client).await?;
    let page = process.serve_page(&config.page, "controller", page::CHANGES).await?;

    let settings = Settings {
        protocol: Protocol::Csi { controller: true, node: false },
        deadline: config.call_deadline,
        expected_name: config.driver_name.clone(),
        ..Settings::default()
    };
    let driver = volmedic_csi::Driver::start(config.address.clone(), settings, csi_metrics.clone());
    let name = tokio::select! {
        name = driver_name(&driver) => name?,
        () = process.signals.next() => return Ok(()),
    };

    let (coverage, annotations) = watch::channel(coverage::Annotations::new());
    let own_label = (REPORTS_HEALTH.to_owned(), reports(&driver).to_owned());
    let beats = Beats { labels: [own_label.clone()].into(), annotations: annotations.clone() };
    let leadership = match &config.election {
        Some(election) => {
            let mut labels = election.labels.clone();
            labels.extend([own_label]);
            let lease = election.lease.election(&volmedic_lease::lock_name(&name), labels)?;
            let lease = volmedic_lease::Config { annotations, ..lease };
            Leadership::stand(&client, lease, &process, page.as_deref())?
        }
        None => Leadership::default(),
    };
    if leadership.won(&mut process).await? {
        let page = page.map(|page| (page, driver.clone(), csi_metrics));
        let health = process.health.clone();
        let limits = Limits { page_deadline: config.call_deadline, ..Limits::default() };
        let probe = Arc::new(Driver {
            name: name.clone(),
            probe: volmedic_probe::Controller::new(driver.clone(), limits),
            counts: report_metrics.probes.clone(),
            reported: Mutex::new(None),
        });
        let coverage = Some((driver, coverage));
        let role = Leading { config, client, probe, name, picture, page, health, coverage, beats };
        role.run(&inventory_metrics, report_metrics, leadership.over(&mut process.signals)).await?;
    }
    leadership.release(process).await;
    Ok(())
}

/// Waits for the driver for as long as it takes; but one of another name is refused at the start.
async fn driver_name(driver: &volmedic_csi::Driver) -> anyhow::Result<Arc<str>> {
    loop {
        match driver.ready_within(Duration::from_secs(10)).await {
            Ok(session) => return Ok(session.driver().into()),
            Err(error) if error.kind() == volmedic_csi::Kind::WrongDriver => {
                return Err(anyhow!("{error}"))
                    .context("--driver-name does not fit the driver behind --csi-address");
            }
            Err(error) => tracing::info!("waiting for the driver: {error}"),
        }
    }
}

/// How the driver reports health, in one word, for readers of the Lease.
fn reports(driver: &volmedic_csi::Driver) -> &'static str {
    use volmedic_csi::dialect::{ControllerProbe, controller};
    match driver.session().map(|session| controller(session.features()).probe) {
        Ok(ControllerProbe::ListHealth) => "ControllerListVolumeHealth",
        Ok(ControllerProbe::GetHealth) => "ControllerGetVolumeHealth",
        Ok(ControllerProbe::ListVolumes) => "ListVolumes",
        Ok(ControllerProbe::GetVolume) => "ControllerGetVolume",
        Ok(ControllerProbe::None) | Err(_) => "nothing",
    }
}

/// The hub sees by a Lease that we live: the one we lead by, or one of our own.
fn reported_to_hub(driver: &str, election: Option<&args::Election>, beats: Beats) -> HealthOptions {
    let lease = match election {
        Some(election) => {
            LeaseName { namespace: election.lease.namespace(), name: volmedic_lease::lock_name(driver) }
        }
        None => LeaseName {
            namespace: volmedic_lease::namespace(""),
            name: volmedic_lease::sanitize(&format!("{LEASE}{driver}")).to_lowercase(),
        },
    };
    HealthOptions { driver: driver.to_owned(), lease, beats: election.is_none().then_some(beats) }
}

/// The part of the role that runs while this replica leads, over any client and any probe: without signals, sockets and
/// pages. The simulation runs this.
pub async fn lead(
    args: Args,
    client: Client,
    driver: &str,
    probe: Arc<impl volmedic_monitor::Probe>,
    over: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let mut registry = Registry::default();
    let inventory_metrics = volmedic_inventory::Metrics::register(&mut registry);
    let report_metrics = volmedic_report::Metrics::register(&mut registry);
    let (picture, health) = (view::Picture::default(), Arc::new(Health::default()));
    let config = args.resolve();
    let beats = Beats {
        labels: coverage::Annotations::new(),
        annotations: watch::channel(coverage::Annotations::new()).1,
    };
    let name = driver.into();
    let role = Leading { config, client, probe, name, picture, page: None, health, coverage: None, beats };
    role.run(&inventory_metrics, report_metrics, over).await
}

/// What it takes to lead.
struct Leading<P> {
    config: Config,
    client: Client,
    probe: Arc<P>,
    name: Arc<str>,
    picture: view::Picture,
    /// Where it is shown, and what else is shown there.
    page: Option<(Arc<page::Page>, volmedic_csi::Driver, volmedic_csi::Metrics)>,
    health: Arc<Health>,
    /// The driver, and what our Lease says about what is probed through it. None where no driver stands behind the probe.
    coverage: Option<(volmedic_csi::Driver, watch::Sender<coverage::Annotations>)>,
    /// Where no leader election renews a Lease.
    beats: Beats,
}

impl<P: volmedic_monitor::Probe> Leading<P> {
    async fn run(
        self,
        inventory_metrics: &volmedic_inventory::Metrics,
        report_metrics: volmedic_report::Metrics,
        over: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let Self { config, client, probe, name, picture, page, health, coverage, beats } = self;
        let options = volmedic_inventory::Options {
            driver: (&*name).into(),
            node_watcher: config.node_grace.is_some(),
        };
        let inventory = Arc::new(Inventory::start(&client, &options, inventory_metrics));
        let remind_every =
            config.remind_every.map(|every| SignedDuration::try_from(every).unwrap_or(SignedDuration::MAX));
        let board = Board::new(Ledger::new(Policy { remind_every, ..Policy::default() }));
        picture.attach(&name, &board, &inventory);
        health.set_ready(ready_check(&name, &board, &inventory, config.not_ready_after));

        let mut over = std::pin::pin!(over);
        let instance = volmedic_lease::hostname().unwrap_or_default();
        let mut report = volmedic_report::Options::of_controller(&name, &instance);
        report.limits.qps = config.qps;
        report.limits.burst = config.burst;
        report.health = Some(reported_to_hub(&name, config.election.as_ref(), beats));
        let reporter = Arc::new(Reporter::start(&client, &report, report_metrics.clone()));

        let recalled = tokio::select! {
            recalled = recalled::read(&client, &name, &inventory, &report) => recalled?,
            ended = &mut over => return ended,
        };
        if inventory.volumes().known() == 0 {
            strangers::check(&client, &name, config.driver_name.is_some()).await?;
        }
        reporter.prime(&recalled.stored, &recalled.reported);
        for memo in recalled.memos {
            board.lock_ledger().recall(memo);
        }

        let volumes = Arc::new(Volumes::new(inventory.clone()));
        let (sender, observations) = mpsc::channel(OBSERVATIONS);
        let mut tasks = JoinSet::new();
        let nodes_woken = Arc::new(Notify::new());
        tasks.spawn(wake(inventory.clone(), volumes.clone(), nodes_woken.clone()));
        if let Some(grace) = config.node_grace {
            let watcher = NodeWatcher {
                inventory: inventory.clone(),
                board: board.clone(),
                grace: SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX),
                woken: nodes_woken,
                observations: sender.clone(),
            };
            tasks.spawn(watcher.run());
        }
        tasks.spawn(restate(reporter.clone(), inventory.clone(), board.clone(), name.clone()));
        tasks.spawn(recalled::settle(reporter.clone(), board.clone(), recalled.unsettled));

        let chronicle = page.map(|(page, driver, metrics)| {
            let chronicle = Arc::new(Chronicle::new(board.clone(), page.history().clone()));
            page.show(page::Source {
                name: name.clone(),
                driver,
                metrics,
                inventory: inventory.clone(),
                chronicle: chronicle.clone(),
            });
            chronicle
        });
        let settings = volmedic_monitor::Settings {
            list_every: config.list_every,
            look_every: config.look_every,
            workers: config.workers,
        };
        if let Some((driver, annotations)) = coverage {
            let source = coverage::Source {
                name: name.clone(),
                driver,
                board: board.clone(),
                inventory: inventory.clone(),
                settings: settings.clone(),
                deadline: config.call_deadline,
                reports_nodes: config.node_grace.is_some(),
            };
            tasks.spawn(coverage::keep(source, annotations));
        }
        let to = Outlet { reporter: reporter.clone(), board: board.clone() };
        let outlet = page::Outlet { to, chronicle };
        let pace = settings.pace(&Way::Nothing);
        let mut pipe =
            Pipe::new(name.clone(), Vantage::Controller, volumes.clone(), outlet, board, pace, clock());
        for (claim, volume) in recalled.reported_on {
            pipe.recall_audience(&volume.handle, claim);
        }
        if config.node_grace.is_none() {
            // Reported by a run that watched nodes; this one would never see them come back.
            pipe.forget_vantage(&Vantage::Cluster, clock());
        }
        tracing::info!(driver = &*name, volumes = inventory.volumes().len(), "watching");
        let mut ended = Ok(());
        let stop = async { ended = over.await };
        volmedic_monitor::run(pipe, volumes, probe, settings, observations, clock, stop).await;
        drop(tasks);
        if ended.is_ok() {
            let left = reporter.flush(FLUSH).await;
            if left > 0 {
                tracing::warn!(
                    "{left} reports could not be sent before the end; the next start reports what still holds"
                );
            }
        }
        ended
    }
}

/// Wakes everybody who waits for the inventory; it wakes only one by itself.
async fn wake(inventory: Arc<Inventory>, volumes: Arc<Volumes>, nodes: Arc<Notify>) {
    loop {
        inventory.changed().await;
        volumes.woken.notify_one();
        nodes.notify_one();
    }
}

/// Reports all that is wrong again when the server begins to keep the claims' status, and when something was lost: too much
/// waited to be reported, or there was nowhere to write it.
async fn restate(reporter: Arc<Reporter>, inventory: Arc<Inventory>, board: Board, driver: Arc<str>) {
    let mut support = reporter.support();
    loop {
        let kept = async {
            let Some(support) = &mut support else { return std::future::pending().await };
            if support.changed().await.is_err() {
                return std::future::pending().await;
            }
            matches!(*support.borrow_and_update(), volmedic_report::Support::Kept)
        };
        let needed = tokio::select! {
            kept = kept => kept,
            () = tokio::time::sleep(OVERFLOW_CHECK) => reporter.take_overflow(),
        };
        if !needed {
            continue;
        }
        let memos = board.lock_ledger().memos();
        let mut unhealthy = HashSet::new();
        for memo in memos {
            let volmedic_health::Subject::Volume(volume) = &memo.subject else { continue };
            if volume.driver != driver {
                continue;
            }
            for claim in inventory.volumes().claims(&volume.handle) {
                reporter.restate(&claim.claim, &ports::standing(&board, &memo.subject), Timestamp::now());
                unhealthy.insert(claim.claim);
            }
        }
        // A recovery may be among what was lost.
        for claim in reporter.reported_unhealthy().into_iter().filter(|claim| !unhealthy.contains(claim)) {
            reporter.restate(&claim, &[], Timestamp::now());
        }
    }
}

/// Not ready while out of touch with the driver, or with the API server, for long.
fn ready_check(driver: &Arc<str>, board: &Board, inventory: &Arc<Inventory>, after: Duration) -> http::Check {
    let (driver, board, inventory) = (driver.clone(), board.clone(), inventory.clone());
    let longest = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    Box::new(move || {
        if let Some(stale) = inventory.staleness().filter(|stale| !inventory.is_ready() || stale.age > after)
        {
            return Err(format!("out of touch with the API server: {}", stale.why));
        }
        let blind = board
            .lock_ledger()
            .beliefs(&volmedic_health::Subject::Backend(driver.clone()))
            .iter()
            .find_map(|(_, belief)| belief.blind_since);
        match blind {
            Some(since) if Timestamp::now().duration_since(since) > longest => {
                Err(format!("driver {driver} has not been seen since {since:.0}"))
            }
            _ => Ok(()),
        }
    })
}
