//! What the kernel reports by itself, so that nobody has to wait for the next round: the mount table changed, a file system
//! found an error in itself, the log speaks of a device.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use volmedic_host::DeviceNumber;
use volmedic_host::block::{Device, Sysfs};
use volmedic_host::fs_errors::FsErrors;
use volmedic_host::helper::Helpers;
use volmedic_host::kernel_log::{Evidence, KernelLog, Subject};
use volmedic_host::mounts::{Mount, Table, Watch};
use volmedic_inventory::node::{Inventory, Key, NodeVolume};
use volmedic_panics::{blocking, caught};
use volmedic_probe::host::Host;

use super::ports::in_use;

/// A kernel that has much to say of a device wakes us no more often than this for each volume.
const APART: Duration = Duration::from_secs(5);
/// File systems are marked no sooner than this after they came, so that a pod that starts is not in the way.
const MARK_EVERY: Duration = Duration::from_secs(5);
/// What the log says within this time is looked up together.
const GATHER: Duration = Duration::from_millis(200);
/// A kernel that says more than we can read is not waited for. Each of these is some hundred lines.
const MOST_BEFORE: usize = 1000;
/// On a node where containers come and go the mount table changes all the time. While that is none of our business it is
/// read more and more rarely, up to this pause; an accident is still reported within two seconds.
const LONGEST_NAP: Duration = Duration::from_millis(400);
/// After an error that should not be.
const PAUSE: Duration = Duration::from_secs(30);

/// The volumes that something happened to.
pub(super) type Disturbed = mpsc::Sender<Vec<Key>>;

/// Wakes the probes of volumes whose mounts changed. Runs until dropped.
pub(super) async fn mounts(
    inventory: Arc<Inventory>,
    host: Arc<Host>,
    of: Option<u32>,
    disturbed: Disturbed,
) {
    let path = of.map_or_else(|| "/proc/self/mountinfo".to_owned(), |pid| format!("/proc/{pid}/mountinfo"));
    let mut known: HashMap<Key, u64> = HashMap::new();
    loop {
        let mut watch = match Watch::at(&path) {
            Ok(watch) => watch,
            Err(error) => {
                tracing::warn!("{error}; changes of mounts are noticed at the next round only");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let mut nap = Duration::ZERO;
        loop {
            let changed = changed_mounts(&inventory, &host, &mut known);
            if changed.is_empty() {
                nap = (nap * 2).clamp(Duration::from_millis(50), LONGEST_NAP);
            } else {
                nap = Duration::ZERO;
                // A kubelet that cleans up takes the directories away, too; what it means to take away is not in use.
                inventory.refresh();
                if disturbed.send(changed).await.is_err() {
                    return;
                }
            }
            tokio::time::sleep(nap).await;
            let quiet_since = Instant::now();
            if let Err(error) = watch.changed().await {
                tracing::warn!("{error}");
                tokio::time::sleep(PAUSE).await;
                break;
            }
            if quiet_since.elapsed() > LONGEST_NAP {
                nap = Duration::ZERO;
            }
            host.mounts_changed();
        }
    }
}

/// The volumes whose mounts are not what they were. New ones are no news: they are checked anyway.
fn changed_mounts(inventory: &Inventory, host: &Host, known: &mut HashMap<Key, u64>) -> Vec<Key> {
    let Ok(table) = host.table() else { return Vec::new() };
    let mut changed = Vec::new();
    let mut now = HashMap::new();
    for volume in inventory.volumes().all() {
        let key = Key { driver: volume.driver.clone(), handle: volume.handle.clone() };
        let print = fingerprint(&table, &volume);
        if known.get(&key).is_some_and(|before| *before != print) {
            changed.push(key.clone());
        }
        now.insert(key, print);
    }
    *known = now;
    changed
}

/// A number for all that the mount table says of a volume.
fn fingerprint(table: &Table, volume: &NodeVolume) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut add = |path: &Path| {
        let mount = table.at(path);
        mount.map(|mount| (mount.id(), mount.device())).hash(&mut hasher);
        mount.map(|mount| (mount.options().as_os_str(), mount.super_options().as_os_str())).hash(&mut hasher);
    };
    for used in in_use(volume) {
        add(&used.target);
        for path in &used.sub_paths {
            add(path);
        }
    }
    if let Some(staging) = &volume.staging {
        add(staging);
    }
    hasher.finish()
}

/// The mount of a volume through which it is known to the kernel.
fn mount_of<'t>(table: &'t Table, volume: &NodeVolume) -> Option<Mount<'t>> {
    in_use(volume).find_map(|used| table.at(&used.target))
}

/// Wakes the probes of volumes whose file systems found an error in themselves. Runs until dropped.
pub(super) async fn fs_errors(
    inventory: Arc<Inventory>,
    host: Arc<Host>,
    helpers: Arc<Helpers>,
    deadline: Duration,
    errors: Arc<FsErrors>,
    disturbed: Disturbed,
) {
    let mut limit = Limit::default();
    let mut refused = HashSet::new();
    let mut rounds = tokio::time::interval(MARK_EVERY);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            reported = errors.next() => match reported {
                Ok(reported) => {
                    let devices: HashSet<DeviceNumber> = reported.into_iter().flat_map(|error| error.devices).collect();
                    // The file system may be read-only now, which is no change of the mount table.
                    host.mounts_changed();
                    let Ok(table) = host.table() else { continue };
                    let keys = keys(&inventory, |volume| {
                        mount_of(&table, volume).is_some_and(|mount| devices.contains(&mount.device()))
                    });
                    if limit.send(keys, &disturbed).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!("{error}");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            _ = rounds.tick() => {
                let (inventory, host, helpers, errors) =
                    (inventory.clone(), host.clone(), helpers.clone(), errors.clone());
                let mut known = std::mem::take(&mut refused);
                let marked = blocking(move || {
                    mark(&inventory, &host, &helpers, deadline, &errors, &mut known);
                    known
                });
                refused = caught(marked).await.unwrap_or_else(|panic| {
                    tracing::error!(panic, "internal error (bug): marking file systems for their errors panicked");
                    HashSet::new()
                });
            }
        }
    }
}

/// Marks the file systems of volumes that came, and forgets those that left.
fn mark(
    inventory: &Inventory,
    host: &Host,
    helpers: &Helpers,
    deadline: Duration,
    errors: &FsErrors,
    refused: &mut HashSet<(DeviceNumber, u32)>,
) {
    let Ok(table) = host.table() else { return };
    let (mut wanted, mut marked, mut there) = (HashSet::new(), HashSet::new(), HashSet::new());
    for volume in inventory.volumes().all() {
        let Some(mount) = mount_of(&table, &volume) else { continue };
        if !FsErrors::may_mark(mount.fs_type()) {
            continue;
        }
        let device = mount.device();
        let place = (device, mount.id());
        there.insert(place);
        // A mark is of the file system, and hundreds of volumes may be directories of one. The mount that it was set through
        // keeps the device's number from being given to another file system.
        if wanted.insert(device) && table.of_device(device).any(|mount| errors.is_marked(mount)) {
            marked.insert(device);
        }
        if marked.contains(&device) || refused.contains(&place) {
            continue;
        }
        // One that cannot be marked is polled like all others; it is not asked again through the same mount.
        match errors.mark(helpers, &format!("mark {device}"), mount, deadline) {
            Ok(()) => drop(marked.insert(device)),
            Err(error) => {
                tracing::debug!(driver = &*volume.driver, handle = &*volume.handle, "{error}");
                refused.insert(place);
            }
        }
    }
    refused.retain(|place| there.contains(place));
    errors.keep(|device| wanted.contains(&device));
}

/// Collects what the kernel says as evidence, and wakes the probes of the volumes that it speaks of. Runs until
/// dropped.
pub(super) async fn kernel_log(
    inventory: Arc<Inventory>,
    host: Arc<Host>,
    mut log: KernelLog,
    evidence: Arc<Mutex<Evidence>>,
    disturbed: Disturbed,
) {
    let mut limit = Limit::default();
    loop {
        let records = match log.next().await {
            Ok(records) => records,
            Err(error) => {
                tracing::warn!("{error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let about: HashSet<Subject> = {
            let mut evidence = evidence.lock();
            records.iter().flat_map(|record| evidence.add(record)).collect()
        };
        if !about.is_empty() {
            // As above: the log may say that a file system is read-only now.
            host.mounts_changed();
            let Ok(table) = host.table() else { continue };
            let keys = keys(&inventory, |volume| is_about(&about, &table, volume));
            if limit.send(keys, &disturbed).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(GATHER).await;
    }
}

/// Collects what the kernel said before us. That is no news, and must be known before the first volume is checked: of
/// what was said about a device, only what comes after that look is about the volume.
pub(super) fn kernel_log_so_far(log: &mut KernelLog, evidence: &Mutex<Evidence>) {
    for _ in 0..MOST_BEFORE {
        match log.so_far() {
            Ok(records) if records.is_empty() => return,
            Ok(records) => {
                let mut evidence = evidence.lock();
                for record in &records {
                    evidence.add(record);
                }
            }
            Err(error) => return tracing::warn!("{error}"),
        }
    }
}

fn is_about(about: &HashSet<Subject>, table: &Table, volume: &NodeVolume) -> bool {
    let Some(mount) = mount_of(table, volume) else { return false };
    if about.contains(&Subject::Number(mount.device())) {
        return true;
    }
    let source = mount.source().to_string_lossy();
    let server = source.split_once(':').map(|(server, _)| server);
    if server.is_some_and(|server| about.contains(&Subject::Server(server.into()))) {
        return true;
    }
    let stack = Sysfs::at("/sys").stack(mount.device()).unwrap_or_default();
    stack.iter().flat_map(Device::names).any(|name| about.contains(&Subject::Device(name.into())))
}

fn keys(inventory: &Inventory, concerned: impl Fn(&NodeVolume) -> bool) -> Vec<Key> {
    let all = inventory.volumes().all();
    let concerned = all.iter().filter(|volume| concerned(volume));
    concerned.map(|volume| Key { driver: volume.driver.clone(), handle: volume.handle.clone() }).collect()
}

/// What was woken for lately is not woken for again.
#[derive(Debug, Default)]
struct Limit(HashMap<Key, Instant>);

impl Limit {
    async fn send(&mut self, mut keys: Vec<Key>, disturbed: &Disturbed) -> Result<(), ()> {
        let now = Instant::now();
        self.0.retain(|_, at| now.duration_since(*at) < APART);
        keys.retain(|key| !self.0.contains_key(key));
        self.0.extend(keys.iter().map(|key| (key.clone(), now)));
        if keys.is_empty() { Ok(()) } else { disturbed.send(keys).await.map_err(drop) }
    }
}
