//! Reads a list page by page, keeping nothing but what is wanted.

use std::time::Duration;

use kube::Client;
use kube::api::{ListParams, Request};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::failure::{Failure, call};

const PAGE: u32 = 500;
/// A cluster with more than this many pages of 500 is not one we know.
const PAGES: usize = 10_000;
/// How often one page is asked for, and how often a list is begun anew when the server lost our place in it.
const TRIES: u32 = 5;
const RESTARTS: u32 = 3;

#[derive(Debug, Deserialize)]
struct Page {
    metadata: PageMeta,
    // Items are read one by one, so that a strange one spoils nothing but itself.
    #[serde(default)]
    items: Vec<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

/// Passes every item to `take`. An item may come twice when a list is begun anew.
pub(super) async fn read<T>(
    path: &str,
    fields: Option<&str>,
    client: &Client,
    into: &mut T,
    mut take: impl FnMut(&mut T, &str),
) -> Result<(), Failure> {
    let mut restarts = 0;
    let mut next: Option<String> = None;
    for _ in 0..PAGES {
        let params = ListParams {
            field_selector: fields.map(str::to_owned),
            limit: Some(PAGE),
            continue_token: next.take(),
            ..ListParams::default()
        };
        match page(path, &params, client).await {
            Ok(page) => {
                for item in &page.items {
                    take(into, item.get());
                }
                next = page.metadata.next.filter(|token| !token.is_empty());
                if next.is_none() {
                    return Ok(());
                }
            }
            // Our place in the list is lost.
            Err(Failure::Gone) if params.continue_token.is_some() && restarts < RESTARTS => restarts += 1,
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Refused(format!("the list does not end after {PAGES} pages")))
}

async fn page(path: &str, params: &ListParams, client: &Client) -> Result<Page, Failure> {
    let mut tries = 1;
    loop {
        let request = Request::new(path).list(params).map_err(|error| Failure::Refused(error.to_string()))?;
        let after = match call(client.request::<Page>(request)).await {
            Ok(page) => return Ok(page),
            Err(failure @ (Failure::Away(_) | Failure::Busy { .. })) if tries >= TRIES => {
                return Err(failure);
            }
            Err(Failure::Busy { after, .. }) => after,
            Err(Failure::Away(_)) => None,
            Err(failure) => return Err(failure),
        };
        tokio::time::sleep(after.unwrap_or(Duration::from_millis(500) * tries).min(Duration::from_secs(30)))
            .await;
        tries += 1;
    }
}

pub(super) fn sentence(failure: Failure) -> String {
    match failure {
        Failure::Gone => "there is no such list on the API server".to_owned(),
        Failure::Exists | Failure::Conflict => "the API server speaks of a conflict".to_owned(),
        Failure::Forbidden(why) => format!("we may not: {why}; grant list on it"),
        Failure::Owned(why) | Failure::Refused(why) | Failure::Busy { why, .. } | Failure::Away(why) => why,
    }
}
