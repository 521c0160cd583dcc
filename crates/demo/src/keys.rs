//! Keys, where there is a keyboard.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr,
};
use tokio::sync::mpsc;
use volmedic_driver::fault::Fault;

/// Keys that may wait to be answered.
const QUEUE: usize = 16;

/// Which key does what, in the order in which they are shown.
pub(super) const FAULTS: &[(char, Fault, &str)] = &[
    ('m', Fault::MounterKilled, "kill a mounter"),
    ('z', Fault::MounterFrozen, "freeze one"),
    ('u', Fault::TargetUnmounted, "unmount"),
    ('w', Fault::WrongMount, "mount over it"),
    ('f', Fault::Full, "fill up"),
    ('r', Fault::ReadOnly, "read-only"),
    ('d', Fault::ImageTruncated, "lose data"),
    ('b', Fault::DriveBad, "break the drive"),
    ('k', Fault::DriverKilled, "kill the driver"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Fault(Fault),
}

impl Key {
    fn of(byte: u8) -> Option<Self> {
        let letter = char::from(byte).to_ascii_lowercase();
        if letter == 'q' {
            return Some(Self::Quit);
        }
        FAULTS.iter().find(|(key, ..)| *key == letter).map(|(_, fault, _)| Self::Fault(*fault))
    }
}

/// The keyboard, which reports each key immediately and shows none. Dropping this restores its mode.
#[derive(Debug)]
pub(super) struct Keys {
    before: Termios,
    pressed: mpsc::Receiver<Key>,
    over: Arc<AtomicBool>,
}

impl Keys {
    /// Nothing where no key can come: without a terminal, or while another program has it in the foreground.
    pub(super) fn open() -> Option<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() || tcgetpgrp(&stdin).ok()? != getpgrp() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let (sender, pressed) = mpsc::channel(QUEUE);
        let over = Arc::new(AtomicBool::new(false));
        let keys = Self { before, pressed, over: over.clone() };
        keys.listen().ok()?;
        let reader = thread::Builder::new().name("keys".to_owned());
        reader.spawn(move || read(&sender, &over)).ok()?;
        Some(keys)
    }

    /// Also to be called after another program had the terminal.
    pub(super) fn listen(&self) -> io::Result<()> {
        let mut mode = self.before.clone();
        // Ctrl-C and Ctrl-Z stay what they are.
        mode.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        // A read never waits: the descriptor is shared with the parent process, so its flags are not ours to change.
        mode.special_codes[SpecialCodeIndex::VMIN] = 0;
        mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &mode)?)
    }

    /// The next key that means something. Never returns once the terminal is gone.
    pub(super) async fn next(&mut self) -> Key {
        match self.pressed.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

/// Until it is over or the terminal is gone.
fn read(pressed: &mpsc::Sender<Key>, over: &AtomicBool) {
    let stdin = io::stdin();
    let pause = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !over.load(Ordering::Relaxed) {
        let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut waited, Some(&pause)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) if waited[0].revents().contains(PollFlags::IN) => {}
            // It hung up.
            Ok(_) | Err(_) => return,
        }
        let mut byte = [0_u8; 1];
        match rustix::io::read(&stdin, &mut byte) {
            // Who types faster than that means the same key.
            Ok(1) => drop(Key::of(byte[0]).map(|key| pressed.try_send(key))),
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_means_one_thing() {
        let mut letters: Vec<char> = FAULTS.iter().map(|(key, ..)| *key).chain(['q']).collect();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), FAULTS.len() + 1);
        assert_eq!(Key::of(b'Q'), Some(Key::Quit));
        assert_eq!(Key::of(b'm'), Some(Key::Fault(Fault::MounterKilled)));
        assert_eq!((Key::of(b'\x1b'), Key::of(0xff), Key::of(b' ')), (None, None, None));
    }
}
