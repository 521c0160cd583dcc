//! Where the healer's news go: events on the claim and its pods, and the claim's own object, which is its memory.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use volmedic_api::resource::Heal;
use volmedic_api::{Kind, ObjectRef};
use volmedic_heal::Place;
use volmedic_heal::attempts::{self, AttemptStore, Unchanged};
use volmedic_heal::healer::{News, Record, Teller};
use volmedic_heal::memory::{self, Deadlines};
use volmedic_hub::{ClaimKey, HealsError, Keeper};
use volmedic_report::{Note, Notes, Verdict};

/// Entries that wait to be written. What is lost beyond is in the log.
const MOST_WAITING: usize = 4096;
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Reports, and hands on what is to be kept.
pub(super) struct Voice {
    keeper: Arc<Keeper>,
    notes: Arc<Notes>,
    entries: mpsc::Sender<(ClaimKey, Heal)>,
    deadlines: Deadlines,
}

/// Writes what is to be kept.
pub(super) struct Scribe {
    keeper: Arc<Keeper>,
    entries: mpsc::Receiver<(ClaimKey, Heal)>,
}

pub(super) fn pair(keeper: Arc<Keeper>, notes: Arc<Notes>, deadlines: Deadlines) -> (Voice, Scribe) {
    let (entries, received) = mpsc::channel(MOST_WAITING);
    (Voice { keeper: keeper.clone(), notes, entries, deadlines }, Scribe { keeper, entries: received })
}

/// What distinguishes one try of a place from all others.
pub(super) fn try_name(place: &Place, nth: u32, began: Timestamp) -> String {
    format!("{}/{}@{} {nth} {}", place.driver, place.handle, place.node, began.as_second())
}

/// Sent again after a restart it is the same: a try by when it began, a refusal by the trouble that it is about.
fn which(record: &Record) -> String {
    let Some(place) = &record.place else { return String::new() };
    match (&record.news, record.attempt) {
        (News::Skipped(refusal), _) => {
            let since = record.complaint.as_ref().map_or(record.at, |(_, since)| *since);
            format!("{} {}", try_name(place, 0, since), refusal.label())
        }
        (_, Some(attempt)) => try_name(place, attempt.nth, attempt.began),
        (_, None) => try_name(place, 0, record.at),
    }
}

fn claim_of(record: &Record) -> Option<&ObjectRef> {
    record.about.iter().find(|object| object.kind == Kind::PersistentVolumeClaim)
}

fn key_of(claim: &ObjectRef) -> ClaimKey {
    ClaimKey::new(&claim.namespace, &claim.name)
}

/// The attempts on one volume: in the object of its claim, and reported on the claim.
pub(super) struct Attempts {
    pub(super) keeper: Arc<Keeper>,
    pub(super) notes: Arc<Notes>,
    pub(super) claim: ObjectRef,
    pub(super) driver: Arc<str>,
    pub(super) handle: Arc<str>,
}

impl Attempts {
    /// Closes an attempt that an earlier process began and did not end, when it must be over. Tries until it is closed.
    pub(super) async fn close(self, begun: Heal, until: Timestamp) {
        let wait = Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default();
        tokio::time::sleep(wait).await;
        let mut pause = FIRST_PAUSE;
        while let Err(why) = attempts::close(&self, &begun).await {
            if pause == FIRST_PAUSE {
                let claim = &self.claim;
                tracing::warn!("{claim}: an attempt that was lost cannot be closed yet, retrying: {why}");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl AttemptStore for Attempts {
    async fn read(&self) -> Result<Option<Vec<Heal>>, String> {
        self.keeper.heals(&key_of(&self.claim)).await
    }

    async fn change(
        &self,
        change: impl Fn(&[Heal]) -> Result<Vec<Heal>, String> + Send + Sync,
    ) -> Result<(), Unchanged> {
        self.keeper.change_heals(&key_of(&self.claim), change).await.map_err(|error| match error {
            HealsError::Declined(why) => Unchanged::Declined(why),
            HealsError::NoObject => Unchanged::Failed("the claim has no VolumeHealth any more".to_owned()),
            HealsError::Later(why) => Unchanged::Failed(why),
        })
    }

    async fn report_lost(&self, lost: &Heal) -> Result<(), String> {
        let node = lost.node.as_deref().unwrap_or_default();
        let place = Place::new(self.driver.clone(), self.handle.clone(), node);
        let message = format!("Healing of {place} failed: {}", lost.message);
        let note = Note {
            which: try_name(&place, lost.attempt, lost.time.0),
            object: self.claim.clone(),
            reason: "HealingFailed",
            warning: true,
            message: message.clone(),
            at: Timestamp::now(),
        };
        if self.notes.deliver(note).await? != Verdict::Already {
            tracing::warn!(target: "volmedic::heal", kind = "HealingFailed", "{message}");
        }
        Ok(())
    }
}

impl Teller for Voice {
    fn tell(&self, record: &Record) {
        if record.is_event() {
            for object in &record.about {
                self.notes.tell(Note {
                    object: object.clone(),
                    reason: record.news.reason(),
                    warning: record.news.is_warning(),
                    message: record.text(),
                    at: record.at,
                    which: which(record),
                });
            }
        }
        // Beginnings are written before anything is done.
        if !matches!(record.news, News::Started { .. })
            && let (Some(claim), Some(entry)) = (claim_of(record), record.entry())
            && self.entries.try_send((key_of(claim), entry)).is_err()
        {
            tracing::warn!("too much waits to be written down; a heal is in the log only");
        }
    }

    async fn begin(&self, record: &Record) -> Result<(), String> {
        // What is merely checked leaves no trace.
        let (Some(claim), Some(place), Some(entry)) = (claim_of(record), &record.place, record.entry())
        else {
            return Ok(());
        };
        let attempts = Attempts {
            keeper: self.keeper.clone(),
            notes: self.notes.clone(),
            claim: claim.clone(),
            driver: place.driver.clone(),
            handle: place.handle.clone(),
        };
        let written = attempts::begin(&attempts, &entry, record.at, self.deadlines).await?;
        // A person may ask for a volume with which nothing is known to be wrong.
        if written || record.complaint.is_none() {
            return Ok(());
        }
        Err("there is no VolumeHealth of the claim yet to write its beginning into".to_owned())
    }
}

impl Scribe {
    pub(super) async fn run(mut self) -> Infallible {
        while let Some((key, entry)) = self.entries.recv().await {
            write(&self.keeper, &key, |before| Ok(memory::noted(before, &entry))).await;
        }
        // No receiver is left.
        std::future::pending().await
    }
}

/// Again after a failure, a few times. Answers whether it is written.
async fn write(
    keeper: &Keeper,
    key: &ClaimKey,
    change: impl Fn(&[Heal]) -> Result<Vec<Heal>, String>,
) -> bool {
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=TRIES {
        match keeper.change_heals(key, &change).await {
            Ok(()) => return true,
            Err(HealsError::NoObject | HealsError::Declined(_)) => return false,
            Err(HealsError::Later(why)) if attempt == TRIES => {
                tracing::warn!("{key}: what was done about its volume could not be written down: {why}");
            }
            Err(HealsError::Later(_)) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        }
    }
    false
}
