//! How many helpers there may be.

use std::path::Path;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use volmedic_host::helper::{HelperError, Helpers, Limits, Question};

use super::mounter::{Listing, Mounter};
use super::{Test, until};

pub(crate) const TESTS: &[Test] = &[
    ("whoever_finds_all_places_taken_waits_and_then_gives_up", all_places_taken),
    ("too_many_stuck_helpers_stop_the_starting", too_many_stuck),
    ("many_hung_volumes_do_not_delay_the_others", many_hung),
];

const PATIENCE: Duration = Duration::from_secs(10);

fn directory(path: &Path) -> Question {
    Question::Directory { path: path.into(), most: 10 }
}

fn all_places_taken() {
    let frozen = Mounter::start(Listing::Short);
    frozen.signal(Signal::STOP);
    let helpers = Helpers::new(Limits { running: 1, stuck: 8 });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| helpers.look("frozen", &directory(frozen.path()), Duration::from_secs(2)));
        until("the place is taken", || helpers.counts().running == 1);
        let full = helpers.look("other", &directory(Path::new("/")), Duration::from_millis(100)).unwrap_err();
        assert!(matches!(full, HelperError::Full { limit: 1, .. }) && !full.is_about_the_volume(), "{full}");
        // Whoever waits long enough gets the place when it is free.
        helpers.look("other", &directory(Path::new("/")), PATIENCE).unwrap();
        assert!(first.join().unwrap().unwrap_err().is_hang());
    });
}

fn too_many_stuck() {
    let mut stalled: Vec<Mounter> = (0..2).map(|_| Mounter::start(Listing::Never)).collect();
    let helpers = Helpers::new(Limits { running: 4, stuck: 2 });
    for (name, mounter) in stalled.iter().enumerate() {
        let hung = helpers
            .look(&name.to_string(), &directory(mounter.path()), Duration::from_millis(200))
            .unwrap_err();
        assert!(matches!(hung, HelperError::Hung { .. }), "{hung}");
    }
    let refused = helpers.look("fine", &directory(Path::new("/")), PATIENCE).unwrap_err();
    assert!(matches!(refused, HelperError::TooManyStuck { limit: 2 }), "{refused}");
    stalled.iter_mut().for_each(Mounter::kill);
    until("all are collected", || helpers.counts().stuck == 0);
    helpers.look("fine", &directory(Path::new("/")), PATIENCE).unwrap();
    assert_eq!(helpers.counts().abandoned, 2);
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
                scope.spawn(move || {
                    helpers.look(&name.to_string(), &directory(mounter.path()), Duration::from_secs(5))
                })
            })
            .collect();
        until("all eight wait", || helpers.counts().running == 8);
        let started = Instant::now();
        for turn in 0..100 {
            helpers.look(&format!("fine-{turn}"), &directory(Path::new("/")), PATIENCE).unwrap();
        }
        let took = started.elapsed();
        let early: Vec<bool> = hung.iter().map(ScopedJoinHandle::is_finished).collect();
        let answers: Vec<_> = hung.into_iter().map(|look| look.join().unwrap()).collect();
        assert!(
            !early.contains(&true),
            "a hundred looks took {took:?} and did not end before the hung ones: {early:?} {answers:?}"
        );
        for answer in answers {
            assert!(answer.unwrap_err().is_hang());
        }
    });
    assert_eq!(helpers.counts().running, 0);
}
