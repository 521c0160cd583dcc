//! What the pipe needs from the rest of the world.

use std::future::{Future, ready};
use std::sync::Arc;

use tokio::sync::mpsc;
use volmedic_health::object::ObjectRef;
use volmedic_health::{Sight, Transition, Volume, Why, WhyKind};

/// Which volumes there should be.
pub trait Inventory: Send + Sync + 'static {
    /// What changed since the last call. The first call reports everything there is.
    fn drain(&self) -> Vec<Arrival>;
    /// Returns when there is something to drain.
    fn changed(&self) -> impl Future<Output = ()> + Send;
    /// The objects that a volume's health is reported on.
    fn about(&self, volume: &Volume) -> Vec<ObjectRef>;
    /// The objects that the health of the driver's storage as a whole is reported on.
    fn about_backend(&self) -> Vec<ObjectRef> {
        Vec::new()
    }
    /// Whether this is a volume that comes in no arrival and is never probed: the sender of its observations says when they are
    /// over.
    fn is_only_observed(&self, _handle: &str) -> bool {
        false
    }
}

/// How the inventory changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    Added(Arc<str>),
    Removed(Arc<str>),
    /// The volume is reported on other objects now, or on more or fewer of them.
    AudienceChanged(Arc<str>),
    /// Something happened to the volume that may have changed its health: it is checked now.
    Disturbed(Arc<str>),
    /// These are all volumes there are.
    All(Vec<Arc<str>>),
}

/// How volumes are probed.
pub trait Probe: Send + Sync + 'static {
    /// How the driver can be asked right now.
    fn way(&self) -> Way;
    /// Returns when [`way`](Self::way) may answer differently.
    fn changed(&self) -> impl Future<Output = ()> + Send;
    /// Walks the whole list and hands it over, page by page. Only asked for where [`way`](Self::way) is a list.
    fn list(&self, _pages: impl Pages) -> impl Future<Output = ListEnd> + Send {
        ready(ListEnd::Broken(Why::new(WhyKind::NoAnswer, "it has no list of volumes")))
    }
    /// Checks one volume.
    fn look(&self, handle: &str) -> impl Future<Output = Seen> + Send;
    /// Asks about the driver's storage as a whole, once an interval; `None` where the driver cannot report on it.
    fn storage(&self) -> impl Future<Output = Option<Sight>> + Send {
        ready(None)
    }
}

/// How the driver can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// By a list of all its volumes, or of the unhealthy ones.
    List {
        absent: Absent,
        /// One volume can also be checked on its own.
        looks: bool,
    },
    /// Volume by volume.
    Look,
    /// Not at all: it does not report health.
    Nothing,
    /// It cannot be reached.
    Blind(Why),
}

/// What it means to be absent from a complete list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// The list has all volumes: the volume is gone.
    Missing,
    /// The list has the unhealthy volumes: nothing adverse is known.
    Unlisted,
}

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub handle: String,
    pub sight: Sight,
    /// It came before in this pass.
    pub again: bool,
}

/// Takes the entries of a list. The list goes on when this returns, so a driver that lists faster than its entries are taken
/// in is held back.
pub trait Pages: Send {
    fn page(&mut self, page: Vec<Listed>) -> impl Future<Output = ()> + Send;
}

impl Pages for mpsc::Sender<Vec<Listed>> {
    async fn page(&mut self, page: Vec<Listed>) {
        // The receiver is dropped only when the list is given up; then this task is ended too.
        let _ = self.send(page).await;
    }
}

/// How a list ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListEnd {
    Complete,
    /// It is incomplete, and why. What its pages reported stands.
    Broken(Why),
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A sight of the volume, if only that it was not seen.
    Volume(Sight),
    /// There is nothing to check right now, and nothing wrong with that: no pod uses the volume at the moment.
    Nothing,
    /// Not seen, because the driver asked for fewer concurrent calls.
    Overloaded(Why),
    /// Nothing about the volume: the driver itself is not there.
    DriverGone(Why),
}

impl Seen {
    /// Whether the driver answered about the volume's health, whatever it answered.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Volume(sight) if !matches!(sight, Sight::NotSeen(_)))
    }
}

/// Where transitions are reported. Must not wait: what cannot be sent immediately is queued behind it.
pub trait Outlet: Send + 'static {
    fn tell(&mut self, transition: &Transition, about: Vec<ObjectRef>);
}
