//! What drivers do that they should not: counted by kind, named in a sentence.

use std::fmt;

/// One kind of oddity. None of them is fatal on its own; all of them are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Oddity {
    TokenLoop,
    RepeatedPage,
    EmptyPage,
    ShrinkingPage,
    OversizedPage,
    UnreadablePage,
    TooLargePage,
    TruncatedList,
    MaxEntriesRefused,
    TokenRefused,
    ShrunkList,
    DuplicateId,
    EmptyId,
    UnreadableEntry,
    DuplicateCondition,
    ExcessCondition,
    UnknownStatus,
    EmptyReason,
    CutText,
    NotUtf8,
    WrongVolume,
}

impl Oddity {
    pub const ALL: [Self; 21] = [
        Self::TokenLoop,
        Self::RepeatedPage,
        Self::EmptyPage,
        Self::ShrinkingPage,
        Self::OversizedPage,
        Self::UnreadablePage,
        Self::TooLargePage,
        Self::TruncatedList,
        Self::MaxEntriesRefused,
        Self::TokenRefused,
        Self::ShrunkList,
        Self::DuplicateId,
        Self::EmptyId,
        Self::UnreadableEntry,
        Self::DuplicateCondition,
        Self::ExcessCondition,
        Self::UnknownStatus,
        Self::EmptyReason,
        Self::CutText,
        Self::NotUtf8,
        Self::WrongVolume,
    ];

    /// The value of the metric label.
    pub const fn label(self) -> &'static str {
        self.row().0
    }

    /// What the driver did, to be read after a count.
    pub const fn says(self) -> &'static str {
        self.row().1
    }

    const fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::TokenLoop => ("token_loop", "page token that had been given before in the same pass"),
            Self::RepeatedPage => ("repeated_page", "page with nothing but volumes already listed"),
            Self::EmptyPage => ("empty_page", "page without entries that promised another"),
            Self::ShrinkingPage => {
                ("shrinking_page", "page shorter than the one before it, and not the last")
            }
            Self::OversizedPage => ("oversized_page", "page with more entries than max_entries allowed"),
            Self::UnreadablePage => ("unreadable_page", "page that is not valid protobuf or not valid UTF-8"),
            Self::TooLargePage => ("too_large_page", "page larger than the receive limit"),
            Self::TruncatedList => ("truncated_list", "list cut at max_entries with no token for the rest"),
            Self::MaxEntriesRefused => ("max_entries_refused", "list that is given only without max_entries"),
            Self::TokenRefused => ("token_refused", "page token that the driver gave and then refused"),
            Self::ShrunkList => {
                ("shrunk_list", "complete list of less than half the volumes of the one before")
            }
            Self::DuplicateId => ("duplicate_id", "volume listed again in the same pass"),
            Self::EmptyId => ("empty_id", "entry without a volume id"),
            Self::UnreadableEntry => ("unreadable_entry", "entry that cannot be read"),
            Self::DuplicateCondition => {
                ("duplicate_condition", "condition with the status and reason of another one of its volume")
            }
            Self::ExcessCondition => ("excess_condition", "condition beyond the number kept for one volume"),
            Self::UnknownStatus => ("unknown_status", "condition with a status number that is not known"),
            Self::EmptyReason => ("empty_reason", "condition without a reason"),
            Self::CutText => ("cut_text", "text too long to be kept whole"),
            Self::NotUtf8 => ("not_utf8", "text that is not valid UTF-8"),
            Self::WrongVolume => ("wrong_volume", "answer about another volume than the one asked for"),
        }
    }
}

/// How often each oddity was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    counts: [u64; Oddity::ALL.len()],
}

impl Oddities {
    pub fn note(&mut self, oddity: Oddity) {
        self.counts[oddity as usize] = self.counts[oddity as usize].saturating_add(1);
    }

    pub(crate) fn add(&mut self, others: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&others.counts) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    pub fn count(&self, oddity: Oddity) -> u64 {
        self.counts[oddity as usize]
    }

    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// Those that were met at all.
    pub fn iter(&self) -> impl Iterator<Item = (Oddity, u64)> {
        Oddity::ALL.into_iter().map(|oddity| (oddity, self.count(oddity))).filter(|(_, count)| *count > 0)
    }
}

/// "2 × entry without a volume id, 1 × …", or "nothing odd".
impl fmt::Display for Oddities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing odd");
        }
        for (index, (oddity, count)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{count} × {}", oddity.says())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_place_and_label() {
        for (index, oddity) in Oddity::ALL.into_iter().enumerate() {
            assert_eq!(oddity as usize, index, "{oddity:?} stands at the wrong place in ALL");
        }
        let labels: std::collections::BTreeSet<_> = Oddity::ALL.into_iter().map(Oddity::label).collect();
        assert_eq!(labels.len(), Oddity::ALL.len());
    }

    #[test]
    fn reads_as_a_sentence() {
        let mut oddities = Oddities::default();
        assert_eq!(oddities.to_string(), "nothing odd");
        oddities.note(Oddity::EmptyId);
        oddities.note(Oddity::EmptyId);
        oddities.note(Oddity::CutText);
        assert_eq!(oddities.to_string(), "2 × entry without a volume id, 1 × text too long to be kept whole");
    }
}
