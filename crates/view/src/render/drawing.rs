//! A volume's past as a drawing: one line for each lane, time from left to right.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use crate::text::{Age, fit, width};
use crate::timeline::{Lane, Span};
use crate::{Grade, render::Paint};

/// Columns of the drawing itself, and of the names before it, where a terminal does not say otherwise.
const COLUMNS: usize = 60;
const NAMES: usize = 28;
/// A drawing narrower than this says nothing.
const LEAST: usize = 10;

/// The lanes, where time runs, and what the signs mean. Empty where there is nothing to draw.
pub fn drawing(lanes: &[Lane], now: Timestamp, paint: Paint) -> String {
    let spans = || lanes.iter().flat_map(|lane| &lane.spans);
    let Some(from) = spans().map(|span| span.from).min() else { return String::new() };
    let to = spans().map(|span| span.to).max().unwrap_or(now).max(now);
    let names: Vec<String> = lanes.iter().map(name).collect();
    let margin = names.iter().map(|name| width(name)).max().unwrap_or_default().min(NAMES);
    let room = paint.width.map_or(COLUMNS, |width| width.saturating_sub(margin + 6)).clamp(LEAST, COLUMNS);
    let mut out = String::new();
    let mut used = BTreeSet::new();
    for (lane, name) in lanes.iter().zip(&names) {
        let name = fit(name, margin);
        let pad = margin - width(&name);
        let _ = write!(out, "  {name}{:pad$}  ", "");
        for column in 0..room {
            match worst(&lane.spans, from, to, column, room) {
                Some(grade) => {
                    used.insert(grade);
                    out.push_str(&paint.grade(grade, sign(grade)));
                }
                None => out.push(' '),
            }
        }
        out.push('\n');
    }
    let (start, end) = (format!("{} ago", Age::between(from, now)), "now");
    let gap = room.saturating_sub(width(&start) + end.len());
    let _ = writeln!(out, "  {:margin$}  {}", "", paint.faint(&format!("{start}{:gap$}{end}", "")));
    let meaning = |grade: &Grade| format!("{} {}", sign(*grade), grade.label().to_lowercase());
    let legend: Vec<String> = used.iter().map(meaning).collect();
    let _ = writeln!(out, "  {:margin$}  {}", "", paint.faint(&legend.join("   ")));
    out
}

fn name(lane: &Lane) -> String {
    match lane {
        Lane { whole: true, .. } => "all together".to_owned(),
        Lane { backend: true, vantage, .. } => format!("storage, {}", vantage.name()),
        Lane { vantage, .. } => vantage.name(),
    }
}

/// The worst that was in one column's share of the time: what lasted for a moment only is drawn too.
fn worst(spans: &[Span], from: Timestamp, to: Timestamp, column: usize, columns: usize) -> Option<Grade> {
    let whole = to.duration_since(from).max(SignedDuration::from_secs(1));
    let at = |column: usize| {
        #[allow(clippy::cast_precision_loss, reason = "there are few columns")]
        let share = whole.mul_f64(column as f64 / columns as f64);
        from.checked_add(share).unwrap_or(to)
    };
    let (begin, end) = (at(column), at(column + 1));
    let covers = |span: &&Span| span.from < end && (span.to > begin || span.open);
    spans.iter().filter(covers).map(|span| Grade::of(span.health)).min()
}

fn sign(grade: Grade) -> &'static str {
    match grade {
        Grade::DataLoss => "✖",
        Grade::Inaccessible => "█",
        Grade::Degraded => "▒",
        Grade::Unrecognized => "◆",
        Grade::Unknown => "?",
        Grade::Healthy => "─",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use volmedic_health::{Health, Status, Vantage};

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    fn span(from: i64, to: i64, health: Health) -> Span {
        Span { from: at(from), to: at(to), health, reason: "".into(), open: false }
    }

    #[test]
    fn a_drawing_as_it_is_read() {
        let bad = Health::Adverse(Status::Inaccessible);
        let lane = |vantage, whole, spans| Lane { vantage, whole, backend: false, spans };
        let lanes = [
            lane(
                Vantage::Cluster,
                true,
                vec![
                    span(0, 30, Health::Healthy),
                    span(30, 40, bad),
                    span(40, 60, Health::Adverse(Status::Degraded)),
                ],
            ),
            lane(Vantage::Host("n".into()), false, vec![span(30, 40, bad), span(40, 60, Health::Healthy)]),
        ];
        let paint = Paint { colour: false, width: Some(36) };
        let expected = [
            "  all together  ─────────███▒▒▒▒▒▒",
            "  host/n                 ███──────",
            "                60 min ago     now",
            "                █ inaccessible   ▒ degraded   ─ healthy",
        ];
        assert_eq!(drawing(&lanes, at(60), paint).lines().collect::<Vec<_>>(), expected);
        assert_eq!(drawing(&[], at(60), paint), "");
    }

    #[test]
    fn a_moment_of_trouble_in_a_long_time_is_seen() {
        let spans = vec![
            span(0, 5000, Health::Healthy),
            span(5000, 5001, Health::Adverse(Status::DataLoss)),
            span(5001, 100_000, Health::Healthy),
        ];
        let lanes = [Lane { vantage: Vantage::Controller, whole: false, backend: false, spans }];
        let drawn = drawing(&lanes, at(100_000), Paint::default());
        assert_eq!(drawn.lines().next().unwrap().matches('✖').count(), 1, "{drawn}");
    }
}
