//! What the kernel writes when a file system finds an error in itself.
//!
//! An event is a head of 24 bytes and then records: one with the file system's id, one with the error and how many
//! there were since the last read.

const HEAD: usize = 24;

/// The only layout there is; a kernel with another one would not have taken our flags.
const VERSION: u8 = 3;

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Error {
        fsid: u64,
        errno: i32,
        count: u32,
    },
    /// The kernel could not keep them all.
    Overflow,
}

/// Everything in what one read gave. Takes any bytes: what makes no sense ends it.
pub(super) fn events(bytes: &[u8]) -> Vec<Event> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(length) = number::<4>(rest, 0).map(|length| u32::from_ne_bytes(length) as usize) {
        let head = number::<2>(rest, 6).map(|length| usize::from(u16::from_ne_bytes(length)));
        let Some((event, after)) = rest.split_at_checked(length) else { break };
        let Some(head) = head.filter(|head| (HEAD..=length).contains(head)) else { break };
        if event.get(4) == Some(&VERSION) {
            found.extend(read(event, head));
        }
        rest = after;
    }
    found
}

fn read(event: &[u8], head: usize) -> Option<Event> {
    let mask = u64::from_ne_bytes(number::<8>(event, 8)?);
    if mask & libc::FAN_Q_OVERFLOW != 0 {
        return Some(Event::Overflow);
    }
    if mask & libc::FAN_FS_ERROR == 0 {
        return None;
    }
    let (mut fsid, mut error) = (None, None);
    let mut rest = event.get(head..)?;
    while let (Some(&kind), Some(length)) = (rest.first(), number::<2>(rest, 2)) {
        let length = usize::from(u16::from_ne_bytes(length));
        let Some((record, after)) = rest.split_at_checked(length).filter(|_| length >= 4) else { break };
        if kind == libc::FAN_EVENT_INFO_TYPE_FID {
            fsid = number::<8>(record, 4).map(u64::from_ne_bytes);
        } else if kind == libc::FAN_EVENT_INFO_TYPE_ERROR {
            error = number::<4>(record, 4).zip(number::<4>(record, 8));
        }
        rest = after;
    }
    let (errno, count) = error?;
    Some(Event::Error { fsid: fsid?, errno: i32::from_ne_bytes(errno), count: u32::from_ne_bytes(count) })
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What ext4 made a real kernel write: EUCLEAN, once.
    #[cfg(target_endian = "little")]
    const REAL: [u8; 56] = [
        0x38, 0, 0, 0, 3, 0, 0x18, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x8a, 0x61, 0, 0, 1,
        0, 0x14, 0, 0x39, 0xcb, 0xca, 0x16, 0xb6, 0x48, 0x7a, 0x8c, 0, 0, 0, 0, 0xff, 0, 0, 0, 5, 0, 0x0c, 0,
        0x75, 0, 0, 0, 1, 0, 0, 0,
    ];

    #[test]
    #[cfg(target_endian = "little")]
    fn a_real_event_is_read() {
        let event = Event::Error { fsid: 0x8c7a_48b6_16ca_cb39, errno: libc::EUCLEAN, count: 1 };
        assert_eq!(events(&REAL), [event]);
        assert_eq!(events(&[REAL, REAL].concat()), [event, event]);
        let mut overflow = REAL[..24].to_vec();
        (overflow[0], overflow[9]) = (24, 0x40);
        assert_eq!(events(&overflow), [Event::Overflow]);
        for end in 0..REAL.len() {
            assert_eq!(events(&REAL[..end]), [], "cut after {end}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(events(&bytes).len() <= bytes.len() / HEAD);
        }

        #[test]
        #[cfg(target_endian = "little")]
        fn nearly_an_event_is_survived(at in 0_usize..56, value in any::<u8>(), length in 0_u8..60) {
            let mut bytes = REAL;
            bytes[at] = value;
            bytes[26] = length;
            prop_assert!(events(&bytes).len() <= 2);
        }
    }
}
