//! The list of volumes: counts, filter, table, and what changed.

use std::sync::Arc;

use jiff::Timestamp;
use maud::{Markup, html};
use volmedic_health::Vantage;

use super::{Place, age, badge, bar, changes, document, link, name, pager, thousands};
use crate::text::plain;
use crate::{About, Grade, Moment, Page, Query, Row, Snapshot, Sort, Wanted};

/// Maximum number of changes that are shown below the list.
pub(in crate::page) const CHANGES: usize = 20;
/// Pods and nodes of one row; the volume's own page has all.
const NAMES: usize = 3;

pub(in crate::page) fn volumes(
    about: &About,
    snapshot: &Snapshot,
    query: &Query,
    latest: &[Arc<Moment>],
) -> Markup {
    let page = snapshot.page(query);
    let now = snapshot.at();
    let live = html! {
        (tiles(snapshot, query))
        @if snapshot.drivers().len() > 1 { (drivers(snapshot, query)) }
        (calm(snapshot))
        (limits(about))
        section aria-labelledby="volumes" {
            div.bar-line {
                h2 #volumes { "Volumes" }
                p.muted { (found(snapshot, &page, query)) }
            }
            @if page.rows.is_empty() { (nothing(about, snapshot, query)) } @else { (table(snapshot, &page, query, now)) }
            (pager("Pages of volumes", page.page, page.pages, |page| link::volumes(&Query { page, ..query.clone() })))
        }
        section aria-labelledby="changed" {
            h2 #changed { "What changed" }
            (changes(latest, now))
        }
    };
    let title = snapshot.counts().to_string();
    document(about, Place::Volumes, &title, &form(snapshot, query), &live)
}

/// The counts, each a link to what it counts.
fn tiles(snapshot: &Snapshot, query: &Query) -> Markup {
    let to = |health| link::volumes(&Query { health, page: 1, ..query.clone() });
    let counts = snapshot.counts();
    html! {
        ul.tiles aria-label="Volumes by health" {
            li {
                a.tile href=(to(None)) aria-current=[query.health.is_none().then_some("true")] {
                    span.count { (thousands(counts.total())) } span.label { "All volumes" }
                }
            }
            @for (grade, count) in counts.iter() {
                // An unknown status is rare; it has a tile only when there is one.
                @if count > 0 || grade != Grade::Unrecognized {
                    @let current = query.health == Some(Wanted::Only(grade));
                    li {
                        a.tile .{ "g-" (grade.slug()) } .none[count == 0]
                            href=(to(Some(Wanted::Only(grade)))) aria-current=[current.then_some("true")] {
                            span.count { (thousands(count)) }
                            span.label { span aria-hidden="true" { (grade.sign()) " " } (grade.label()) }
                        }
                    }
                }
            }
        }
    }
}

fn drivers(snapshot: &Snapshot, query: &Query) -> Markup {
    html! {
        section.drivers aria-labelledby="drivers" {
            h2 #drivers { "Drivers" }
            ul {
                @for (driver, counts) in snapshot.drivers() {
                    @let here = *query.driver == **driver;
                    @let wanted = if here { String::new() } else { driver.to_string() };
                    li {
                        a href=(link::volumes(&Query { driver: wanted, page: 1, ..query.clone() }))
                            aria-current=[here.then_some("true")] { (name(driver)) }
                        (bar(counts))
                        span.muted { (counts) }
                    }
                }
            }
        }
    }
}

/// What cannot be seen from here.
fn limits(about: &About) -> Markup {
    html! {
        @if let [first, rest @ ..] = about.limits.as_slice() {
            p.note {
                strong { "Cannot be seen from here: " } (plain(first))
                @if !rest.is_empty() { " " a href="source" { "and " (rest.len()) " more" } }
            }
        }
    }
}

fn form(snapshot: &Snapshot, query: &Query) -> Markup {
    let chosen = |health: Option<Wanted>| query.health == health;
    html! {
        h1.hidden { "Volumes" }
        form.filter method="get" action="./" role="search" {
            label { span { "Search" }
                input #search type="search" name="q" value=(query.search) autocomplete="off" spellcheck="false"
                    placeholder="claim, pod, node, reason …";
            }
            label { span { "Health" }
                select name="health" {
                    option value="" selected[chosen(None)] { "any" }
                    option value="NotWell" selected[chosen(Some(Wanted::Unhealthy))] { "not healthy" }
                    @for grade in Grade::ALL {
                        option value=(grade.name()) selected[chosen(Some(Wanted::Only(grade)))] { (grade.label()) }
                    }
                }
            }
            @if snapshot.drivers().len() > 1 || !query.driver.is_empty() {
                label { span { "Driver" }
                    select name="driver" {
                        option value="" { "any" }
                        @for driver in snapshot.drivers().keys() {
                            option value=(driver) selected[**driver == *query.driver] { (plain(driver)) }
                        }
                    }
                }
            }
            @if snapshot.has().claims || !query.namespace.is_empty() {
                label { span { "Namespace" }
                    input.short name="namespace" value=(query.namespace) autocomplete="off" spellcheck="false";
                }
            }
            @if snapshot.has().nodes || !query.node.is_empty() {
                label { span { "Node" }
                    input.short name="node" value=(query.node) autocomplete="off" spellcheck="false";
                }
            }
            label { span { "Order" }
                select name="sort" {
                    @for sort in Sort::ALL {
                        option value=(sort.name()) selected[sort == query.sort] { (sort.label()) }
                    }
                }
            }
            @if query.per_page != Query::PER_PAGE { input type="hidden" name="per" value=(query.per_page); }
            button { "Show" }
            @if !query.is_open() { a.clear href="./" { "Show all" } }
        }
    }
}

fn found(snapshot: &Snapshot, page: &Page<'_>, query: &Query) -> String {
    let total = thousands(snapshot.counts().total());
    let which = if query.is_open() {
        format!("{total} in all")
    } else {
        format!("{} of {total} match", thousands(page.matched))
    };
    if page.pages == 1 {
        which
    } else {
        format!("{which}, page {} of {}", thousands(page.page), thousands(page.pages))
    }
}

fn nothing(about: &About, snapshot: &Snapshot, query: &Query) -> Markup {
    let counts = snapshot.counts();
    let asked_for_trouble = query.health.is_some_and(|wanted| !wanted.takes(Grade::Healthy));
    html! {
        p.empty {
            @if snapshot.rows().is_empty() && about.trouble.is_some() {
                "Nothing is known here while that is so."
            } @else if snapshot.rows().is_empty() {
                "No volume is known here yet. " a href="source" { "What is checked here, and what is not" }
            } @else if asked_for_trouble && query.search.is_empty() {
                "None of " (thousands(counts.total())) " volumes is like that. " a href="./" { "Show all" }
            } @else {
                "No volume matches. " a href="./" { "Show all" }
            }
        }
    }
}

/// Says that all volumes are healthy, and which source says so.
fn calm(snapshot: &Snapshot) -> Markup {
    let counts = snapshot.counts();
    let total = counts.total();
    let all_well = total > 0 && counts.get(Grade::Healthy) == total;
    html! {
        @if all_well {
            p.note.calm.g-healthy {
                strong { "No trouble. " }
                @if total == 1 { "The volume here is healthy" } @else { "All " (thousands(total)) " volumes here are healthy" }
                (seers(snapshot)) "."
            }
        }
    }
}

/// As in `, seen by the driver's controller (12) and host checks on nodes (3)`.
fn seers(snapshot: &Snapshot) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for row in snapshot.rows() {
        let mut last = "";
        // A row's sightings are in the order of vantages, so those of one kind stand together.
        for sighting in &row.seen_by {
            let kind = match sighting.vantage {
                Vantage::Controller => "the driver's controller",
                Vantage::Node(_) => "the driver on nodes",
                Vantage::Host(_) => "host checks on nodes",
                Vantage::Kubelet(_) => "kubelets",
                Vantage::Cluster => "the cluster",
                Vantage::Pushed(_) => "reporters",
            };
            if std::mem::replace(&mut last, kind) == kind {
                continue;
            }
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, count)) => *count += 1,
                None => kinds.push((kind, 1)),
            }
        }
    }
    let words: Vec<String> =
        kinds.iter().map(|(kind, count)| format!("{kind} ({})", thousands(*count))).collect();
    match words.as_slice() {
        [] => String::new(),
        [only] => format!(", seen by {only}"),
        [first @ .., last] => format!(", seen by {} and {last}", first.join(", ")),
    }
}

fn table(snapshot: &Snapshot, page: &Page<'_>, query: &Query, now: Timestamp) -> Markup {
    let has = snapshot.has();
    let places = has.nodes || has.pods;
    let sorted = |sort| (query.sort == sort).then_some("ascending");
    html! {
        div.scroll tabindex="0" role="region" aria-labelledby="volumes" {
            table.volumes.cards {
                caption.hidden { "Volumes, " (query.sort.label()) }
                thead {
                    tr {
                        th scope="col" aria-sort=[sorted(Sort::Worst)] { "Health" }
                        th scope="col" aria-sort=[sorted(Sort::Name)] {
                            @if has.claims { "Claim" } @else { "Volume" }
                        }
                        th scope="col" { "What is wrong" }
                        th scope="col" aria-sort=[sorted(Sort::Oldest)] { "For" }
                        @if places { th scope="col" { "Used by" } }
                        th scope="col" { "Seen by" }
                        th scope="col" { "Next step" }
                    }
                }
                tbody {
                    @for row in &page.rows { (line(snapshot, row, places, now)) }
                }
            }
        }
    }
}

fn line(snapshot: &Snapshot, row: &Row, places: bool, now: Timestamp) -> Markup {
    let has = snapshot.has();
    let here = link::volume(&row.driver, &row.volume);
    html! {
        tr .{ "g-" (row.grade().slug()) } {
            td { (badge(row.grade(), &row.health.to_string())) }
            th.name scope="row" {
                @if row.claim.is_empty() {
                    a href=(here) { (name(&row.volume)) }
                } @else {
                    a href=(here) { (name(&row.namespace)) "/" (name(&row.claim)) }
                    span.second { (name(&row.volume)) }
                }
                @if has.drivers { span.second { (name(&row.driver)) } }
            }
            td.wrong {
                @if !row.reason().is_empty() { span.reason { (plain(row.reason())) } }
                @if !row.message().is_empty() { span.second { (name(row.message())) } }
            }
            td.nowrap data-label="For" { @if let Some(since) = row.since { (age(since, now)) } }
            @if places {
                td.used data-label="Used by" {
                    (some(&row.pods))
                    @if !row.nodes.is_empty() { span.second { "on " (some(&row.nodes)) } }
                }
            }
            td.seen data-label="Seen by" {
                @for vantage in row.seers().take(NAMES) { span.word { (name(&vantage.name())) } " " }
            }
            td.next data-label="Next" { (row.next()) }
        }
    }
}

fn some<T: AsRef<str>>(names: &[T]) -> Markup {
    html! {
        @for (index, one) in names.iter().take(NAMES).enumerate() {
            @if index > 0 { ", " }
            (name(one.as_ref()))
        }
        @if names.len() > NAMES { " and " (names.len() - NAMES) " more" }
    }
}
