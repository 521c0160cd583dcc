//! The figures, as a table for the terminal and a page for the documentation.

use std::fmt::Write as _;

use super::Outcome;

/// What the others are compared with.
const PEER: &str = "kubectl get pvc -A";

pub(super) fn table(outcome: &Outcome) -> String {
    let mut text = String::from(
        "| claims | command | s | × kubectl get pvc -A | own MiB | resident MiB | printed MB |\n\
         |---:|---|---:|---:|---:|---:|---:|\n",
    );
    for (claims, figures) in &outcome.rows {
        let peer = figures.iter().find(|figure| figure.name == PEER).map(|figure| figure.time.as_secs_f64());
        for figure in figures {
            let seconds = figure.time.as_secs_f64();
            let ratio = peer
                .filter(|peer| *peer > 0.0)
                .map_or("-".to_owned(), |peer| format!("{:.2}", seconds / peer));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {claims} | `{}` | {seconds:.2} | {ratio} | {} | {} | {}.{} |",
                figure.name,
                figure.own >> 20,
                figure.resident >> 20,
                figure.printed / 1_000_000,
                figure.printed / 100_000 % 10,
            );
        }
    }
    text
}

pub(super) fn page(outcome: &Outcome) -> String {
    format!(
        "# The command line, measured\n\n\
         Made by `cargo xtask bench cli` on a machine with {}: a real API server on the same machine, filled with bound \
         claims and volumes, a tenth of the claims (at most 1,000) unhealthy with a VolumeHealth each. Every command is run three \
         times in turn with the same account; the median counts. `volmedic status` reads claims, volumes, pods, nodes, \
         VolumeHealths, NodeVolumeHealths, Leases and drivers to say what it says; `kubectl get pvc -A` reads claims only, \
         as a table that the server prints. Memory of its own is what a process holds without the pages of its program \
         file; kubectl is the one that is built with the server.\n\n{}",
        outcome.machine,
        table(outcome)
    )
}
