//! A volume's past, drawn: one lane for each vantage, time from left to right.
//!
//! Positions are percentages, so that the picture fits every width and its text keeps its size. Colours come from the
//! style sheet; each stretch also says in words what it is.

use jiff::Timestamp;
use maud::{Markup, html};
use volmedic_health::Health;

use crate::text::{Age, plain};
use crate::{Grade, Lane, Span};

const LANE: usize = 58;
const BAR: usize = 26;
const AXIS: usize = 30;
/// What a letter takes, and the space around a word, in thousandths of the width of a usual screen.
const LETTER: i64 = 8;
const MARGIN: i64 = 16;
/// Stretches at the very least this wide, in thousandths, so that short ones can be seen.
const SLIVER: i64 = 3;
const TICKS: i64 = 4;

/// How much of the past is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Window {
    Hour,
    Day,
    Week,
    #[default]
    All,
}

impl Window {
    pub(super) const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::Week, Self::All];

    pub(super) fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|window| window.name() == text).unwrap_or_default()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::All => "all",
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Hour => "1 hour",
            Self::Day => "1 day",
            Self::Week => "1 week",
            Self::All => "all",
        }
    }

    fn seconds(self) -> Option<i64> {
        match self {
            Self::Hour => Some(3_600),
            Self::Day => Some(86_400),
            Self::Week => Some(604_800),
            Self::All => None,
        }
    }
}

/// From when to when is drawn, in seconds.
#[derive(Debug, Clone, Copy)]
struct Frame {
    from: i64,
    to: i64,
}

impl Frame {
    fn new(lanes: &[Lane], window: Window, now: Timestamp) -> Self {
        let to = now.as_second();
        let first =
            lanes.iter().filter_map(|lane| lane.spans.first()).map(|span| span.from.as_second()).min();
        let from = match window.seconds() {
            Some(seconds) => to - seconds,
            // A little before the first, so that its beginning is seen; at least a minute.
            None => first.map_or(to - 60, |first| first - (to - first) / 20).min(to - 60),
        };
        Self { from, to }
    }

    /// In thousandths of the width.
    fn place(self, at: Timestamp) -> i64 {
        let inside = at.as_second().clamp(self.from, self.to) - self.from;
        inside * 1000 / (self.to - self.from).max(1)
    }
}

pub(super) fn draw(lanes: &[Lane], window: Window, now: Timestamp) -> Markup {
    if lanes.is_empty() {
        return html! { p.muted { "It has not changed since this began to watch." } };
    }
    let frame = Frame::new(lanes, window, now);
    let height = lanes.len() * LANE + AXIS;
    let length = Age(jiff::SignedDuration::from_secs(frame.to - frame.from));
    html! {
        svg.timeline role="img" aria-labelledby="chart-title chart-text" width="100%" height=(height) {
            title #chart-title { "Health over the last " (length) }
            desc #chart-text { @for lane in lanes { (words(lane)) " " } }
            defs {
                pattern #hatch width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect.hatch-ground width="6" height="6" {}
                    rect.hatch-line width="2" height="6" {}
                }
            }
            @for tick in 0..=TICKS {
                line.grid x1=(share(tick * 1000 / TICKS)) x2=(share(tick * 1000 / TICKS)) y1="0" y2=(height - AXIS + 4) {}
            }
            @for (number, lane) in lanes.iter().enumerate() {
                @let top = number * LANE;
                text.lane x="0" y=(top + 16) { (plain(&heading(lane))) }
                rect.rail x="0" y=(top + 24) width="100%" height=(BAR) {}
                @for span in &lane.spans { (stretch(span, frame, top + 24)) }
            }
            @for tick in 0..=TICKS { (tick_label(frame, tick, height - 8)) }
        }
    }
}

fn heading(lane: &Lane) -> String {
    match lane {
        Lane { whole: true, .. } => "All together, the worst".to_owned(),
        Lane { backend: true, vantage, .. } => format!("Storage backend, seen by {vantage}"),
        Lane { vantage, .. } => format!("Seen by {vantage}"),
    }
}

/// The same for those who do not see the picture.
fn words(lane: &Lane) -> String {
    let span = |span: &Span| {
        let until = if span.open { "now".to_owned() } else { format!("{:.0}", span.to) };
        let reason = if span.reason.is_empty() { String::new() } else { format!(" {}", span.reason) };
        format!("{}{reason} from {:.0} to {until}", span.health, span.from)
    };
    let spans: Vec<String> = lane.spans.iter().map(span).collect();
    plain(&format!("{}: {}.", heading(lane), spans.join(", "))).into_owned()
}

fn stretch(span: &Span, frame: Frame, top: usize) -> Markup {
    let (from, to) = (frame.place(span.from), frame.place(span.to));
    let outside = span.to.as_second() < frame.from;
    let width = (to - from).max(SLIVER);
    let from = from.min(1000 - width);
    let grade = Grade::of(span.health);
    let word = if span.reason.is_empty() {
        span.health.to_string()
    } else {
        format!("{} {}", span.health, span.reason)
    };
    let fill = (span.health == Health::Unknown).then_some("url(#hatch)");
    html! {
        @if !outside {
            rect.span .{ "g-" (grade.slug()) } x=(share(from)) y=(top) width=(share(width)) height=(BAR) rx="3" fill=[fill] {
                title { (plain(&word)) " for " (Age::between(span.from, span.to)) }
            }
            @if let Some(label) = label(span, grade, width) {
                svg x=(share(from)) y=(top) width=(share(width)) height=(BAR) {
                    text.inside .{ "g-" (grade.slug()) } x="8" y="17" { (plain(label)) }
                    // Where the screen is narrow, this stands in its place.
                    text.mark .{ "g-" (grade.slug()) } x="4" y="17" aria-hidden="true" { (grade.sign()) }
                }
            }
        }
    }
}

/// As much as there is room for: the reason, the health, or at least the sign, so that no colour stands alone.
fn label(span: &Span, grade: Grade, width: i64) -> Option<&str> {
    let fits = |text: &&str| {
        let letters = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        letters.saturating_mul(LETTER).saturating_add(MARGIN) <= width
    };
    [&*span.reason, grade.label(), grade.sign()].into_iter().filter(|text| !text.is_empty()).find(fits)
}

fn tick_label(frame: Frame, tick: i64, y: usize) -> Markup {
    let at = frame.from + (frame.to - frame.from) * tick / TICKS;
    let anchor = match tick {
        0 => "start",
        TICKS => "end",
        _ => "middle",
    };
    html! { text.tick x=(share(tick * 1000 / TICKS)) y=(y) text-anchor=(anchor) { (moment(at, frame.to - frame.from)) } }
}

/// As much of a time as the length of the picture makes worth saying.
fn moment(second: i64, length: i64) -> String {
    let Ok(at) = Timestamp::from_second(second) else { return String::new() };
    let text = format!("{at:.0}");
    // The text is 2026-08-21T10:02:00Z.
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    match length {
        ..7_200 => part(11, 19).to_owned(),
        7_200..172_800 => format!("{} {}", part(5, 10), part(11, 16)),
        _ => part(0, 10).to_owned(),
    }
}

fn share(thousandths: i64) -> String {
    format!("{}.{}%", thousandths / 10, thousandths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use volmedic_health::{Status, Vantage};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lane() -> Lane {
        let span = |from, to, health, reason: &str, open| Span {
            from: at(from),
            to: at(to),
            health,
            reason: reason.into(),
            open,
        };
        Lane {
            vantage: Vantage::Node("<worker>".into()),
            whole: false,
            backend: false,
            spans: vec![
                span(1000, 2000, Health::Adverse(Status::Degraded), "SlowIO", false),
                span(2000, 3000, Health::Healthy, "", true),
            ],
        }
    }

    #[test]
    fn stretches_are_where_they_were_and_say_what_they_are() {
        let text = draw(&[lane()], Window::All, at(3000)).into_string();
        // From 900 to 3000: the first began 100 s after the left edge and took 1000 of 2100 s.
        for part in [
            r#"<rect class="span g-degraded" x="4.7%" y="24" width="47.6%""#,
            r#"<rect class="span g-healthy" x="52.3%""#,
            "Degraded SlowIO from 1970-01-01T00:16:40Z to 1970-01-01T00:33:20Z, Healthy from",
            "&lt;worker&gt;",
            "00:50:00",
        ] {
            assert!(text.contains(part), "missing {part} in {text}");
        }
        assert!(!text.contains("<worker>") && !text.contains("style="), "{text}");
    }

    #[test]
    fn a_stretch_is_labelled_as_far_as_there_is_room() {
        let lane = lane();
        let span = &lane.spans[0];
        for (width, expected) in [(500, Some("SlowIO")), (64, Some("SlowIO")), (63, Some("▲")), (10, None)]
        {
            assert_eq!(label(span, Grade::Degraded, width), expected, "{width}");
        }
        assert_eq!(label(&lane.spans[1], Grade::Healthy, 500), Some("Healthy"));
    }

    #[test]
    fn what_ended_before_the_window_is_not_drawn_and_what_began_before_it_is_cut() {
        let text = draw(&[lane()], Window::Hour, at(2000 + 3600 + 500)).into_string();
        assert!(!text.contains(r#"class="span g-degraded""#), "{text}");
        assert!(text.contains(r#"<rect class="span g-healthy" x="0.0%""#), "{text}");
    }

    #[test]
    fn without_a_past_there_is_a_sentence() {
        assert!(draw(&[], Window::All, at(0)).into_string().contains("has not changed"));
        for window in Window::ALL {
            assert_eq!(Window::parse(window.name()), window);
        }
        assert_eq!(Window::parse("<script>"), Window::All);
    }
}
