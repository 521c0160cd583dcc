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

/// Where there is nothing to show, and why.
pub(super) fn standing_by(about: &About, why: &str) -> Markup {
    let live = html! { p.empty { (plain(why)) } };
    document(about, Place::Elsewhere, "Standing by", &html! { h1 { "Standing by" } }, &live)
}

/// From one page of a list to the others.
fn pager(label: &str, page: usize, pages: usize, to: impl Fn(usize) -> String) -> Markup {
    html! {
        @if pages > 1 {
            nav.pager aria-label=(label) {
                @if page > 1 { a href=(to(1)) { "First" } " " a rel="prev" href=(to(page - 1)) { "Previous" } }
                span { "Page " (thousands(page)) " of " (thousands(pages)) }
                @if page < pages { a rel="next" href=(to(page + 1)) { "Next" } " " a href=(to(pages)) { "Last" } }
            }
        }
    }
}

/// With thin spaces, as in 100 000.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A name from elsewhere: harmless, and kept apart from the text around it, whichever direction it is written in.
fn name(text: &str) -> Markup {
    html! { bdi { (plain(text)) } }
}

fn badge(grade: Grade, word: &str) -> Markup {
    html! { span.badge .{ "g-" (grade.slug()) } { span aria-hidden="true" { (grade.sign()) } " " (word) } }
}

/// As in `2026-08-21 10:02:00`; the page says that all times are UTC.
fn clock(at: Timestamp) -> String {
    format!("{at:.0}").replace('T', " ").replace('Z', "")
}

/// How long ago, with the exact time on demand.
fn age(since: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(since) title=(clock(since)) { (Age::between(since, now)) } }
}

/// The sentence, in which the volume leads to its own page; or before which, if it is not named there.
fn linked(moment: &Moment) -> Markup {
    let Moment { driver, volume, known_as, text, .. } = moment;
    let Some(volume) = volume else { return html! { span { (plain(text)) } } };
    let label = known_as.as_deref().unwrap_or(volume);
    let (before, after) = text.split_once(label).filter(|_| !label.is_empty()).unwrap_or((" ", text));
    html! {
        span {
            (plain(before)) a href=(link::volume(driver, volume)) { (name(label)) }
            @if before == " " { " " }
            (plain(after))
        }
    }
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
                        " " (linked(moment))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_can_be_read() {
        let check = |number, expected: &str| assert_eq!(thousands(number).replace('\u{202f}', " "), expected);
        check(0, "0");
        check(999, "999");
        check(1_000, "1 000");
        check(1_234_567, "1 234 567");
    }
}
