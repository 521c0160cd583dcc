//! A simulated CSI controller plugin: as many volumes as asked for, no disks, and whatever health they are set to
//! have. For tests of what talks to drivers, and for benchmarks; the reference driver has the real volumes.

mod service;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Code;
use volmedic_proto::csi::controller_server::ControllerServer;
use volmedic_proto::csi::identity_server::IdentityServer;

/// Capability numbers as they are on the wire.
pub mod capability {
    pub const LIST_VOLUMES: i32 = 3;
    pub const VOLUME_CONDITION: i32 = 11;
    pub const GET_VOLUME: i32 = 12;
    pub const GET_VOLUME_HEALTH: i32 = 16;
    pub const LIST_VOLUME_HEALTH: i32 = 17;
}

/// One adverse condition, as the newer dialect has it.
#[derive(Debug, Clone)]
pub struct Adverse {
    pub status: i32,
    pub reason: String,
    pub message: String,
}

/// How the simulated driver behaves right now.
#[derive(Debug, Default)]
pub struct Behaviour {
    /// What it says it can do.
    pub capabilities: Vec<i32>,
    /// Volumes by id, each with what is wrong with it.
    pub volumes: BTreeMap<String, Vec<Adverse>>,
    /// Questions about these volumes are never answered.
    pub hung: Vec<String>,
    /// Every question is answered with this instead.
    pub failing: Option<(Code, String)>,
    /// Every answer takes this long.
    pub delay: Duration,
    /// How often each call came, by its name.
    pub calls: HashMap<&'static str, u64>,
    /// The lists that were begun, oldest first; only the latest are kept. Meant for one caller at a time.
    pub walks: VecDeque<Walk>,
}

/// One list, from the question for its first page to the answer with its last.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    pub began: Instant,
    /// Absent until the last page was given out.
    pub took: Option<Duration>,
}

impl Walk {
    /// Kept at most.
    const MOST: usize = 1000;
}

impl Behaviour {
    fn walked(&mut self, first: bool, last: bool, at: Instant) {
        if first {
            if self.walks.len() == Walk::MOST {
                self.walks.pop_front();
            }
            self.walks.push_back(Walk { began: at, took: None });
        }
        if let (true, Some(walk)) = (last, self.walks.back_mut()) {
            walk.took = Some(walk.began.elapsed());
        }
    }
}

/// A simulated driver that listens on a socket until it is stopped or dropped. Its behaviour outlives a restart.
#[derive(Debug)]
pub struct Sim {
    name: String,
    socket: PathBuf,
    behaviour: Arc<Mutex<Behaviour>>,
    server: Option<Server>,
}

/// The thread that serves. With it end all its connections, which a server task alone would leave open.
#[derive(Debug)]
struct Server {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Sim {
    /// Starts to listen. The socket's directory must exist.
    pub fn start(socket: &Path, name: &str, capabilities: &[i32]) -> io::Result<Self> {
        let behaviour = Behaviour { capabilities: capabilities.to_vec(), ..Behaviour::default() };
        let behaviour = Arc::new(Mutex::new(behaviour));
        let mut sim = Self { name: name.into(), socket: socket.into(), behaviour, server: None };
        sim.restart()?;
        Ok(sim)
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// To read and change how it behaves.
    pub fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add_volumes(&self, ids: impl IntoIterator<Item = String>) {
        self.behaviour().volumes.extend(ids.into_iter().map(|id| (id, Vec::new())));
    }

    pub fn remove_volume(&self, id: &str) {
        self.behaviour().volumes.remove(id);
    }

    /// Gives a volume one thing that is wrong, instead of what was.
    pub fn harm(&self, id: &str, status: i32, reason: &str, message: &str) {
        let adverse = Adverse { status, reason: reason.into(), message: message.into() };
        self.behaviour().volumes.insert(id.into(), vec![adverse]);
    }

    pub fn repair(&self, id: &str) {
        self.behaviour().volumes.insert(id.into(), Vec::new());
    }

    /// How often a call came.
    pub fn calls(&self, name: &str) -> u64 {
        self.behaviour().calls.get(name).copied().unwrap_or_default()
    }

    /// Closes the socket and every connection, as a driver that crashes does.
    pub fn stop(&mut self) {
        if let Some(Server { stop, thread }) = self.server.take() {
            // Either fails only if the thread has ended already.
            let _ = stop.send(());
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }

    /// Listens again, on the same socket and with the same behaviour.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(&self.socket)?
        };
        let service = service::Service { name: self.name.clone(), behaviour: self.behaviour.clone() };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let server = tonic::transport::Server::builder()
                .add_service(IdentityServer::new(service.clone()))
                .add_service(ControllerServer::new(service))
                .serve_with_incoming(UnixListenerStream::new(listener));
            runtime.block_on(async {
                tokio::select! {
                    // No caller takes an error here; a client sees that nothing answers.
                    _ = server => {}
                    _ = stopped => {}
                }
            });
        });
        self.server = Some(Server { stop, thread });
        Ok(())
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.stop();
    }
}
