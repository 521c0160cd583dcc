//! Markdown that goes into documents of other people. Text that came from elsewhere cannot change the structure: it is a
//! code span, or it is escaped character by character, and it never begins a line or ends one.

use std::fmt::Write as _;

use crate::text::plain;

/// What may stand in a line: only what is harmless becomes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inline(String);

impl Inline {
    /// Words of this program.
    pub fn words(text: &'static str) -> Self {
        Self(text.to_owned())
    }

    /// A name or a message, as it is. What would end the span or a cell is spelt out, as everything that `plain` spells out.
    pub fn code(text: &str) -> Self {
        let text = plain(text.trim());
        if text.is_empty() {
            return Self("-".to_owned());
        }
        Self(format!("`{}`", text.replace('`', "\\u{60}").replace('|', "\\u{7c}")))
    }

    /// Sentences, in which names may occur.
    pub fn prose(text: &str) -> Self {
        let text = plain(text.trim());
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let mut out = String::with_capacity(text.len() + 16);
        for (at, letter) in text.char_indices() {
            match letter {
                '|' => out.push_str("&#124;"),
                // Where it stands first, or behind a first number, it could begin a list, a quotation or a line.
                '-' | '=' | ':' if at == 0 => out.extend(['\\', letter]),
                '.' | ')' if digits > 0 && at == digits => out.extend(['\\', letter]),
                // An address does not become a link.
                ':' if text[at..].starts_with("://") => out.push_str("\\:"),
                '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '<' | '>' | '#' | '+' | '!' | '~' | '&'
                | '$' | '@' | '^' => {
                    out.extend(['\\', letter]);
                }
                _ => out.push(letter),
            }
        }
        if out.is_empty() { Self("-".to_owned()) } else { Self(out) }
    }

    #[must_use]
    pub fn then(mut self, next: &Self) -> Self {
        self.0.push_str(&next.0);
        self
    }
}

/// A document, part by part.
#[derive(Debug, Default)]
pub struct Markdown {
    out: String,
}

impl Markdown {
    /// `level` from 1.
    pub fn heading(&mut self, level: usize, text: &Inline) {
        self.part();
        self.line(&format!("{} {}", "#".repeat(level.clamp(1, 6)), text.0));
    }

    pub fn paragraph(&mut self, text: &Inline) {
        self.part();
        self.line(&text.0);
    }

    pub fn list(&mut self, items: impl IntoIterator<Item = Inline>) {
        self.part();
        for item in items {
            self.line(&format!("- {}", item.0));
        }
    }

    pub fn steps(&mut self, items: impl IntoIterator<Item = Inline>) {
        self.part();
        for (number, item) in (1..).zip(items) {
            self.line(&format!("{number}. {}", item.0));
        }
    }

    pub fn table<const N: usize>(
        &mut self,
        head: [&'static str; N],
        rows: impl IntoIterator<Item = [Inline; N]>,
    ) {
        self.part();
        self.line(&format!("| {} |", head.join(" | ")));
        self.line(&format!("|{}", "---|".repeat(N)));
        for row in rows {
            self.line(&format!("| {} |", row.map(|cell| cell.0).join(" | ")));
        }
    }

    pub fn finish(self) -> String {
        self.out
    }

    /// An empty line between two parts.
    fn part(&mut self) {
        if !self.out.is_empty() {
            self.line("");
        }
    }

    fn line(&mut self, line: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use pulldown_cmark::{Event, Options, Parser, Tag};

    use super::*;

    fn document(text: &str) -> String {
        let mut document = Markdown::default();
        let code = || Inline::code(text);
        let prose = || Inline::prose(text);
        document.heading(1, &Inline::words("Claim ").then(&code()));
        document.paragraph(&prose());
        document.table(["A", "B", "C"], [[code(), prose(), Inline::words("x")], [prose(), code(), code()]]);
        document.heading(2, &Inline::words("Steps"));
        document.steps([prose(), code()]);
        document.paragraph(&Inline::words("Between"));
        document.list([code(), prose(), code().then(&Inline::words(": ")).then(&prose())]);
        document.finish()
    }

    /// What a reader's program makes of it: each element as it opens and closes, and what its text is.
    fn structure(markdown: &str) -> (Vec<String>, Vec<String>) {
        let (mut shape, mut texts) = (Vec::new(), vec![String::new()]);
        for event in Parser::new_ext(markdown, Options::all()) {
            match event {
                Event::Text(text) => texts.last_mut().unwrap().push_str(&text),
                Event::Code(text) => {
                    shape.push("code".to_owned());
                    texts.last_mut().unwrap().push_str(&text);
                }
                Event::Start(Tag::Link { .. }) => shape.push("link".to_owned()),
                other => {
                    shape.push(format!("{other:?}"));
                    texts.push(String::new());
                }
            }
        }
        texts.retain(|text| !text.is_empty());
        (shape, texts)
    }

    #[track_caller]
    fn check(text: &str) {
        let (found, texts) = structure(&document(text));
        let (expected, _) = structure(&document("harmless"));
        assert_eq!(found, expected, "{text:?} in\n{}", document(text));
        let shown = plain(text.trim()).into_owned();
        let prose = |shown: &str| if shown.is_empty() { "-".to_owned() } else { shown.to_owned() };
        assert!(texts.contains(&prose(&shown)), "{text:?} is not shown as it is: {texts:?}");
    }

    #[test]
    fn hostile_names_and_messages_stay_what_they_are() {
        for text in [
            "a | b",
            "\\| x",
            "\\\\| x",
            "`",
            "``",
            "` | `",
            "# x",
            "- x",
            "+ x",
            "* x",
            "1. x",
            "12) x",
            "> x",
            "===",
            "---",
            "***",
            "~~~",
            "```\ncode",
            "<script>alert(1)</script>",
            "<!-- ",
            "a\nb\n\n# c",
            "[x](http://a.example/)",
            "![x](y)",
            "http://a.example/x",
            "www.a.example",
            "@team #12",
            "&lt;&#124;",
            "$x$",
            "a_b_c **d**",
            "|---|---|",
            ": x",
            "[^1]: x",
            "{#id}",
            "\u{2028}x",
            "\u{202e}x",
            "",
            "   ",
            "\t",
            "\\",
            "x\\",
            "[ ] x",
            "==x==",
            "x^2^ ~y~",
            "+++",
        ] {
            check_shape(text);
        }
        check("data-0");
        check("a | b");
        check("1. x");
    }

    #[track_caller]
    fn check_shape(text: &str) {
        // An empty cell is shown as a dash, without a code span.
        if plain(text.trim()).is_empty() {
            return;
        }
        let (found, _) = structure(&document(text));
        let (expected, _) = structure(&document("harmless"));
        assert_eq!(found, expected, "{text:?} in\n{}", document(text));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn no_content_changes_the_structure(text in r"([ -~]|[|`\\#>\n\r\t<&*_\[\]()!~=+.:@$^{}-]|\PC){0,24}") {
            check_shape(&text);
        }
    }
}
