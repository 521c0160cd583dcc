//! One page that is replaced again and again, and that is whole at any moment, also on a full disk.
//!
//! Two slots take turns. Each has its place on disk before it is needed and is overwritten in place, so that a page that fits
//! needs no room on the disk. A page has a number and a checksum; the one with the higher number of those that are whole
//! counts. A slot is overwritten only after the page in the other one lasts, so whatever interrupts a write, killed or
//! without power, one slot has the page from before.
//!
//! A file system that never overwrites in place, such as btrfs or ZFS, needs room for each write all the same.

mod files;

use std::fmt::Write;
use std::io;

use ring::digest::{Context, SHA256};

pub(super) use files::Files;

const MARK: &str = "volmedic-journal/1";
/// A slot begins with one line of this length: mark, number, length of the page, checksum, and spaces.
const HEADER: usize = 128;
/// Reserved for each slot from the start.
const RESERVED: u64 = 64 << 10;
/// Where there is less room than that.
const LEAST_RESERVED: u64 = 4 << 10;
/// A longer page is not ours, and is not written either.
pub(super) const LONGEST: u64 = 64 << 20;
/// After room was refused, it is asked for again with one page of this number.
const ASK_AGAIN: u64 = 64;
const ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// Where the two slots are. A slot that is not there is empty.
pub(super) trait Medium {
    fn read(&mut self, slot: usize) -> io::Result<Vec<u8>>;
    fn length(&mut self, slot: usize) -> io::Result<u64>;
    /// What fails may have been done in part.
    fn write_at(&mut self, slot: usize, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn truncate(&mut self, slot: usize, length: u64) -> io::Result<()>;
    /// When this returns, what was written lasts.
    fn sync(&mut self, slot: usize) -> io::Result<()>;
}

/// What is in the slots.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Nothing,
    Page {
        slot: usize,
        text: Vec<u8>,
    },
    /// Something is there, but no whole page; why, of this slot.
    Damaged {
        slot: usize,
        why: String,
    },
}

#[derive(Debug)]
pub(super) struct Slots<M> {
    medium: M,
    newest: Option<Newest>,
    is_loaded: bool,
    /// There was no room to grow ahead of need.
    is_crowded: bool,
}

#[derive(Debug, Clone, Copy)]
struct Newest {
    slot: usize,
    number: u64,
    /// An earlier run may have been killed between writing it and making it last.
    lasts: bool,
}

impl<M: Medium> Slots<M> {
    pub(super) fn new(medium: M) -> Self {
        Self { medium, newest: None, is_loaded: false, is_crowded: false }
    }

    pub(super) fn medium(&self) -> &M {
        &self.medium
    }

    /// Takes the place on disk for both slots, as much as there is room for. An error says that not even the least was there.
    pub(super) fn reserve(&mut self) -> io::Result<()> {
        let mut size = RESERVED;
        loop {
            match self.reserve_both(size) {
                Ok(()) => return Ok(()),
                Err(error) if size <= LEAST_RESERVED => return Err(error),
                Err(_) => size /= 2,
            }
        }
    }

    /// Both or none: one slot alone would last for one page.
    fn reserve_both(&mut self, size: u64) -> io::Result<()> {
        let first = self.medium.length(0)?;
        self.grow(0, size)?;
        self.grow(1, size).inspect_err(|_| {
            // If this fails too, the disk has a little less room.
            let _ = self.medium.truncate(0, first);
        })
    }

    /// What was saved last, and which slot the next page may take.
    pub(super) fn load(&mut self) -> Kept {
        let (mut kept, mut newest) = (Kept::Nothing, None::<Newest>);
        for slot in 0..2 {
            let read = self.medium.read(slot).map_err(|error| error.to_string());
            match read.and_then(|text| opened(&text)) {
                Ok(None) => {}
                Ok(Some((number, text))) => {
                    if newest.is_none_or(|newest| newest.number < number) {
                        kept = Kept::Page { slot, text };
                        newest = Some(Newest { slot, number, lasts: false });
                    }
                }
                // Beside a page this is what an interrupted write leaves.
                Err(why) => {
                    if kept == Kept::Nothing {
                        kept = Kept::Damaged { slot, why };
                    }
                }
            }
        }
        (self.newest, self.is_loaded) = (newest, true);
        kept
    }

    /// When this returns, the page lasts. If it fails, or is interrupted, the page from before is still there.
    pub(super) fn save(&mut self, page: &[u8]) -> io::Result<()> {
        if !self.is_loaded {
            self.load();
        }
        let number = self.newest.map_or(1, |newest| newest.number + 1);
        let text = sealed(number, page)?;
        if let Some(newest) = &mut self.newest
            && !newest.lasts
        {
            self.medium.sync(newest.slot)?;
            newest.lasts = true;
        }
        let slot = self.newest.map_or(0, |newest| 1 - newest.slot);
        self.make_room(slot, number, text.len() as u64)?;
        self.medium.write_at(slot, 0, &text)?;
        self.medium.sync(slot)?;
        self.newest = Some(Newest { slot, number, lasts: true });
        Ok(())
    }

    /// Grows while there is room, to twice what is needed, so that there is a reserve when there is none.
    fn make_room(&mut self, slot: usize, number: u64, needed: u64) -> io::Result<()> {
        let reserved = self.medium.length(slot)?;
        let ample = needed.saturating_mul(2).min(LONGEST + HEADER as u64);
        let wanted = ample.next_power_of_two().max(RESERVED);
        if reserved >= ample {
            return Ok(());
        }
        if reserved < needed || !self.is_crowded || number.is_multiple_of(ASK_AGAIN) {
            self.is_crowded = self.grow(slot, wanted).is_err();
        }
        if self.medium.length(slot)? >= needed {
            return Ok(());
        }
        let grown = self.grow(slot, needed.next_multiple_of(LEAST_RESERVED));
        grown.map_err(|error| {
            let sentence = format!(
                "{needed} bytes have to be written, {reserved} are reserved, and more cannot be taken: {error}"
            );
            io::Error::new(error.kind(), sentence)
        })
    }

    /// Behind what is in the slot, which stays as it is.
    fn grow(&mut self, slot: usize, to: u64) -> io::Result<()> {
        let from = self.medium.length(slot)?;
        let mut at = from;
        while at < to {
            let zeros = &ZEROS[..usize::try_from(to - at).unwrap_or(ZEROS.len()).min(ZEROS.len())];
            if let Err(error) = self.medium.write_at(slot, at, zeros) {
                // What was taken in vain is given back; if that fails too, it is taken.
                let _ = self.medium.truncate(slot, from);
                return Err(error);
            }
            at += zeros.len() as u64;
        }
        Ok(())
    }
}

/// A page as it is written.
fn sealed(number: u64, page: &[u8]) -> io::Result<Vec<u8>> {
    if page.len() as u64 > LONGEST {
        let why = format!("{} bytes would have to be written, and {LONGEST} is the most", page.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    let head = format!("{MARK} {number:020} {:010} ", page.len());
    let line = format!("{head}{}", checksum(&head, page));
    let mut text = format!("{line:<width$}\n", width = HEADER - 1).into_bytes();
    text.extend_from_slice(page);
    Ok(text)
}

/// The page in a slot and its number; nothing, if nothing was ever written there.
fn opened(text: &[u8]) -> Result<Option<(u64, Vec<u8>)>, String> {
    let head = &text[..text.len().min(HEADER)];
    if head.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let line =
        std::str::from_utf8(head).map_err(|_| "it makes no sense: its first line is not text".to_owned())?;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [mark, number, length, sum] = fields[..] else {
        return Err("it makes no sense: its first line is not whole".to_owned());
    };
    if mark != MARK {
        return Err(format!("its format is {mark:?}, and this release reads {MARK:?}"));
    }
    let read =
        |field: &str| field.parse::<u64>().map_err(|_| format!("it makes no sense: {field:?} is no number"));
    let (number, length) = (read(number)?, read(length)?);
    let page = usize::try_from(length).ok().and_then(|length| text.get(HEADER..HEADER.checked_add(length)?));
    let page = page.ok_or("it makes no sense: it is shorter than it says")?;
    if sum != checksum(&format!("{MARK} {number:020} {length:010} "), page) {
        return Err("it makes no sense: its checksum is wrong, as after an interrupted write".to_owned());
    }
    Ok(Some((number, page.to_vec())))
}

/// Whatever is in a slot can be read or is refused, and a page is read as it was written.
#[cfg(test)]
pub(super) fn survives(bytes: &[u8]) {
    let _ = opened(bytes);
    let text = sealed(7, bytes).unwrap();
    assert_eq!(opened(&text), Ok(Some((7, bytes.to_vec()))));
}

fn checksum(head: &str, page: &[u8]) -> String {
    let mut context = Context::new(&SHA256);
    context.update(head.as_bytes());
    context.update(page);
    context.finish().as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
