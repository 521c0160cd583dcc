//! The driver: what is true of its volumes, and how badly it says so.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;
use volmedic_health::{Condition, Reason, Sight, Why, WhyKind};
use volmedic_monitor::{Absent, ListEnd, Listed, Pages, Probe, Seen, Way};

use crate::dice::Dice;
use crate::history::{Conditions, Dialect, GONE, Volume};

/// How long the product waits for one answer of a driver by default.
const DEADLINE: Duration = Duration::from_secs(15);
/// Entries of one page.
const PAGE: usize = 2;

/// What is wrong with the driver itself right now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trouble {
    pub(crate) down: bool,
    pub(crate) fails: u32,
    pub(crate) hangs: Option<usize>,
    pub(crate) lists_break: bool,
}

#[derive(Debug)]
struct State {
    truth: Vec<Conditions>,
    trouble: Trouble,
    dice: Dice,
    answers: u64,
}

/// Shared by all processes that ask it.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    dialect: Dialect,
    handles: Arc<Vec<String>>,
    state: Arc<Mutex<State>>,
    changes: watch::Sender<u64>,
}

impl Driver {
    pub(crate) fn new(dialect: Dialect, volumes: &[Volume], dice: Dice) -> Self {
        let handles: Vec<String> = volumes.iter().map(|volume| volume.handle.clone()).collect();
        let truth = vec![Conditions::new(); handles.len()];
        let state = State { truth, trouble: Trouble::default(), dice, answers: 0 };
        let state = Arc::new(Mutex::new(state));
        Self { dialect, handles: Arc::new(handles), state, changes: watch::Sender::new(0) }
    }

    pub(crate) fn set(&self, volume: usize, conditions: &Conditions) {
        self.state.lock().truth[volume].clone_from(conditions);
    }

    pub(crate) fn trouble(&self, change: impl FnOnce(&mut Trouble)) {
        change(&mut self.state.lock().trouble);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// How often it said anything about a volume.
    pub(crate) fn answers(&self) -> u64 {
        self.state.lock().answers
    }

    fn delay(&self) -> Duration {
        self.state.lock().dice.between(Duration::from_millis(1), Duration::from_millis(80))
    }

    fn is_gone(&self, volume: usize) -> bool {
        self.state.lock().truth[volume].contains(&GONE)
    }

    fn sight(&self, volume: usize) -> Sight {
        let mut state = self.state.lock();
        state.answers += 1;
        let truth = &state.truth[volume];
        if truth.is_empty() {
            return Sight::Healthy;
        }
        if truth.contains(&GONE) {
            return Sight::missing("the driver answers NOT_FOUND");
        }
        Sight::adverse(truth.iter().filter_map(|word| condition(word)))
    }
}

fn condition(word: &str) -> Option<Condition> {
    let (status, reason) = word.split_once('/')?;
    Some(Condition::new(status.parse().ok()?, Reason::new(reason), "as the simulation has it"))
}

impl Probe for Driver {
    fn way(&self) -> Way {
        if self.state.lock().trouble.down {
            return Way::Blind(Why::new(WhyKind::Unreachable, "the socket refuses connections"));
        }
        match self.dialect {
            Dialect::Get => Way::Look,
            Dialect::ListHealth => Way::List { absent: Absent::Unlisted, looks: true },
            Dialect::ListVolumes => Way::List { absent: Absent::Missing, looks: false },
        }
    }

    async fn changed(&self) {
        let mut changes = self.changes.subscribe();
        let _ = changes.changed().await;
    }

    async fn list(&self, mut pages: impl Pages) -> ListEnd {
        let volumes: Vec<usize> = (0..self.handles.len()).collect();
        for page in volumes.chunks(PAGE) {
            sleep(self.delay()).await;
            let (trouble, failed) = {
                let mut state = self.state.lock();
                let share = state.trouble.fails;
                (state.trouble.clone(), state.dice.percent(share))
            };
            if trouble.down || failed {
                return ListEnd::Broken(Why::new(WhyKind::Failed, "INTERNAL"));
            }
            if trouble.hangs.is_some_and(|volume| page.contains(&volume)) {
                sleep(DEADLINE).await;
                return ListEnd::Broken(Why::new(WhyKind::TimedOut, "no page within 15 s"));
            }
            let entries = page.iter().filter(|&&volume| !self.is_gone(volume)).map(|&volume| Listed {
                handle: self.handles[volume].clone(),
                sight: self.sight(volume),
                again: false,
            });
            let of_unhealthy_only = self.dialect == Dialect::ListHealth;
            let wanted = |entry: &Listed| !of_unhealthy_only || entry.sight != Sight::Healthy;
            pages.page(entries.filter(wanted).collect()).await;
            if trouble.lists_break {
                return ListEnd::Broken(Why::new(WhyKind::Incomplete, "the list broke off"));
            }
        }
        ListEnd::Complete
    }

    async fn look(&self, handle: &str) -> Seen {
        let Some(volume) = self.handles.iter().position(|known| known == handle) else {
            return Seen::Volume(Sight::missing("the driver answers NOT_FOUND"));
        };
        sleep(self.delay()).await;
        let (trouble, failed) = {
            let mut state = self.state.lock();
            let share = state.trouble.fails;
            (state.trouble.clone(), state.dice.percent(share))
        };
        if trouble.down {
            return Seen::DriverGone(Why::new(WhyKind::Unreachable, "the connection broke"));
        }
        if trouble.hangs == Some(volume) {
            sleep(DEADLINE).await;
            return Seen::Volume(Sight::not_seen(WhyKind::TimedOut, "no answer within 15 s"));
        }
        if failed {
            return Seen::Volume(Sight::not_seen(WhyKind::Failed, "INTERNAL"));
        }
        let sight = self.sight(volume);
        sleep(self.delay()).await;
        Seen::Volume(sight)
    }
}
