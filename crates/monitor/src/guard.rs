//! A probe that panics is an internal error (bug) in the check of one volume. It never stops the check of another: it counts as
//! not seen, and the volume is probed again in turn.

use volmedic_health::{Sight, Why, WhyKind};
use volmedic_panics::caught;

use crate::ports::{ListEnd, Pages, Probe, Seen};

/// Probes one volume of a driver.
pub async fn look<P: Probe>(probe: &P, driver: &str, handle: &str) -> Seen {
    caught(probe.look(handle)).await.unwrap_or_else(|panic| {
        tracing::error!(
            driver,
            volume = handle,
            panic,
            "internal error (bug): the probe of a volume panicked"
        );
        Seen::Volume(Sight::NotSeen(bug("the probe", &panic)))
    })
}

/// Walks a driver's list.
pub async fn list<P: Probe>(probe: &P, driver: &str, pages: impl Pages) -> ListEnd {
    caught(probe.list(pages)).await.unwrap_or_else(|panic| {
        tracing::error!(driver, panic, "internal error (bug): the list of volumes panicked");
        ListEnd::Broken(bug("the list", &panic))
    })
}

/// Asks about a driver's storage as a whole.
pub(crate) async fn storage<P: Probe>(probe: &P, driver: &str) -> Option<Sight> {
    caught(probe.storage()).await.unwrap_or_else(|panic| {
        tracing::error!(driver, panic, "internal error (bug): the probe of the driver's storage panicked");
        None
    })
}

fn bug(what: &str, panic: &str) -> Why {
    Why::new(WhyKind::Failed, &format!("internal error (bug): {what} panicked: {panic}; please report it"))
}
