//! Which rows are asked for.

use crate::{Grade, Row};

/// Which rows, in which order, and which page of them. Everything that is absent or empty lets all pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub health: Option<Wanted>,
    pub driver: String,
    pub namespace: String,
    pub node: String,
    /// Words that must all occur somewhere in the row; ASCII letters match in either case.
    pub search: String,
    pub sort: Sort,
    /// From 1.
    pub page: usize,
    pub per_page: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Only(Grade),
    /// Everything that is not healthy.
    Unhealthy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Worst first; the newest among equals.
    #[default]
    Worst,
    /// What lasts longest first.
    Oldest,
    /// By namespace, claim, driver and volume.
    Name,
}

impl Query {
    pub const PER_PAGE: usize = 50;
    pub const MOST_PER_PAGE: usize = 500;
    /// The longest text to search for; a longer one does not help and costs on every row.
    const MOST_TEXT: usize = 512;

    /// From the pairs of a query string. What cannot be understood counts as not given: a link of another version
    /// still leads somewhere.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut query = Self::default();
        for (key, value) in pairs {
            let text = || value.trim().chars().take(Self::MOST_TEXT).collect::<String>();
            match key {
                "health" => query.health = Wanted::parse(value),
                "driver" => query.driver = text(),
                "namespace" => query.namespace = text(),
                "node" => query.node = text(),
                "q" => query.search = text(),
                "sort" => query.sort = Sort::parse(value).unwrap_or_default(),
                "page" => query.page = value.parse().unwrap_or(1).max(1),
                "per" => {
                    query.per_page = value.parse().unwrap_or(Self::PER_PAGE).clamp(1, Self::MOST_PER_PAGE);
                }
                _ => {}
            }
        }
        query
    }

    /// The pairs that [`from_pairs`](Self::from_pairs) reads; what is usual is left out.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let Self { health, driver, namespace, node, search, sort, page, per_page } = self;
        let mut pairs = Vec::new();
        let mut put = |key, value: String, usual: bool| {
            if !usual {
                pairs.push((key, value));
            }
        };
        if let Some(health) = health {
            put("health", health.name().to_owned(), false);
        }
        put("driver", driver.clone(), driver.is_empty());
        put("namespace", namespace.clone(), namespace.is_empty());
        put("node", node.clone(), node.is_empty());
        put("q", search.clone(), search.is_empty());
        put("sort", sort.name().to_owned(), *sort == Sort::default());
        put("per", per_page.to_string(), *per_page == Self::PER_PAGE);
        put("page", page.to_string(), *page == 1);
        pairs
    }

    /// Whether every row passes.
    pub fn is_open(&self) -> bool {
        let Self { health, driver, namespace, node, search, sort: _, page: _, per_page: _ } = self;
        health.is_none() && [driver, namespace, node, search].iter().all(|text| text.trim().is_empty())
    }

    /// Whether a row is wanted, whatever the page.
    pub fn filter(&self) -> impl Fn(&Row) -> bool + '_ {
        let words: Vec<&str> = self.search.split_whitespace().collect();
        move |row| {
            self.health.is_none_or(|wanted| wanted.takes(row.grade()))
                && (self.driver.is_empty() || *row.driver == *self.driver)
                && (self.namespace.is_empty() || *row.namespace == *self.namespace)
                && (self.node.is_empty() || row.nodes.iter().any(|node| **node == *self.node))
                && words.iter().all(|word| mentions(row, word))
        }
    }
}

impl Default for Query {
    fn default() -> Self {
        Self {
            health: None,
            driver: String::new(),
            namespace: String::new(),
            node: String::new(),
            search: String::new(),
            sort: Sort::default(),
            page: 1,
            per_page: Self::PER_PAGE,
        }
    }
}

impl Wanted {
    pub fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("notwell") {
            return Some(Self::Unhealthy);
        }
        Grade::parse(text).map(Self::Only)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Only(grade) => grade.name(),
            Self::Unhealthy => "NotWell",
        }
    }

    pub fn takes(self, grade: Grade) -> bool {
        match self {
            Self::Only(wanted) => wanted == grade,
            Self::Unhealthy => grade != Grade::Healthy,
        }
    }
}

impl Sort {
    pub const ALL: [Self; 3] = [Self::Worst, Self::Oldest, Self::Name];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sort| sort.name() == text)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Worst => "worst",
            Self::Oldest => "oldest",
            Self::Name => "name",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Worst => "worst first",
            Self::Oldest => "longest first",
            Self::Name => "by name",
        }
    }
}

fn mentions(row: &Row, word: &str) -> bool {
    let Row {
        namespace,
        claim,
        volume,
        driver,
        nodes,
        pods,
        health: _,
        condition: _,
        since: _,
        why: _,
        why_word: _,
        advice: _,
        mute: _,
        seen_by: _,
    } = row;
    [&**namespace, claim, volume, driver, row.reason(), row.message()].iter().any(|text| contains(text, word))
        || nodes.iter().any(|node| contains(node, word))
        || pods.iter().any(|pod| contains(pod, word))
}

/// Like `str::contains`, but ASCII letters match in either case; nothing is copied.
fn contains(text: &str, word: &str) -> bool {
    let (text, word) = (text.as_bytes(), word.as_bytes());
    let Some((&first, rest)) = word.split_first() else { return true };
    if text.len() < word.len() {
        return false;
    }
    let starts = &text[..=text.len() - word.len()];
    starts.iter().enumerate().any(|(at, byte)| {
        byte.eq_ignore_ascii_case(&first) && text[at + 1..at + word.len()].eq_ignore_ascii_case(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_back_to_the_same_question() {
        let query = Query {
            health: Some(Wanted::Only(Grade::DataLoss)),
            driver: "d".into(),
            namespace: "n".into(),
            node: "w".into(),
            search: "a b".into(),
            sort: Sort::Name,
            page: 3,
            per_page: 100,
        };
        let pairs = query.pairs();
        assert_eq!(Query::from_pairs(pairs.iter().map(|(key, value)| (*key, value.as_str()))), query);
        assert_eq!(Query::default().pairs(), []);
    }

    #[test]
    fn nonsense_counts_as_not_given_and_sizes_are_bounded() {
        let query = Query::from_pairs([
            ("health", "splendid"),
            ("sort", "random"),
            ("page", "-1"),
            ("per", "1000000"),
            ("other", "x"),
        ]);
        assert_eq!(query, Query { per_page: Query::MOST_PER_PAGE, ..Query::default() });
        let long = "x".repeat(100_000);
        assert_eq!(Query::from_pairs([("q", long.as_str())]).search.len(), Query::MOST_TEXT);
    }

    #[test]
    fn search_ignores_the_case_of_letters() {
        let check = |text, word, expected| assert_eq!(contains(text, word), expected, "{word} in {text}");
        check("OutOfCapacity", "capacity", true);
        check("OutOfCapacity", "Capacity!", false);
        check("abc", "abcd", false);
        check("", "", true);
        check("Ärger", "Ärger", true);
        check("xaab", "aab", true);
    }
}
