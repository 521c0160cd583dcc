//! Events on claims for what no other component reports: the starts and ends that the hub has stored.

use std::convert::Infallible;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use volmedic_api::{Kind, ObjectRef};
use volmedic_hub::{Settings, World};
use volmedic_report::{Limits, Note, Notes, Reports, Voice};

/// Events that wait to be sent. When a zone fails, all claims that are used there have one.
const MOST_WAITING: usize = 20_000;

pub(super) struct Events {
    world: Arc<Mutex<World>>,
    woken: Arc<Notify>,
    notes: Notes,
}

impl Events {
    /// To be called before anything is put into the world.
    pub(super) fn new(
        client: &Client,
        world: &Arc<Mutex<World>>,
        sent: Reports,
        settings: &Settings,
    ) -> Self {
        let woken = Arc::new(Notify::new());
        world.lock().announce(Timestamp::now(), woken.clone());
        let voice = Voice::of_hub(&volmedic_lease::hostname().unwrap_or_default());
        // As fast as objects are written: each event is of a write, so that few wait.
        let (qps, burst) = (settings.qps, f64::from(settings.burst));
        let limits = Limits { qps, burst, capacity: MOST_WAITING, ..Limits::default() };
        Self { world: world.clone(), woken, notes: Notes::start(client, voice, &limits, sent) }
    }

    /// Runs until dropped. What is not sent by then is sent by the next hub.
    pub(super) async fn run(self) -> Infallible {
        loop {
            self.woken.notified().await;
            let (all, lost) = self.world.lock().take_announcements();
            if lost > 0 {
                tracing::warn!("{lost} events on claims are not sent, because more than {MOST_WAITING} wait");
            }
            for one in all {
                let (namespace, name) = (&*one.claim.namespace, &*one.claim.name);
                let claim = ObjectRef::new(Kind::PersistentVolumeClaim, namespace, name, &one.claim_uid);
                if let Some(note) = Note::of(claim, &one.transition, one.which) {
                    tracing::info!(target: "volmedic::health", claim = %one.claim, "{}", note.message);
                    self.notes.tell(note);
                }
            }
        }
    }
}
