//! The markup. Everything that came from elsewhere goes through [`name`] or is escaped by the macro.

mod about;
mod list;
mod nodes;
mod volume;

use std::sync::Arc;

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};

pub(super) use about::about;
pub(super) use list::{CHANGES, volumes};
pub(super) use nodes::nodes;
pub(super) use volume::{Volume, no_such_volume, volume};

use super::link;
use crate::text::{Age, plain};
use crate::{About, Counts, Grade, Moment};

/// The places that the header leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Volumes,
    Nodes,
    Source,
    /// None of them.
    Elsewhere,
}

/// A whole document. `fixed` stays while the page is live, `live` is replaced when something changes.
fn document(about: &About, place: Place, title: &str, fixed: &Markup, live: &Markup) -> Markup {
    let link_to = |there: Place, href: &str, text: &str| {
        html! { a href=(href) aria-current=[(there == place).then_some("page")] { (text) } }
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (plain(title)) " · Volmedic" }
                link rel="icon" href="assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="assets/page.css";
                script defer src="assets/page.js" {}
            }
            body data-changes="changes" {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.brand href="./" { img src="assets/icon.svg" alt="" width="26" height="26"; "Volmedic" }
                    p.source { strong { (name(&about.title)) } " " span.muted { (name(&about.place)) } }
                    nav aria-label="Pages" {
                        (link_to(Place::Volumes, "./", "Volumes"))
                        (link_to(Place::Nodes, "nodes", "Nodes"))
                        (link_to(Place::Source, "source", "Source"))
                    }
                    p.state #state role="status" { "as of loading" }
                }
                main #main tabindex="-1" {
                    (fixed)
                    div #live {
                        @if let Some(trouble) = &about.trouble {
                            p.alert role="alert" { strong { "Not seeing: " } (plain(trouble)) }
                        }
                        (live)
                    }
                }
                p.hidden #announce aria-live="polite" {}
                footer {
                    p { "Keys: " kbd { "/" } " search, " kbd { "j" } " and " kbd { "k" } " move between volumes, "
                        kbd { "Enter" } " opens one. All times are UTC." }
                }
            }
        }
    }
}

/// A name from elsewhere: harmless, and kept apart from the text around it, whichever direction it is written in.
fn name(text: &str) -> Markup {
    html! { bdi { (plain(text)) } }
}

fn badge(grade: Grade, word: &str) -> Markup {
    html! { span.badge .{ "g-" (grade.slug()) } { span aria-hidden="true" { (grade.sign()) } " " (word) } }
}

/// How long ago, with the time itself for whoever wants it.
fn age(since: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(since) title={ (format!("{since:.0}")) } { (Age::between(since, now)) } }
}

/// A bar of parts as wide as their counts. What it says is also said in words beside it.
fn bar(counts: &Counts) -> Markup {
    let total = counts.total().max(1);
    let mut at = 0;
    let mut parts = Vec::new();
    for (grade, count) in counts.iter().filter(|(_, count)| *count > 0) {
        parts.push((grade, percent(at, total), percent(count, total)));
        at += count;
    }
    html! {
        svg.bar aria-hidden="true" width="100%" height="8" {
            @for (grade, x, width) in &parts {
                rect .{ "g-" (grade.slug()) } x=(x) y="0" width=(width) height="8" {}
            }
        }
    }
}

fn percent(part: usize, whole: usize) -> String {
    // For a picture; more digits would not be seen.
    let thousandths = (part as u128 * 100_000 / whole.max(1) as u128).min(100_000);
    format!("{}.{:03}%", thousandths / 1000, thousandths % 1000)
}

/// What changed, newest first.
fn changes(moments: &[Arc<Moment>], now: Timestamp) -> Markup {
    html! {
        @if moments.is_empty() {
            p.muted { "Nothing has changed since this began to watch." }
        } @else {
            ol.changes {
                @for moment in moments {
                    li .{ "g-" (Grade::of(moment.health).slug()) } {
                        span.when { (age(moment.at, now)) " ago" }
                        " "
                        @if let Some(volume) = &moment.volume {
                            a href=(link::volume(&moment.driver, volume)) { (name(volume)) }
                            " "
                        }
                        span { (plain(&moment.text)) }
                    }
                }
            }
        }
    }
}
