//! The source of the page, what it does not know, and how long its calls take.

use maud::{Markup, html};

use super::{Place, document, name};
use crate::text::plain;
use crate::{About, Call};

pub(in crate::page) fn about(about: &About) -> Markup {
    let live = html! {
        dl.facts {
            @for (label, value) in &about.facts { div { dt { (label) } dd { (name(value)) } } }
        }
        section aria-labelledby="limits" {
            h2 #limits { "What cannot be seen from here" }
            @if about.limits.is_empty() { p { "Nothing is missing." } } @else {
                ul.limits { @for limit in &about.limits { li { (plain(limit)) } } }
            }
        }
        @if !about.calls.is_empty() { (calls(&about.calls)) }
    };
    document(about, Place::Source, "Source", &html! { h1 { "Source" } }, &live)
}

fn calls(calls: &[Call]) -> Markup {
    html! {
        section aria-labelledby="calls" {
            h2 #calls { "Calls to the driver" }
            div.scroll tabindex="0" role="region" aria-labelledby="calls" {
                table.calls {
                    caption.hidden { "Calls to the driver" }
                    thead { tr {
                        th scope="col" { "Call" }
                        @for head in ["Count", "Failed", "Median", "Slowest"] { th.number scope="col" { (head) } }
                    } }
                    tbody {
                        @for Call { name, count, failed, median, slowest } in calls {
                            tr {
                                th scope="row" { (name) }
                                td.number { (count) }
                                td.number.bad[*failed > 0] { (failed) }
                                td.number { (format!("{median:.1?}")) }
                                td.number { (format!("{slowest:.1?}")) }
                            }
                        }
                    }
                }
            }
            p.muted { "Median and slowest are of the latest calls of each kind." }
        }
    }
}
