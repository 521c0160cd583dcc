//! Templates as kubectl takes them with `-o jsonpath=`: the part of its language that people type, over the same document
//! that `-o json` prints. Everything else is refused with its position.

mod parse;

use std::fmt;
use std::fmt::Write as _;

use serde_json::Value;

/// Values that one template may visit and bytes that it may print: a range in a range over everything is quadratic.
const MOST_VISITS: usize = 200_000_000;
const MOST_BYTES: usize = 256 << 20;

/// A template that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// All that is selected, with a blank between two values.
    Print(Path),
    Range(Path, Vec<Part>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Path {
    /// From the whole document, not from the current value of a range.
    whole: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    /// Of a list or an object.
    All,
    /// With its position in the template, for errors.
    Index(i64, usize),
    Slice(Option<i64>, Option<i64>),
    Filter(Box<Filter>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Filter {
    left: Path,
    /// Without a comparison: that there is such a value.
    right: Option<(Comparison, Operand)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operand {
    Literal(Value),
    Path(Path),
}

/// Why a template cannot be used, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPathError {
    /// The character, from 1.
    at: usize,
    what: String,
}

impl fmt::Display for JsonPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "character {} of the template: {}", self.at, self.what)
    }
}

impl std::error::Error for JsonPathError {}

impl JsonPath {
    pub fn parse(template: &str) -> Result<Self, JsonPathError> {
        parse::parse(template)
    }

    /// What the template selects. As with kubectl, a field that is missing prints nothing, and an index that is missing is an
    /// error.
    pub fn print(&self, document: &Value) -> Result<String, JsonPathError> {
        self.print_within(document, MOST_VISITS)
    }

    fn print_within(&self, document: &Value, most: usize) -> Result<String, JsonPathError> {
        let mut printer = Printer { document, out: String::new(), visits: 0, most };
        printer.parts(&self.parts, document)?;
        Ok(printer.out)
    }
}

struct Printer<'a> {
    document: &'a Value,
    out: String,
    visits: usize,
    most: usize,
}

impl<'a> Printer<'a> {
    fn parts(&mut self, parts: &[Part], current: &'a Value) -> Result<(), JsonPathError> {
        for part in parts {
            match part {
                Part::Text(text) => self.out.push_str(text),
                Part::Print(path) => {
                    for (number, value) in self.select(path, current)?.into_iter().enumerate() {
                        if number > 0 {
                            self.out.push(' ');
                        }
                        put(&mut self.out, value);
                        self.check()?;
                    }
                }
                Part::Range(path, body) => {
                    for value in self.select(path, current)? {
                        self.check()?;
                        self.parts(body, value)?;
                    }
                }
            }
            self.check()?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), JsonPathError> {
        self.visits += 1;
        if self.visits > self.most || self.out.len() > MOST_BYTES {
            let what = format!(
                "it selects too much (limit: {} values, {} MiB); put fewer ranges into each other",
                self.most,
                MOST_BYTES >> 20
            );
            return Err(JsonPathError { at: 1, what });
        }
        Ok(())
    }

    fn select(&mut self, path: &Path, current: &'a Value) -> Result<Vec<&'a Value>, JsonPathError> {
        let mut found = vec![if path.whole { self.document } else { current }];
        for step in &path.steps {
            let mut next = Vec::new();
            for value in found {
                self.check()?;
                self.step(step, value, &mut next)?;
            }
            self.visits += next.len();
            found = next;
        }
        Ok(found)
    }

    fn step(
        &mut self,
        step: &Step,
        value: &'a Value,
        next: &mut Vec<&'a Value>,
    ) -> Result<(), JsonPathError> {
        match (step, value) {
            (Step::Field(name), Value::Object(fields)) => next.extend(fields.get(name)),
            (Step::All, Value::Object(fields)) => next.extend(fields.values()),
            (Step::All, Value::Array(items)) => next.extend(items),
            (Step::Index(index, at), Value::Array(items)) => {
                let Some(item) = place(*index, items.len()).and_then(|index| items.get(index)) else {
                    let what = format!("there is no item {index} in a list of {}", items.len());
                    return Err(JsonPathError { at: *at, what });
                };
                next.push(item);
            }
            (Step::Slice(from, to), Value::Array(items)) => {
                let bound = |index: Option<i64>, absent: usize| match index {
                    None => absent,
                    Some(index) => place(index, items.len()).unwrap_or(0).min(items.len()),
                };
                let (from, to) = (bound(*from, 0), bound(*to, items.len()));
                next.extend(items.get(from..to).unwrap_or_default());
            }
            (Step::Filter(filter), Value::Array(items)) => {
                for item in items {
                    self.check()?;
                    if self.passes(filter, item) {
                        next.push(item);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn passes(&mut self, filter: &Filter, item: &'a Value) -> bool {
        // An index that is missing means the same here as a field that is missing.
        let left = self.select(&filter.left, item).unwrap_or_default();
        let Some((comparison, right)) = &filter.right else { return !left.is_empty() };
        let Some(left) = left.first() else { return false };
        match right {
            Operand::Literal(right) => comparison.holds(left, right),
            Operand::Path(path) => {
                let right = self.select(path, item).unwrap_or_default();
                right.first().is_some_and(|right| comparison.holds(left, right))
            }
        }
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
            (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
            _ => None,
        };
        match (self, order) {
            (Self::NotEqual, order) => order.is_none_or(std::cmp::Ordering::is_ne),
            (_, None) => false,
            (Self::Equal, Some(order)) => order.is_eq(),
            (Self::Less, Some(order)) => order.is_lt(),
            (Self::LessOrEqual, Some(order)) => order.is_le(),
            (Self::Greater, Some(order)) => order.is_gt(),
            (Self::GreaterOrEqual, Some(order)) => order.is_ge(),
        }
    }
}

/// From the end where it is negative.
fn place(index: i64, length: usize) -> Option<usize> {
    if index < 0 {
        length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
    } else {
        usize::try_from(index).ok()
    }
}

/// Text as it is, everything else as JSON.
fn put(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => out.push_str(text),
        // Writing to a string cannot fail.
        other => drop(write!(out, "{other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        json!({
            "counts": {"total": 3, "data-loss": 0},
            "volumes": [
                {"claim": "a", "health": "Degraded", "nodes": ["w1", "w2"], "ready": true, "a.b/c": "x"},
                {"claim": "b", "health": "Healthy", "nodes": [], "size": 7},
                {"claim": "c", "health": "Degraded", "size": 12},
            ],
        })
    }

    #[track_caller]
    fn check(template: &str, expected: &str) {
        let path = JsonPath::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
        assert_eq!(path.print(&document()).as_deref(), Ok(expected), "{template}");
    }

    #[test]
    fn what_people_type() {
        check("{.counts.total}", "3");
        check("{$.counts.total}", "3");
        check("{.counts.data-loss}", "0");
        check("{.volumes[*].claim}", "a b c");
        check("{.volumes[0].claim}{.volumes[-1].claim}", "ac");
        check("{.volumes[1:].claim}", "b c");
        check("{.volumes[:-1].claim}", "a b");
        check("{.volumes[?(@.health==\"Degraded\")].claim}", "a c");
        check("{.volumes[?(@.health == 'Degraded')].claim}", "a c");
        check("{.volumes[?(@.health!='Degraded')].claim}", "b");
        check("{.volumes[?(@.size>7)].claim}", "c");
        check("{.volumes[?(@.size>=7)].claim}", "b c");
        check("{.volumes[?(@.ready)].claim}", "a");
        check("{.volumes[?(@.ready==true)].claim}", "a");
        check("{.volumes[?(@.nodes[0]=='w1')].claim}", "a");
        check(
            "{range .volumes[*]}{.claim}{\"\\t\"}{.health}{\"\\n\"}{end}",
            "a\tDegraded\nb\tHealthy\nc\tDegraded\n",
        );
        check("{range .volumes[*]}{range .nodes[*]}{@},{end}{end}", "w1,w2,");
        check("{range .volumes[*]}{$.counts.total}{end}", "333");
        check("total: {.counts.total}!", "total: 3!");
        check("{.volumes[0]['a.b/c']} {.volumes[0].a\\.b/c}", "x x");
        check("{.volumes[0].nodes}", "[\"w1\",\"w2\"]");
        check("{.counts.*}", "0 3");
        check("{.missing.more[*].x}", "");
        check("", "");
        check("plain", "plain");
    }

    #[test]
    fn an_index_that_is_missing_is_an_error_with_its_position() {
        let path = JsonPath::parse("{.volumes[7].claim}").unwrap();
        let error = path.print(&document()).unwrap_err().to_string();
        assert_eq!(error, "character 11 of the template: there is no item 7 in a list of 3");
    }

    #[test]
    fn what_is_not_known_is_refused_where_it_stands() {
        #[track_caller]
        fn check(template: &str, at: usize, expected: &str) {
            let error = JsonPath::parse(template).unwrap_err();
            assert_eq!(error.at, at, "{template}: {error}");
            assert!(error.what.contains(expected), "{template}: {error}");
        }
        check("{.a", 1, "is not closed");
        check("a}", 2, "`}` without `{`");
        check("{range .a[*]}{.b}", 1, "has no {end}");
        check("{.b}{end}", 5, "{end} without {range}");
        check("{..image}", 3, "`..`");
        check("{.a[*}", 6, "expected `]`");
        check("{.a[(@.length-1)]}", 5, "expected an index");
        check("{.a[0,1]}", 6, "expected `]`");
        check("{.a[?(@.b=~\"x\")]}", 10, "expected a comparison");
        check("{.a[?(@.b==x)]}", 12, "expected a value");
        check("{.a[?(@.b==\"x\" && @.c)]}", 16, "expected `)`");
        check("{.a[?(.b)]}", 7, "must begin with `@` or `$`");
        check("{a b}", 2, "must begin with");
        check("{\"a}", 2, "is not closed");
        check("{\"\\q\"}", 4, "escape");
        check("{.a[99999999999999999999]}", 5, "too large");
        check(&"{range .a[*]}".repeat(20), 105, "too many ranges");
        check(&"x".repeat(5000), 1, "longer than");
    }

    /// Whatever is typed: an answer or an error, and no panic and no end of the stack.
    #[test]
    fn any_text_is_a_template_or_an_error() {
        let tokens = [
            "{", "}", "range ", "end", ".a", "[", "]", "*", "?(", "@", ")", "\"", "\\", "'", "$", "-", "9",
            ":", "==", "<", " ", "ä", ".volumes",
        ];
        let mut state = 1_u64;
        for _ in 0..20_000 {
            let mut template = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let index = usize::try_from(state >> 33).unwrap() % tokens.len();
                template.push_str(tokens[index]);
            }
            if let Ok(path) = JsonPath::parse(&template) {
                let _ = path.print(&document());
            }
        }
        let _ = JsonPath::parse(&"{.a[?(@".repeat(500));
    }

    #[test]
    fn ranges_over_everything_in_each_other_end() {
        let document = json!({"v": vec![json!({}); 3000]});
        let template = "{range .v[*]}{range $.v[*]}{range $.v[*]}{end}{end}{end}";
        let error =
            JsonPath::parse(template).unwrap().print_within(&document, 1_000_000).unwrap_err().to_string();
        assert!(error.contains("selects too much"), "{error}");
    }
}
