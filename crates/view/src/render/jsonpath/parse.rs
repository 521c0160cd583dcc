//! From a template's text to its parts.

use serde_json::Value;

use super::{Comparison, Filter, JsonPath, JsonPathError, Operand, Part, Path, Step};

/// Characters of a template.
const LONGEST: usize = 4096;
/// Ranges in each other, and filters in each other.
const DEEPEST: usize = 8;

pub(super) fn parse(template: &str) -> Result<JsonPath, JsonPathError> {
    let text: Vec<char> = template.chars().take(LONGEST + 1).collect();
    let mut parser = Parser { text, at: 0, filters: 0 };
    if parser.text.len() > LONGEST {
        return Err(parser.error_at(0, format!("it is longer than {LONGEST} characters")));
    }
    parser.template().map(|parts| JsonPath { parts })
}

struct Parser {
    text: Vec<char>,
    at: usize,
    filters: usize,
}

impl Parser {
    fn template(&mut self) -> Result<Vec<Part>, JsonPathError> {
        let mut parts = Vec::new();
        // What was before each open range, with the range's path and position.
        let mut open: Vec<(Vec<Part>, Path, usize)> = Vec::new();
        while let Some(letter) = self.peek() {
            let start = self.at;
            match letter {
                '}' => return Err(self.error("a `}` without `{`")),
                '{' => {
                    self.at += 1;
                    if self.word("end") {
                        let Some((mut before, path, _)) = open.pop() else {
                            return Err(self.error_at(start, "an {end} without {range}"));
                        };
                        before.push(Part::Range(path, parts));
                        parts = before;
                    } else if self.word("range") {
                        if open.len() == DEEPEST {
                            return Err(self.error_at(start, "too many ranges in each other"));
                        }
                        let path = self.path()?;
                        open.push((std::mem::take(&mut parts), path, start));
                    } else if matches!(self.after_blanks(), Some('"' | '\'')) {
                        parts.push(Part::Text(self.quoted()?));
                    } else {
                        parts.push(Part::Print(self.path()?));
                    }
                    match self.after_blanks() {
                        Some('}') => self.at += 1,
                        Some(_) => return Err(self.error("expected `}`")),
                        None => return Err(self.error_at(start, "this `{` is not closed")),
                    }
                }
                _ => {
                    let rest = &self.text[start..];
                    let length = rest.iter().position(|c| matches!(c, '{' | '}')).unwrap_or(rest.len());
                    parts.push(Part::Text(rest[..length].iter().collect()));
                    self.at += length;
                }
            }
        }
        match open.pop() {
            Some((_, _, start)) => Err(self.error_at(start, "this {range} has no {end}")),
            None => Ok(parts),
        }
    }

    /// As in `.volumes[*].claim`, `@.x`, `$.x`.
    fn path(&mut self) -> Result<Path, JsonPathError> {
        let whole = match self.after_blanks() {
            Some('$') => true,
            Some('@') => false,
            Some('.' | '[') => return Ok(Path { whole: false, steps: self.steps()? }),
            _ => return Err(self.error("what is selected must begin with `.`, `[`, `@` or `$`")),
        };
        self.at += 1;
        Ok(Path { whole, steps: self.steps()? })
    }

    fn steps(&mut self) -> Result<Vec<Step>, JsonPathError> {
        let mut steps = Vec::new();
        loop {
            match self.peek() {
                Some('.') => {
                    self.at += 1;
                    match self.peek() {
                        Some('.') => return Err(self.error("`..` is not supported; write the whole path")),
                        Some('*') => {
                            self.at += 1;
                            steps.push(Step::All);
                        }
                        // As in `.[0]`, or `.` alone, which is the value itself.
                        Some('[' | '}' | ' ') | None => {}
                        Some(_) => steps.push(Step::Field(self.name()?)),
                    }
                }
                Some('[') => {
                    self.at += 1;
                    steps.push(self.bracket()?);
                    if self.after_blanks() != Some(']') {
                        return Err(self.error("expected `]`"));
                    }
                    self.at += 1;
                }
                _ => return Ok(steps),
            }
        }
    }

    /// Up to the next character that has a meaning; a backslash takes it from it.
    fn name(&mut self) -> Result<String, JsonPathError> {
        let mut name = String::new();
        while let Some(letter) = self.peek() {
            match letter {
                '\\' => {
                    self.at += 1;
                    let Some(escaped) = self.peek() else {
                        return Err(self.error("nothing follows the `\\`"));
                    };
                    name.push(escaped);
                }
                '.' | '[' | ']' | '{' | '}' | '(' | ')' | '=' | '!' | '<' | '>' | '"' | '\'' | ',' | '|'
                | '&' => break,
                letter if letter.is_whitespace() => break,
                letter => name.push(letter),
            }
            self.at += 1;
        }
        if name.is_empty() { Err(self.error("expected the name of a field")) } else { Ok(name) }
    }

    /// What is between `[` and `]`.
    fn bracket(&mut self) -> Result<Step, JsonPathError> {
        match self.after_blanks() {
            Some('*') => {
                self.at += 1;
                Ok(Step::All)
            }
            Some('"' | '\'') => Ok(Step::Field(self.quoted()?)),
            Some('?') => {
                self.at += 1;
                self.filter()
            }
            _ => {
                let start = self.at;
                let from = self.number()?;
                if self.after_blanks() == Some(':') {
                    self.at += 1;
                    return Ok(Step::Slice(from, self.number()?));
                }
                let wanted = "expected an index, a slice, `*`, a quoted name or `?(`";
                from.map(|index| Step::Index(index, start + 1)).ok_or_else(|| self.error_at(start, wanted))
            }
        }
    }

    fn number(&mut self) -> Result<Option<i64>, JsonPathError> {
        self.after_blanks();
        let start = self.at;
        if self.peek() == Some('-') {
            self.at += 1;
        }
        while self.peek().is_some_and(|letter| letter.is_ascii_digit()) {
            self.at += 1;
        }
        let digits: String = self.text[start..self.at].iter().collect();
        match digits.as_str() {
            "" => Ok(None),
            "-" => Err(self.error("expected a number")),
            digits => digits.parse().map(Some).map_err(|_| self.error_at(start, "the number is too large")),
        }
    }

    fn filter(&mut self) -> Result<Step, JsonPathError> {
        if self.peek() != Some('(') {
            return Err(self.error("expected `(`"));
        }
        if self.filters == DEEPEST {
            return Err(self.error("too many filters in each other"));
        }
        self.at += 1;
        self.filters += 1;
        let left = self.filter_path()?;
        let right = match self.after_blanks() {
            Some(')') => None,
            _ => Some((self.comparison()?, self.operand()?)),
        };
        if self.after_blanks() != Some(')') {
            return Err(self.error("expected `)`; one comparison is all that a filter may have"));
        }
        self.at += 1;
        self.filters -= 1;
        Ok(Step::Filter(Box::new(Filter { left, right })))
    }

    fn filter_path(&mut self) -> Result<Path, JsonPathError> {
        match self.after_blanks() {
            Some('@' | '$') => self.path(),
            _ => Err(self.error("what is compared must begin with `@` or `$`")),
        }
    }

    fn comparison(&mut self) -> Result<Comparison, JsonPathError> {
        let known = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        for (sign, comparison) in known {
            if self.text[self.at..].iter().take(sign.len()).copied().eq(sign.chars()) {
                self.at += sign.len();
                return Ok(comparison);
            }
        }
        Err(self.error("expected a comparison: ==, !=, <, <=, > or >="))
    }

    fn operand(&mut self) -> Result<Operand, JsonPathError> {
        match self.after_blanks() {
            Some('"' | '\'') => return Ok(Operand::Literal(Value::String(self.quoted()?))),
            Some('@' | '$') => return self.path().map(Operand::Path),
            _ => {}
        }
        for (word, value) in [("true", true), ("false", false)] {
            if self.word(word) {
                return Ok(Operand::Literal(value.into()));
            }
        }
        match self.number()? {
            Some(number) => Ok(Operand::Literal(number.into())),
            None => {
                Err(self.error("expected a value: a quoted text, a whole number, true, false, or a path"))
            }
        }
    }

    /// Text in either kind of quotes.
    fn quoted(&mut self) -> Result<String, JsonPathError> {
        let start = self.at;
        let quote = self.peek();
        let mut text = String::new();
        loop {
            self.at += 1;
            match self.peek() {
                None => return Err(self.error_at(start, "this text is not closed")),
                letter if letter == quote => break,
                Some('\\') => {
                    self.at += 1;
                    text.push(match self.peek() {
                        Some('n') => '\n',
                        Some('t') => '\t',
                        Some('r') => '\r',
                        Some(letter @ ('\\' | '"' | '\'')) => letter,
                        _ => {
                            return Err(
                                self.error("this escape is not known; \\n, \\t, \\r, \\\\ and quotes are")
                            );
                        }
                    });
                }
                Some(letter) => text.push(letter),
            }
        }
        self.at += 1;
        Ok(text)
    }

    /// Whether this word comes next; then it is passed.
    fn word(&mut self, word: &str) -> bool {
        self.after_blanks();
        let rest = &self.text[self.at..];
        let length = word.chars().count();
        let found = rest.iter().take(length).copied().eq(word.chars())
            && !rest.get(length).is_some_and(|next| next.is_alphanumeric());
        if found {
            self.at += length;
        }
        found
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn after_blanks(&mut self) -> Option<char> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        self.peek()
    }

    fn error(&self, what: impl Into<String>) -> JsonPathError {
        self.error_at(self.at, what)
    }

    #[allow(clippy::unused_self, reason = "errors are made where the text is read")]
    fn error_at(&self, index: usize, what: impl Into<String>) -> JsonPathError {
        JsonPathError { at: index + 1, what: what.into() }
    }
}
