//! Paths of one machine, and marks of unfinished work. A line that says `tidy-ok: <why>` is let through.

use std::path::Path;

use crate::lex::{self, Kind, Token};
use crate::sources::Source;

use super::Finding;

/// Marks that people leave to come back to.
const MARKS: &[&str] = &["TODO", "FIXME", "XXX"]; // tidy-ok: the list itself

/// Macros that stand for code that is not written yet, or that print a value while it is written.
const MACROS: &[&str] = &["todo", "unimplemented", "dbg"];

/// Files that only tools write; a checksum may contain such a word.
const LOCKS: &[&str] = &["Cargo.lock", "go.sum"];

pub(super) fn check(root: &Path, sources: &[Source]) -> Vec<Finding> {
    let judged = sources.iter().filter(|source| !LOCKS.iter().any(|lock| source.path.ends_with(lock)));
    judged.flat_map(|source| check_source(root, source)).collect()
}

fn check_source(root: &Path, source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    let lines: Vec<&str> = source.text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        if let Some(path) = machine_path(root, line) {
            let what =
                format!("`{path}` is a path of one machine; take the folder from an argument or a variable");
            found.push((index + 1, what));
        }
    }
    if source.is_rust() {
        let tokens = lex::tokens(&source.text);
        for token in &tokens {
            let Kind::Comment(text) = &token.kind else { continue };
            found.extend(
                text.lines().enumerate().filter_map(|(offset, line)| marked(token.line + offset, line)),
            );
        }
        let code: Vec<Token> =
            tokens.into_iter().filter(|token| !matches!(token.kind, Kind::Comment(_))).collect();
        found.extend(unfinished_code(&code));
    } else {
        found.extend(lines.iter().enumerate().filter_map(|(index, line)| marked(index + 1, line)));
    }
    found.retain(|(line, _)| lines.get(line - 1).is_none_or(|text| !lets_through(text)));
    found.into_iter().map(|(line, what)| Finding::new(&source.path, line, what)).collect()
}

pub(super) fn lets_through(line: &str) -> bool {
    line.split_once("tidy-ok:").is_some_and(|(_, why)| !why.trim().is_empty())
}

fn marked(line: usize, text: &str) -> Option<(usize, String)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mark = text.split(|c| !is_word(c)).find_map(|word| MARKS.iter().find(|mark| **mark == word))?;
    Some((line, format!("`{mark}` marks unfinished work; finish it, or write down what holds today")))
}

/// A home folder, or the checkout's own path, that is not part of a longer path.
fn machine_path(root: &Path, line: &str) -> Option<String> {
    let checkout = root.to_str().filter(|text| text.matches('/').count() > 1);
    let homes = ["home", "Users", "root"].map(|folder| format!("/{folder}/"));
    let starts = homes.iter().map(|home| (home.as_str(), true)).chain(checkout.map(|path| (path, false)));
    for (start, named) in starts {
        for (at, _) in line.match_indices(start) {
            let before = line[..at].chars().next_back();
            let after = line[at + start.len()..].chars().next();
            let alone = before.is_none_or(|c| c.is_whitespace() || "\"'`([<=:,".contains(c));
            let part_of_name = |c: char| c.is_alphanumeric() || "_.-$".contains(c);
            if alone && after.is_some_and(part_of_name) == named {
                let path = line[at..].split(|c: char| c.is_whitespace() || "\"'`)]>,;".contains(c)).next();
                return path.map(str::to_owned);
            }
        }
    }
    None
}

fn unfinished_code(code: &[Token]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, token) in code.iter().enumerate() {
        let Some(name) = token.ident() else { continue };
        let follows = |offset: usize, punct| code.get(index + offset).is_some_and(|next| next.is(punct));
        if MACROS.contains(&name) && follows(1, '!') && !follows(2, '=') {
            found.push((token.line, format!("`{name}!` marks unfinished work; write what belongs there")));
        }
        if name == "ignore" && in_attribute(&code[..index]) && !follows(1, '=') {
            let what = "a test is ignored without a reason; write `#[ignore = \"why, and how to run it\"]`";
            found.push((token.line, what.to_owned()));
        }
    }
    found
}

/// Whether what comes next is an attribute's name, plain or behind the condition of a `cfg_attr`.
fn in_attribute(before: &[Token]) -> bool {
    if let [.., hash, bracket] = before
        && hash.is('#')
        && bracket.is('[')
    {
        return true;
    }
    // Back to the bracket that is still open here.
    let mut closed = 0_usize;
    for (index, token) in before.iter().enumerate().rev() {
        if token.is(']') {
            closed += 1;
        } else if token.is('[') && closed > 0 {
            closed -= 1;
        } else if token.is('[') {
            return before[index..].get(1).and_then(Token::ident) == Some("cfg_attr")
                && before.last().is_some_and(|last| last.is(','));
        } else if token.is(';') || token.is('{') || token.is('}') {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    fn check_text(path: &str, text: &str) -> Vec<String> {
        let source = Source { path: path.into(), text: text.into() };
        lines(&check(Path::new("/srv/checkouts/volmedic"), &[source]))
    }

    const CLEAN: [&str; 0] = [];

    #[test]
    fn paths_of_one_machine_are_found() {
        for (folder, rest) in [("home", "alice/x"), ("Users", "alice"), ("root", ".cargo")] {
            let found = check_text("a.md", &format!("fine\nsee `/{folder}/{rest}` there"));
            let path = format!("/{folder}/{rest}");
            assert_eq!(
                found,
                [format!(
                    "a.md:2: `{path}` is a path of one machine; take the folder from an argument or a variable"
                )]
            );
        }
        assert_eq!(check_text("a.rs", "const P: &str = \"/srv/checkouts/volmedic/target\";").len(), 1);
        assert_eq!(check_text("a.yaml", "path: /srv/checkouts/volmedic").len(), 1);
    }

    #[test]
    fn paths_inside_of_other_paths_are_not() {
        for text in [
            "rootfs/home/alice",
            "{base}/root/x",
            "$D/home/x",
            "https://a.b/home/x",
            "/srv/checkouts/volmedic2",
        ] {
            assert_eq!(check_text("a.md", text), CLEAN, "{text}");
        }
    }

    #[test]
    fn marks_are_found_in_comments_and_prose_but_not_in_code() {
        let mark = MARKS[0];
        let found = check_text(
            "a.rs",
            &format!("fn f() {{}}\n/* a\n {mark}: b */\nconst {mark}: &str = \"{mark}\";"),
        );
        assert_eq!(
            found,
            [format!("a.rs:3: `{mark}` marks unfinished work; finish it, or write down what holds today")]
        );
        assert_eq!(check_text("a.md", &format!("- {mark} write this")).len(), 1);
        assert_eq!(check_text("a.md", &format!("{mark}S and MY{mark} are words")), CLEAN);
        assert_eq!(check_text("go.sum", mark), CLEAN);
    }

    #[test]
    fn unfinished_macros_are_found_in_code_only() {
        assert_eq!(
            check_text("a.rs", "fn f() {\n    todo!(\"x\")\n}"),
            ["a.rs:2: `todo!` marks unfinished work; write what belongs there"]
        );
        assert_eq!(check_text("a.rs", "let x = dbg!(y); unimplemented!()").len(), 2);
        assert_eq!(
            check_text("a.rs", "// todo!() and dbg!\nconst X: &str = \"todo!()\"; let dbg = todo != x;"),
            CLEAN
        );
    }

    #[test]
    fn an_ignored_test_needs_a_reason() {
        let expected = "a test is ignored without a reason; write `#[ignore = \"why, and how to run it\"]`";
        assert_eq!(check_text("a.rs", "#[test]\n#[ignore]\nfn f() {}"), [format!("a.rs:2: {expected}")]);
        assert_eq!(
            check_text("a.rs", "#[cfg_attr(not(x), ignore)]\nfn f() {}"),
            [format!("a.rs:1: {expected}")]
        );
        for fine in [
            "#[ignore = \"needs a second disk\"] fn f() {}",
            "#[cfg_attr(not(x), ignore = \"needs x\")] fn f() {}",
            "let ignore = [a, ignore, b];",
            "#[derive(A)] struct S { ignore: bool }",
        ] {
            assert_eq!(check_text("a.rs", fine), CLEAN, "{fine}");
        }
    }

    #[test]
    fn a_reason_lets_a_line_through_and_an_empty_one_does_not() {
        let mark = MARKS[1];
        assert_eq!(check_text("a.md", &format!("{mark} tidy-ok: quotes the word")), CLEAN);
        assert_eq!(check_text("a.md", &format!("{mark} tidy-ok: ")).len(), 1);
    }
}
