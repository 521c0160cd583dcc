//! Lists that come in pages, walked with a bound.

use std::collections::HashSet;

use volmedic_proto::csi as wire;

use crate::bench::Bench;
use crate::report::{Not, broken};
use crate::rules::answered;
use crate::text::said;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Listing {
    Volumes,
    Health,
}

impl Listing {
    pub(crate) fn call(self) -> &'static str {
        match self {
            Self::Volumes => "ListVolumes",
            Self::Health => "ControllerListVolumeHealth",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) ids: Vec<String>,
    /// Those of them of which something adverse is reported. Only a list of health does.
    pub(crate) adverse: Vec<String>,
    pub(crate) next: String,
}

/// All pages of a list.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) ids: Vec<String>,
    pub(crate) adverse: Vec<String>,
    pub(crate) pages: usize,
    /// Why the walk is no proper one, if it is not.
    pub(crate) stuck: Option<String>,
}

/// No list that is asked for in a handful of pages has more.
const MOST_PAGES: usize = 2_000;

impl Bench {
    /// Walks a list in pages of that many entries. A token that comes back, or a list without an end, ends the walk.
    pub(crate) async fn walk(&mut self, listing: Listing, max_entries: i32) -> Result<Walk, Not> {
        let (mut walk, mut token, mut tokens) = (Walk::default(), String::new(), HashSet::new());
        loop {
            let page = match self.page(listing, max_entries, &token).await {
                Ok(page) => page,
                Err(status) => {
                    let call = listing.call();
                    return broken(format!("{call} page {} answered {}", walk.pages + 1, said(&status)));
                }
            };
            walk.pages += 1;
            walk.ids.extend(page.ids);
            walk.adverse.extend(page.adverse);
            if page.next.is_empty() {
                return Ok(walk);
            }
            if !tokens.insert(page.next.clone()) {
                walk.stuck = Some(format!("the token of page {} came before", walk.pages));
                return Ok(walk);
            }
            if walk.pages == MOST_PAGES {
                walk.stuck = Some(format!("there is no end after {MOST_PAGES} pages"));
                return Ok(walk);
            }
            token = page.next;
        }
    }

    /// Everything in the list of volumes. A driver may make pages of its own accord.
    pub(crate) async fn every_volume(&mut self) -> Result<Vec<wire::list_volumes_response::Entry>, Not> {
        let (mut entries, mut token) = (Vec::new(), String::new());
        for _ in 0..MOST_PAGES {
            let answer = self.list_volumes(0, &token).await;
            let page = answered(Listing::Volumes.call(), answer)?;
            entries.extend(page.entries);
            if page.next_token.is_empty() || page.next_token == token {
                break;
            }
            token = page.next_token;
        }
        Ok(entries)
    }

    /// Everything in the list of health.
    pub(crate) async fn every_health(&mut self) -> Result<Vec<wire::VolumeHealth>, Not> {
        let (mut entries, mut token) = (Vec::new(), String::new());
        for _ in 0..MOST_PAGES {
            let answer = self.list_health(0, &token).await;
            let page = answered(Listing::Health.call(), answer)?;
            entries.extend(page.entries);
            if page.next_token.is_empty() || page.next_token == token {
                break;
            }
            token = page.next_token;
        }
        Ok(entries)
    }
}
