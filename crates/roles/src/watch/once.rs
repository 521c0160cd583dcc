//! One probe of every volume, and no more.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::task::JoinSet;
use volmedic_health::{Sight, Subject, Vantage, Why};
use volmedic_monitor::{Absent, ListEnd, Listed, Probe, Seen, Way};

use super::eyes::Eyes;
use super::source::Source;

/// Pages that may wait to be taken in.
const PAGES: usize = 2;

/// Asks about everything there is, once. What cannot be learnt is in the rows, with why.
pub(super) async fn look(eyes: &Arc<Eyes>, source: &Source, workers: usize) {
    if let Err(why) = eyes.call_the_roll().await {
        tracing::warn!("the driver did not list all of its volumes: {why}");
    }
    match eyes.way() {
        Way::Nothing => {}
        Way::Blind(why) => backend(source, why),
        Way::Look => one_by_one(eyes, source, source.roll.handles(), workers).await,
        Way::List { absent, looks } => {
            let (rest, broken) = list(eyes, source).await;
            match broken {
                None => {
                    for handle in rest {
                        record(
                            source,
                            &handle,
                            match absent {
                                Absent::Missing => {
                                    Sight::missing("the driver's complete list of volumes does not have it")
                                }
                                Absent::Unlisted => Sight::Unlisted,
                            },
                        );
                    }
                }
                Some(why) => {
                    backend(source, why.clone());
                    if looks {
                        one_by_one(eyes, source, rest, workers).await;
                    } else {
                        for handle in &rest {
                            record(source, handle, Sight::NotSeen(why.clone()));
                        }
                    }
                }
            }
        }
    }
}

/// Takes in a whole list; answers what was not in it, and why it is not whole.
async fn list(eyes: &Arc<Eyes>, source: &Source) -> (Vec<Arc<str>>, Option<Why>) {
    let (sender, mut pages) = tokio::sync::mpsc::channel(PAGES);
    let task = tokio::spawn({
        let (eyes, driver) = (eyes.clone(), source.name.clone());
        async move { volmedic_monitor::list(&*eyes, &driver, sender).await }
    });
    let mut listed = std::collections::HashMap::<Arc<str>, bool>::new();
    while let Some(page) = pages.recv().await {
        for Listed { handle, sight, again } in page {
            let handle: Arc<str> = handle.into();
            let adverse = matches!(sight, Sight::Adverse(_));
            // Of two entries for one volume the worse is believed.
            if !again || adverse {
                record(source, &handle, sight);
            }
            listed.insert(handle, adverse);
        }
    }
    let end = task.await.unwrap_or_else(|error| {
        // Panics are caught before, and nothing cancels it.
        let why = format!("internal error (bug): the list ended early: {error}");
        ListEnd::Broken(Why::new(volmedic_health::WhyKind::Failed, &why))
    });
    let rest = source.roll.handles().into_iter().filter(|handle| !listed.contains_key(handle)).collect();
    let broken = match end {
        ListEnd::Complete => None,
        ListEnd::Broken(why) => Some(why),
    };
    (rest, broken)
}

async fn one_by_one(eyes: &Arc<Eyes>, source: &Source, handles: Vec<Arc<str>>, workers: usize) {
    let mut left = handles.into_iter();
    let mut looks: JoinSet<(Arc<str>, Seen)> = JoinSet::new();
    loop {
        while looks.len() < workers.max(1)
            && let Some(handle) = left.next()
        {
            let (eyes, driver) = (eyes.clone(), source.name.clone());
            looks.spawn(async move {
                let seen = volmedic_monitor::look(&*eyes, &driver, &handle).await;
                (handle, seen)
            });
        }
        let Some(done) = looks.join_next().await else { break };
        match done {
            Ok((handle, Seen::Volume(sight))) => record(source, &handle, sight),
            Ok((handle, Seen::Overloaded(why) | Seen::DriverGone(why))) => {
                record(source, &handle, Sight::NotSeen(why));
            }
            Ok((_, Seen::Nothing)) => {}
            Err(error) => tracing::error!(%error, "internal error (bug): a check ended early"),
        }
    }
}

fn record(source: &Source, handle: &Arc<str>, sight: Sight) {
    if let Sight::NotSeen(why) = &sight {
        source.not_seen(handle, &why.to_string());
    }
    let subject = Subject::volume(source.name.clone(), handle.clone());
    let reported = source.board.lock_ledger().record(Timestamp::now(), &subject, &Vantage::Controller, sight);
    for transition in &reported {
        source.tell(transition);
    }
}

fn backend(source: &Source, why: Why) {
    let subject = Subject::Backend(source.name.clone());
    let reported = source.board.lock_ledger().record(
        Timestamp::now(),
        &subject,
        &Vantage::Controller,
        Sight::NotSeen(why),
    );
    for transition in &reported {
        source.tell(transition);
    }
}
