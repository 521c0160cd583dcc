//! Words that are stored, and that machines read: names of vantages, statuses, healths. `FromStr` reads each of them back.

use std::fmt;

/// So much of a word is shown.
const SHOWN: usize = 64;

/// A word that this version does not know. A later one, or another program, wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord {
    kind: &'static str,
    word: Box<str>,
}

impl UnknownWord {
    pub(crate) fn new(kind: &'static str, word: &str) -> Self {
        Self { kind, word: word.chars().take(SHOWN).collect::<String>().into() }
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this version knows no {} {:?}", self.kind, self.word)
    }
}

impl std::error::Error for UnknownWord {}

#[cfg(test)]
mod tests {
    use crate::{Health, Status, Vantage};

    /// What version 0.1 wrote into journals, histories, events, VolumeHealths and claims.
    #[test]
    fn what_earlier_versions_wrote_is_still_read() {
        let vantages = [
            ("controller", Vantage::Controller),
            ("cluster", Vantage::Cluster),
            ("node/worker-1", Vantage::Node("worker-1".into())),
            ("host/worker-1", Vantage::Host("worker-1".into())),
            ("kubelet/worker-1", Vantage::Kubelet("worker-1".into())),
            ("pushed/scan", Vantage::Pushed("scan".into())),
            ("reporter/scan", Vantage::Pushed("scan".into())),
        ];
        for (word, expected) in vantages {
            assert_eq!(word.parse(), Ok(expected), "{word}");
        }
        let statuses = [
            ("Degraded", Status::Degraded),
            ("Inaccessible", Status::Inaccessible),
            ("DataLoss", Status::DataLoss),
            ("Unrecognized(9)", Status::Unrecognized(9)),
            ("Unrecognized(-7)", Status::Unrecognized(-7)),
        ];
        for (word, expected) in statuses {
            assert_eq!(word.parse(), Ok(expected), "{word}");
            assert_eq!(word.parse(), Ok(Health::Adverse(expected)), "{word}");
        }
        assert_eq!("Healthy".parse(), Ok(Health::Healthy));
        assert_eq!("Unknown".parse(), Ok(Health::Unknown));
    }

    #[test]
    fn a_word_that_is_not_known_is_named() {
        let error = "Haunted".parse::<Status>().expect_err("no such status");
        assert_eq!(error.to_string(), r#"this version knows no status "Haunted""#);
    }
}
