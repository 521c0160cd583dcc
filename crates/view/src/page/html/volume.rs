//! One volume: its health, the vantages that report it, what to do, and its history as a drawing and a list.

use std::sync::Arc;

use jiff::Timestamp;
use maud::{Markup, html};

use super::super::chart::{self, Window};
use super::{Place, age, badge, clock, document, link, name};
use crate::text::plain;
use crate::{About, Grade, Heal, Moment, Row, Sighting, timeline};

/// Maximum number of changes of a volume that are listed.
const LISTED: usize = 200;

/// What is shown of a volume.
pub(in crate::page) struct Volume<'a> {
    pub(in crate::page) driver: &'a str,
    pub(in crate::page) handle: &'a str,
    /// One for each claim that uses it; none if it is gone.
    pub(in crate::page) rows: &'a [&'a Row],
    pub(in crate::page) story: &'a [Arc<Moment>],
    pub(in crate::page) heals: &'a [Heal],
    pub(in crate::page) window: Window,
    pub(in crate::page) now: Timestamp,
}

pub(in crate::page) fn volume(about: &About, shown: &Volume<'_>) -> Markup {
    let Volume { driver, handle, rows, story, heals, window, now } = shown;
    let seen_by = rows.first().map_or(&[][..], |row| &row.seen_by);
    let title = match rows.first() {
        Some(row) if row.claim.is_empty() => format!("{} {handle}", row.health),
        Some(row) => format!("{} {}/{}", row.health, row.namespace, row.claim),
        None => format!("gone {handle}"),
    };
    let claimed = rows.iter().find(|row| !row.claim.is_empty());
    let fixed = html! {
        nav.crumbs aria-label="Where this is" { a href="./" { "Volumes" } " / " }
        h1.name {
            @if let Some(row) = claimed { (name(&row.namespace)) "/" (name(&row.claim)) } @else { (name(handle)) }
        }
    };
    let live = html! {
        @if let Some(row) = rows.first() { (state(row, *now)) } @else {
            p.note { "This volume is no longer there. What is kept of its past is below." }
        }
        dl.facts {
            div { dt { "Driver" } dd { (name(driver)) } }
            div { dt { "Volume" } dd.mono { (name(handle)) } }
            @for row in rows.iter().filter(|row| !row.claim.is_empty()) {
                div { dt { "Claim" } dd { (name(&row.namespace)) "/" (name(&row.claim)) } }
                @if !row.pods.is_empty() { div { dt { "Pods" } dd { (all(&row.pods)) } } }
            }
            @if let Some(row) = rows.iter().find(|row| !row.nodes.is_empty()) {
                div { dt { "Nodes" } dd { (all(&row.nodes)) } }
            }
        }
        @if let Some(row) = rows.first() { (vantages(row, *now)) }
        section aria-labelledby="past" {
            div.bar-line {
                h2 #past { "How it was" }
                p.windows {
                    @for other in Window::ALL {
                        a href=(link::window(driver, handle, other.name()))
                            aria-current=[(other == *window).then_some("true")] { (other.label()) } " "
                    }
                }
            }
            (chart::draw(&timeline::lanes_with(story, seen_by, *now), *window, *now))
        }
        @if !heals.is_empty() { (attempts(heals, *now)) }
        section aria-labelledby="reported" {
            h2 #reported { "What was reported" }
            @if story.is_empty() { p.muted { "Nothing yet." } } @else { (listed(story)) }
        }
    };
    document(about, Place::Elsewhere, &title, &fixed, &live)
}

pub(in crate::page) fn no_such_volume(about: &About, driver: &str, volume: &str) -> Markup {
    let live = html! {
        h1 { "No such volume" }
        p { "Nothing is known here of the volume " strong { (name(volume)) } " of the driver " strong { (name(driver)) }
            ". It may have been deleted, or this process has not seen it yet." }
        p { a href="./" { "All volumes" } }
    };
    document(about, Place::Elsewhere, "No such volume", &html! {}, &live)
}

fn state(row: &Row, now: Timestamp) -> Markup {
    html! {
        div.headline .{ "g-" (row.grade().slug()) } {
            p.big {
                (badge(row.grade(), &row.health.to_string()))
                @if !row.reason().is_empty() { " " strong { (plain(row.reason())) } }
                @if let Some(since) = row.since { span.muted { " for " (age(since, now)) } }
            }
            @if !row.message().is_empty() { p { (name(row.message())) } }
            @if !row.next().is_empty() { p.step { strong { "Next: " } (row.next()) } }
        }
    }
}

fn vantages(row: &Row, now: Timestamp) -> Markup {
    html! {
        section aria-labelledby="vantages" {
            h2 #vantages { "Seen from" }
            @if row.seen_by.is_empty() { p.muted { "It has not been checked yet." } } @else {
                div.scroll tabindex="0" role="region" aria-labelledby="vantages" {
                    table.vantages.cards {
                        caption.hidden { "What each vantage says" }
                        thead { tr {
                            th scope="col" { "Vantage" } th scope="col" { "Health" } th scope="col" { "For" }
                            th scope="col" { "What is wrong" }
                        } }
                        tbody { @for sighting in &row.seen_by { (vantage(sighting, now)) } }
                    }
                }
            }
        }
    }
}

fn vantage(sighting: &Sighting, now: Timestamp) -> Markup {
    let Sighting { vantage, health, conditions, blind_since, flapping_since } = sighting;
    html! {
        tr .{ "g-" (Grade::of(*health).slug()) } {
            th scope="row" { (name(&vantage.to_string())) }
            td { (badge(Grade::of(*health), &health.to_string())) }
            td.nowrap data-label="For" { @if let Some(since) = sighting.since() { (age(since, now)) } }
            td {
                @for held in conditions {
                    p.condition {
                        (badge(Grade::of(volmedic_health::Health::Adverse(held.condition.status)), &held.condition.status.to_string()))
                        " " strong { (plain(held.condition.reason.as_str())) } " "
                        span.muted { "for " (age(held.since, now)) }
                        @if !held.condition.message.is_empty() { span.second { (name(&held.condition.message)) } }
                    }
                }
                @if let Some(since) = blind_since { p { "Not seen from here for " (age(*since, now)) "; what was known stands." } }
                @if let Some(since) = flapping_since { p { "Has been changing back and forth for " (age(*since, now)) "." } }
            }
        }
    }
}

/// What was done about it.
fn attempts(heals: &[Heal], now: Timestamp) -> Markup {
    html! {
        section aria-labelledby="heals" {
            h2 #heals { "What was done to heal it" }
            div.scroll tabindex="0" role="region" aria-labelledby="heals" {
                table.heals.cards {
                    caption.hidden { "Attempts to heal, newest first" }
                    thead { tr {
                        th scope="col" { "When" } th scope="col" { "Outcome" } th scope="col" { "What was done" }
                        th scope="col" { "Node" } th scope="col" { "More" }
                    } }
                    tbody {
                        @for Heal { at, outcome, well, remedy, node, message } in heals {
                            tr {
                                th.nowrap scope="row" { (age(*at, now)) " ago" }
                                td.outcome .good[*well == Some(true)] .bad[*well == Some(false)] { (outcome) }
                                td { (name(remedy)) }
                                td data-label="Node" { @if let Some(node) = node { (name(node)) } }
                                td.wrong { (name(message)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn listed(story: &[Arc<Moment>]) -> Markup {
    html! {
        ol.changes {
            @for moment in story.iter().rev().take(LISTED) {
                li .{ "g-" (Grade::of(moment.health).slug()) } {
                    time.when datetime=(moment.at) { (clock(moment.at)) } " "
                    span { (plain(&moment.text)) }
                }
            }
        }
        @if story.len() > LISTED { p.muted { "and " (story.len() - LISTED) " older" } }
    }
}

fn all<T: AsRef<str>>(names: &[T]) -> Markup {
    html! { @for (index, one) in names.iter().enumerate() { @if index > 0 { ", " } (name(one.as_ref())) } }
}
