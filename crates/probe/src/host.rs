//! Checks volumes on the host itself, with no help from their drivers.
//!
//! [`Host::look`] compares a volume with what it is [`Expected`] to be: the mount table, the options of its file
//! system, the block device under it, and, through a helper process, the volume itself. Each check is a small module
//! that judges facts and what was remembered; this one gathers the facts. A check that could not be done leaves what it
//! found before alone.
//!
//! What must hold: this process touches no path inside of a volume, every wait has an end, and what may be kubelet at
//! work is seen twice before it is reported.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use volmedic_health::{NotProbed, Sight, WhyKind};
use volmedic_host::Off;
use volmedic_host::block::Sysfs;
use volmedic_host::fuse::Connections;
use volmedic_host::helper::Helpers;
use volmedic_host::kernel_log::Evidence;
use volmedic_host::mounts::{Changes, Mount, Table};

mod ask;
mod back_off;
mod checks;
mod counters;
mod device;
mod devices;
mod directory;
mod evidence;
mod examine;
mod expected;
mod findings;
mod fullness;
mod memory;
mod mounted;
mod reachable;
mod stalled;
mod text;
mod witness;
mod writable;

pub use checks::CheckState;
pub use devices::Layer;
pub use expected::{Expected, Key, Mode, Target};
pub use memory::{Baseline, Disk, Errors, Full, Place};
pub use volmedic_health::fullness::Thresholds;
pub use witness::Witness;

use devices::Devices;
use memory::Memory;

use crate::Usage;

/// How the checks are done.
#[derive(Debug, Clone)]
pub struct Settings {
    /// For one call to a volume. A healthy one answers within milliseconds, a busy one within a second.
    pub deadline: Duration,
    /// How many entries of the volume's directory are read.
    pub entries: u32,
    /// Whether the first and last block of a raw device are read; their bytes go nowhere.
    pub read_devices: bool,
    pub thresholds: Thresholds,
    /// What the mount table seems to say must be so for this long before it is reported.
    pub confirm: Duration,
    /// Requests that wait at a device which answers none for this long are a hang.
    pub stalled: Duration,
    /// How long a mount table is used if the kernel reports no change of it. What it does not report as such is that a file
    /// system became read-only by itself, so this is how late that is seen.
    pub table_age: Duration,
    /// Whose mount table is read: our own, or that of another process, such as 1 in the host's PID namespace.
    pub mounts_of: Option<u32>,
    /// A volume whose disk keeps failing in the same way is accessed at least this often.
    pub back_off: Duration,
    /// Where the host's sysfs is.
    pub sysfs: PathBuf,
    /// Where the host's root directory is, for volumes that are directories of the host. `None` if it is out of reach.
    pub host_root: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(5),
            entries: 64,
            read_devices: true,
            thresholds: Thresholds::default(),
            confirm: Duration::from_secs(1),
            stalled: Duration::from_secs(30),
            table_age: Duration::from_secs(5),
            mounts_of: None,
            back_off: Duration::from_mins(1),
            sysfs: "/sys".into(),
            host_root: None,
        }
    }
}

/// How long a mount table is used although it has changed, or may have. On a node where containers come and go all the time
/// it would be read for each look otherwise.
const CHANGED_AGE: Duration = Duration::from_millis(200);

/// What one look came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    pub sight: Sight,
    /// How full it is, if it could be asked.
    pub usage: Option<Usage>,
    /// Something must be seen again before it is reported: look again after this time, with what is expected then.
    pub again: Option<Duration>,
    /// Why the volume itself gave no answer although nothing seems wrong with it. Then a sight that finds nothing is no
    /// evidence that the volume is healthy: only its surroundings were checked.
    pub unprobed: Option<(NotProbed, String)>,
}

impl Looked {
    fn not_seen(kind: WhyKind, why: &str) -> Self {
        let unprobed = Some((NotProbed::ProbeFailed, why.to_owned()));
        Self { sight: Sight::not_seen(kind, why), usage: None, again: None, unprobed }
    }
}

/// The mount table as it was read last.
#[derive(Debug, Default)]
struct Cached {
    table: Option<(Instant, Arc<Table>)>,
    /// Since then.
    is_changed: bool,
    /// `None` if the kernel's reports cannot be had.
    changes: Option<Changes>,
}

/// The checks of this host, and what they remember.
#[derive(Debug)]
pub struct Host {
    helpers: Arc<Helpers>,
    settings: Settings,
    sysfs: Sysfs,
    connections: Result<Connections, Off>,
    evidence: Result<Arc<Mutex<Evidence>>, Off>,
    table: Mutex<Cached>,
    memories: Mutex<HashMap<Key, Arc<Mutex<Memory>>>>,
    /// What speaks for what is wrong, of volumes with which something is. Apart from the memories, which are locked while
    /// a volume is checked.
    witnesses: Mutex<HashMap<Key, Vec<String>>>,
    /// The volumes whose file system counts errors that cannot be read, and what is mounted there.
    uncounted: Mutex<BTreeMap<Key, String>>,
    /// The block devices under each volume that has any.
    devices: Mutex<HashMap<Key, Devices>>,
}

impl Host {
    pub fn new(helpers: Arc<Helpers>, settings: Settings) -> Self {
        let sysfs = Sysfs::at(&settings.sysfs);
        let connections = Connections::open_at(settings.sysfs.join("fs/fuse/connections"));
        Self {
            helpers,
            sysfs,
            connections,
            evidence: Err(Off {
                what: "the kernel log is not read",
                why: "nobody reads it for these checks".to_owned(),
                remedy: "hand over what a reader of it collects",
            }),
            table: Mutex::default(),
            memories: Mutex::default(),
            witnesses: Mutex::default(),
            uncounted: Mutex::default(),
            devices: Mutex::default(),
            settings,
        }
    }

    /// With what somebody collects from the kernel's log, or why nobody can.
    #[must_use]
    pub fn with_evidence(self, evidence: Result<Arc<Mutex<Evidence>>, Off>) -> Self {
        Self { evidence, ..self }
    }

    pub fn helpers(&self) -> &Helpers {
        &self.helpers
    }

    /// Checks one volume. Blocks until its helper answered or its deadline passed, so from an async task it goes
    /// through a blocking thread.
    pub fn look(&self, expected: &Expected) -> Looked {
        if expected.targets.is_empty() {
            return Looked::not_seen(WhyKind::NoAnswer, "no pod uses the volume now");
        }
        let memory = Arc::clone(self.memories.lock().entry(expected.key()).or_default());
        let Some(mut memory) = memory.try_lock() else {
            return Looked::not_seen(WhyKind::NoAnswer, "another probe of the volume is under way");
        };
        match self.table() {
            Ok(table) => self.examine(expected, &table, &mut memory),
            Err(error) => Looked::not_seen(WhyKind::Failed, &error.to_string()),
        }
    }

    /// The mount table, read again only after it has changed or has become too old.
    pub fn table(&self) -> io::Result<Arc<Table>> {
        let mut cached = self.table.lock();
        cached.is_changed |= cached.changes.as_ref().is_none_or(Changes::any);
        let longest = self.settings.table_age;
        let age = if cached.is_changed { longest.min(CHANGED_AGE) } else { longest };
        if let Some((read, table)) = &cached.table
            && read.elapsed() < age
        {
            return Ok(Arc::clone(table));
        }
        if cached.changes.is_none() {
            cached.changes = Changes::of(self.settings.mounts_of).ok();
        }
        // The time before it was read: no look may take it for newer than it is.
        let now = Instant::now();
        let table = Arc::new(match self.settings.mounts_of {
            None => Table::read()?,
            Some(process) => Table::read_of(process)?,
        });
        cached.table = Some((now, Arc::clone(&table)));
        cached.is_changed = false;
        Ok(table)
    }

    /// Something may have changed in the mount table, perhaps what the kernel does not report: the next look reads it again.
    pub fn mounts_changed(&self) {
        self.table.lock().table = None;
    }

    /// What speaks for what was last found wrong with a volume, in a few lines; nothing if nothing is wrong.
    pub fn evidence(&self, key: &Key) -> Vec<String> {
        self.witnesses.lock().get(key).cloned().unwrap_or_default()
    }

    fn note_witness(&self, expected: &Expected, witness: &Witness) {
        let mut witnesses = self.witnesses.lock();
        if witness.lines.is_empty() {
            witnesses.remove(&expected.key());
        } else if witnesses.get(&expected.key()) != Some(&witness.lines) {
            witnesses.insert(expected.key(), witness.lines.clone());
        }
    }

    /// The block devices under a volume when it was last probed, by name; none if it is on no block device.
    pub fn devices(&self, key: &Key) -> Box<[(Layer, String)]> {
        self.devices.lock().get(key).cloned().unwrap_or_default()
    }

    fn note_devices(&self, expected: &Expected, found: Devices) {
        let mut devices = self.devices.lock();
        if found.is_empty() {
            devices.remove(&expected.key());
        } else if devices.get(&expected.key()) != Some(&found) {
            devices.insert(expected.key(), found);
        }
    }

    /// `mount` is of a file system whose counters could not be found.
    fn note_uncounted(&self, expected: &Expected, mount: Option<Mount<'_>>) {
        let mut uncounted = self.uncounted.lock();
        match mount {
            Some(mount) => {
                let [fs_type, source] =
                    [mount.fs_type(), mount.source()].map(|name| text::name(name.display()));
                uncounted.insert(expected.key(), format!("the {fs_type} on {source}"));
            }
            None => drop(uncounted.remove(&expected.key())),
        }
    }

    /// What must outlive a restart. A volume that is being checked right now is left out.
    pub fn baselines(&self) -> Vec<(Key, Baseline)> {
        let memories: Vec<_> =
            self.memories.lock().iter().map(|(key, memory)| (key.clone(), Arc::clone(memory))).collect();
        let kept = memories.into_iter().filter_map(|(key, memory)| {
            let baseline = memory.try_lock()?.baseline.clone();
            Some((key, baseline))
        });
        kept.collect()
    }

    /// Goes on from what was remembered before a restart.
    pub fn recall(&self, baselines: impl IntoIterator<Item = (Key, Baseline)>) {
        let (mut memories, mut witnesses) = (self.memories.lock(), self.witnesses.lock());
        for (key, baseline) in baselines {
            if !baseline.witness.lines.is_empty() {
                witnesses.insert(key.clone(), baseline.witness.lines.clone());
            }
            memories.insert(key, Arc::new(Mutex::new(Memory::from_baseline(baseline))));
        }
    }

    /// Forgets the volumes that are not on this host any more. One that comes back is seen for the first time.
    pub fn keep(&self, wanted: impl Fn(&Key) -> bool) {
        self.memories.lock().retain(|key, _| wanted(key));
        self.witnesses.lock().retain(|key, _| wanted(key));
        self.uncounted.lock().retain(|key, _| wanted(key));
        self.devices.lock().retain(|key, _| wanted(key));
    }
}
