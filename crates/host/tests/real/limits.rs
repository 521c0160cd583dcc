//! How many helpers there may be.

use std::path::Path;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use volmedic_host::helper::{HelperError, Helpers, Limits, Question};

use super::helpers::{helpers_at, until_stuck};
use super::mounter::{Listing, Mounter};
use super::{PATIENCE, Test, until};

pub(crate) const TESTS: &[Test] = &[
    ("whoever_finds_all_places_taken_waits_and_then_gives_up", all_places_taken),
    ("too_many_stuck_helpers_stop_the_starting", too_many_stuck),
    ("when_ten_hung_volumes_come_back_every_helper_is_collected", ten_come_back),
    ("many_hung_volumes_do_not_delay_the_others", many_hung),
];

fn directory(path: &Path) -> Question {
    Question::Directory { path: path.into(), most: 10 }
}

fn all_places_taken() {
    let frozen = Mounter::start(Listing::Short);
    frozen.signal(Signal::STOP);
    let helpers = Helpers::new(Limits { running: 1, stuck: 8 });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| helpers.look("frozen", &directory(frozen.path()), PATIENCE));
        until("the place is taken", || helpers.counts().running == 1);
        let full = helpers.look("other", &directory(Path::new("/")), Duration::from_millis(100)).unwrap_err();
        assert!(matches!(full, HelperError::Full { limit: 1, .. }) && !full.is_about_the_volume(), "{full}");
        // A check that waits long enough gets the place when it is free.
        let second = scope.spawn(|| helpers.look("other", &directory(Path::new("/")), PATIENCE));
        assert_eq!(helpers.counts().asked, 1);
        frozen.signal(Signal::CONT);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
}

fn too_many_stuck() {
    let mut stalled: Vec<Mounter> = (0..2).map(|_| Mounter::start(Listing::Never)).collect();
    let helpers = Helpers::new(Limits { running: 4, stuck: 2 });
    for (name, mounter) in stalled.iter().enumerate() {
        until_stuck(|| {
            helpers.look(&name.to_string(), &directory(mounter.path()), Duration::from_millis(200))
        });
    }
    let refused = helpers.look("fine", &directory(Path::new("/")), PATIENCE).unwrap_err();
    assert!(matches!(refused, HelperError::TooManyStuck { limit: 2 }), "{refused}");
    stalled.iter_mut().for_each(Mounter::kill);
    until("all are collected", || helpers.counts().stuck == 0);
    helpers.look("fine", &directory(Path::new("/")), PATIENCE).unwrap();
    assert!(helpers.counts().abandoned >= 2);
}

fn many_hung() {
    let frozen: Vec<Mounter> = (0..8).map(|_| Mounter::start(Listing::Short)).collect();
    for mounter in &frozen {
        mounter.signal(Signal::STOP);
    }
    let helpers = Helpers::new(Limits { running: 16, stuck: 64 });
    std::thread::scope(|scope| {
        let hung: Vec<_> = frozen
            .iter()
            .enumerate()
            .map(|(name, mounter)| {
                let helpers = &helpers;
                // Until they are continued: the others may take as long as they need.
                let long = PATIENCE * 10;
                scope.spawn(move || helpers.look(&name.to_string(), &directory(mounter.path()), long))
            })
            .collect();
        until("all eight wait", || helpers.counts().running == 8);
        for turn in 0..100 {
            helpers.look(&format!("fine-{turn}"), &directory(Path::new("/")), PATIENCE).unwrap();
        }
        assert!(
            !hung.iter().any(ScopedJoinHandle::is_finished),
            "a hundred checks went past eight that wait"
        );
        for mounter in &frozen {
            mounter.signal(Signal::CONT);
        }
        for check in hung {
            check.join().unwrap().unwrap();
        }
    });
    let counts = helpers.counts();
    assert_eq!(counts.running, 0);
    // One for each that waits, and few for all the others.
    assert!((9..=16).contains(&counts.started) && counts.asked == 108, "{counts:?}");
    until("only a few wait for the next question", || helpers.counts().idle <= 2);
}

fn ten_come_back() {
    let held: Vec<Mounter> = (0..10).map(|_| Mounter::start(Listing::Held)).collect();
    let helpers = Helpers::new(Limits { running: 16, stuck: 64 });
    let check =
        |name: usize, deadline| helpers.look(&name.to_string(), &directory(held[name].path()), deadline);
    std::thread::scope(|scope| {
        for name in 0..held.len() {
            let check = &check;
            scope.spawn(move || until_stuck(|| check(name, Duration::from_millis(500))));
        }
    });
    let counts = helpers.counts();
    assert_eq!((counts.running, counts.stuck), (0, 10));
    assert!(counts.abandoned >= 10, "{counts:?}");
    let stuck: Vec<u32> = (0..held.len()).flat_map(|name| helpers_at(&helpers, &name.to_string())).collect();
    assert_eq!(stuck.len(), 10, "one each");

    held.iter().for_each(Mounter::release);
    until("all are collected", || helpers.counts().stuck == 0);
    for process in stuck {
        assert!(!Path::new(&format!("/proc/{process}/fd")).exists(), "{process} is not even a zombie");
    }
    for name in 0..held.len() {
        check(name, PATIENCE).unwrap();
    }
    assert_eq!(helpers.counts().abandoned, counts.abandoned, "no more were left behind");
}
