//! Which volumes there are, as the driver itself lists them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;
use volmedic_api::ObjectRef;
use volmedic_health::Volume;
use volmedic_monitor::Arrival;

/// The pipe takes new volumes in immediately; if it does not, it is ending.
const TAKEN_IN: Duration = Duration::from_secs(10);

/// The volumes of the driver. What its own complete list no longer has, it deleted: that is no trouble, the volume just
/// leaves. Volumes named on the command line stay, and are missed when the driver does not know them.
#[derive(Debug)]
pub(super) struct Roll {
    state: Mutex<State>,
    woken: Notify,
    taken: Notify,
    named: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Each with the pass that listed it last.
    known: HashMap<Arc<str>, u32>,
    pass: u32,
    pending: Vec<Arrival>,
    drained: bool,
}

impl Roll {
    /// With names, these are all there are.
    pub(super) fn new(named: &[String]) -> Self {
        let known = named.iter().map(|name| (name.as_str().into(), 0)).collect();
        let state = State { known, ..State::default() };
        Self {
            state: Mutex::new(state),
            woken: Notify::new(),
            taken: Notify::new(),
            named: !named.is_empty(),
        }
    }

    /// Whether the driver is not asked which volumes it has.
    pub(super) fn is_named(&self) -> bool {
        self.named
    }

    pub(super) fn has(&self, handle: &str) -> bool {
        self.state.lock().known.contains_key(handle)
    }

    /// By name.
    pub(super) fn handles(&self) -> Vec<Arc<str>> {
        let mut handles: Vec<Arc<str>> = self.state.lock().known.keys().cloned().collect();
        handles.sort_unstable();
        handles
    }

    /// A list of all volumes begins.
    pub(super) fn pass_began(&self) {
        let mut state = self.state.lock();
        state.pass = state.pass.wrapping_add(1);
    }

    /// The driver listed this volume. Answers whether it is new.
    pub(super) fn listed(&self, handle: &str) -> bool {
        let mut state = self.state.lock();
        let pass = state.pass;
        if let Some(known) = state.known.get_mut(handle) {
            *known = pass;
            return false;
        }
        if self.named {
            return false;
        }
        let handle: Arc<str> = handle.into();
        state.known.insert(handle.clone(), pass);
        if state.drained {
            state.pending.push(Arrival::Added(handle));
        }
        drop(state);
        self.woken.notify_one();
        true
    }

    /// A list of all volumes ended, and it was whole: what was not in it is gone.
    pub(super) fn pass_ended(&self) {
        if self.named {
            return;
        }
        let mut state = self.state.lock();
        let State { known, pass, pending, drained } = &mut *state;
        let before = known.len();
        known.retain(|handle, seen| {
            let stays = seen == pass;
            if !stays && *drained {
                pending.push(Arrival::Removed(handle.clone()));
            }
            stays
        });
        if known.len() < before {
            self.woken.notify_one();
        }
    }

    /// Returns when the pipe knows all volumes that were listed so far.
    pub(super) async fn taken_in(&self) {
        let all = async {
            loop {
                let taken = self.taken.notified();
                if self.state.lock().pending.is_empty() {
                    return;
                }
                taken.await;
            }
        };
        let _ = timeout(TAKEN_IN, all).await;
    }
}

impl volmedic_monitor::Inventory for Roll {
    fn drain(&self) -> Vec<Arrival> {
        let mut state = self.state.lock();
        let first = !std::mem::replace(&mut state.drained, true);
        let pending = std::mem::take(&mut state.pending);
        let all = first.then(|| vec![Arrival::All(state.known.keys().cloned().collect())]);
        drop(state);
        self.taken.notify_waiters();
        all.unwrap_or(pending)
    }

    async fn changed(&self) {
        self.woken.notified().await;
    }

    /// Only the terminal and the page are informed.
    fn about(&self, _: &Volume) -> Vec<ObjectRef> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use volmedic_monitor::Inventory;

    fn drained(roll: &Roll) -> Vec<Arrival> {
        let mut arrivals = roll.drain();
        for arrival in &mut arrivals {
            if let Arrival::All(all) = arrival {
                all.sort_unstable();
            }
        }
        arrivals
    }

    #[test]
    fn what_a_whole_list_no_longer_has_leaves() {
        let roll = Roll::new(&[]);
        roll.pass_began();
        assert!(roll.listed("a") && roll.listed("b") && !roll.listed("a"));
        roll.pass_ended();
        assert_eq!(drained(&roll), [Arrival::All(vec!["a".into(), "b".into()])]);
        roll.pass_began();
        roll.listed("b");
        roll.listed("c");
        assert_eq!(drained(&roll), [Arrival::Added("c".into())]);
        assert_eq!(roll.handles().len(), 3, "a list that is not whole takes nothing away");
        roll.pass_ended();
        assert_eq!(drained(&roll), [Arrival::Removed("a".into())]);
        assert_eq!(roll.handles(), ["b".into(), "c".into()] as [Arc<str>; 2]);
    }

    #[test]
    fn named_volumes_stay_and_no_others_come() {
        let roll = Roll::new(&["a".to_owned()]);
        roll.pass_began();
        assert!(!roll.listed("b"));
        roll.pass_ended();
        assert_eq!(roll.handles(), ["a".into()] as [Arc<str>; 1]);
    }

    #[tokio::test]
    async fn a_page_waits_until_its_volumes_are_known() {
        let roll = Roll::new(&[]);
        roll.drain();
        roll.listed("a");
        let mut waiting = std::pin::pin!(roll.taken_in());
        assert!((&mut waiting).now_or_never().is_none(), "nobody took it in");
        roll.changed().await;
        assert!(
            (&mut waiting).now_or_never().is_none(),
            "that there is something new is not that it is known"
        );
        assert_eq!(roll.drain(), [Arrival::Added("a".into())]);
        waiting.await;
        roll.taken_in().await;
    }
}
