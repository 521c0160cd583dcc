//! Is it the volume that hangs, or its driver?

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use volmedic_csi::Session;
use volmedic_health::Sight;
use volmedic_monitor::Seen;

use crate::sights::Answer;

/// A driver that answered another question within this time is alive: the volume is what hangs.
const ALIVE_FOR: Duration = Duration::from_secs(5);

/// When a driver last answered anything.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    last_answer: Mutex<Option<Instant>>,
}

impl Pulse {
    /// Settles whose fault a late answer is, and notes every answer that came. `began` is when the question was asked.
    pub(crate) async fn settle(&self, answer: Answer, session: &Session, began: Instant) -> Seen {
        match answer {
            Answer::Late(why) if self.is_alive(session, began).await => Seen::Volume(Sight::NotSeen(why)),
            Answer::Late(why) => Seen::DriverGone(why),
            Answer::Came(seen) => {
                if matches!(seen, Seen::Volume(_)) {
                    self.answered();
                }
                seen
            }
        }
    }

    /// Whether the driver answers anything at all. If another question was answered just now, it does.
    ///
    /// An answer from the first half of the wait proves nothing: the driver may have frozen right after it, and then
    /// every volume would look hung.
    async fn is_alive(&self, session: &Session, since: Instant) -> bool {
        let recent = |at: Instant| at.elapsed() < ALIVE_FOR.min(since.elapsed() / 2);
        if self.last_answer.lock().is_some_and(recent) {
            return true;
        }
        let alive = session.is_alive().await;
        if alive {
            self.answered();
        }
        alive
    }

    fn answered(&self) {
        *self.last_answer.lock() = Some(Instant::now());
    }
}
