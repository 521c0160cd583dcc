//! The agent role: on a node, about every volume of every pod there, on every pod.

mod args;
mod coverage;
mod driver_eyes;
mod fresh;
mod host_eyes;
mod journal;
mod memory;
mod node_report;
mod page;
mod pipes;
mod ports;
mod relay;
mod sockets;
mod usage;
mod view;
mod wakes;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use volmedic_health::{Ledger, Policy, Vantage};
use volmedic_host::fs_errors::FsErrors;
use volmedic_host::helper::{Helpers, Limits};
use volmedic_host::kernel_log::{KernelLog, Start};
use volmedic_inventory::node::{Inventory, Options};
use volmedic_monitor::Board;
use volmedic_probe::host::{Baseline, Host, Key, Thresholds};
use volmedic_report::{NodeReporter, NodeReporterOptions, Reporter};

pub use args::Args;
use args::{Config, NodeReport};
use coverage::Evidence;
use host_eyes::Eyes;
use journal::Journal;
use memory::{Memory, Shelf};
use pipes::{Common, Pipes};
use relay::{Relays, Surroundings};
use sockets::Sockets;
use usage::Usages;

use volmedic_runtime::cluster;
use volmedic_runtime::page::Chronicle;
use volmedic_runtime::process::{self, Process};

/// What is still to be reported when a signal comes gets this long.
const FLUSH: Duration = Duration::from_secs(5);
/// Wake-ups that may wait for the pipes.
const WAKES: usize = 64;
/// Series of single volumes in one scrape.
const SICK_SERIES: usize = 1000;
/// Threads beside those of the looks: for the memory, the kubelet's directories, and the kernel.
const MORE_THREADS: usize = 16;

pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let config = args.resolve();
    let mut builder = Builder::new_current_thread();
    builder
        .max_blocking_threads(config.helpers + MORE_THREADS)
        // Threads that wait cost memory; a new one is started in no time.
        .thread_keep_alive(Duration::from_secs(1));
    Ok(process::run_on(&mut builder, serve(config))?)
}

/// Runs until a signal comes.
async fn serve(config: Config) -> anyhow::Result<()> {
    let mut process = Process::start()?;
    let client = cluster::client(config.kubeconfig.as_ref()).await?;
    let mut registry = Registry::default();
    let csi_metrics = volmedic_csi::Metrics::register(&mut registry);
    let inventory_metrics = volmedic_inventory::Metrics::register(&mut registry);
    let report_metrics = volmedic_report::Metrics::register(&mut registry);
    let relay_metrics = volmedic_heal::relay::Metrics::default();
    relay_metrics.register(&mut registry);
    let picture = view::Picture::default();
    volmedic_report::register_view(&mut registry, SICK_SERIES, picture.clone());
    volmedic_report::register_agent(&mut registry, {
        let picture = picture.clone();
        move || picture.agent()
    });
    process.serve_http(&config.http, registry, &client).await?;
    let page = process.serve_page(&config.page, "agent", page::CHANGES).await?;
    let mut tasks = JoinSet::new();
    let options = Options::of_this_machine(&config.node, config.kubelet_root.clone());
    tracing::info!(node = config.node, "the kubelet's directory is {}", options.kubelet_root.display());
    let inventory = Arc::new(Inventory::start(&client, &options, &inventory_metrics));
    process.health.set_ready(view::ready_check(&inventory));

    let helpers = Arc::new(Helpers::new(Limits { running: config.helpers, stuck: config.stuck_helpers }));
    let (disturbed, disturbances) = mpsc::channel(WAKES);
    let evidence = Arc::new(Mutex::default());
    let mut log = KernelLog::open(Start::Oldest);
    if let Ok(log) = &mut log {
        wakes::kernel_log_so_far(log, &evidence);
    }
    let known = log.as_ref().map(|_| evidence.clone()).map_err(Clone::clone);
    let host = Arc::new(Host::new(helpers.clone(), checks(&config)).with_evidence(known));
    let fs_errors = FsErrors::open().map(Arc::new);
    for off in host.checks().into_iter().filter_map(|check| Some((check.name, check.off?))) {
        tracing::warn!(check = off.0, "this check is off: {}", off.1);
    }
    if let Err(off) = &fs_errors {
        tracing::warn!(check = "fs-errors", "this check is off: {off}");
    }

    let more_checks =
        vec![node_report::state("fs-errors", fs_errors.as_ref().err().map(ToString::to_string))];

    let remind_every =
        config.remind_every.map(|every| SignedDuration::try_from(every).unwrap_or(SignedDuration::MAX));
    let board = Board::new(Ledger::new(Policy { remind_every, ..Policy::default() }));
    let usages = Arc::new(Usages::default());
    picture.attach(view::Source {
        node: config.node.as_str().into(),
        board: board.clone(),
        inventory: inventory.clone(),
        host: host.clone(),
        more_checks: vec![("fs-errors", fs_errors.is_ok())],
        usages: usages.clone(),
        show_usage: config.usage_metrics,
    });

    tokio::select! {
        () = ready(&inventory) => {}
        () = process.signals.next() => return Ok(()),
    }

    let shelf = open_shelf(&config);
    let memory = shelf.as_ref().map(recall).unwrap_or_default();
    let unsent = memory.unsent.clone();
    let baselines = restore(&board, &host, memory);
    let instance = volmedic_lease::hostname().unwrap_or_default();
    let mut report = volmedic_report::Options::of_agent(&config.node, &instance);
    report.limits.qps = config.qps;
    report.limits.burst = config.burst;
    let reporter = Arc::new(Reporter::start(&client, &report, report_metrics.clone()));
    let names = inventory.clone();
    let known_as = Arc::new(move |subject: &_, object: &_| ports::known_as(&names, subject, object));
    let journal = Journal::new(
        board.clone(),
        reporter,
        shelf,
        unsent,
        known_as,
        keeper_of_baselines(host.clone(), inventory.clone(), baselines),
    );

    let (watched, kernel) = (inventory.clone(), disturbed.clone());
    tasks.spawn(wakes::mounts(watched.clone(), host.clone(), config.mounts_of, disturbed.clone()));
    if let Ok(log) = log {
        tasks.spawn(wakes::kernel_log(watched.clone(), host.clone(), log, evidence, kernel));
    }
    let deaf = fs_errors.as_ref().err().map(|off| ("fs-errors", off.to_string())).into_iter().collect();
    if let Ok(errors) = fs_errors {
        let deadline = config.look_deadline;
        tasks.spawn(wakes::fs_errors(watched, host.clone(), helpers, deadline, errors, disturbed));
    }
    let sockets = Sockets::new(config.look_deadline, csi_metrics.clone());
    let drivers = sockets.watch();
    let evidence = Arc::new(Evidence::new(coverage::within(config.look_every, config.look_deadline)));
    let (ask, asked) = mpsc::channel(WAKES);
    if config.node_report == NodeReport::Auto {
        let source = node_report::Source {
            board: board.clone(),
            inventory: inventory.clone(),
            host: host.clone(),
            more_checks,
            evidence: evidence.clone(),
            registered: config.addresses.is_empty().then(|| drivers.clone()),
        };
        let options = NodeReporterOptions::new(&config.node, &volmedic_lease::namespace(""));
        let reporter = NodeReporter::start(&client, &options);
        let (requests, answers) = (reporter.probe_requests(), reporter.probe_answers());
        tasks.spawn(fresh::answer(requests, answers, ask));
        let patience = config.look_every + config.look_deadline;
        tasks.spawn(node_report::keep(source, reporter, journal.clone(), patience));
    }
    let around = Surroundings {
        client: &client,
        node: &config.node,
        kubelet_root: &options.kubelet_root,
        calls: csi_metrics.clone(),
        metrics: relay_metrics,
    };
    let relays = Relays::start(config.relaying.as_ref(), &around);
    if let Some(page) = page {
        let chronicle = Arc::new(Chronicle::new(board.clone(), page.history().clone()));
        journal.show_to(page::teller(&chronicle, &inventory));
        page.show(page::Source {
            node: config.node.as_str().into(),
            inventory: inventory.clone(),
            host: host.clone(),
            deaf,
            drivers: drivers.clone(),
            metrics: csi_metrics,
            chronicle,
        });
    }
    if config.addresses.is_empty() {
        tasks.spawn(sockets.found_in(options.kubelet_root.join("plugins_registry")));
    } else {
        tasks.spawn(sockets.given(config.addresses.clone()));
    }

    let eyes = Eyes {
        inventory: inventory.clone(),
        host,
        places: Semaphore::new(config.helpers),
        usages,
        counts: report_metrics.probes.clone(),
        evidence,
        board: board.clone(),
        vantage: Vantage::Host(config.node.as_str().into()),
        removed: host_eyes::Removed::default(),
    };
    let common = Common {
        node: config.node.as_str().into(),
        inventory: inventory.clone(),
        board,
        journal: journal.clone(),
        eyes: Arc::new(eyes),
        settings: volmedic_monitor::Settings {
            list_every: config.look_every,
            look_every: config.look_every,
            workers: config.workers,
        },
        kubelet: config.kubelet_health,
        usage: config.usage_metrics,
    };
    let pipes = Pipes::new(common, drivers);
    tracing::info!(node = config.node, volumes = inventory.volumes().len(), "watching");
    tokio::select! {
        () = pipes.run(disturbances, asked) => {}
        () = journal.run() => {}
        () = process.signals.next() => {}
    }
    drop(tasks);
    let (left, ()) = tokio::join!(journal.end(FLUSH), relays.stop());
    if left > 0 {
        tracing::warn!("{left} reports could not be sent before the end; the next start sends them");
    }
    Ok(())
}

fn checks(config: &Config) -> volmedic_probe::host::Settings {
    let share = |percent: u8| f64::from(percent) / 100.0;
    volmedic_probe::host::Settings {
        deadline: config.look_deadline,
        thresholds: Thresholds {
            bytes: share(config.full_bytes),
            inodes: share(config.full_inodes),
            ..Thresholds::default()
        },
        mounts_of: config.mounts_of,
        host_root: config.host_root.clone(),
        ..volmedic_probe::host::Settings::default()
    }
}

/// Waits for the inventory for as long as it takes, and says what it waits for.
async fn ready(inventory: &Inventory) {
    let mut said = None;
    loop {
        if tokio::time::timeout(Duration::from_secs(5), inventory.ready()).await.is_ok() {
            break;
        }
        let why = inventory.staleness().map(|stale| stale.why.clone());
        if why != said {
            tracing::info!(
                "waiting for what runs on this node: {}",
                why.as_deref().unwrap_or("it is being read")
            );
            said = why;
        }
    }
    if let Some(without) = inventory.without_persistent_volumes() {
        tracing::warn!("PersistentVolumes cannot be read: {}", without.why);
    }
}

/// Nothing is remembered where there is no place for it: then a restart repeats what is wrong.
fn open_shelf(config: &Config) -> Option<Shelf> {
    match Shelf::open(&config.state_dir, &config.node) {
        Ok(shelf) => Some(shelf),
        Err(error) => {
            tracing::warn!(
                "reports cannot be kept in {}: {error}; a restart will repeat them; check --state-dir",
                config.state_dir.display()
            );
            None
        }
    }
}

fn recall(shelf: &Shelf) -> Memory {
    let (memory, trouble) = shelf.load();
    if let Some(trouble) = trouble {
        tracing::warn!("{trouble}");
    }
    if let Err(error) = shelf.reserve() {
        tracing::warn!(
            "no place could be reserved in {}: {error}; when the disk is full, reports cannot be kept; check --state-dir",
            shelf.place().display()
        );
    }
    memory
}

type Baselines = BTreeMap<Key, Baseline>;

/// Goes on from what was remembered.
fn restore(board: &Board, host: &Host, memory: Memory) -> Baselines {
    let Memory { memos, audiences, unsent: _, baselines } = memory;
    for memo in memos {
        board.lock_ledger().recall(memo);
    }
    for (volume, reported) in audiences {
        for object in reported {
            board.recall_audience(&volume, object);
        }
    }
    let kept: Baselines = baselines.into_iter().collect();
    host.recall(kept.clone());
    kept
}

/// The list leaves out volumes that are being checked; of those the last that was known is kept.
fn keeper_of_baselines(host: Arc<Host>, inventory: Arc<Inventory>, known: Baselines) -> journal::Baselines {
    let known = Mutex::new(known);
    Box::new(move || {
        let there = |key: &Key| inventory.volumes().get(&key.driver, &key.handle).is_some();
        host.keep(there);
        let mut known = known.lock();
        known.extend(host.baselines());
        known.retain(|key, _| there(key));
        known.iter().map(|(key, baseline)| (key.clone(), baseline.clone())).collect()
    })
}
