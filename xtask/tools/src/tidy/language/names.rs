//! What only people who work on the code read: comments, and the names that a file defines.

use crate::lex::{self, Kind, Token};

/// All comments of a file, each with the line it starts on. Lines that follow each other are one text.
pub(in crate::tidy) fn comments(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for token in lex::tokens(source) {
        if let Kind::Comment(text) = &token.kind {
            let text = text.trim_start_matches(['/', '!', '*']).trim_end_matches(['/', '*']);
            super::code::add_line(&mut found, token.line, text.trim());
        }
    }
    found
}

/// The words of each name that the file defines: items, variables, fields and variants. Names that it only uses belong to
/// another file.
pub(in crate::tidy) fn names(source: &str) -> Vec<(usize, String)> {
    let tokens = lex::code(source);
    let mut found = Vec::new();
    let (mut depth, mut body) = (0_usize, None);
    // A type whose body has not begun.
    let mut begun = false;
    for (index, token) in tokens.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &tokens[before]);
        match &token.kind {
            Kind::Punct('{') => {
                depth += 1;
                if std::mem::take(&mut begun) {
                    body = Some(depth);
                }
            }
            Kind::Punct('}') => {
                if body == Some(depth) {
                    body = None;
                }
                depth = depth.saturating_sub(1);
            }
            Kind::Punct(';') => begun = false,
            Kind::Ident(name) => {
                let keyword = before.and_then(Token::ident);
                begun |= matches!(keyword, Some("struct" | "enum"));
                let member = body == Some(depth) && before.is_some_and(begins_member);
                if (member || keyword.is_some_and(defines)) && !defines(name) && name != "pub" {
                    found.push((token.line, words(name)));
                }
            }
            _ => {}
        }
    }
    found
}

fn defines(keyword: &str) -> bool {
    const KEYWORDS: [&str; 11] =
        ["fn", "struct", "enum", "trait", "mod", "type", "const", "static", "let", "mut", "ref"];
    KEYWORDS.contains(&keyword)
}

/// A field or variant comes after one of these, or after an attribute or a visibility.
fn begins_member(before: &Token) -> bool {
    ['{', ',', ']', ')'].iter().any(|punct| before.is(*punct)) || before.ident() == Some("pub")
}

/// `last_holder` and `LastHolder` are both "last holder".
fn words(name: &str) -> String {
    let mut words = String::new();
    let mut was_lower = false;
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && was_lower {
            words.push(' ');
        }
        was_lower = letter.is_lowercase() || letter.is_ascii_digit();
        words.extend(letter.to_lowercase().filter(|letter| *letter != '_'));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(source: &str) -> Vec<String> {
        names(source).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn names_are_found_where_they_are_defined() {
        assert_eq!(names_of("fn tell_all(told: u8) { let mut was_told = told; }"), ["tell all", "was told"]);
        assert_eq!(
            names_of("pub struct StillIll<T> { pub told: T, #[serde] pub(crate) at: u8 }"),
            ["still ill", "told", "at"]
        );
        assert_eq!(names_of("enum Answer { Well, Ill { since: u8 }, }"), ["answer", "well", "ill"]);
        assert_eq!(
            names_of("const MOST_TOLD: u8 = 1; mod told; type Told = u8;"),
            ["most told", "told", "told"]
        );
    }

    #[test]
    fn names_of_other_files_are_not() {
        assert_eq!(names_of("fn f() { let x = Memo { told: y.told(), ..memo }; told(x); }"), ["f", "x"]);
        assert_eq!(names_of("struct A; fn f() { B { told: 1 }; }"), ["a", "f"]);
    }

    #[test]
    fn comments_are_whole_texts_with_their_line() {
        let source = "//! One.\nfn f() {\n    // It asks once\n    // more.\n    let x = 1;\n    let y = 2; /* two */\n}\n";
        let found = comments(source);
        assert_eq!(
            found,
            [(1, "One.".to_owned()), (3, "It asks once\nmore.".to_owned()), (6, "two".to_owned())]
        );
    }
}
