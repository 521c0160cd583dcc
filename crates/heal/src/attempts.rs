//! How an attempt is opened and closed in the claim's own object, whatever is killed in between.
//!
//! An attempt that was under way when its healer ended must be reported as lost exactly once, before the next attempt
//! begins. Two tasks get there: one that waits until the lost attempt must be over, and the next attempt. Both close it in
//! the same two steps, report first and write second. So whichever comes first, and wherever it is killed, an attempt that
//! is stored as lost was reported; and reporting it again changes nothing, because the event's name is made of the attempt.

use std::future::Future;

use jiff::Timestamp;
use volmedic_api::resource::Heal;

use crate::memory::{self, Deadlines};

/// The attempts of one claim as they are stored, and the events that report them.
pub trait AttemptStore: Send + Sync {
    /// What is stored, newest first; `None` if the claim has no object. An error is a sentence.
    fn read(&self) -> impl Future<Output = Result<Option<Vec<Heal>>, String>> + Send;
    /// Writes what `change` makes of what is stored, only if that is still what `change` was given.
    fn change(
        &self,
        change: impl Fn(&[Heal]) -> Result<Vec<Heal>, String> + Send + Sync,
    ) -> impl Future<Output = Result<(), Unchanged>> + Send;
    /// Reports that an attempt was lost, and returns when the API server has the event.
    fn report_lost(&self, lost: &Heal) -> impl Future<Output = Result<(), String>> + Send;
}

/// Why nothing was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unchanged {
    /// `change` declined, after it had seen what is stored.
    Declined(String),
    /// It could not be read or written; trying again later may help.
    Failed(String),
}

/// Writes that an attempt begins, after all lost ones are closed. Answers false if the claim has no object to write into.
pub async fn begin(
    store: &impl AttemptStore,
    entry: &Heal,
    now: Timestamp,
    deadline: impl Into<Deadlines> + Send,
) -> Result<bool, String> {
    let deadline = deadline.into();
    let later = |why: String| format!("its beginning could not be written down: {why}");
    let Some(stored) = store.read().await.map_err(later)? else { return Ok(false) };
    let over = memory::unfinished(&stored, deadline).filter(|(_, until)| *until <= now);
    for (lost, _) in over {
        close(store, lost).await.map_err(|why| {
            format!("the attempt that an earlier healer left unfinished could not be closed: {why}")
        })?;
    }
    match store.change(|before| memory::begun(before, entry, deadline)).await {
        Ok(()) => Ok(true),
        Err(Unchanged::Declined(why)) => Err(why),
        Err(Unchanged::Failed(why)) => Err(later(why)),
    }
}

/// Closes an attempt of which nobody will ever say how it ended. Answers whether it was still open.
pub async fn close(store: &impl AttemptStore, begun: &Heal) -> Result<bool, String> {
    // Its healer may have lived on and written down the end.
    if !store.read().await?.is_some_and(|stored| stored.contains(begun)) {
        return Ok(false);
    }
    let lost = memory::lost(begun);
    store.report_lost(&lost).await?;
    let closed = store.change(|before| {
        if !before.contains(begun) {
            return Err("it has ended".to_owned());
        }
        Ok(before.iter().map(|heal| if heal == begun { lost.clone() } else { heal.clone() }).collect())
    });
    match closed.await {
        Ok(()) => Ok(true),
        Err(Unchanged::Declined(_)) => Ok(false),
        Err(Unchanged::Failed(why)) => Err(why),
    }
}

#[cfg(test)]
mod tests;
