//! Nodes, whether an agent checks their volumes, and the health of the volumes on them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use maud::{Markup, html};

use super::{Place, age, badge, bar, document, link, name, pager, thousands};
use crate::text::plain;
use crate::{About, Counts, NodeState, Query, Snapshot};

/// Nodes on one page.
const PER_PAGE: usize = 200;

pub(in crate::page) fn nodes(
    about: &About,
    snapshot: &Snapshot,
    states: &[NodeState],
    page: usize,
) -> Markup {
    let none = Counts::default();
    let mut all: BTreeMap<&str, (&Counts, Option<&NodeState>)> = BTreeMap::new();
    for (node, counts) in snapshot.nodes() {
        all.insert(node, (counts, None));
    }
    for state in states {
        all.entry(&state.name).or_insert((&none, None)).1 = Some(state);
    }
    let mut all: Vec<Line<'_>> =
        all.into_iter().map(|(node, (counts, state))| Line { node, counts, state }).collect();
    all.sort_by_key(|line| (line.trouble(), line.counts.worst().is_none(), line.counts.worst(), line.node));
    let pages = all.len().div_ceil(PER_PAGE).max(1);
    let page = page.clamp(1, pages);
    let shown = all.iter().skip((page - 1) * PER_PAGE).take(PER_PAGE);
    let live = html! {
        @if all.is_empty() {
            p.empty { "No node is known here. This process does not know where volumes are used." }
        } @else {
            p.muted { (summary(&all)) }
            (table(shown, states.iter().any(|state| state.agent.is_some()), snapshot.at()))
            (pager("Pages of nodes", page, pages, link::nodes))
        }
    };
    document(about, Place::Nodes, "Nodes", &html! { h1 { "Nodes" } }, &live)
}

struct Line<'a> {
    node: &'a str,
    counts: &'a Counts,
    state: Option<&'a NodeState>,
}

impl Line<'_> {
    /// Unhealthy nodes first, then those without an agent that should have one.
    fn trouble(&self) -> u8 {
        let agent = self.state.and_then(|state| state.agent.as_ref());
        match (self.state.is_none_or(|state| state.well), agent.is_none_or(|agent| agent.well)) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        }
    }
}

/// As in `6 nodes, 1 unhealthy, 2 without a living agent`.
fn summary(all: &[Line<'_>]) -> String {
    let unhealthy = all.iter().filter(|line| line.state.is_some_and(|state| !state.well)).count();
    let agent =
        |line: &&Line<'_>| line.state.and_then(|state| state.agent.as_ref()).is_some_and(|agent| !agent.well);
    let unseen = all.iter().filter(agent).count();
    let all = match all.len() {
        1 => "1 node".to_owned(),
        many => format!("{} nodes", thousands(many)),
    };
    let trouble = [(unhealthy, "unhealthy"), (unseen, "without a living agent")];
    let trouble = trouble.into_iter().filter(|(count, _)| *count > 0);
    let parts = trouble.map(|(count, what)| format!("{} {what}", thousands(count)));
    std::iter::once(all).chain(parts).collect::<Vec<_>>().join(", ")
}

fn table<'a>(shown: impl Iterator<Item = &'a Line<'a>>, agents: bool, now: Timestamp) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Nodes" {
            table.nodes.cards {
                caption.hidden { "Nodes, worst first" }
                thead { tr {
                    th scope="col" { "Node" } th scope="col" { "State" }
                    @if agents { th scope="col" { "Agent" } }
                    th scope="col" { "Worst volume" } th scope="col" { "Volumes in use there" }
                } }
                tbody { @for line in shown { (row(line, agents, now)) } }
            }
        }
    }
}

fn row(Line { node, counts, state }: &Line<'_>, agents: bool, now: Timestamp) -> Markup {
    let agent = state.and_then(|state| state.agent.as_ref());
    let said = |text: &str, well: bool, since: Option<Timestamp>| {
        html! {
            span.word.bad[!well] { (plain(text)) }
            @if let Some(since) = since { span.muted { " for " (age(since, now)) } }
        }
    };
    html! {
        tr class=[counts.worst().map(|grade| format!("g-{}", grade.slug()))] {
            th.name scope="row" {
                a href=(link::volumes(&Query { node: (*node).to_owned(), ..Query::default() })) { (name(node)) }
            }
            td data-label="State" { @if let Some(state) = state { (said(&state.state, state.well, state.since)) } }
            @if agents { td data-label="Agent" { @if let Some(agent) = agent { (said(agent.state, agent.well, agent.since)) } } }
            td data-label="Worst volume" { @if let Some(worst) = counts.worst() { (badge(worst, worst.label())) } }
            td { @if counts.total() > 0 { (bar(counts)) } span.muted { (counts) } }
        }
    }
}
