//! The drivers on this node, each with its connection: those given on the command line, or all that are registered with
//! the kubelet.

mod registration;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use volmedic_csi::{Address, Driver, Metrics, Protocol, Settings};
use volmedic_panics::caught;

use registration::Registered;

/// How often the directory of registrations is read: one readdir of a few names.
const READ_EVERY: Duration = Duration::from_secs(2);
/// A socket that does not say who it is is asked again after this long, and ever more rarely.
const ASK_AGAIN: Duration = Duration::from_secs(5);
const ASK_AGAIN_AT_MOST: Duration = Duration::from_mins(5);
/// More plugins than this are not asked.
const MOST: usize = 128;

/// Connections by the driver's name.
pub(crate) type Drivers = Arc<BTreeMap<Arc<str>, Driver>>;

/// Finds drivers and keeps them; a driver once found stays, since it may only be restarting.
#[derive(Debug)]
pub(crate) struct Sockets {
    drivers: watch::Sender<Drivers>,
    deadline: Duration,
    metrics: Metrics,
}

impl Sockets {
    pub(crate) fn new(deadline: Duration, metrics: Metrics) -> Self {
        Self { drivers: watch::Sender::default(), deadline, metrics }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Drivers> {
        self.drivers.subscribe()
    }

    /// Connects to these. Runs until dropped; a driver is known as soon as it says its name.
    pub(crate) async fn given(self, addresses: Vec<Address>) {
        let mut waiting = JoinSet::new();
        for address in addresses {
            let driver = self.connect(address.clone(), None);
            waiting.spawn(async move {
                loop {
                    // Why it is not ready is said by the keeper of the connection.
                    if let Ok(session) = driver.ready_within(Duration::from_mins(1)).await {
                        return (address, Arc::<str>::from(session.driver()), driver);
                    }
                }
            });
        }
        while let Some(found) = waiting.join_next().await {
            let Ok((address, name, driver)) = found else { continue };
            if self.drivers.borrow().contains_key(&name) {
                tracing::warn!(
                    driver = &*name,
                    "{address} is another socket of the same driver; it is not used"
                );
            } else {
                self.add(name, driver);
            }
        }
        std::future::pending::<()>().await;
    }

    /// Connects to all drivers that have a registration socket in this directory. Runs until dropped.
    pub(crate) async fn found_in(self, directory: PathBuf) {
        let mut asked: HashMap<PathBuf, Asked> = HashMap::new();
        let mut endpoints: BTreeMap<Arc<str>, String> = BTreeMap::new();
        let mut silent = Saying::default();
        loop {
            let listing = tokio::task::spawn_blocking({
                let directory = directory.clone();
                move || sockets_in(&directory)
            });
            let listed = listing.await.map_err(std::io::Error::other).and_then(|listed| listed);
            match listed {
                Err(error) => silent.say(format!(
                    "cannot search for drivers in {}: {error}; volumes are only checked on the host",
                    directory.display()
                )),
                Ok(sockets) => {
                    silent = Saying::default();
                    asked.retain(|path, _| sockets.iter().any(|(socket, _)| socket == path));
                    self.ask(&mut asked, &sockets, &mut endpoints).await;
                }
            }
            tokio::time::sleep(READ_EVERY).await;
        }
    }

    /// Asks those sockets that have not said yet who they are, all at the same time: one that does not answer delays nobody.
    async fn ask(
        &self,
        asked: &mut HashMap<PathBuf, Asked>,
        sockets: &BTreeSet<(PathBuf, u64)>,
        endpoints: &mut BTreeMap<Arc<str>, String>,
    ) {
        let now = Instant::now();
        let mut asking = JoinSet::new();
        for (path, inode) in sockets {
            let due = asked.get(path).is_none_or(|known| known.inode != *inode || known.due(now));
            if due {
                let (path, inode, deadline) = (path.clone(), *inode, self.deadline);
                asking.spawn(async move {
                    let asked = caught(registration::ask(&path, deadline)).await;
                    let answer =
                        asked.unwrap_or_else(|panic| Err(anyhow::anyhow!("internal error (bug): {panic}")));
                    (path, inode, answer)
                });
            }
        }
        while let Some(answered) = asking.join_next().await {
            let Ok((path, inode, answer)) = answered else { continue };
            let known = asked.entry(path).or_insert_with(|| Asked::new(inode));
            if known.inode != inode {
                *known = Asked::new(inode);
            }
            match answer {
                Ok(registered) => {
                    known.answered = true;
                    let Some(Registered { name, endpoint }) = registered else { continue };
                    let name: Arc<str> = name.into();
                    if endpoints.get(&name) != Some(&endpoint) {
                        self.found(&name, &endpoint);
                        endpoints.insert(name, endpoint);
                    }
                }
                Err(error) => known.failed(Instant::now(), &error),
            }
        }
    }

    fn found(&self, name: &Arc<str>, endpoint: &str) {
        match endpoint.parse::<Address>() {
            Ok(address) => {
                tracing::info!(driver = &**name, "found the driver's node plugin at {address}");
                let driver = self.connect(address, Some(name.to_string()));
                self.add(name.clone(), driver);
            }
            Err(error) => {
                tracing::warn!(
                    driver = &**name,
                    "the driver is registered at {endpoint:?}, which is no socket: {error}"
                );
            }
        }
    }

    fn connect(&self, address: Address, expected_name: Option<String>) -> Driver {
        let settings = Settings {
            protocol: Protocol::Csi { controller: false, node: true },
            deadline: self.deadline,
            expected_name,
            ..Settings::default()
        };
        Driver::start(address, settings, self.metrics.clone())
    }

    fn add(&self, name: Arc<str>, driver: Driver) {
        self.drivers.send_modify(|drivers| {
            let mut all = BTreeMap::clone(drivers);
            all.insert(name, driver);
            *drivers = Arc::new(all);
        });
    }
}

/// A socket that was asked who it is.
#[derive(Debug)]
struct Asked {
    inode: u64,
    answered: bool,
    again: Instant,
    pause: Duration,
    said: Saying,
}

impl Asked {
    fn new(inode: u64) -> Self {
        Self { inode, answered: false, again: Instant::now(), pause: ASK_AGAIN, said: Saying::default() }
    }

    fn due(&self, now: Instant) -> bool {
        !self.answered && self.again <= now
    }

    fn failed(&mut self, now: Instant, error: &anyhow::Error) {
        self.again = now + self.pause;
        self.pause = (self.pause * 2).min(ASK_AGAIN_AT_MOST);
        self.said.say(format!("{error:#}; it is asked again"));
    }
}

/// Says a thing once, and again only when it is another thing.
#[derive(Debug, Default)]
struct Saying(Option<String>);

impl Saying {
    fn say(&mut self, sentence: String) {
        if self.0.as_ref() != Some(&sentence) {
            tracing::warn!("{sentence}");
            self.0 = Some(sentence);
        }
    }
}

/// The sockets in a directory, each with its inode: a driver that restarts makes a new one. In order, so that of too many
/// it is always the same that are left out.
fn sockets_in(directory: &Path) -> std::io::Result<BTreeSet<(PathBuf, u64)>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(directory)?.take(MOST * 8) {
        let entry = entry?;
        // Not followed: a link may lead anywhere.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.file_type().is_socket() {
            found.insert((entry.path(), metadata.ino()));
        }
    }
    while found.len() > MOST {
        found.pop_last();
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
