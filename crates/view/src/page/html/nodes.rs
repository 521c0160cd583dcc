//! Nodes, and how the volumes on them are.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{Place, age, badge, bar, document, link, name};
use crate::text::plain;
use crate::{About, Counts, NodeState, Query, Snapshot};

pub(in crate::page) fn nodes(about: &About, snapshot: &Snapshot, states: &[NodeState]) -> Markup {
    let none = Counts::default();
    let mut all: BTreeMap<&str, (&Counts, Option<&NodeState>)> = BTreeMap::new();
    for (node, counts) in snapshot.nodes() {
        all.insert(node, (counts, None));
    }
    for state in states {
        all.entry(&state.name).or_insert((&none, None)).1 = Some(state);
    }
    let mut all: Vec<_> = all.into_iter().collect();
    // Nodes that are not well first, then by the worst volume on them.
    all.sort_by_key(|(name, (counts, state))| (state.is_none_or(|state| state.well), counts.worst(), *name));
    let now = snapshot.at();
    let live = html! {
        @if all.is_empty() {
            p.empty { "No node is known here. What is shown comes from a place that is not told where volumes are used." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Nodes" {
                table.nodes {
                    caption.hidden { "Nodes, worst first" }
                    thead { tr {
                        th scope="col" { "Node" } th scope="col" { "State" } th scope="col" { "Worst volume" }
                        th scope="col" { "Volumes in use there" }
                    } }
                    tbody {
                        @for (node, (counts, state)) in &all {
                            tr class=[counts.worst().map(|grade| format!("g-{}", grade.slug()))] {
                                th.name scope="row" {
                                    a href=(link::volumes(&Query { node: (*node).to_owned(), ..Query::default() })) { (name(node)) }
                                }
                                td {
                                    @if let Some(state) = state {
                                        span.word.bad[!state.well] { (plain(&state.state)) }
                                        @if let Some(since) = state.since { span.muted { " for " (age(since, now)) } }
                                    }
                                }
                                td { @if let Some(worst) = counts.worst() { (badge(worst, worst.label())) } }
                                td { (bar(counts)) span.muted { (counts) } }
                            }
                        }
                    }
                }
            }
        }
    };
    document(about, Place::Nodes, "Nodes", &html! { h1 { "Nodes" } }, &live)
}
