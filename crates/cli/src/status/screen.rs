//! The whole screen as text.

use std::collections::HashMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use volmedic_view::render::{Paint, Table};
use volmedic_view::text::{fit, plain};
use volmedic_view::{About, Grade, Row, Snapshot};

/// Reasons for not knowing that are listed one by one.
const WHYS: usize = 5;

/// All that is shown.
pub(super) struct Shown<'a> {
    pub(super) about: &'a About,
    pub(super) snapshot: &'a Snapshot,
    /// Claims that were checked, wanted or not.
    pub(super) claims: usize,
    pub(super) filtered: bool,
    /// Maximum number of rows.
    pub(super) rows: usize,
    pub(super) wide: bool,
    /// What is shown may be old, and why.
    pub(super) trouble: Option<&'a str>,
    pub(super) now: Timestamp,
}

/// Never empty: who has nothing to show says why.
pub(super) fn compose(shown: &Shown<'_>, paint: Paint) -> String {
    let Shown { about, snapshot, claims, filtered, rows: limit, wide, trouble, now } = shown;
    let cut = |line: &str| paint.width.map_or_else(|| line.to_owned(), |width| fit(line, width).into_owned());
    let fact = |name: &str| about.facts.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value);
    let mut out = String::new();
    let mut put = |line: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{line}");
    };
    let rows = snapshot.rows();
    put(&paint.strong(&cut(&headline(snapshot, *claims, *filtered, fact("lookingAt"), &about.title))));
    put(&cut(&format!("Looking: {}", fact("looking"))));
    for limit in &about.limits {
        put(&paint.faint(&format!("Note: {}", plain(limit))));
    }
    if let Some(trouble) = trouble {
        put(&paint.grade(Grade::Inaccessible, &cut(&format!("Not up to date: {}", plain(trouble)))));
    }
    if rows.is_empty() {
        return out;
    }
    put("");
    let shown = &rows[..(*limit).min(rows.len())];
    out.push_str(&Table::of_volumes(shown, snapshot.has(), *wide, *now).render(paint));
    if shown.len() < rows.len() {
        let rest: volmedic_view::Counts = rows[shown.len()..].iter().map(Row::grade).collect();
        let rest = format!(
            "and {} more: {rest}; --limit 0 shows all, --health notwell only what is unhealthy or unknown",
            rows.len() - shown.len()
        );
        let _ = writeln!(out, "{}", paint.faint(&cut(&rest)));
    }
    // A wide table says why in each row.
    if !wide {
        out.push_str(&unknown(rows, paint));
    }
    out
}

fn headline(snapshot: &Snapshot, claims: usize, filtered: bool, place: &str, title: &str) -> String {
    let counts = snapshot.counts();
    let many = |count: usize| if count == 1 { "1 claim".to_owned() } else { format!("{count} claims") };
    let total = counts.total();
    if claims == 0 {
        return format!("{title}: there are no claims in {place}");
    }
    if total == 0 {
        return format!("{title}: none of the {} in {place} is what you asked for", many(claims));
    }
    let of = if filtered { format!(" of {claims}") } else { String::new() };
    if counts.get(Grade::Healthy) == total {
        return format!("{title}: nothing is wrong with {}{of} in {place}", many(total));
    }
    format!("{title}: {}{of} in {place}: {counts}", many(total))
}

/// Why volumes are not known, each reason once.
fn unknown(rows: &[Row], paint: Paint) -> String {
    let mut whys = HashMap::<&str, (usize, &str)>::new();
    for row in rows.iter().filter(|row| row.grade() == Grade::Unknown) {
        let why = row.why.as_deref().unwrap_or("nobody said why");
        whys.entry(why).or_insert((0, row.next())).0 += 1;
    }
    let mut whys: Vec<_> = whys.into_iter().collect();
    whys.sort_unstable_by(|(a, (m, _)), (b, (n, _))| n.cmp(m).then(a.cmp(b)));
    let mut out = String::new();
    if whys.is_empty() {
        return out;
    }
    let _ = writeln!(out, "\n{}", paint.strong("Unknown, and why"));
    for (why, (count, next)) in whys.iter().take(WHYS) {
        let _ = writeln!(out, "  {count:>6}  {}", plain(why));
        let _ = writeln!(out, "  {:>6}  {}", "", paint.faint(&plain(next)));
    }
    let more: usize = whys.iter().skip(WHYS).map(|(_, (count, _))| count).sum();
    if more > 0 {
        let _ = writeln!(out, "  {more:>6}  for {} other reasons; -o wide shows each", whys.len() - WHYS);
    }
    out
}
