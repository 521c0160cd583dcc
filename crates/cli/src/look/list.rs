//! Reads lists in pages and keeps nothing of them: anyone who asks is handed one object after the other.

use std::fmt;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use tokio::time::{sleep, timeout};
use volmedic_api::{Arrived, Shape};

/// As many objects as kubectl asks for in one page.
const PAGE: u32 = 500;
/// Ten million objects. No list is that long, so one that is does not end.
const MAX_PAGES: usize = 20_000;
/// How often one page is asked for, and how often a list starts over when the server lost our place in it.
const TRIES: u32 = 3;

/// Why a kind of object could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unread {
    /// We may not.
    Forbidden,
    /// The server has no such kind.
    Missing,
    Failed(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden => f.write_str("you may not list them"),
            Self::Missing => f.write_str("the server does not have them"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// Passes every object to `take`; one may come twice where a list had to start over. Answers how many made no sense.
pub(crate) async fn each<T: Shape>(
    api: &Api<Arrived<T>>,
    mut params: ListParams,
    deadline: Duration,
    mut take: impl FnMut(&Arrived<T>, &T),
) -> Result<usize, Unread> {
    params.limit = Some(PAGE);
    let (mut malformed, mut restarts) = (0, 0);
    for _ in 0..MAX_PAGES {
        let page = match page(api, &params, deadline).await {
            Ok(page) => page,
            // Our place in the list is lost.
            Err(Refused::Gone) if restarts < TRIES => {
                restarts += 1;
                params.continue_token = None;
                continue;
            }
            Err(Refused::Gone) => {
                return Err(Unread::Failed("the list broke off again and again".to_owned()));
            }
            Err(Refused::Final(unread)) => return Err(unread),
        };
        for object in &page.items {
            match &object.body {
                Ok(body) => take(object, body),
                Err(_) => malformed += 1,
            }
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(malformed);
        }
    }
    Err(Unread::Failed(format!("the list does not end after {MAX_PAGES} pages")))
}

/// Whether one object, if there is one, can be read.
pub(crate) async fn first<T: Shape>(api: &Api<Arrived<T>>, deadline: Duration) -> Result<(), Unread> {
    match page(api, &ListParams { limit: Some(1), ..ListParams::default() }, deadline).await {
        Ok(_) | Err(Refused::Gone) => Ok(()),
        Err(Refused::Final(unread)) => Err(unread),
    }
}

enum Refused {
    Gone,
    Final(Unread),
}

async fn page<T: Shape>(
    api: &Api<Arrived<T>>,
    params: &ListParams,
    deadline: Duration,
) -> Result<kube::core::ObjectList<Arrived<T>>, Refused> {
    let mut tries = 1;
    loop {
        let why = match timeout(deadline, api.list(params)).await {
            Ok(Ok(page)) => return Ok(page),
            Ok(Err(kube::Error::Api(status))) => match status.code {
                410 if params.continue_token.is_some() => return Err(Refused::Gone),
                401 | 403 => return Err(Refused::Final(Unread::Forbidden)),
                404 => return Err(Refused::Final(Unread::Missing)),
                code @ (429 | 500..) => format!("the API server answers {code}: {}", status.message),
                _ => return Err(Refused::Final(Unread::Failed(status.message.clone()))),
            },
            Ok(Err(error)) => innermost(&error),
            Err(_) => format!("no answer within {} s", deadline.as_secs()),
        };
        if tries >= TRIES {
            return Err(Refused::Final(Unread::Failed(why)));
        }
        sleep(Duration::from_millis(300) * tries).await;
        tries += 1;
    }
}

/// What it comes down to: the outer errors say only that something failed.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
