//! Lists in pages. Both lists keep the same rules.

use std::collections::HashSet;

use tonic::Code;
use volmedic_proto::csi::controller_service_capability::rpc::Type as Controller;

use super::{answered, refused};
use crate::bench::Bench;
use crate::listing::{Listing, Walk};
use crate::report::{Judged, Not, broken};
use crate::text::line;

/// Into how many pages a list is cut, about.
const PAGES: usize = 5;

fn need(bench: &Bench, listing: Listing) -> Result<(), Not> {
    bench.offers.need_controller(match listing {
        Listing::Volumes => Controller::ListVolumes,
        Listing::Health => Controller::ListVolumeHealth,
    })
}

/// Makes sure that there is something to list, and walks it in small pages.
async fn in_pages(bench: &mut Bench, listing: Listing) -> Result<Walk, Not> {
    let volumes = if bench.offers.controller(Controller::ListVolumes) {
        bench.walk(Listing::Volumes, 0).await?.ids.len()
    } else {
        0
    };
    let size = i32::try_from(volumes / PAGES).unwrap_or(i32::MAX).max(1);
    bench.walk(listing, size).await
}

async fn prepare(bench: &mut Bench, listing: Listing) -> Result<(), Not> {
    need(bench, listing)?;
    // A driver that makes no volumes may still have some.
    match bench.ids().await {
        Ok(_) | Err(Not::Applicable(_)) => Ok(()),
        Err(not) => Err(not),
    }
}

pub(super) async fn max_entries(bench: &mut Bench, listing: Listing) -> Judged {
    prepare(bench, listing).await?;
    let call = format!("{}(max_entries=1)", listing.call());
    let answer = bench.page(listing, 1, "").await;
    let page = answered(&call, answer)?;
    if page.ids.len() > 1 {
        return broken(format!("{call} answered with {} entries", page.ids.len()));
    }
    let more = if page.next.is_empty() { "no token" } else { "a token" };
    Ok(format!("{call} answered with {} entries and {more}", page.ids.len()))
}

pub(super) async fn progress(bench: &mut Bench, listing: Listing) -> Judged {
    prepare(bench, listing).await?;
    let walk = in_pages(bench, listing).await?;
    match walk.stuck {
        Some(why) => broken(format!("{}: {why}", listing.call())),
        None => Ok(format!("{} ended after {} pages", listing.call(), walk.pages)),
    }
}

/// Others may make and delete volumes meanwhile, so only what was there before and after must be in the pages.
pub(super) async fn whole(bench: &mut Bench, listing: Listing) -> Judged {
    prepare(bench, listing).await?;
    let before: HashSet<String> = bench.walk(listing, 0).await?.ids.into_iter().collect();
    let pages: HashSet<String> = in_pages(bench, listing).await?.ids.into_iter().collect();
    let after: HashSet<String> = bench.walk(listing, 0).await?.ids.into_iter().collect();
    let call = listing.call();
    if let Some(id) = before.intersection(&after).find(|id| !pages.contains(*id)) {
        return broken(format!("{call}: {} is in the whole list and in no page", line(id)));
    }
    if let Some(id) = pages.iter().find(|id| !before.contains(*id) && !after.contains(*id)) {
        return broken(format!("{call}: {} is in a page and not in the whole list", line(id)));
    }
    Ok(format!("{call}: {} entries in pages, {} in the whole list", pages.len(), after.len()))
}

pub(super) async fn duplicates(bench: &mut Bench, listing: Listing) -> Judged {
    prepare(bench, listing).await?;
    let walk = in_pages(bench, listing).await?;
    let mut before = HashSet::new();
    if let Some(id) = walk.ids.iter().find(|id| !before.insert(id.as_str())) {
        return broken(format!("{}: {} came twice", listing.call(), line(id)));
    }
    Ok(format!("{}: {} entries in {} pages, none twice", listing.call(), walk.ids.len(), walk.pages))
}

pub(super) async fn bad_token(bench: &mut Bench, listing: Listing) -> Judged {
    need(bench, listing)?;
    let token = "volmedic-conformance-no-such-token";
    let answer = bench.page(listing, 0, token).await;
    refused(&format!("{}(starting_token={token})", listing.call()), answer, Code::Aborted)
}

pub(super) async fn negative(bench: &mut Bench, listing: Listing) -> Judged {
    need(bench, listing)?;
    let answer = bench.page(listing, -1, "").await;
    refused(&format!("{}(max_entries=-1)", listing.call()), answer, Code::InvalidArgument)
}
