//! The screen as text: the volumes, what happens, what can be done.

use std::fmt::Write as _;

use volmedic_view::render::{Paint, Table};
use volmedic_view::text::{fit, plain, width, wrap};
use volmedic_view::{Grade, Snapshot};

use super::keys::FAULTS;
use super::voice::{News, Topic, clock, head};

/// Lines of what happens, unless the screen is tiny.
const LEAST_NEWS: usize = 3;
/// With fewer lines than this for both, the screen is a small one.
const SMALL: usize = 9;
/// With this many lines for what happens, the table is shown whole.
const NEWS: usize = 12;
/// Maximum number of lines of one sentence; a terminal of 80 columns needs most of them.
const WRAPPED: usize = 5;
/// On a terminal that is smaller, nothing could be read.
const SMALLEST: (usize, usize) = (40, 12);

/// All that is drawn.
pub(super) struct Shown<'a> {
    pub(super) headline: &'a str,
    pub(super) snapshot: &'a Snapshot,
    /// Newest first.
    pub(super) recent: &'a [News],
    pub(super) page: &'a str,
    /// What is left out here, a sentence each.
    pub(super) left_out: &'a [String],
    /// What to try next, once the story is over.
    pub(super) next: &'a [String],
    /// Whether keys are listened to.
    pub(super) keys: bool,
}

/// The screen as lines, as many as fit. On a small one what is said at the edges is said in fewer words.
pub(super) fn compose(shown: &Shown<'_>, paint: Paint, height: usize) -> String {
    let columns = paint.width.unwrap_or(usize::MAX);
    if columns < SMALLEST.0 || height < SMALLEST.1 {
        return too_small(columns, height);
    }
    let (mut head, mut tail) = edges(shown, paint, false);
    // The header of the table, the blank line and the title below it.
    let room = |head: &[String], tail: &[String]| height.saturating_sub(head.len() + tail.len() + 3);
    if room(&head, &tail) < SMALL {
        (head, tail) = edges(shown, paint, true);
    }
    let room = room(&head, &tail);
    let rows = shown.snapshot.rows();
    // The worst are on top, so that a short table leaves out nothing but health.
    let unhealthy = rows.iter().filter(|row| row.grade() != Grade::Healthy).count();
    let table = if room > rows.len() + NEWS {
        rows.len()
    } else {
        let half = (room / 2).max(unhealthy.min(room * 2 / 3));
        half.min(room.saturating_sub(LEAST_NEWS + 1)).clamp(1, rows.len().max(1)).min(rows.len())
    };
    let hidden = rows.len() - table;
    let news = room.saturating_sub(table + usize::from(hidden > 0)).max(1);

    let mut out = head;
    let snapshot = shown.snapshot;
    let table = Table::of_volumes(&rows[..table], snapshot.has(), false, snapshot.at()).render(paint);
    out.extend(table.lines().map(str::to_owned));
    if hidden > 0 {
        out.push(paint.faint(&format!("and {hidden} more")));
    }
    out.push(String::new());
    out.push(paint.strong("What happens"));
    out.extend(latest(shown.recent, news, columns, paint));
    out.extend(tail);
    out.truncate(height);
    let mut text = String::new();
    for line in out {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    text
}

/// What is above the table, and what is below the news.
fn edges(shown: &Shown<'_>, paint: Paint, small: bool) -> (Vec<String>, Vec<String>) {
    let Shown { headline, snapshot, page, left_out, next, keys, recent: _ } = shown;
    let columns = paint.width.unwrap_or(usize::MAX);
    let cut = |line: &str| fit(line, columns).into_owned();
    let counts = format!("{} volumes: {}", snapshot.counts().total(), snapshot.counts());
    let mut head = vec![paint.strong(&cut(&format!("Volmedic demo: {headline}")))];
    let (line, page) = (format!("{counts}   Page: {page}"), format!("Page: {page}"));
    if width(&line) <= columns {
        head.push(line);
    } else {
        head.extend([cut(&counts), cut(&page)]);
    }
    let mut tail = Vec::new();
    if !small {
        let lines = left_out.iter().flat_map(|line| wrapped(line, columns, "- ", "  "));
        head.extend(lines.map(|line| paint.faint(&line)));
        if !next.is_empty() {
            tail.push(String::new());
            tail.push(paint.strong("What next"));
            tail.extend(next.iter().flat_map(|line| wrapped(line, columns, "- ", "  ")));
        }
    }
    head.push(String::new());
    tail.push(String::new());
    tail.extend(keys_line(*keys, columns, small).into_iter().map(|line| paint.faint(&line)));
    (head, tail)
}

/// The newest that fit, oldest of them first, as one reads.
fn latest(recent: &[News], lines: usize, columns: usize, paint: Paint) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for news in recent {
        let room = lines - out.len();
        if room == 0 {
            break;
        }
        out.splice(0..0, sentence(news, room.min(WRAPPED), columns, paint));
    }
    out
}

/// In this many lines at most.
fn sentence(news: &News, most: usize, columns: usize, paint: Paint) -> Vec<String> {
    let head = head(news);
    let mut lines = wrapped(&plain(&news.text), columns, &head, &" ".repeat(head.len()));
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = fit(&format!("{last} …"), columns).into_owned();
        }
    }
    let grade = match news.topic {
        Topic::Fault => Some(Grade::Inaccessible),
        Topic::Heal if news.data["outcome"] == "Succeeded" => Some(Grade::Healthy),
        Topic::Transition if news.data["warning"] == false => Some(Grade::Healthy),
        Topic::Transition => Some(Grade::Degraded),
        _ => None,
    };
    if let (Some(grade), Some(first)) = (grade, lines.first_mut())
        && let Some(rest) = first.strip_prefix(head.as_str())
    {
        let who = paint.grade(grade, &format!("{:<7}", news.topic.who()));
        *first = format!("{} {who} {rest}", clock(news.at));
    }
    lines
}

/// In lines of at most this many columns: a screen has no room for longer ones.
fn wrapped(text: &str, columns: usize, first: &str, others: &str) -> Vec<String> {
    let lines = wrap(text, columns, first, others);
    lines.into_iter().map(|line| fit(&line, columns).into_owned()).collect()
}

/// The same at every size, until the window is made larger.
fn too_small(columns: usize, height: usize) -> String {
    let (least, lowest) = SMALLEST;
    let text = format!(
        "The terminal has {columns} columns and {height} lines; the demo needs {least} and {lowest}. Enlarge it, or quit \
         with q and use --headless."
    );
    let lines = wrapped(&text, columns, "", "");
    lines.into_iter().take(height).map(|line| line + "\n").collect()
}

fn keys_line(keys: bool, columns: usize, small: bool) -> Vec<String> {
    if !keys {
        return vec![fit("Ctrl-C ends the demo and cleans up", columns).into_owned()];
    }
    if small {
        let letters: Vec<String> = FAULTS.iter().map(|(key, ..)| key.to_string()).collect();
        return vec![fit(&format!("Keys: {} break, q quit", letters.join(" ")), columns).into_owned()];
    }
    let faults: Vec<String> = FAULTS.iter().map(|(key, _, what)| format!("{key}\u{a0}{what}")).collect();
    let faults: Vec<String> = faults.into_iter().map(|key| key.replace(' ', "\u{a0}")).collect();
    let text = format!("Keys: {}  q\u{a0}quit", faults.join("  "));
    let lines = wrapped(&text, columns, "", "      ");
    lines.into_iter().map(|line| line.replace('\u{a0}', " ").trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use serde_json::json;
    use volmedic_view::Row;

    fn screen(paint: Paint, height: usize) -> String {
        let rows = (0..12).map(|number| Row::new("d".into(), format!("vol-{number:02} (ext4)").into()));
        let snapshot = Snapshot::new(Timestamp::UNIX_EPOCH, rows.collect());
        let news = |number: i64, topic, text: &str| News {
            at: Timestamp::from_second(number).unwrap(),
            topic,
            volume: None,
            text: text.to_owned(),
            data: json!({ "warning": false }),
        };
        let long = "wiki recovered from Inaccessible/MounterDead after 3 s, seen by the driver on node here";
        let mut recent = vec![news(50, Topic::Transition, long), news(49, Topic::Heal, "wiki is healed")];
        recent.extend((0..40).map(|number| news(number, Topic::Fault, "something was done to orders")));
        let shown = Shown {
            headline: "real volumes, mounted on this machine",
            snapshot: &snapshot,
            recent: &recent,
            page: "http://127.0.0.1:8090/",
            left_out: &["no xfs volumes: mkfs.xfs is not installed".to_owned()],
            next: &[],
            keys: true,
        };
        compose(&shown, paint, height)
    }

    #[test]
    fn a_screen_is_filled_and_never_more_than_filled() {
        for (columns, height) in [(40, 12), (44, 20), (60, 24), (80, 24), (100, 30), (160, 60), (200, 50)] {
            let text = screen(Paint { colour: false, width: Some(columns) }, height);
            assert!(text.lines().count() <= height, "{columns}x{height}:\n{text}");
            assert!(text.lines().all(|line| width(line) <= columns), "{columns}x{height}:\n{text}");
            assert!(text.contains("Keys: m") && text.contains("q quit"), "{text}");
            assert!(text.contains("wiki recovered from"), "the newest is there:\n{text}");
        }
    }

    #[test]
    fn a_screen_that_is_too_small_says_so() {
        for (columns, height) in [(20, 5), (39, 24), (80, 11), (1, 1)] {
            let text = screen(Paint { colour: false, width: Some(columns) }, height);
            assert!(text.lines().count() <= height, "{columns}x{height}:\n{text}");
            assert!(text.lines().all(|line| width(line) <= columns), "{columns}x{height}:\n{text}");
        }
        let text = screen(Paint { colour: false, width: Some(80) }, 11);
        assert_eq!(
            text,
            "The terminal has 80 columns and 11 lines; the demo needs 40 and 12. Enlarge it,\n\
             or quit with q and use --headless.\n"
        );
    }

    #[test]
    fn colours_are_only_where_wanted() {
        assert!(!screen(Paint { colour: false, width: Some(80) }, 24).contains('\x1b'));
        assert!(
            screen(Paint { colour: true, width: Some(80) }, 24).contains("\x1b[32mmonitor"),
            "good news are green"
        );
    }
}
