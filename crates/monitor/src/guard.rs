//! A probe that panics is an internal error (bug) in the check of one volume. It never stops the check of another: it counts as
//! not seen, and the volume is probed again in turn.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use volmedic_health::{Sight, Why, WhyKind};

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

/// The message of the panic in place of a result. What the future owned is dropped, and never polled again.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(panic) => Poll::Ready(Err(message(&*panic))),
    })
    .await
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}
