//! Scripts of what is pushed, taken, done and put back; jobs are written `object:story`.

use std::time::Duration;

use super::*;

#[derive(Debug)]
struct Word {
    object: Arc<str>,
    story: String,
    times: u32,
}

impl Job for Word {
    fn object(&self) -> &Arc<str> {
        &self.object
    }

    fn is_same_story(&self, other: &Self) -> bool {
        self.story == other.story
    }

    fn absorb(&mut self, newer: Self) {
        self.times += newer.times;
    }

    fn is_minor(&self) -> bool {
        self.story.starts_with("minor")
    }
}

fn word(text: &str) -> Word {
    let (object, story) = text.split_once(':').expect("object:story");
    Word { object: object.into(), story: story.to_owned(), times: 1 }
}

fn shown(word: &Word) -> String {
    let times = if word.times > 1 { format!("x{}", word.times) } else { String::new() };
    format!("{}:{}{times}", word.object, word.story)
}

/// `+a:x` pushes, `-` takes, `!a` is done, `<a:x` puts back for ten seconds, `10s` lets time pass.
#[track_caller]
fn check(capacity: usize, script: &str, expected: &str) {
    let mut queue = Queue::new(capacity);
    let mut now = Instant::now();
    let mut seen = Vec::new();
    for step in script.split_whitespace() {
        let (op, rest) = step.split_at(1);
        match op {
            "+" => seen.extend(queue.push(word(rest)).map(|lost| format!("lost({})", shown(&lost)))),
            "-" => seen.push(queue.pop(now).map_or("nothing".to_owned(), |job| shown(&job))),
            "!" => queue.done(&rest.into()),
            "<" => queue.put_back(word(rest), now + Duration::from_secs(10)),
            _ => now += Duration::from_secs(step.trim_end_matches('s').parse().expect("seconds")),
        }
        let waiting: usize = queue.lanes.values().map(|lane| lane.jobs.len()).sum();
        assert_eq!(queue.len(), waiting, "after {step} of {script}");
        assert!(queue.len() <= capacity + 1, "after {step} of {script}");
    }
    assert_eq!(seen.join(" "), expected, "for: {script}");
}

#[test]
fn objects_take_turns_and_each_keeps_its_order() {
    check(9, "+a:1 +a:2 +b:1 - - -", "a:1 b:1 nothing");
    check(9, "+a:1 +a:2 +b:1 - !a - - !a -", "a:1 b:1 a:2 nothing");
}

#[test]
fn newer_news_of_a_story_takes_the_place_of_older_at_the_end() {
    check(9, "+a:bad +a:good +a:bad - !a - !a -", "a:good a:badx2 nothing");
    // What is on the way is not changed any more.
    check(9, "+a:bad - +a:bad !a -", "a:bad a:bad");
}

#[test]
fn what_failed_sleeps_and_keeps_its_place() {
    check(9, "+a:1 +a:2 - <a:1 - 9s - 1s - !a -", "a:1 nothing nothing a:1 a:2");
    check(9, "+a:1 - +a:2 +a:1 <a:1 10s - !a - !a -", "a:1 a:2 a:1x2 nothing");
    check(9, "+a:1 - <a:1 +b:1 - 10s -", "a:1 b:1 a:1");
}

#[test]
fn a_full_queue_loses_what_matters_least_then_what_is_oldest() {
    check(2, "+a:1 +b:minor +c:1 - - -", "lost(b:minor) a:1 c:1 nothing");
    check(2, "+a:1 +b:1 +c:1 - - -", "lost(a:1) b:1 c:1 nothing");
    check(2, "+a:1 - <a:1 +a:2 +b:1 10s - - -", "a:1 lost(b:1) a:1 nothing nothing");
    // News of a story that waits already costs no room.
    check(2, "+a:1 +b:1 +a:1 +b:1 - -", "a:1x2 b:1x2");
}

#[test]
fn an_object_that_is_done_costs_nothing() {
    let mut queue = Queue::new(9);
    for n in 0..100 {
        queue.push(word(&format!("object-{n}:x")));
    }
    while let Some(job) = queue.pop(Instant::now()) {
        queue.done(job.object());
    }
    assert!(queue.lanes.is_empty() && queue.ready.is_empty());
}
