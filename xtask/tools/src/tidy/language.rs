//! Ordinary English: words that a reader would have to learn first are refused in pages, in strings, in comments and in names,
//! with what to write instead.
//! A line that says `tidy-ok: <why>` is let through.

use std::path::{Path, PathBuf};

use crate::sources::Source;
use crate::workspace::Workspace;

use super::Finding;
use super::unfinished::lets_through;

mod code;
mod names;

/// Each line has a word or phrase and what to write instead. The words of a phrase may be on two lines of a text.
const WORDS: &str = include_str!("language/words.txt");

/// Pages with records of earlier runs. They change when they are measured again.
const FROM_STRINGS: &[&str] = &["docs/bench-", "docs/gallery.md"];

pub(super) fn check(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    let all: Vec<&str> = workspace.packages.iter().map(|package| package.name.as_str()).collect();
    check_packages(workspace, sources, &all, &all)
}

/// `converted`: the packages whose strings are checked; `clean`: those whose comments and names are.
fn check_packages(
    workspace: &Workspace,
    sources: &[Source],
    converted: &[&str],
    clean: &[&str],
) -> Vec<Finding> {
    let words = words();
    let folders = |names: &[&str]| -> Vec<PathBuf> {
        let packages = workspace.packages.iter().filter(|package| names.contains(&package.name.as_str()));
        packages.map(|package| workspace.relative(package.folder()).to_path_buf()).collect()
    };
    let converted: Vec<PathBuf> = folders(converted).iter().map(|folder| folder.join("src")).collect();
    let clean: Vec<PathBuf> =
        folders(clean).iter().flat_map(|folder| ["src", "tests"].map(|part| folder.join(part))).collect();
    let tests: Vec<PathBuf> =
        sources.iter().filter(|source| source.is_rust()).flat_map(code::test_modules).collect();
    let is_test = |path: &Path| tests.iter().any(|test| path.starts_with(test));
    let mut found = Vec::new();
    for source in sources {
        let mut texts = if source.is_rust() {
            let checked = converted.iter().any(|folder| source.path.starts_with(folder));
            if checked && !is_test(&source.path) { code::shown(&source.text) } else { Vec::new() }
        } else if is_document(&source.path) {
            vec![(1, without_blocks(&source.text))]
        } else {
            Vec::new()
        };
        if source.is_rust() && clean.iter().any(|folder| source.path.starts_with(folder)) {
            texts.extend(names::comments(&source.text));
            texts.extend(names::names(&source.text));
        }
        let lines: Vec<&str> = source.text.lines().collect();
        for (first, text) in texts {
            for (line, what) in refused(&words, first, &text) {
                if lines.get(line - 1).is_none_or(|text| !lets_through(text)) {
                    found.push(Finding::new(&source.path, line, what));
                }
            }
        }
    }
    found
}

fn is_document(path: &Path) -> bool {
    let name = path.to_string_lossy();
    let is_text = name.starts_with("deploy/") || path.extension().is_some_and(|extension| extension == "md");
    is_text && !FROM_STRINGS.iter().any(|made| name.starts_with(made))
}

/// Phrases as words, with what to write instead.
fn words() -> Vec<(Vec<&'static str>, &'static str)> {
    let lines = WORDS.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(phrase, instead)| (phrase.split(' ').collect(), instead)).collect()
}

/// A word of a text and its line, or `None` where a sentence, a cell or a piece of code separates words.
type Piece = (usize, Option<String>);

/// Every place where a phrase is in the text, whose first line has this number.
fn refused(words: &[(Vec<&str>, &str)], first: usize, text: &str) -> Vec<(usize, String)> {
    let pieces = pieces(first, text);
    let mut found = Vec::new();
    for start in 0..pieces.len() {
        for (phrase, instead) in words {
            let here = pieces[start..].iter().take(phrase.len()).map(|(_, word)| word.as_deref());
            if here.eq(phrase.iter().map(|word| Some(*word))) {
                found.push((pieces[start].0, format!("\"{}\": write {instead}", phrase.join(" "))));
            }
        }
    }
    found
}

/// The words in lower case. What is in backticks or, as in a format string, in braces is code.
fn pieces(first: usize, text: &str) -> Vec<Piece> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '\'' | '’' | '/');
    let mut found: Vec<Piece> = Vec::new();
    let (mut line, mut rest) = (first, text);
    while let Some(next) = rest.chars().next() {
        let code = match next {
            '`' => code_length(rest, '`'),
            '{' => code_length(rest, '}').filter(|length| !rest[..*length].contains([' ', '"'])),
            _ => None,
        };
        let length = if let Some(length) = code {
            found.push((line, None));
            length
        } else if is_word(next) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            found.push((line, Some(rest[..length].trim_matches(['\'', '’', '-']).to_lowercase())));
            length
        } else {
            // Marks of a comment or of emphasis, and one end of a line, are between words of one sentence.
            if !next.is_whitespace() && !matches!(next, '#' | '*' | '>') || rest.starts_with("\n\n") {
                found.push((line, None));
            }
            next.len_utf8()
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

/// How much of the text is code that ends with this mark. Code ends with its paragraph at the latest.
fn code_length(text: &str, end: char) -> Option<usize> {
    let length = 1 + text[1..].find(end)? + 1;
    (!text[..length].contains("\n\n")).then_some(length)
}

/// The text of a page with its code blocks left empty, so that lines keep their numbers.
fn without_blocks(text: &str) -> String {
    let (mut kept, mut inside) = (String::new(), false);
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        if !fence && !inside {
            kept.push_str(line);
        }
        inside ^= fence;
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;
    use crate::tree::Tree;

    fn check_files(entries: &[(&str, &str)]) -> Vec<String> {
        let packages = [("volmedic-converted", ""), ("volmedic-clean", ""), ("volmedic-other", "")];
        let tree = Tree::workspace(&packages, entries);
        let (converted, clean) = (["volmedic-converted"], ["volmedic-clean"]);
        lines(&check_packages(&tree.load(), &tree.sources(), &converted, &clean))
    }

    fn check_page(text: &str) -> Vec<String> {
        check_files(&[("docs/x.md", text)])
    }

    fn check_code(text: &str) -> Vec<String> {
        check_files(&[("crates/converted/src/a.rs", text)])
    }

    const FINE: [&str; 0] = [];

    #[test]
    fn a_word_is_found_with_its_line_and_what_to_write() {
        assert_eq!(
            check_page("# Fine\n\nThe volume was Mended.\n"),
            ["docs/x.md:3: \"mended\": write \"healed\" or \"repaired\""]
        );
        assert_eq!(
            check_files(&[("deploy/chart/values.yaml", "a: 1\n# Label volumes of ill claims.\n")]),
            ["deploy/chart/values.yaml:2: \"ill\": write \"unhealthy\""]
        );
        assert_eq!(check_page("Whoever may change it may ask, and all are well again.").len(), 3);
    }

    #[test]
    fn a_phrase_is_found_across_the_end_of_a_line() {
        let instead = "write \"again\"";
        assert_eq!(check_page("It asks once\nmore."), [format!("docs/x.md:1: \"once more\": {instead}")]);
        let comment = "x:\n  # It asks once\n  # more.\n";
        assert_eq!(
            check_files(&[("deploy/a.yaml", comment)]),
            [format!("deploy/a.yaml:2: \"once more\": {instead}")]
        );
    }

    #[test]
    fn ordinary_words_are_not() {
        for fine in [
            "As well as the hub; a well-known reason; it works well.",
            "Check it once. More follows. Once, more or less.",
            "I'll fill the till until it is still.",
            "The volume is silently ignored. Blind spots. A silent install.",
            "An empty list would look like a mistake. Look for data.",
            "| once | more |",
            "Once\n\nmore.",
            "The rule adverse-is-told and the result still_ill.",
            "The label volmedic.dev/tells-health is public.",
        ] {
            assert_eq!(check_page(fine), FINE, "{fine}");
        }
    }

    #[test]
    fn code_in_a_page_is_not_judged() {
        for fine in [
            "The key `told` is public.",
            "The level is `good` or\n`mend`.",
            "```\n1 to mend\n```\n",
            "1. Run:\n\n   ```sh\n   # told\n   ```\n",
        ] {
            assert_eq!(check_page(fine), FINE, "{fine}");
        }
        assert_eq!(check_page("```\nx\n```\nIt is told.").len(), 1, "a block ends");
        assert_eq!(check_page("An open ` mark.\n\nIt is told. `x`").len(), 1, "code ends with its paragraph");
    }

    #[test]
    fn other_files_and_records_are_not_judged() {
        for path in ["docs/gallery.md", "docs/bench-hub.md", "notes.txt"] {
            assert_eq!(check_files(&[(path, "told")]), FINE, "{path}");
        }
    }

    #[test]
    fn strings_are_judged_in_converted_packages_only() {
        let code = "fn f() {\n    say(\"all is told\");\n}";
        assert_eq!(check_code(code), ["crates/converted/src/a.rs:2: \"told\": write \"reported\""]);
        assert_eq!(check_files(&[("crates/other/src/a.rs", code)]), FINE);
        assert_eq!(check_files(&[("crates/converted/tests/a.rs", code)]), FINE);
        assert_eq!(check_code("fn f() { say(\"asks once \\\n    more\"); }").len(), 1, "a continued string");
    }

    #[test]
    fn comments_and_names_are_judged_in_clean_packages_only() {
        let code = "// Once more.\nfn is_well() {}\n";
        let found = ["1: \"once more\": write \"again\"", "2: \"is well\": write \"is healthy\""];
        for path in ["crates/clean/src/a.rs", "crates/clean/tests/it/a.rs"] {
            assert_eq!(check_files(&[(path, code)]), found.map(|found| format!("{path}:{found}")));
        }
        assert_eq!(check_code(code), FINE);
        let public = "fn is_well() {} // tidy-ok: a public name";
        assert_eq!(check_files(&[("crates/clean/src/a.rs", public)]), FINE);
    }

    #[test]
    fn names_and_values_in_strings_are_not() {
        for fine in [
            "const KEY: &str = \"told\";",
            "fn told() { say(\"{told} and {told:?}\"); }",
            "// what was told\nfn f() { say(\"see `told`\"); }",
            "say(\"told\"); // tidy-ok: a name",
        ] {
            assert_eq!(check_code(fine), FINE, "{fine}");
        }
        assert_eq!(check_code("say(\"{ told }\")").len(), 1, "JSON is text");
    }

    #[test]
    fn tests_are_not_judged() {
        let inline = "#[cfg(test)]\nmod tests {\n    fn f() { if a { say(\"is told\") } }\n}";
        assert_eq!(check_code(inline), FINE);
        assert_eq!(check_code(&format!("{inline}\nconst A: &str = \"is told\";")).len(), 1);
        assert_eq!(check_code("#[cfg(test)]\nuse a;\nconst A: &str = \"is told\";").len(), 1);
        let module = "#[cfg(test)]\nmod tests;";
        let test = "const A: &str = \"is told\";";
        assert_eq!(
            check_files(&[("crates/converted/src/a.rs", module), ("crates/converted/src/a/tests.rs", test)]),
            FINE
        );
        assert_eq!(
            check_files(&[
                ("crates/converted/src/lib.rs", module),
                ("crates/converted/src/tests/b.rs", test)
            ]),
            FINE
        );
    }

    #[test]
    fn doc_comments_are_judged_where_they_become_help() {
        let help = "/// Is told.\n#[derive(Debug, clap::Args)]\nstruct A {\n    /// Is told.\n    #[arg(long)]\n    a: bool,\n}";
        let found = check_code(help);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("crates/converted/src/a.rs:1:")
                && found[1].starts_with("crates/converted/src/a.rs:4:")
        );
        let variants = "#[derive(Subcommand)]\nenum A {\n    /// Is told.\n    B { c: u8 },\n    /// Is told.\n    D,\n}";
        assert_eq!(check_code(variants).len(), 2);
        assert_eq!(check_code("/// Is told.\n#[derive(clap::Args)]\nstruct A;").len(), 1);
        assert_eq!(check_code("/// Asks once\n/// more.\n#[derive(clap::Args)]\nstruct A;").len(), 1);
        for plain in [
            "/// Is told.\nstruct A {\n    /// Is told.\n    a: bool,\n}",
            "/// Is told.\nfn f() {}\n#[derive(clap::Args)]\nstruct A { a: bool }",
            "#[derive(clap::Args)]\nstruct A { a: bool }\n/// Is told.\nfn f() {}",
        ] {
            assert_eq!(check_code(plain), FINE, "{plain}");
        }
    }

    #[test]
    fn every_word_has_what_to_write_instead() {
        let words = words();
        assert!(words.len() > 30);
        for (phrase, instead) in words {
            assert!(!phrase.is_empty() && !instead.is_empty(), "{phrase:?}");
            assert!(phrase.iter().all(|word| *word == word.to_lowercase()), "{phrase:?}");
        }
    }
}
