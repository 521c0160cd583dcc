//! All rows at one moment, sorted and counted once, so that every question about them is quick.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::query::Sort;
use crate::{Counts, Query, Row};

/// All rows at one moment, worst first.
#[derive(Debug)]
pub struct Snapshot {
    at: Timestamp,
    rows: Vec<Row>,
    counts: Counts,
    drivers: BTreeMap<Arc<str>, Counts>,
    nodes: BTreeMap<Arc<str>, Counts>,
    has: Columns,
}

/// Which of the columns that need a cluster have anything in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Columns {
    pub claims: bool,
    pub nodes: bool,
    pub pods: bool,
    pub drivers: bool,
}

/// The rows that were asked for.
#[derive(Debug)]
pub struct Page<'a> {
    pub rows: Vec<&'a Row>,
    /// How many rows passed the filter, on all pages.
    pub matched: usize,
    /// From 1; the last one where a later was asked for.
    pub page: usize,
    /// At least 1.
    pub pages: usize,
}

impl Snapshot {
    pub fn new(at: Timestamp, mut rows: Vec<Row>) -> Self {
        rows.sort_unstable_by(|a, b| a.rank().cmp(&b.rank()));
        let (mut counts, mut has) = (Counts::default(), Columns::default());
        let (mut drivers, mut nodes) = (BTreeMap::<_, Counts>::new(), BTreeMap::<_, Counts>::new());
        for row in &rows {
            let grade = row.grade();
            counts.add(grade);
            // Nearly always the driver is there already: then its name need not be copied.
            if let Some(counts) = drivers.get_mut(&row.driver) {
                counts.add(grade);
            } else {
                drivers.insert(row.driver.clone(), [grade].into_iter().collect());
            }
            for node in &row.nodes {
                nodes.entry(node.clone()).or_default().add(grade);
            }
            has.claims |= !row.claim.is_empty();
            has.nodes |= !row.nodes.is_empty();
            has.pods |= !row.pods.is_empty();
        }
        has.drivers = drivers.len() > 1;
        Self { at, rows, counts, drivers, nodes, has }
    }

    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Worst first.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// By name.
    pub fn drivers(&self) -> &BTreeMap<Arc<str>, Counts> {
        &self.drivers
    }

    /// The nodes on which volumes are used, by name.
    pub fn nodes(&self) -> &BTreeMap<Arc<str>, Counts> {
        &self.nodes
    }

    pub fn has(&self) -> Columns {
        self.has
    }

    /// All rows of one volume; several claims may share it.
    pub fn volume<'a>(&'a self, driver: &'a str, volume: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| *row.volume == *volume && *row.driver == *driver)
    }

    pub fn page(&self, query: &Query) -> Page<'_> {
        let per_page = query.per_page.clamp(1, Query::MOST_PER_PAGE);
        let page_of = |matched: usize| {
            let pages = matched.div_ceil(per_page).max(1);
            let page = query.page.clamp(1, pages);
            (page, pages, (page - 1) * per_page)
        };
        if query.is_open() && query.sort == Sort::Worst {
            let matched = self.rows.len();
            let (page, pages, skip) = page_of(matched);
            return Page { rows: self.rows[skip..].iter().take(per_page).collect(), matched, page, pages };
        }
        let passes = query.filter();
        let mut found: Vec<&Row> = self.rows.iter().filter(|row| passes(row)).collect();
        let matched = found.len();
        let (page, pages, skip) = page_of(matched);
        // Only the rows that are shown, and those before them, need to be in order.
        let shown = (skip + per_page).min(matched);
        match query.sort {
            Sort::Worst => {}
            Sort::Oldest => first(&mut found, shown, |row| (row.since.unwrap_or(Timestamp::MAX), row.name())),
            Sort::Name => first(&mut found, shown, Row::name),
        }
        found.truncate(shown);
        found.drain(..skip);
        Page { rows: found, matched, page, pages }
    }
}

/// Puts the first `count` rows in order and leaves the rest behind them as it is.
fn first<'a, K: Ord>(rows: &mut [&'a Row], count: usize, key: impl Fn(&'a Row) -> K) {
    if count < rows.len() {
        rows.select_nth_unstable_by(count, |a, b| key(a).cmp(&key(b)));
    }
    rows[..count].sort_unstable_by_key(|row| key(row));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Grade, Wanted};
    use volmedic_health::{Condition, Health, Reason, Status};

    fn row(name: &str, health: Health, minute: i64) -> Row {
        let condition = match health {
            Health::Adverse(status) => Some(Condition::new(status, Reason::new("SlowIO"), "slow")),
            _ => None,
        };
        let since = condition.as_ref().map(|_| Timestamp::from_second(minute * 60).unwrap());
        Row { health, condition, since, claim: name.into(), ..Row::new("d".into(), name.into()) }
    }

    const BAD: Health = Health::Adverse(Status::Inaccessible);
    const MEDIOCRE: Health = Health::Adverse(Status::Degraded);

    fn check(query: &Query, expected: &str) {
        let rows = vec![
            row("b", Health::Healthy, 0),
            row("a", Health::Healthy, 0),
            row("old", MEDIOCRE, 1),
            row("new", MEDIOCRE, 9),
            row("bad", BAD, 5),
            row("odd", Health::Unknown, 0),
        ];
        let snapshot = Snapshot::new(Timestamp::UNIX_EPOCH, rows);
        let Page { rows, matched, page, pages } = snapshot.page(query);
        let names: Vec<&str> = rows.iter().map(|row| &*row.claim).collect();
        assert_eq!(format!("{} ({matched}, {page}/{pages})", names.join(" ")), expected, "{query:?}");
    }

    #[test]
    fn worst_first_and_the_newest_among_equals() {
        check(&Query::default(), "bad new old odd a b (6, 1/1)");
        check(&Query { sort: Sort::Oldest, ..Query::default() }, "old bad new a b odd (6, 1/1)");
        check(&Query { sort: Sort::Name, ..Query::default() }, "a b bad new odd old (6, 1/1)");
    }

    #[test]
    fn pages_are_parts_of_the_whole_in_every_order() {
        for (sort, expected) in [
            (Sort::Worst, ["bad new (6, 1/3)", "old odd (6, 2/3)", "a b (6, 3/3)"]),
            (Sort::Name, ["a b (6, 1/3)", "bad new (6, 2/3)", "odd old (6, 3/3)"]),
            (Sort::Oldest, ["old bad (6, 1/3)", "new a (6, 2/3)", "b odd (6, 3/3)"]),
        ] {
            for (page, expected) in (1..).zip(expected) {
                check(&Query { sort, page, per_page: 2, ..Query::default() }, expected);
            }
        }
        check(&Query { page: 99, per_page: 4, ..Query::default() }, "a b (6, 2/2)");
        check(&Query { search: "nobody".into(), page: 7, ..Query::default() }, " (0, 1/1)");
    }

    #[test]
    fn filters_and_words() {
        let wanted = |health| Query { health: Some(health), ..Query::default() };
        check(&wanted(Wanted::Only(Grade::Degraded)), "new old (2, 1/1)");
        check(&wanted(Wanted::Unhealthy), "bad new old odd (4, 1/1)");
        check(&Query { search: "SLOW ol".into(), ..Query::default() }, "old (1, 1/1)");
        check(&Query { driver: "other".into(), ..Query::default() }, " (0, 1/1)");
        check(&Query { node: "w".into(), ..Query::default() }, " (0, 1/1)");
    }
}
