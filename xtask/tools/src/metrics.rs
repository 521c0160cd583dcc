//! The metric tables of all crates, read from their source.
//!
//! A crate that has metrics lists them in `const METRICS`. Linking those crates would put gRPC, TLS and an async
//! runtime into the first program a newcomer compiles, so the tables are read as text instead. That cannot rot
//! quietly: a table that is not made of literals, and a crate that uses the metrics library without a table, are
//! errors; that the table matches what is registered is tested in the crate itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use crate::lex::{self, Token};
use crate::sources::Source;
use expression::{Constants, Expression, group, split};

mod expression;

/// One row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metric {
    /// The file and line that define it, for messages.
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) name: String,
    /// `counter`, `gauge` or `histogram`.
    pub(crate) kind: String,
    pub(crate) labels: Vec<String>,
    pub(crate) help: String,
}

/// The rows of every `const METRICS` of one crate; none when it has no such table.
fn read(sources: &[&Source]) -> Result<Vec<Metric>> {
    if !sources.iter().any(|source| source.text.contains("METRICS")) {
        return Ok(Vec::new());
    }
    let code: Vec<(&Path, Vec<Token>)> =
        sources.iter().map(|source| (source.path.as_path(), lex::code(&source.text))).collect();
    let constants = Constants::of(code.iter().map(|(file, tokens)| Expression { file, tokens }));
    let mut found = Vec::new();
    for (file, tokens) in &code {
        for (index, name) in tokens.iter().enumerate() {
            if name.ident() != Some("METRICS") || index == 0 || tokens[index - 1].ident() != Some("const") {
                continue;
            }
            let trouble = |what: &str, line| {
                let file = file.display();
                anyhow!(
                    "{file}:{line}: the table METRICS {what}; its rows are (name, kind, labels, help) of literals"
                )
            };
            let is_start = |three: &[Token]| three[0].is('=') && three[1].is('&') && three[2].is('[');
            let start = tokens[index..].windows(3).position(is_start);
            let start = start.ok_or_else(|| trouble("has no list", name.line))? + index + 3;
            for row in split(group(&tokens[start..])) {
                let line = row.first().map_or(name.line, |first| first.line);
                let metric = metric(Expression { file, tokens: row }, &constants);
                found.push(metric.ok_or_else(|| trouble("has a row of another shape", line))?);
            }
        }
    }
    Ok(found)
}

/// A row is a tuple, a struct, or the name of a constant that is one.
fn metric(row: Expression<'_>, constants: &Constants<'_>) -> Option<Metric> {
    let Expression { file, tokens: row } = constants.resolve(row);
    let resolve = |tokens| constants.resolve(Expression { file, tokens }).tokens;
    let opens = row.iter().position(|token| token.is('(') || token.is('{'))?;
    let named = row[opens].is('{');
    // A call looks like a tuple with a name before it.
    (named || opens == 0).then_some(())?;
    let mut fields = BTreeMap::new();
    for (place, field) in split(group(&row[opens + 1..])).into_iter().enumerate() {
        let (key, tokens) = match field {
            [name, colon, rest @ ..] if named && colon.is(':') => (name.ident()?, rest),
            _ if named => return None,
            rest => (*["name", "kind", "labels", "help"].get(place)?, rest),
        };
        fields.insert(key, resolve(tokens));
    }
    let labels = match *fields.get("labels")? {
        [and, bracket, rest @ ..] if and.is('&') && bracket.is('[') => {
            split(group(rest)).into_iter().map(|label| word(resolve(label))).collect::<Option<_>>()?
        }
        _ => return None,
    };
    let kind = word(fields.get("kind")?)?.to_lowercase();
    ["counter", "gauge", "histogram"].contains(&kind.as_str()).then_some(())?;
    let (name, help) = (word(fields.get("name")?)?, word(fields.get("help")?)?);
    Some(Metric { file: file.to_path_buf(), line: row[0].line, name, kind, labels, help })
}

/// A text that is not empty, or the last word of a path such as `Kind::Counter`.
fn word(tokens: &[Token]) -> Option<String> {
    match tokens {
        [text] => text.text().filter(|text| !text.is_empty()).map(str::to_owned),
        [.., colon, name] if colon.is(':') => name.ident().map(str::to_owned),
        _ => None,
    }
}

/// All tables of a workspace: those of every crate's `src`. A name belongs to one table only.
pub(crate) fn read_all(sources: &[Source]) -> Result<Vec<Metric>> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        if let Some(name) = crate_of(source) {
            crates.entry(name).or_default().push(source);
        }
    }
    let mut found: Vec<Metric> = Vec::new();
    for sources in crates.values() {
        for metric in read(sources)? {
            if let Some(twin) = found.iter().find(|other| other.name == metric.name) {
                let (here, there) = (metric.file.display(), twin.file.display());
                bail!(
                    "{here}:{}: the metric `{}` is also in {there}:{}; keep one",
                    metric.line,
                    metric.name,
                    twin.line
                );
            }
            found.push(metric);
        }
    }
    Ok(found)
}

/// The folder below `crates` whose library or program this file is part of.
fn crate_of(source: &Source) -> Option<&str> {
    let mut parts = source.path.components().map(|part| part.as_os_str().to_str());
    let name = (parts.next()?? == "crates").then(|| parts.next())???;
    (source.is_rust() && parts.next()?? == "src").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a crate with these files, as one line.
    fn shown(files: &[(&str, &str)]) -> String {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source { path: path.into(), text: (*text).into() }).collect();
        let rows = match read(&sources.iter().collect::<Vec<_>>()) {
            Ok(rows) => rows,
            Err(error) => return format!("error: {error}"),
        };
        let show = |Metric { file, line, name, kind, labels, help }: &Metric| {
            format!("{}:{line} {kind} {name}{labels:?} {help}", file.display())
        };
        rows.iter().map(show).collect::<Vec<_>>().join("; ")
    }

    fn names(source: &str) -> String {
        shown(&[("m.rs", source)])
    }

    #[test]
    fn a_table_of_tuples_is_read() {
        let source = r#"
            pub const METRICS: &[(&str, &str, &[&str], &str)] = &[
                // ("not", "a", &[], "row"),
                ("a_seconds", "histogram", &["x", "y"], "How \
                  long."),
                ("b_total", "counter", &[], "How many, (really)."),
            ];"#;
        assert_eq!(
            names(source),
            r#"m.rs:4 histogram a_seconds["x", "y"] How long.; m.rs:6 counter b_total[] How many, (really)."#
        );
    }

    #[test]
    fn a_table_of_constants_is_read() {
        let source = r#"
            const A: Row = ("a_total", "counter", &[LABEL], "All.");
            const LABEL: &str = "x";
            pub const METRICS: &[Row] = &[A];"#;
        assert_eq!(names(source), r#"m.rs:2 counter a_total["x"] All."#);
    }

    #[test]
    fn constants_of_other_modules_are_found_by_path_or_because_there_is_only_one() {
        let table = r#"const SAME: Row = ("here", "gauge", &[], "x");
            const METRICS: &[Row] = &[SAME, view::SAME, crate::deep::view::LONE, LONE_TOO];"#;
        let view = r#"pub(super) const SAME: Row = ("there", "gauge", LABELS, "x");
            pub(super) const LONE: Row = ("lone", "gauge", &[], "x");
            const LABELS: &[&str] = &["a"];"#;
        let other = r#"pub const LONE_TOO: Row = ("lone_too", "gauge", LABELS, "x"); const LABELS: &[&str] = &["b"];"#;
        assert_eq!(
            shown(&[("m.rs", table), ("m/view.rs", view), ("other.rs", other)]),
            r#"m.rs:1 gauge here[] x; m/view.rs:1 gauge there["a"] x; m/view.rs:2 gauge lone[] x; other.rs:1 gauge lone_too["b"] x"#
        );
        let error = shown(&[
            ("m.rs", "const METRICS: &[Row] = &[\nSAME];"),
            ("a.rs", "const SAME: Row = (\"a\", \"gauge\", &[], \"x\");"),
            ("b.rs", "const SAME: Row = (\"b\", \"gauge\", &[], \"x\");"),
        ]);
        assert!(error.starts_with("error: m.rs:2: the table METRICS has a row of another shape"), "{error}");
    }

    #[test]
    fn a_table_of_structs_is_read() {
        let source = r#"
            const NAME: &str = "a_bytes";
            const LABELS: &[&str] = &["x"];
            pub const METRICS: &[Metric] = &[Metric { name: NAME, kind: Kind::Gauge, labels: LABELS, help: "Room." }];"#;
        assert_eq!(names(source), r#"m.rs:4 gauge a_bytes["x"] Room."#);
    }

    #[test]
    fn what_is_no_table_is_none() {
        assert_eq!(names("// const METRICS: &[X] = &[(1)];\nuse csi::METRICS; let n = METRICS.len();"), "");
    }

    #[test]
    fn a_table_that_cannot_be_read_is_an_error_and_never_empty() {
        for row in [
            "(NAME, \"counter\", &[], \"x\")",
            "(\"a\", \"timer\", &[], \"x\")",
            "(\"a\", \"counter\", &[])",
            "(\"a\", \"counter\", labels(), \"x\")",
            "make(\"a\", \"counter\", &[], \"x\")",
            "..OTHERS",
        ] {
            let error = names(&format!("const METRICS: &[M] = &[\n{row}];"));
            assert!(
                error.starts_with("error: m.rs:2: the table METRICS has a row of another shape;"),
                "{row}: {error}"
            );
        }
        let error = names("const METRICS: &[M] = make();");
        assert!(error.starts_with("error: m.rs:1: the table METRICS has no list;"), "{error}");
    }

    #[test]
    fn a_name_in_two_tables_is_an_error_and_tests_have_no_tables() {
        let table = |path: &str| Source {
            path: path.into(),
            text: "const METRICS: &[M] = &[(\"a\", \"gauge\", &[], \"x\")];".into(),
        };
        let (one, two) = (table("crates/csi/src/m.rs"), table("crates/report/src/m/n.rs"));
        let test = table("crates/csi/tests/m.rs");
        assert_eq!(read_all(&[one, test]).unwrap().len(), 1);
        let error = read_all(&[table("crates/csi/src/m.rs"), two]).unwrap_err().to_string();
        assert_eq!(
            error,
            "crates/report/src/m/n.rs:1: the metric `a` is also in crates/csi/src/m.rs:1; keep one"
        );
    }
}
