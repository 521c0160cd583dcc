//! On a disk that fails, fills up, and loses what was not made to last, at every step that it is asked for.

use super::*;

const SECTOR: usize = 512;

/// A disk for two slots.
#[derive(Debug, Clone, Default)]
struct Disk {
    /// What a process finds there.
    seen: [Vec<u8>; 2],
    /// What the last sync of each slot made last.
    lasting: [Vec<u8>; 2],
    /// Bytes that both slots may have.
    room: Option<usize>,
    /// Steps until the process is killed, in the middle of the last one; `None`: it is not.
    left: Option<usize>,
    /// Steps that were taken.
    steps: usize,
}

/// What becomes of the sectors that were written and not made to last.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// Nothing: only the process ended.
    None,
    All,
    Even,
    Odd,
}

impl Disk {
    fn with_room(room: usize) -> Self {
        Self { room: Some(room), ..Self::default() }
    }

    /// The next step: whether it is carried out, or cut off half way.
    fn step(&mut self) -> io::Result<bool> {
        match &mut self.left {
            Some(0) => return Err(io::Error::other("killed")),
            Some(left) => *left -= 1,
            None => {}
        }
        self.steps += 1;
        Ok(self.left != Some(0))
    }

    fn after(mut self, loss: Loss) -> Self {
        self.left = None;
        for (seen, lasting) in self.seen.iter_mut().zip(&self.lasting) {
            let lost = |sector: usize| match loss {
                Loss::None => false,
                Loss::All => true,
                Loss::Even => sector.is_multiple_of(2),
                Loss::Odd => !sector.is_multiple_of(2),
            };
            for (number, sector) in seen.chunks_mut(SECTOR).enumerate().filter(|(number, _)| lost(*number)) {
                let old = lasting.iter().skip(number * SECTOR).copied().chain(std::iter::repeat(0));
                sector.iter_mut().zip(old).for_each(|(byte, old)| *byte = old);
            }
        }
        self.lasting = self.seen.clone();
        self
    }
}

impl Medium for Disk {
    fn read(&mut self, slot: usize) -> io::Result<Vec<u8>> {
        Ok(self.seen[slot].clone())
    }

    fn length(&mut self, slot: usize) -> io::Result<u64> {
        Ok(self.seen[slot].len() as u64)
    }

    fn write_at(&mut self, slot: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let whole = self.step()?;
        let offset = usize::try_from(offset).unwrap();
        let end = offset + if whole { bytes.len() } else { bytes.len() / 2 };
        let others = self.seen[1 - slot].len();
        let end = self.room.map_or(end, |room| end.min((room - others).max(self.seen[slot].len())));
        if self.seen[slot].len() < end {
            self.seen[slot].resize(end, 0);
        }
        let done = end.saturating_sub(offset);
        self.seen[slot][offset..end].copy_from_slice(&bytes[..done]);
        if !whole {
            return Err(io::Error::other("killed"));
        }
        if done < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn truncate(&mut self, slot: usize, length: u64) -> io::Result<()> {
        if self.step()? {
            self.seen[slot].truncate(usize::try_from(length).unwrap());
        }
        Ok(())
    }

    fn sync(&mut self, slot: usize) -> io::Result<()> {
        if !self.step()? {
            return Err(io::Error::other("killed"));
        }
        self.lasting[slot] = self.seen[slot].clone();
        Ok(())
    }
}

fn page(number: usize) -> Vec<u8> {
    // Of several sectors, some longer than the page before and some shorter.
    let length = 700 + 911 * (number % 3);
    format!("page {number} ").into_bytes().into_iter().cycle().take(length).collect()
}

/// The pages from one number on, until the process is killed; answers which ones a later process may find.
fn write(slots: &mut Slots<Disk>, from: usize, pages: usize, before: Option<usize>) -> Vec<Option<usize>> {
    let mut kept = before;
    for number in from..from + pages {
        match slots.save(&page(number)) {
            Ok(()) => kept = Some(number),
            // It may have been written as a whole.
            Err(_) => return vec![kept, Some(number)],
        }
    }
    vec![kept]
}

fn found(slots: &mut Slots<Disk>) -> Option<usize> {
    let Kept::Page { text, .. } = slots.load() else { return None };
    let number = String::from_utf8_lossy(&text).split(' ').nth(1).and_then(|number| number.parse().ok());
    let number: usize = number.expect("a page of this test");
    assert_eq!(text, page(number), "as it was written");
    Some(number)
}

/// Killed, or without power, at every step of one run and then at every step of the next.
#[test]
fn whatever_interrupts_it_the_last_page_or_the_one_before_is_there() {
    let losses = [Loss::None, Loss::All, Loss::Even, Loss::Odd];
    let run = |disk: Disk, from: usize, before: Option<usize>| {
        let mut slots = Slots::new(disk);
        let there = found(&mut slots);
        // Killed here too.
        let _ = slots.reserve();
        let possible = write(&mut slots, from, 3, before);
        (there, possible, slots.medium)
    };
    let whole = run(Disk::default(), 1, None).2.steps;
    let mut checked = 0;
    for (first, first_loss) in (0..=whole).flat_map(|first| losses.map(|loss| (first, loss))) {
        let (_, possible, disk) = run(Disk { left: Some(first), ..Disk::default() }, 1, None);
        let disk = disk.after(first_loss);
        let before = found(&mut Slots::new(disk.clone()));
        assert!(possible.contains(&before), "{before:?}, not of {possible:?}, {first} {first_loss:?}");
        for (second, second_loss) in (0..=whole).flat_map(|second| losses.map(|loss| (second, loss))) {
            let (there, possible, disk) =
                run(Disk { left: Some(second), steps: 0, ..disk.clone() }, 11, before);
            assert_eq!(there, before);
            let after = found(&mut Slots::new(disk.after(second_loss)));
            let at = (first, first_loss, second, second_loss);
            assert!(possible.contains(&after), "{after:?}, not of {possible:?}, {at:?}");
            checked += 1;
        }
    }
    assert!(checked > 1_000, "{checked}");
}

#[test]
fn a_full_disk_does_not_stop_what_fits_into_what_was_reserved() {
    let reserved = usize::try_from(2 * RESERVED).unwrap();
    let mut slots = Slots::new(Disk::with_room(reserved));
    slots.reserve().unwrap();
    for number in 0..300 {
        slots.save(&page(number)).unwrap();
        assert_eq!(found(&mut slots), Some(number));
    }
    // What does not fit is refused with a sentence, and takes nothing away, however often it is tried.
    let long = vec![b'x'; usize::try_from(RESERVED).unwrap()];
    for _ in 0..3 {
        let refused = slots.save(&long).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert!(
            refused.to_string().contains("65664 bytes have to be written, 65536 are reserved"),
            "{refused}"
        );
        assert_eq!(found(&mut slots), Some(299));
    }
    assert_eq!(slots.medium.seen.each_ref().map(Vec::len), [reserved / 2; 2]);
    slots.save(&page(300)).unwrap();
    assert_eq!(found(&mut slots), Some(300));
    // And with room again it is written.
    slots.medium.room = None;
    for _ in 0..2 {
        slots.save(&long).unwrap();
        assert_eq!(slots.load(), Kept::Page { slot: slots.newest.unwrap().slot, text: long.clone() });
    }
    assert_eq!(slots.medium.seen.each_ref().map(Vec::len), [4 * reserved / 2; 2], "twice what is needed");
}

#[test]
fn where_there_is_little_room_both_slots_take_an_equal_share_of_it() {
    let check = |room: usize, expected: Result<usize, io::ErrorKind>| {
        let mut slots = Slots::new(Disk::with_room(room));
        let reserved = slots.reserve().map_err(|error| error.kind());
        let lengths = slots.medium.seen.each_ref().map(Vec::len);
        assert_eq!(reserved.map(|()| lengths[0]), expected);
        assert_eq!(lengths[0], lengths[1]);
    };
    check(200 << 10, Ok(64 << 10));
    check(100 << 10, Ok(32 << 10));
    check(8 << 10, Ok(4 << 10));
    check(8_000, Err(io::ErrorKind::StorageFull));
}

#[test]
fn what_cannot_be_read_is_named() {
    let check = |slots: [&[u8]; 2], expected: &str| {
        let seen = slots.map(<[u8]>::to_vec);
        let kept = Slots::new(Disk { seen, ..Disk::default() }).load();
        let text = match kept {
            Kept::Nothing => "nothing".to_owned(),
            Kept::Page { slot, text } => format!("slot {slot}: {}", String::from_utf8_lossy(&text)),
            Kept::Damaged { slot, why } => format!("slot {slot}: {why}"),
        };
        assert!(text.contains(expected), "{text}");
    };
    let (one, two) = (sealed(1, b"one").unwrap(), sealed(2, b"two").unwrap());
    let mut torn = two.clone();
    torn[HEADER] = b'x';
    let longer = [&two[..], b"what was there before"].concat();
    check([b"", b""], "nothing");
    check([&[0; 4096], b""], "nothing");
    check([&one, &two], "slot 1: two");
    check([&longer, &one], "slot 0: two");
    check([&one, &torn], "slot 0: one");
    check([&torn, b""], "slot 0: it makes no sense: its checksum is wrong");
    check([b"", &two[..HEADER + 2]], "slot 1: it makes no sense: it is shorter than it says");
    check([b"{}", b""], "its first line is not whole");
    check([b"volmedic-journal/9 1 2 3\n", b""], "this release reads \"volmedic-journal/1\"");
    check([b"volmedic-journal/1 1 99999999999999999999 3\n", b""], "is no number");
    check([&[0xff; 200], b""], "is not text");
    let refused = sealed(1, &vec![0; usize::try_from(LONGEST).unwrap() + 1]).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
}
