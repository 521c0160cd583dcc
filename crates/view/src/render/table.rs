//! Tables for people: aligned columns, cut to a terminal's width where there is one.

use std::fmt::Write as _;

use jiff::Timestamp;
use volmedic_health::Vantage;

use crate::snapshot::Columns;
use crate::text::{Age, fit, plain, width};
use crate::{Call, Grade, Row};

/// How much of a list of names is shown in a cell.
const NAMES: usize = 3;
/// Between two columns.
const GAP: usize = 3;
/// In a cell with nothing in it.
const NOTHING: &str = "-";
/// No column is cut below this, however narrow the terminal is.
const NARROW: usize = 8;
/// What a terminal that is too narrow even so does without, in this order; but a volume that has no other name keeps it.
const LEAST: &[&str] =
    &["SEEN-BY", "VOLUME", "DRIVER", "POD", "NODE", "MESSAGE", "SINCE", "NEXT", "NAMESPACE"];
/// Columns of prose are cut to this before any column is left out, and others to that.
const PROSE: usize = 24;
const MODEST: usize = 16;

/// What the reader's output can show.
#[derive(Debug, Clone, Copy, Default)]
pub struct Paint {
    pub colour: bool,
    /// Columns of the terminal; absent where lines may be as long as they like.
    pub width: Option<usize>,
}

impl Paint {
    /// A text in the colour of a grade.
    pub fn grade(self, grade: Grade, text: &str) -> String {
        let code = match grade {
            Grade::DataLoss => "1;31",
            Grade::Inaccessible => "31",
            Grade::Degraded => "33",
            Grade::Unrecognized => "35",
            Grade::Unknown => "36",
            Grade::Healthy => "32",
        };
        self.code(code, text)
    }

    pub fn strong(self, text: &str) -> String {
        self.code("1", text)
    }

    pub fn faint(self, text: &str) -> String {
        self.code("2", text)
    }

    fn code(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Columns of text under a header.
#[derive(Debug, Default)]
pub struct Table {
    head: Vec<&'static str>,
    lines: Vec<Vec<Cell>>,
}

#[derive(Debug)]
struct Cell {
    text: String,
    grade: Option<Grade>,
}

impl Cell {
    fn new(text: &str) -> Self {
        Self { text: if text.is_empty() { NOTHING.into() } else { plain(text).into_owned() }, grade: None }
    }
}

impl Table {
    /// `has` says which columns have anything in them; `wide` adds what was said, in full.
    pub fn of_volumes<'a>(
        rows: impl IntoIterator<Item = &'a Row>,
        has: Columns,
        wide: bool,
        now: Timestamp,
    ) -> Self {
        let columns: [(&str, bool); 12] = [
            ("NAMESPACE", has.claims),
            ("PVC", has.claims),
            ("VOLUME", true),
            ("DRIVER", has.drivers || has.claims),
            ("NODE", has.nodes),
            ("POD", has.pods),
            ("HEALTH", true),
            ("REASON", true),
            ("SINCE", true),
            ("SEEN-BY", true),
            ("MESSAGE", wide),
            ("NEXT", true),
        ];
        let shown = |index: usize| columns[index].1;
        let head = columns.iter().filter(|(_, shown)| *shown).map(|(name, _)| *name).collect();
        let line = |row: &Row| {
            let since = row.since.map(|since| Age::between(since, now).to_string()).unwrap_or_default();
            let seers: Vec<String> = row.seers().map(Vantage::name).collect();
            let cells = [
                Cell::new(&row.namespace),
                Cell::new(&row.claim),
                Cell::new(&row.volume),
                Cell::new(&row.driver),
                Cell::new(&names(&row.nodes)),
                Cell::new(&names(&row.pods)),
                Cell { text: row.health.to_string(), grade: Some(row.grade()) },
                Cell::new(row.reason()),
                Cell::new(&since),
                Cell::new(&names(&seers)),
                Cell::new(row.message()),
                Cell::new(row.next()),
            ];
            cells.into_iter().enumerate().filter(|(index, _)| shown(*index)).map(|(_, cell)| cell).collect()
        };
        Self { head, lines: rows.into_iter().map(line).collect() }
    }

    /// How the calls to a driver went.
    pub fn of_calls(calls: &[Call]) -> Self {
        let line = |call: &Call| {
            let Call { name, count, failed, median, slowest } = call;
            let cells = [name.to_string(), count.to_string(), failed.to_string()];
            let times = [median, slowest].map(|time| format!("{time:.1?}"));
            cells.iter().chain(&times).map(|text| Cell::new(text)).collect()
        };
        let head = vec!["CALL", "COUNT", "FAILED", "MEDIAN", "SLOWEST"];
        Self { head, lines: calls.iter().map(line).collect() }
    }

    /// Any other table.
    pub fn of_lines<const N: usize>(
        head: [&'static str; N],
        lines: impl Iterator<Item = [String; N]>,
    ) -> Self {
        let line = |cells: [String; N]| cells.iter().map(|text| Cell::new(text)).collect();
        Self { head: head.to_vec(), lines: lines.map(line).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Header and lines, each ending with a line break.
    pub fn render(&self, paint: Paint) -> String {
        let widths = self.widths(paint.width);
        let mut out = String::new();
        let mut put = |cells: &mut dyn Iterator<Item = (&str, Option<Grade>)>, head: bool| {
            let mut line = String::new();
            // Padding waits for the next cell, so that no line ends in blanks.
            let mut pad = 0;
            for ((text, grade), columns) in cells.zip(&widths).filter(|(_, columns)| **columns > 0) {
                let text = fit(text, *columns);
                let _ = write!(line, "{:pad$}", "");
                pad = columns - width(&text).min(*columns) + GAP;
                match grade {
                    Some(grade) => line.push_str(&paint.grade(grade, &text)),
                    None if head => line.push_str(&paint.faint(&text)),
                    None => line.push_str(&text),
                }
            }
            out.push_str(&line);
            out.push('\n');
        };
        put(&mut self.head.iter().map(|name| (*name, None)), true);
        for line in &self.lines {
            put(&mut line.iter().map(|cell| (cell.text.as_str(), cell.grade)), false);
        }
        out
    }

    /// How wide each column is; a column of width 0 is left out.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let mut natural: Vec<usize> = self.head.iter().map(|name| width(name)).collect();
        for line in &self.lines {
            for (column, cell) in natural.iter_mut().zip(line) {
                *column = (*column).max(width(&cell.text));
            }
        }
        let Some(limit) = limit else { return natural };
        if taken(&natural) <= limit {
            return natural;
        }
        // What says nothing goes first, whole columns of it.
        for (index, columns) in natural.iter_mut().enumerate() {
            if self.lines.iter().all(|line| line[index].text == NOTHING) {
                *columns = 0;
            }
        }
        let floor = |(columns, head): (&usize, &&str)| match *head {
            "HEALTH" | "REASON" | "SINCE" => *columns,
            "MESSAGE" | "NEXT" => PROSE.min(*columns),
            _ => MODEST.min(*columns),
        };
        let mut widths: Vec<usize> = natural.iter().zip(&self.head).map(floor).collect();
        // Then those that matter least, whole: three letters of everything would say nothing at all.
        let at = |name: &str| self.head.iter().position(|head| *head == name);
        for least in LEAST {
            let needed = *least == "VOLUME" && at("PVC").is_none();
            if let (true, false, Some(index)) = (taken(&widths) > limit, needed, at(least)) {
                widths[index] = 0;
            }
        }
        // Where even that is not enough, whatever is widest gives; of equals the later, which says less of who it is.
        while taken(&widths) > limit {
            let Some(widest) = widths.iter_mut().rev().max_by_key(|columns| **columns) else { break };
            if *widest <= NARROW {
                break;
            }
            *widest -= 1;
        }
        // What is left over goes to who was cut, names before prose.
        for prose in [false, true] {
            for (index, head) in self.head.iter().enumerate() {
                if widths[index] > 0 && prose == matches!(*head, "MESSAGE" | "NEXT") {
                    let spare = limit.saturating_sub(taken(&widths));
                    widths[index] = natural[index].min(widths[index] + spare);
                }
            }
        }
        widths
    }
}

/// Columns of a line, with the gaps between them.
fn taken(widths: &[usize]) -> usize {
    let shown = widths.iter().filter(|columns| **columns > 0).count();
    widths.iter().sum::<usize>() + shown.saturating_sub(1) * GAP
}

fn names<T: AsRef<str>>(names: &[T]) -> String {
    let mut shown = names.iter().take(NAMES).map(AsRef::as_ref).collect::<Vec<_>>().join(",");
    if names.len() > NAMES {
        let _ = write!(shown, " +{}", names.len() - NAMES);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use volmedic_health::{Condition, Health, Reason, Status, Vantage};

    fn rows() -> Vec<Row> {
        let sick = Row {
            namespace: "shop".into(),
            claim: "data-0".into(),
            nodes: ["a", "b", "c", "d"].map(Into::into).to_vec(),
            health: Health::Adverse(Status::Degraded),
            condition: Some(Condition::new(Status::Degraded, Reason::new("OutOfCapacity"), "99 % used")),
            since: Some(Timestamp::UNIX_EPOCH),
            seen_by: vec![crate::Sighting {
                vantage: Vantage::Controller,
                health: Health::Adverse(Status::Degraded),
                conditions: Vec::new(),
                blind_since: None,
                flapping_since: None,
            }],
            ..Row::new("disk.example.net".into(), "vol-1".into())
        };
        vec![sick, Row::new("disk.example.net".into(), "vol\u{202e}\n2".into())]
    }

    fn render(paint: Paint) -> String {
        let has = Columns { claims: true, nodes: true, pods: false, drivers: false };
        Table::of_volumes(&rows(), has, true, Timestamp::from_second(300).unwrap()).render(paint)
    }

    #[test]
    fn a_table_as_it_is_read() {
        assert_eq!(
            render(Paint::default()),
            "NAMESPACE   PVC      VOLUME              DRIVER             NODE       HEALTH     REASON          SINCE   \
             SEEN-BY      MESSAGE     NEXT\n\
             shop        data-0   vol-1               disk.example.net   a,b,c +1   Degraded   OutOfCapacity   5 min   \
             controller   99 % used   Free space in the volume or expand the claim.\n\
             -           -        vol\\u{202e}\\u{a}2   disk.example.net   -          Unknown    -               -       \
             -            -           Check that the storage driver runs and answers.\n"
        );
    }

    #[test]
    fn a_narrow_terminal_gets_narrow_columns_and_no_longer_lines() {
        for columns in [140, 100, 60] {
            for line in render(Paint { colour: false, width: Some(columns) }).lines() {
                assert!(width(line) <= columns, "{line}");
            }
        }
        let text = render(Paint { colour: false, width: Some(140) });
        assert!(text.contains('…') && text.contains("OutOfCapacity"), "{text}");
    }

    #[test]
    fn colours_only_where_they_are_wanted() {
        assert!(!render(Paint::default()).contains('\x1b'));
        assert!(render(Paint { colour: true, width: None }).contains("\x1b[33mDegraded\x1b[0m"));
    }
}
