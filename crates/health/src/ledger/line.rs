//! One subject's entry: small while all is healthy.

use super::Belief;
use super::note::Note;
use super::vantages::Index;
use crate::Health;

/// Vantages below this number are remembered as one bit while there is nothing else to say.
const BITS: Index = u64::BITS;

#[derive(Debug)]
pub(super) enum Line {
    /// Seen healthy from the vantages of these bits, and nothing worth a note.
    Quiet(u64),
    Noted(Box<Notes>),
}

#[derive(Debug)]
pub(super) struct Notes {
    quiet: u64,
    notes: Vec<(Index, Note)>,
}

impl Default for Line {
    fn default() -> Self {
        Self::Quiet(0)
    }
}

pub(super) fn bit(index: Index) -> u64 {
    if index < BITS { 1 << index } else { 0 }
}

impl Line {
    fn quiet(&self) -> u64 {
        match self {
            Self::Quiet(bits) => *bits,
            Self::Noted(all) => all.quiet,
        }
    }

    pub(super) fn is_quiet(&self, index: Index) -> bool {
        self.quiet() & bit(index) != 0
    }

    /// Nobody has ever looked.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Quiet(0))
    }

    /// The health of a subject without notes, given from which vantages its backend cannot be seen, and from which
    /// nothing good is ever seen.
    pub(super) fn health_at_a_glance(&self, blind: u64, mute: u64) -> Option<Health> {
        match *self {
            Self::Quiet(seen) if seen & !mute == 0 || seen & blind != 0 => Some(Health::Unknown),
            Self::Quiet(_) => Some(Health::Healthy),
            Self::Noted(_) => None,
        }
    }

    /// The vantages from which this subject cannot be seen.
    pub(super) fn blind_bits(&self) -> u64 {
        self.notes().filter(|(_, note)| note.cannot_probe()).fold(0, |bits, (index, _)| bits | bit(index))
    }

    /// The note of a vantage, made if there was none.
    pub(super) fn note_mut(&mut self, index: Index) -> &mut Note {
        if let Self::Quiet(quiet) = *self {
            *self = Self::Noted(Box::new(Notes { quiet, notes: Vec::with_capacity(1) }));
        }
        let Self::Noted(all) = self else { unreachable!("made above") };
        let place = match all.notes.iter().position(|(i, _)| *i == index) {
            Some(place) => place,
            None => {
                let note = if all.quiet & bit(index) != 0 { Note::seen() } else { Note::default() };
                all.quiet &= !bit(index);
                all.notes.push((index, note));
                all.notes.len() - 1
            }
        };
        &mut all.notes[place].1
    }

    /// Turns a note that says nothing any more back into a bit.
    pub(super) fn settle(&mut self, index: Index) {
        self.settle_where(|i| i == index);
    }

    pub(super) fn settle_all(&mut self) {
        self.settle_where(|_| true);
    }

    fn settle_where(&mut self, which: impl Fn(Index) -> bool) {
        let Self::Noted(all) = self else { return };
        let Notes { quiet, notes } = &mut **all;
        notes.retain(|(index, note)| {
            let settled = which(*index) && *index < BITS && note.is_plain();
            if settled {
                *quiet |= bit(*index);
            }
            !settled
        });
        if notes.is_empty() {
            *self = Self::Quiet(*quiet);
        }
    }

    /// Forgets a vantage and hands out its note, if it had one worth closing.
    pub(super) fn take(&mut self, index: Index) -> Option<Note> {
        match self {
            Self::Quiet(quiet) => {
                *quiet &= !bit(index);
                None
            }
            Self::Noted(all) => {
                all.quiet &= !bit(index);
                let place = all.notes.iter().position(|(i, _)| *i == index)?;
                let (_, note) = all.notes.swap_remove(place);
                if all.notes.is_empty() {
                    *self = Self::Quiet(all.quiet);
                }
                Some(note)
            }
        }
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = (Index, &Note)> {
        let notes = match self {
            Self::Quiet(_) => &[][..],
            Self::Noted(all) => &all.notes,
        };
        notes.iter().map(|(index, note)| (*index, note))
    }

    pub(super) fn notes_mut(&mut self) -> impl Iterator<Item = (Index, &mut Note)> {
        let notes = match self {
            Self::Quiet(_) => &mut [][..],
            Self::Noted(all) => &mut all.notes,
        };
        notes.iter_mut().map(|(index, note)| (*index, note))
    }

    pub(super) fn into_notes(self) -> Vec<(Index, Note)> {
        match self {
            Self::Quiet(_) => Vec::new(),
            Self::Noted(all) => all.notes,
        }
    }

    pub(super) fn beliefs(&self) -> impl Iterator<Item = (Index, Belief)> {
        let quiet = self.quiet();
        let well = (0..BITS).filter(move |&index| quiet & bit(index) != 0);
        well.map(|index| (index, Note::seen().belief()))
            .chain(self.notes().map(|(index, note)| (index, note.belief())))
    }
}
