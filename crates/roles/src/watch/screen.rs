//! What a person sees: the whole screen as text, and where it is drawn.

use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_view::render::{Paint, Table};
use volmedic_view::text::{fit, plain, wrap};
use volmedic_view::{About, Moment, Snapshot};

pub(super) use volmedic_runtime::terminal::{Screen, is_screen, paint, say, size};

/// Changes on the screen.
pub(super) const CHANGES: usize = 5;
/// Calls on the screen.
const CALLS: usize = 8;
/// Minimum number of lines of the table, however small the screen is.
const LEAST: usize = 3;

/// All that is drawn.
pub(super) struct Shown<'a> {
    pub(super) about: &'a About,
    /// How the driver reports health, and its capabilities.
    pub(super) abilities: &'a [String],
    pub(super) snapshot: &'a Snapshot,
    /// Newest first.
    pub(super) latest: &'a [Arc<Moment>],
    pub(super) page: Option<&'a str>,
    pub(super) now: Timestamp,
}

/// The screen as lines, as many as fit where there is a height.
pub(super) fn compose(shown: &Shown<'_>, paint: Paint, height: Option<usize>) -> String {
    let Shown { about, abilities, snapshot, latest, page, now } = shown;
    let columns = paint.width.unwrap_or(usize::MAX);
    let cut = |line: &str| paint.width.map_or_else(|| line.to_owned(), |width| fit(line, width).into_owned());
    let mut head = vec![paint.strong(&cut(&format!("{} {}", plain(&about.title), plain(&about.place))))];
    // Only a screen has no room for all of it.
    let whole =
        |line: &String| if height.is_some() { vec![cut(line)] } else { wrap(line, columns, "", "  ") };
    head.extend(abilities.iter().flat_map(whole).map(|line| paint.faint(&line)));
    head.push(cut(&tally(snapshot)));
    if let Some(trouble) = &about.trouble {
        head.push(
            paint.grade(volmedic_view::Grade::Inaccessible, &cut(&format!("Problem: {}", plain(trouble)))),
        );
    }
    head.push(String::new());

    let mut tail = Vec::new();
    let mut section = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            tail.push(String::new());
            tail.push(paint.strong(title));
            tail.extend(lines);
        }
    };
    let calls = &about.calls[..about.calls.len().min(CALLS)];
    let calls = if calls.is_empty() { String::new() } else { Table::of_calls(calls).render(paint) };
    section("Calls to the driver", calls.lines().map(str::to_owned).collect());
    let change = |moment: &Arc<Moment>| cut(&format!("{} {}", clock(moment.at), plain(&moment.text)));
    section("What changed", latest.iter().take(CHANGES).map(change).collect());
    section(
        "Limits of this driver",
        about.limits.iter().flat_map(|limit| wrap(limit, columns, "- ", "  ")).collect(),
    );
    if let Some(page) = page {
        tail.extend([String::new(), cut(&format!("Page: {page}"))]);
    }

    let rows = snapshot.rows();
    let room = height.map_or(rows.len(), |height| {
        // The header of the table and the line below it.
        height.saturating_sub(head.len() + tail.len() + 2).max(LEAST)
    });
    let mut out = String::new();
    for line in &head {
        put(&mut out, line);
    }
    if rows.is_empty() {
        put(&mut out, "There are no volumes to show.");
    } else {
        out.push_str(
            &Table::of_volumes(&rows[..room.min(rows.len())], snapshot.has(), true, *now).render(paint),
        );
        if rows.len() > room {
            put(&mut out, &paint.faint(&format!("and {} more", rows.len() - room)));
        }
    }
    for line in &tail {
        put(&mut out, line);
    }
    out
}

fn put(out: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{line}");
}

/// As in `3 volumes: 1 degraded, 2 healthy`.
pub(super) fn tally(snapshot: &Snapshot) -> String {
    match snapshot.counts().total() {
        0 => "no volumes".to_owned(),
        total => format!("{}: {}", volumes(total), snapshot.counts()),
    }
}

fn volumes(count: usize) -> String {
    if count == 1 { "1 volume".to_owned() } else { format!("{count} volumes") }
}

/// The time of day, in UTC.
fn clock(at: Timestamp) -> String {
    let text = format!("{at:.0}");
    text.get(11..19).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use volmedic_view::{Call, Row};

    fn screen(paint: Paint, height: Option<usize>) -> String {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let rows = (0..40).map(|number| Row::new("d".into(), format!("vol-{number:02}").into())).collect();
        let snapshot = Snapshot::new(now, rows);
        let call = Call { name: "Probe", count: 7, failed: 0, median: DURATION, slowest: DURATION };
        let about = About {
            title: "disk.example.net".into(),
            place: "at /run/csi.sock".into(),
            limits: vec!["it cannot list its volumes".into()],
            trouble: Some("the driver cannot be reached".into()),
            calls: vec![call],
            ..About::default()
        };
        let abilities = ["controller capabilities: LIST_VOLUMES".to_owned()];
        let page = Some("http://127.0.0.1:8090/");
        compose(
            &Shown { about: &about, abilities: &abilities, snapshot: &snapshot, latest: &[], page, now },
            paint,
            height,
        )
    }

    const DURATION: std::time::Duration = std::time::Duration::from_millis(2);

    #[test]
    fn a_screen_is_filled_and_never_more_than_filled() {
        for height in [20, 24, 30, 50] {
            let text = screen(Paint { colour: true, width: Some(60) }, Some(height));
            assert!(text.lines().count() <= height, "{height}: {text}");
            assert!(text.contains("and ") && text.contains(" more") || height == 50, "{text}");
        }
        let bare = screen(Paint { colour: false, width: Some(60) }, Some(24));
        assert!(bare.lines().all(|line| volmedic_view::text::width(line) <= 60), "{bare}");
        for part in [
            "disk.example.net at /run/csi.sock",
            "40 volumes: 40 unknown",
            "Problem: the driver cannot be reached",
            "vol-00",
            "Probe   7       0        2.0ms    2.0ms",
            "- it cannot list its volumes",
            "Page: http://127.0.0.1:8090/",
        ] {
            assert!(bare.contains(part), "no {part:?} in\n{bare}");
        }
    }

    #[test]
    fn without_a_height_everything_is_there() {
        let text = screen(Paint::default(), None);
        assert!(text.contains("vol-39") && !text.contains(" more"), "{text}");
    }
}
