//! Licence expressions of SPDX, as crates write them.

/// Whether a choice of licences that this list allows fulfils the expression. None if it cannot be read.
pub(super) fn allows(expression: &str, list: &[String]) -> Option<bool> {
    // Some older crates separate alternatives with a slash.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, list };
    let answer = reader.alternatives(0)?;
    reader.words.is_empty().then_some(answer)
}

/// Maximum depth of parentheses.
const DEEPEST: usize = 16;

struct Reader<'a> {
    words: &'a [&'a str],
    list: &'a [String],
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        if is_next {
            self.words = &self.words[1..];
        }
        is_next
    }

    fn alternatives(&mut self, depth: usize) -> Option<bool> {
        let mut answer = self.all(depth)?;
        while self.takes("OR") {
            answer |= self.all(depth)?;
        }
        Some(answer)
    }

    fn all(&mut self, depth: usize) -> Option<bool> {
        let mut answer = self.one(depth)?;
        while self.takes("AND") {
            answer &= self.one(depth)?;
        }
        Some(answer)
    }

    fn one(&mut self, depth: usize) -> Option<bool> {
        let word = self.next()?;
        if word == "(" {
            let answer = if depth < DEEPEST { self.alternatives(depth + 1)? } else { return None };
            return self.takes(")").then_some(answer);
        }
        let is_name = |word: &str| !["AND", "OR", "WITH", "(", ")"].contains(&word);
        if !is_name(word) {
            return None;
        }
        let mut name = word.to_owned();
        if self.takes("WITH") {
            let exception = self.next().filter(|word| is_name(word))?;
            name = format!("{name} WITH {exception}");
        }
        Some(self.list.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_defines_them() {
        let list = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for (expression, expected) in [
            ("MIT", Some(true)),
            ("GPL-3.0", Some(false)),
            ("GPL-3.0 OR MIT", Some(true)),
            ("GPL-3.0/MIT", Some(true)),
            ("GPL-3.0 AND MIT", Some(false)),
            ("MIT AND Zlib", Some(true)),
            // AND binds more closely.
            ("MIT OR GPL-3.0 AND GPL-2.0", Some(true)),
            ("(MIT OR GPL-3.0) AND GPL-2.0", Some(false)),
            ("((MIT))", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("Apache-2.0", Some(false)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT MIT", None),
            ("MIT)", None),
            ("Apache-2.0 WITH", None),
        ] {
            assert_eq!(allows(expression, &list), expected, "{expression}");
        }
        assert_eq!(allows(&"(".repeat(100_000), &list), None);
    }
}
