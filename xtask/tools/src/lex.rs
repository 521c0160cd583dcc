//! Just enough of Rust's lexical grammar to separate code, comments and strings.

/// One piece of source text and the line it starts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or keyword; a raw one comes without its `r#`.
    Ident(String),
    /// The value of a string literal of any sort.
    Text(String),
    /// The text of a comment with its markers.
    Comment(String),
    /// A lifetime, a number or a character literal: no caller needs to know which.
    Other,
    Punct(char),
}

impl Token {
    pub(crate) fn is(&self, punct: char) -> bool {
        self.kind == Kind::Punct(punct)
    }

    pub(crate) fn ident(&self) -> Option<&str> {
        if let Kind::Ident(name) = &self.kind { Some(name) } else { None }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Kind::Text(value) = &self.kind { Some(value) } else { None }
    }
}

/// All tokens of a file. Broken source gives fewer or odd tokens, never an error: the compiler reports that.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut lexer = Lexer { chars: source.chars().collect(), at: 0, line: 1 };
    let mut found = Vec::new();
    while let Some(token) = lexer.next_token() {
        found.push(token);
    }
    found
}

/// The tokens that are code: all but comments.
pub(crate) fn code(source: &str) -> Vec<Token> {
    tokens(source).into_iter().filter(|token| !matches!(token.kind, Kind::Comment(_))).collect()
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.peek(0)?;
        self.at += 1;
        self.line += usize::from(next == '\n');
        Some(next)
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(next) = self.peek(0).filter(|next| keep(*next)) {
            taken.push(next);
            self.bump();
        }
        taken
    }

    fn next_token(&mut self) -> Option<Token> {
        self.take_while(char::is_whitespace);
        let line = self.line;
        let kind = match (self.peek(0)?, self.peek(1)) {
            ('/', Some('/')) => Kind::Comment(self.take_while(|next| next != '\n')),
            ('/', Some('*')) => Kind::Comment(self.block_comment()),
            ('"', _) => Kind::Text(self.quoted()),
            ('\'', _) => self.after_tick(),
            (first, _) if is_ident_start(first) => self.word(),
            (first, _) if first.is_ascii_digit() => {
                self.take_while(is_ident_part);
                Kind::Other
            }
            (first, _) => {
                self.bump();
                Kind::Punct(first)
            }
        };
        Some(Token { line, kind })
    }

    /// An identifier, or a literal behind a prefix: `r"…"`, `br#"…"#`, `c"…"`, `b'…'`, `r#type`.
    fn word(&mut self) -> Kind {
        let word = self.take_while(is_ident_part);
        let raw = matches!(word.as_str(), "r" | "br" | "cr");
        match self.peek(0) {
            Some('"') if raw => Kind::Text(self.raw_quoted(0)),
            Some('"') if matches!(word.as_str(), "b" | "c") => Kind::Text(self.quoted()),
            Some('\'') if word == "b" => self.after_tick(),
            Some('#') if raw => {
                let hashes = self.chars[self.at..].iter().take_while(|next| **next == '#').count();
                if self.peek(hashes) == Some('"') {
                    Kind::Text(self.raw_quoted(hashes))
                } else if word == "r" && hashes == 1 && self.peek(1).is_some_and(is_ident_start) {
                    self.bump();
                    Kind::Ident(self.take_while(is_ident_part))
                } else {
                    Kind::Ident(word)
                }
            }
            _ => Kind::Ident(word),
        }
    }

    /// Block comments nest.
    fn block_comment(&mut self) -> String {
        let (mut depth, mut text) = (0_usize, String::new());
        loop {
            let pair = (self.peek(0), self.peek(1));
            let step = match pair {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    2
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    2
                }
                (Some(_), _) => 1,
                (None, _) => return text,
            };
            for _ in 0..step {
                text.extend(self.bump());
            }
            if depth == 0 {
                return text;
            }
        }
    }

    fn quoted(&mut self) -> String {
        self.bump();
        let mut value = String::new();
        while let Some(next) = self.bump() {
            match next {
                '"' => break,
                '\\' => value.extend(self.escape()),
                other => value.push(other),
            }
        }
        value
    }

    /// The character of an escape, or none if the backslash continues the line.
    fn escape(&mut self) -> Option<char> {
        match self.bump()? {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            '0' => Some('\0'),
            '\n' => {
                self.take_while(char::is_whitespace);
                None
            }
            'x' => {
                let digits: String = (0..2).filter_map(|_| self.bump()).collect();
                u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)
            }
            'u' => {
                self.bump();
                let digits = self.take_while(|next| next.is_ascii_hexdigit() || next == '_').replace('_', "");
                self.bump();
                u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)
            }
            other => Some(other),
        }
    }

    fn raw_quoted(&mut self, hashes: usize) -> String {
        for _ in 0..=hashes {
            self.bump();
        }
        let mut value = String::new();
        while let Some(next) = self.bump() {
            if next == '"' && (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                for _ in 0..hashes {
                    self.bump();
                }
                break;
            }
            value.push(next);
        }
        value
    }

    /// A character literal or a lifetime: `'a'` is closed, `'a` is not.
    fn after_tick(&mut self) -> Kind {
        self.bump();
        if self.peek(0) == Some('\\') {
            self.bump();
            self.escape();
            self.take_while(|next| next != '\'' && next != '\n');
            self.bump();
        } else if self.peek(1) == Some('\'') {
            self.bump();
            self.bump();
        } else {
            self.take_while(is_ident_part);
        }
        Kind::Other
    }
}

fn is_ident_start(next: char) -> bool {
    next == '_' || next.is_alphabetic()
}

fn is_ident_part(next: char) -> bool {
    next == '_' || next.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes tokens as words: identifiers as they are, strings as `"…"`, comments as `//`, the rest as `·`.
    fn check(source: &str, expected: &str) {
        let shown: Vec<String> = tokens(source)
            .into_iter()
            .map(|token| match token.kind {
                Kind::Ident(name) => name,
                Kind::Text(value) => format!("{value:?}"),
                Kind::Comment(_) => "//".into(),
                Kind::Other => "·".into(),
                Kind::Punct(punct) => punct.into(),
            })
            .collect();
        assert_eq!(shown.join(" "), expected, "{source}");
    }

    #[test]
    fn code_comments_and_strings_are_separated() {
        check("mod a; // mod b;", "mod a ; //");
        check("/* mod a; /* nested */ mod b; */ mod c;", "// mod c ;");
        check(r#"let s = "mod a; // \" still"; x"#, r#"let s = "mod a; // \" still" ; x"#);
        check(r##"r#"a "quoted" b"# y"##, r#""a \"quoted\" b" y"#);
        check(r#"b"x" c"y" br"z" r"""#, r#""x" "y" "z" """#);
        check("mod r#type;", "mod type ;");
        check("br r#x rb", "br x rb");
    }

    #[test]
    fn ticks_are_characters_or_lifetimes() {
        check("'\"' mod a;", "· mod a ;");
        check(r"'\'' '\\' '\u{1F600}' b'\n' x", "· · · · x");
        check("fn f<'a>(x: &'a str) {}", "fn f < · > ( x : & · str ) { }");
        check("'outer: loop {}", "· : loop { }");
    }

    #[test]
    fn escapes_have_their_values_and_a_continued_line_has_no_gap() {
        check("\"a\\tb\\u{e9}\\x41 \\\n    c\"", "\"a\\tbéA c\"");
    }

    #[test]
    fn lines_are_counted_through_everything() {
        let source = "a\n/* x\n y */ b \"s\nt\" c\n";
        let lines: Vec<usize> = tokens(source).iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 3, 3, 4]);
    }

    #[test]
    fn broken_source_ends() {
        for source in ["\"open", "/* open", "r#\"open", "'", "'\\", "b'", "\"\\u{", "r#"] {
            tokens(source);
        }
    }
}
