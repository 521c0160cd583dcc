//! The texts of a Rust file that users read.

use std::path::{Path, PathBuf};

use crate::lex::{self, Kind, Token};
use crate::sources::Source;

/// Public names: keys and values in JSON that programs of users read. A string that is exactly one of them is let through.
/// Names with `-`, `_` or `/` need no entry: they are one word for this check.
const NAMES: &[&str] = &["told", "mend"];

/// Derives that show an item's doc comments to users: help texts, and `kubectl explain`.
const SHOWN: &[&str] = &["Args", "Parser", "Subcommand", "ValueEnum", "CustomResource", "JsonSchema"];

/// What users read of a Rust file: strings outside of tests, and doc comments of items that become help texts. Each with
/// its line; a string that continues over lines has the first.
pub(super) fn shown(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let tokens = without_tests(lex::tokens(source));
    let (mut depth, mut shown_depth, mut attributes) = (0_usize, None, 0);
    let mut comments: Vec<(usize, String)> = Vec::new();
    let mut is_shown = false;
    for (index, token) in tokens.iter().enumerate() {
        match &token.kind {
            Kind::Text(value) if !NAMES.contains(&value.as_str()) => found.push((token.line, value.clone())),
            Kind::Comment(text) => {
                if let Some(text) = text.strip_prefix("///") {
                    add_line(&mut comments, token.line, text.trim());
                }
            }
            Kind::Punct('#') if tokens.get(index + 1).is_some_and(|next| next.is('[')) => attributes = 1,
            Kind::Punct('[') if attributes > 0 && !tokens[index - 1].is('#') => attributes += 1,
            Kind::Punct(']') if attributes > 0 => attributes -= 1,
            Kind::Ident(name) if attributes > 0 => is_shown |= SHOWN.contains(&name.as_str()),
            Kind::Punct('{') => {
                depth += 1;
                // The item's own comments come before its brace, those of its fields are inside.
                if is_shown && shown_depth.is_none() {
                    shown_depth = Some(depth);
                } else if shown_depth.is_none() {
                    comments.clear();
                }
                is_shown = false;
            }
            Kind::Punct('}') => {
                if shown_depth == Some(depth) {
                    found.append(&mut comments);
                    shown_depth = None;
                }
                depth = depth.saturating_sub(1);
            }
            Kind::Punct(';') if attributes == 0 => {
                if is_shown {
                    found.append(&mut comments);
                }
                is_shown = false;
                if shown_depth.is_none() {
                    comments.clear();
                }
            }
            _ => {}
        }
    }
    found
}

/// Lines that follow each other are one text, so that a sentence stays whole.
pub(super) fn add_line(comments: &mut Vec<(usize, String)>, line: usize, text: &str) {
    match comments.last_mut() {
        Some((first, before)) if *first + before.matches('\n').count() + 1 == line => {
            before.push('\n');
            before.push_str(text);
        }
        _ => comments.push((line, text.to_owned())),
    }
}

/// The tokens without items that are compiled for tests only.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        kept.push(token);
        if ends_with_test_attribute(&kept) {
            kept.truncate(kept.len() - TEST_ATTRIBUTE.len());
            let mut depth = 0_usize;
            for token in tokens.by_ref() {
                depth += usize::from(token.is('{'));
                depth -= usize::from(token.is('}') && depth > 0);
                if depth == 0 && (token.is('}') || token.is(';')) {
                    break;
                }
            }
        }
    }
    kept
}

const TEST_ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

fn ends_with_test_attribute(tokens: &[Token]) -> bool {
    let Some(last) = tokens.len().checked_sub(TEST_ATTRIBUTE.len()).map(|start| &tokens[start..]) else {
        return false;
    };
    last.iter().zip(TEST_ATTRIBUTE).all(|(token, wanted)| match &token.kind {
        Kind::Ident(name) => name == wanted,
        Kind::Punct(punct) => wanted.chars().eq([*punct]),
        _ => false,
    })
}

/// The files and folders of modules that are compiled for tests only: `#[cfg(test)] mod tests;`.
pub(super) fn test_modules(source: &Source) -> Vec<PathBuf> {
    let stem = source.path.file_stem().unwrap_or_default();
    let beside = source.path.parent().unwrap_or(Path::new(""));
    let home = if stem == "lib" || stem == "main" { beside.to_path_buf() } else { beside.join(stem) };
    let code = lex::code(&source.text);
    let mut found = Vec::new();
    for (index, window) in code.windows(3).enumerate() {
        if let [keyword, name, end] = window
            && keyword.ident() == Some("mod")
            && end.is(';')
            && ends_with_test_attribute(&code[..index])
            && let Some(name) = name.ident()
        {
            found.extend([home.join(name), home.join(format!("{name}.rs"))]);
        }
    }
    found
}
