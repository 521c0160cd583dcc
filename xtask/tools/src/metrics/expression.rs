//! Small expressions of Rust as text: constants, the values of their names, lists in brackets.

use std::collections::BTreeMap;
use std::path::Path;

use crate::lex::Token;

/// Some tokens and the file they are in, which decides what a name in them means.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expression<'a> {
    pub(super) file: &'a Path,
    pub(super) tokens: &'a [Token],
}

/// The right side of every `const NAME: … = …;` in some files of one crate.
pub(super) struct Constants<'a>(BTreeMap<&'a str, Vec<Expression<'a>>>);

impl<'a> Constants<'a> {
    pub(super) fn of(files: impl IntoIterator<Item = Expression<'a>>) -> Self {
        let mut found: BTreeMap<&str, Vec<Expression<'a>>> = BTreeMap::new();
        for Expression { file, tokens } in files {
            for (index, _) in tokens.iter().enumerate().filter(|(_, token)| token.ident() == Some("const")) {
                let rest = &tokens[index + 1..];
                let Some(name) = rest.first().and_then(Token::ident) else { continue };
                let mut sides = rest.splitn(2, |token| token.is('='));
                if let (Some(_), Some(right)) = (sides.next(), sides.next()) {
                    let tokens = right.split(|token| token.is(';')).next().unwrap_or_default();
                    found.entry(name).or_default().push(Expression { file, tokens });
                }
            }
        }
        Self(found)
    }

    /// The value of a name or a path; anything else is its own value.
    pub(super) fn resolve(&self, mut expression: Expression<'a>) -> Expression<'a> {
        // A chain of names is followed a little; a circle would not compile anyway.
        for _ in 0..4 {
            match self.look_up(expression) {
                Some(next) => expression = next,
                None => break,
            }
        }
        expression
    }

    fn look_up(&self, Expression { file, tokens }: Expression<'a>) -> Option<Expression<'a>> {
        let (name, path) = tokens.split_last()?;
        if !path.iter().all(|token| token.is(':') || token.ident().is_some()) {
            return None;
        }
        let known = self.0.get(name.ident()?)?;
        // Of two constants with one name, the path's last module, or else the file itself, says which is meant.
        let module = path.iter().rev().find_map(Token::ident);
        let meant = known.iter().find(|constant| match module {
            Some(module) => constant.file.file_stem().is_some_and(|stem| stem == module),
            None => constant.file == file,
        });
        match (meant, known.as_slice()) {
            (Some(meant), _) => Some(*meant),
            (None, [only]) => Some(*only),
            _ => None,
        }
    }
}

/// The tokens up to the bracket that closes the one just before them.
pub(super) fn group(tokens: &[Token]) -> &[Token] {
    let mut depth = 1_usize;
    for (index, token) in tokens.iter().enumerate() {
        depth += usize::from(opens(token));
        depth -= usize::from(closes(token));
        if depth == 0 {
            return &tokens[..index];
        }
    }
    tokens
}

/// Splits at the commas that are inside of no further bracket.
pub(super) fn split(tokens: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0_usize;
    let parts = tokens.split(|token| {
        depth += usize::from(opens(token));
        depth = depth.saturating_sub(usize::from(closes(token)));
        depth == 0 && token.is(',')
    });
    parts.filter(|part| !part.is_empty()).collect()
}

fn opens(token: &Token) -> bool {
    ['(', '[', '{'].iter().any(|open| token.is(*open))
}

fn closes(token: &Token) -> bool {
    [')', ']', '}'].iter().any(|close| token.is(*close))
}
