//! Where the healer's news go: events on the claim and its pods, and the claim's own object, which is its memory.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use volmedic_api::resource::Heal;
use volmedic_api::{Kind, ObjectRef};
use volmedic_heal::healer::{News, Record, Teller};
use volmedic_heal::{Place, memory};
use volmedic_hub::{ClaimKey, HealsError, Keeper};
use volmedic_report::{Note, Notes};

/// Entries that wait to be written. What is lost beyond is in the log.
const MOST_WAITING: usize = 4096;
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Tells, and hands on what is to be kept.
pub(super) struct Voice {
    keeper: Arc<Keeper>,
    notes: Arc<Notes>,
    entries: mpsc::Sender<(ClaimKey, Heal)>,
    deadline: SignedDuration,
}

/// Writes what is to be kept.
pub(super) struct Scribe {
    keeper: Arc<Keeper>,
    entries: mpsc::Receiver<(ClaimKey, Heal)>,
}

pub(super) fn pair(keeper: Arc<Keeper>, notes: Arc<Notes>, deadline: SignedDuration) -> (Voice, Scribe) {
    let (entries, received) = mpsc::channel(MOST_WAITING);
    (Voice { keeper: keeper.clone(), notes, entries, deadline }, Scribe { keeper, entries: received })
}

/// What tells one try of a place from all others.
pub(super) fn try_name(place: &Place, nth: u32, began: Timestamp) -> String {
    format!("{}/{}@{} {nth} {}", place.driver, place.handle, place.node, began.as_second())
}

/// Told again after a restart it is the same: a try by when it began, a refusal by the trouble that it is about.
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

fn claim_of(record: &Record) -> Option<ClaimKey> {
    let claim = record.about.iter().find(|object| object.kind == Kind::PersistentVolumeClaim)?;
    Some(ClaimKey::new(&claim.namespace, &claim.name))
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
            && let (Some(key), Some(entry)) = (claim_of(record), record.entry())
            && self.entries.try_send((key, entry)).is_err()
        {
            tracing::warn!("too much waits to be written down; a heal is in the log only");
        }
    }

    async fn begin(&self, record: &Record) -> Result<(), String> {
        // What is merely checked leaves no trace.
        let (Some(key), Some(entry)) = (claim_of(record), record.entry()) else { return Ok(()) };
        let (now, deadline) = (record.at, self.deadline);
        let begun = self.keeper.change_heals(&key, |before| memory::begun(before, &entry, now, deadline));
        match begun.await {
            Ok(()) => Ok(()),
            // A person may ask for a volume with which nothing is known to be wrong.
            Err(HealsError::NoObject) if record.complaint.is_none() => Ok(()),
            Err(HealsError::NoObject) => {
                Err("there is no VolumeHealth of the claim yet to write its beginning into".to_owned())
            }
            Err(HealsError::Declined(why)) => Err(why),
            Err(HealsError::Later(why)) => Err(format!("its beginning could not be written down: {why}")),
        }
    }
}

impl Scribe {
    pub(super) async fn run(mut self) -> Infallible {
        while let Some((key, entry)) = self.entries.recv().await {
            write(&self.keeper, &key, |before| Ok(memory::noted(before, &entry))).await;
        }
        // Nobody is left to tell anything.
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

/// A try that an earlier process began and did not end: when it must be over, that is said.
pub(super) async fn close(
    keeper: Arc<Keeper>,
    notes: Arc<Notes>,
    claim: ObjectRef,
    place: Place,
    begun: Heal,
    until: Timestamp,
) {
    let wait = Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default();
    tokio::time::sleep(wait).await;
    let key = ClaimKey::new(&claim.namespace, &claim.name);
    let lost = memory::lost(&begun);
    let closed = write(&keeper, &key, |before| {
        if !before.contains(&begun) {
            return Err("it has ended".to_owned());
        }
        Ok(before.iter().map(|heal| if *heal == begun { lost.clone() } else { heal.clone() }).collect())
    });
    if closed.await {
        let message = format!("Healing of {place} failed: {}", lost.message);
        tracing::warn!(target: "volmedic::heal", kind = "HealingFailed", "{message}");
        notes.tell(Note {
            which: try_name(&place, begun.attempt, begun.time.0),
            object: claim,
            reason: "HealingFailed",
            warning: true,
            message,
            at: Timestamp::now(),
        });
    }
}
