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
/// How often one page is asked for, and how often a list is started again when the server lost our place in it.
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

/// A list that is read page by page.
pub(super) struct Pages<'a> {
    path: &'a str,
    fields: Option<&'a str>,
    client: &'a Client,
    state: State,
    read: usize,
    restarts: u32,
}

enum State {
    /// What stands for our place in the list; none at its beginning.
    At(Option<String>),
    Over,
}

impl<'a> Pages<'a> {
    pub(super) fn new(path: &'a str, fields: Option<&'a str>, client: &'a Client) -> Self {
        Self { path, fields, client, state: State::At(None), read: 0, restarts: 0 }
    }

    /// The items of the next page; `None` after the last. An item may come twice when a list is started again.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Box<RawValue>>>, Failure> {
        loop {
            let State::At(place) = &self.state else { return Ok(None) };
            if self.read == PAGES {
                return Err(Failure::Refused(format!("the list does not end after {PAGES} pages")));
            }
            self.read += 1;
            let params = ListParams {
                field_selector: self.fields.map(str::to_owned),
                limit: Some(PAGE),
                continue_token: place.clone(),
                ..ListParams::default()
            };
            match page(self.path, &params, self.client).await {
                Ok(page) => {
                    let next = page.metadata.next.filter(|token| !token.is_empty());
                    self.state = next.map_or(State::Over, |next| State::At(Some(next)));
                    return Ok(Some(page.items));
                }
                // Our place in the list is lost.
                Err(Failure::Gone) if params.continue_token.is_some() && self.restarts < RESTARTS => {
                    self.restarts += 1;
                    self.state = State::At(None);
                }
                Err(failure) => return Err(failure),
            }
        }
    }
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
        Failure::Owned(why)
        | Failure::Refused(why)
        | Failure::UnknownField(why)
        | Failure::Busy { why, .. }
        | Failure::Away(why) => why,
    }
}
