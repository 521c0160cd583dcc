//! A source that is not there yet: while a replica stands by, or still reads what it needs.

use std::sync::{Arc, OnceLock, Weak};

use volmedic_lease::Candidate;
use volmedic_view::{About, Heal, History, Moment, NodeState, Row, Source};

/// What the page shows until the role has something to show, and from then on what the role has.
#[derive(Debug)]
pub struct Late<S> {
    role: &'static str,
    /// Shared with the source that comes later, so that open pages stay connected.
    history: Arc<History>,
    /// A weak reference, because the lease can only be released by its last owner.
    candidate: OnceLock<Weak<Candidate>>,
    source: OnceLock<S>,
}

impl<S> Late<S> {
    /// `role` as in `hub`.
    pub fn new(role: &'static str, changes: usize) -> Self {
        let history = Arc::new(History::new(changes));
        Self { role, history, candidate: OnceLock::new(), source: OnceLock::new() }
    }

    pub fn history(&self) -> &Arc<History> {
        &self.history
    }

    /// It stands for this lease.
    pub fn stands_for(&self, candidate: &Arc<Candidate>) {
        // Set once; a second call would be an internal error and changes nothing.
        let _ = self.candidate.set(Arc::downgrade(candidate));
    }

    /// From now on this is shown.
    pub fn show(&self, source: S) {
        let _ = self.source.set(source);
    }

    fn waits_for(&self) -> String {
        let Some(candidate) = self.candidate.get().and_then(Weak::upgrade) else {
            return format!("This {} has only just started and is still reading what there is.", self.role);
        };
        let holder = candidate.holder();
        if holder.is_empty() {
            return format!("No replica of the {} leads yet; one will within seconds.", self.role);
        }
        format!(
            "This replica of the {} stands by, so it shows nothing. {holder} leads: open the page there, for instance \
             through `kubectl port-forward pod/{holder}` with the port of its --page.",
            self.role
        )
    }
}

impl<S: Source> Source for Late<S> {
    fn rows(&self) -> Vec<Row> {
        self.source.get().map_or_else(Vec::new, Source::rows)
    }

    fn about(&self) -> About {
        match self.source.get() {
            Some(source) => source.about(),
            None => {
                About { title: self.role.to_owned(), place: "standing by".to_owned(), ..About::default() }
            }
        }
    }

    fn history(&self) -> &History {
        &self.history
    }

    fn story(&self, driver: &str, volume: &str) -> Vec<Arc<Moment>> {
        self.source.get().map_or_else(Vec::new, |source| source.story(driver, volume))
    }

    fn heals(&self, driver: &str, volume: &str) -> Vec<Heal> {
        self.source.get().map_or_else(Vec::new, |source| source.heals(driver, volume))
    }

    fn standing_by(&self) -> Option<String> {
        match self.source.get() {
            Some(source) => source.standing_by(),
            None => Some(self.waits_for()),
        }
    }

    fn nodes(&self) -> Vec<NodeState> {
        self.source.get().map_or_else(Vec::new, Source::nodes)
    }
}
