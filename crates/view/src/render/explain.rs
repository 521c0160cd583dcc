//! One volume in full: how it is, who says so, what to do, and how it came to this.

use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;

use crate::text::{Age, plain};
use crate::{Moment, Row, render::Paint, timeline};

/// `rows` are those of one volume, `moments` its past, oldest first. Either may be empty.
pub fn explain(
    driver: &str,
    volume: &str,
    rows: &[&Row],
    moments: &[Arc<Moment>],
    now: Timestamp,
    paint: Paint,
) -> String {
    let mut out = format!("{}\n", paint.strong(&format!("Volume {} of {}", plain(volume), plain(driver))));
    for row in rows {
        if !row.claim.is_empty() {
            let _ = writeln!(out, "  claim    {}/{}", plain(&row.namespace), plain(&row.claim));
        }
        let since = row.since.map(|since| format!(", for {}", Age::between(since, now))).unwrap_or_default();
        let reason = if row.reason().is_empty() { String::new() } else { format!(" {}", row.reason()) };
        let _ =
            writeln!(out, "  health   {}{reason}{since}", paint.grade(row.grade(), &row.health.to_string()));
        for (name, text) in [("message", row.message()), ("next", row.next())] {
            if !text.is_empty() {
                let _ = writeln!(out, "  {name:8} {}", plain(text));
            }
        }
        for sighting in &row.seen_by {
            let _ = writeln!(out, "  seen by  {}: {}", sighting.vantage, sighting.health);
        }
    }
    let lanes = timeline::lanes(moments, now);
    if lanes.is_empty() {
        out.push_str("\nNothing is recorded about its past.\n");
        return out;
    }
    out.push_str("\nHow it was\n");
    for lane in &lanes {
        let whose = match lane {
            timeline::Lane { whole: true, .. } => "all together, the worst".to_owned(),
            timeline::Lane { backend: true, vantage, .. } => format!("storage backend, seen by {vantage}"),
            timeline::Lane { vantage, .. } => format!("seen by {vantage}"),
        };
        let _ = writeln!(out, "  {whose}");
        for span in &lane.spans {
            let length = Age::between(span.from, span.to);
            let length = if span.open { format!("for {length} until now") } else { format!("for {length}") };
            let health =
                paint.grade(crate::Grade::of(span.health), &format!("{:13}", span.health.to_string()));
            let line = format!("    {:.0}  {health} {:24} {length}", span.from, span.reason);
            let _ = writeln!(out, "{line}");
        }
    }
    out.push_str("\nWhat was reported\n");
    for moment in moments {
        let _ = writeln!(out, "  {:.0}  {}", moment.at, plain(&moment.text));
    }
    out
}
