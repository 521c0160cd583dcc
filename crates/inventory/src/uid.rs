//! Uids in 16 bytes instead of 36 and a pointer.

use std::fmt;

/// A uid as the API server makes them: a UUID in small letters. Anything else does not fit and stays text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Uid([u8; 16]);

/// Where the hyphens are.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl Uid {
    /// None unless writing it again gives exactly the same text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 36 || HYPHENS.iter().any(|&at| text[at] != b'-') {
            return None;
        }
        let mut digits =
            text.iter().enumerate().filter(|(at, _)| !HYPHENS.contains(at)).map(|(_, &byte)| digit(byte));
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            *byte = digits.next()?? << 4 | digits.next()??;
        }
        Some(Self(bytes))
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in [0..4, 4..6, 6..8, 8..10, 10..16].into_iter().enumerate() {
            if index > 0 {
                f.write_str("-")?;
            }
            for byte in &self.0[range] {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Any uid, in few bytes if it is as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum AnyUid {
    Plain(Uid),
    Odd(Box<str>),
}

impl From<&str> for AnyUid {
    fn from(text: &str) -> Self {
        Uid::parse(text).map_or_else(|| Self::Odd(text.into()), Self::Plain)
    }
}

impl fmt::Display for AnyUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(uid) => fmt::Display::fmt(uid, f),
            Self::Odd(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_parsed_is_written_the_same() {
        for text in ["00000000-0000-0000-0000-000000000000", "6f1c9a54-7b3e-4d2c-8a1f-0123456789ab"] {
            assert_eq!(Uid::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_would_be_written_otherwise_is_refused() {
        for text in [
            "",
            "u",
            "6F1C9A54-7b3e-4d2c-8a1f-0123456789ab",
            "6f1c9a547b3e4d2c8a1f0123456789ab",
            "6f1c9a54-7b3e-4d2c-8a1f-0123456789abc",
            "6f1c9a54-7b3e-4d2c-8a1f_0123456789ab",
            "6f1c9a54-7b3e-4d2c-8a1f-0123456789a-",
            "6f1c9a54-7b3e-4d2c-8a1f-0123456789\u{e9}",
        ] {
            assert_eq!(Uid::parse(text), None, "{text}");
            assert_eq!(AnyUid::from(text).to_string(), text);
        }
    }
}
