//! The loop on a paused clock, with a courier whose answers are given.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;

use super::*;
use crate::metrics::Metrics;

#[derive(Debug, Clone)]
struct Note {
    object: Arc<str>,
    story: u32,
}

impl Job for Note {
    fn object(&self) -> &Arc<str> {
        &self.object
    }

    fn is_same_story(&self, other: &Self) -> bool {
        self.story == other.story
    }

    fn absorb(&mut self, _: Self) {}

    fn is_minor(&self) -> bool {
        false
    }
}

type Answer = Box<dyn Fn(&Note, Duration) -> Outcome + Send + Sync>;

struct Post {
    started: Instant,
    answer: Answer,
    sent: Mutex<Vec<(Duration, Note)>>,
    flying: Mutex<(usize, usize)>,
    per_object: Mutex<BTreeMap<Arc<str>, usize>>,
    reconnected: Mutex<u32>,
    forbidden: Mutex<u32>,
}

impl Courier for Post {
    type Job = Note;

    fn outlet(_: &Note) -> Outlet {
        Outlet::Event
    }

    fn describe(job: &Note) -> String {
        format!("story {} on {}", job.story, job.object)
    }

    fn reconnected(&self) {
        *self.reconnected.lock() += 1;
    }

    fn forbidden(&self, _: Outlet) {
        *self.forbidden.lock() += 1;
    }

    async fn send(&self, job: &Note, gate: &Gate) -> Outcome {
        gate.pass().await;
        let at = now().saturating_duration_since(self.started);
        {
            let mut flying = self.flying.lock();
            flying.0 += 1;
            flying.1 = flying.1.max(flying.0);
            let busy = &mut *self.per_object.lock();
            let count = busy.entry(job.object.clone()).or_default();
            *count += 1;
            assert_eq!(*count, 1, "two at once for {}", job.object);
        }
        sleep(Duration::from_millis(20)).await;
        self.flying.lock().0 -= 1;
        self.per_object.lock().remove(&job.object);
        self.sent.lock().push((at, job.clone()));
        (self.answer)(job, at)
    }
}

fn post(answer: impl Fn(&Note, Duration) -> Outcome + Send + Sync + 'static) -> Arc<Post> {
    Arc::new(Post {
        started: now(),
        answer: Box::new(answer),
        sent: Mutex::default(),
        flying: Mutex::default(),
        per_object: Mutex::default(),
        reconnected: Mutex::default(),
        forbidden: Mutex::default(),
    })
}

fn start(post: &Arc<Post>, limits: &Limits) -> (Sender<Post>, Registry) {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    (Sender::start(post.clone(), limits, metrics.reports), registry)
}

fn note(object: usize, story: u32) -> Note {
    Note { object: format!("object-{object}").into(), story }
}

fn scraped(registry: &Registry, line: &str) -> bool {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text.lines().any(|found| found == line)
}

const LONG: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn a_thousand_go_out_within_ten_seconds_at_the_default_rate() {
    let post = post(|_, _| Outcome::Done(Verdict::Sent));
    let (sender, _registry) = start(&post, &Limits::default());
    for n in 0..1_000 {
        sender.push(note(n, 1));
    }
    let begun = now();
    assert_eq!(sender.flush(LONG).await, 0);
    let took = now() - begun;
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert_eq!(post.sent.lock().len(), 1_000);
    assert!(post.flying.lock().1 <= 16);
}

/// Each volume has an event and a stored state. The recovery is seen by the next list, a few seconds after the failure was
/// reported, while the states of the failure are still being stored.
#[tokio::test(start_paused = true)]
async fn a_thousand_recoveries_go_out_as_fast_as_the_failures_before_them() {
    const STATE: u32 = 0;
    const FAILURE: u32 = 1;
    const RECOVERY: u32 = 2;
    let post = post(|_, _| Outcome::Done(Verdict::Sent));
    let (sender, _registry) = start(&post, &Limits::default());
    let mut took = Vec::new();
    for event in [FAILURE, RECOVERY] {
        let begun = now();
        for n in 0..1_000 {
            sender.push(note(n, event));
            sender.push(note(n, STATE));
        }
        while post.sent.lock().iter().filter(|(_, sent)| sent.story == event).count() < 1_000 {
            sleep(Duration::from_millis(100)).await;
        }
        took.push(now() - begun);
        sleep(Duration::from_secs(6)).await;
    }
    assert!(took.iter().all(|took| *took < Duration::from_secs(8)), "{took:?}");
    assert_eq!(sender.flush(LONG).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_is_reported_in_order_and_one_at_a_time() {
    let post = post(|_, _| Outcome::Done(Verdict::Sent));
    let (sender, _registry) = start(&post, &Limits::default());
    for story in 0..50 {
        for object in 0..4 {
            sender.push(note(object, story));
        }
    }
    assert_eq!(sender.flush(LONG).await, 0);
    for object in 0..4 {
        let sent = post.sent.lock().clone();
        let stories: Vec<u32> = sent
            .iter()
            .filter(|(_, n)| *n.object == *format!("object-{object}"))
            .map(|(_, n)| n.story)
            .collect();
        assert_eq!(stories, (0..50).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_asked_ever_more_rarely_and_gets_everything_when_back() {
    let away = Duration::from_mins(1);
    let post = post(move |_, at| {
        if at < away {
            Outcome::Failed(Failure::Away("refused".to_owned()))
        } else {
            Outcome::Done(Verdict::Sent)
        }
    });
    let (sender, registry) = start(&post, &Limits::default());
    for n in 0..500 {
        sender.push(note(n, 1));
    }
    assert_eq!(sender.flush(LONG).await, 0);
    let sent = post.sent.lock().clone();
    let asked = sent.iter().filter(|(at, _)| *at < away).count();
    assert!(asked < 16 + 20, "{asked} requests to a dead server in a minute");
    let last = sent.last().unwrap().0;
    assert!(last < away + Duration::from_secs(20), "the last went out at {last:?}");
    assert!(scraped(&registry, r#"volmedic_reports_total{outlet="event",result="sent"} 500"#));
    assert_eq!(*post.reconnected.lock(), 1, "it may be another server now");
}

#[tokio::test(start_paused = true)]
async fn what_the_server_asks_to_wait_is_waited() {
    let calm = Duration::from_secs(7);
    let post = post(move |_, at| {
        let busy = Failure::Busy { after: Some(calm), why: "too many requests".to_owned() };
        if at < calm { Outcome::Failed(busy) } else { Outcome::Done(Verdict::Sent) }
    });
    let (sender, _registry) = start(&post, &Limits { in_flight: 1, ..Limits::default() });
    sender.push(note(1, 1));
    sender.push(note(2, 1));
    assert_eq!(sender.flush(LONG).await, 0);
    assert_eq!(post.sent.lock().iter().filter(|(at, _)| *at < calm).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_job_that_always_fails_delays_no_other_and_is_given_up() {
    let post = post(|note, _| {
        if &*note.object == "object-0" {
            Outcome::Failed(Failure::Busy { after: None, why: "webhook (500)".to_owned() })
        } else {
            Outcome::Done(Verdict::Sent)
        }
    });
    let (sender, registry) = start(&post, &Limits::default());
    for n in 0..100 {
        sender.push(note(n, 1));
    }
    sleep(Duration::from_secs(3)).await;
    assert_eq!(sender.backlog(), 1, "all but the bad one are out");
    for _ in 0..200 {
        sleep(Duration::from_secs(10)).await;
        sender.push(note(7, 2));
    }
    assert_eq!(sender.flush(LONG).await, 0);
    assert!(scraped(&registry, r#"volmedic_reports_total{outlet="event",result="gave_up"} 1"#));
}

#[tokio::test(start_paused = true)]
async fn alone_with_a_failing_server_nothing_is_given_up() {
    let post = post(|_, at| {
        let busy = Failure::Busy { after: None, why: "etcd (500)".to_owned() };
        if at < LONG { Outcome::Failed(busy) } else { Outcome::Done(Verdict::Sent) }
    });
    let (sender, registry) = start(&post, &Limits::default());
    sender.push(note(1, 1));
    assert_eq!(sender.flush(2 * LONG).await, 0);
    assert!(scraped(&registry, r#"volmedic_reports_total{outlet="event",result="sent"} 1"#));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_counts_what_it_loses_and_a_flush_ends_in_time() {
    let post = post(|_, _| Outcome::Failed(Failure::Away("refused".to_owned())));
    let (sender, registry) = start(&post, &Limits { capacity: 10, ..Limits::default() });
    for n in 0..15 {
        sender.push(note(n, 1));
    }
    let begun = now();
    assert_eq!(sender.flush(Duration::from_secs(5)).await, 10);
    assert_eq!(now() - begun, Duration::from_secs(5));
    assert!(scraped(&registry, r#"volmedic_reports_total{outlet="event",result="overflow"} 5"#));
    assert!(!sender.take_overflow(), "there is no room yet");
    assert!(scraped(&registry, "volmedic_report_queue 10"));
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_is_asked_for_once_there_is_room_again() {
    let post = post(|_, _| Outcome::Done(Verdict::Sent));
    let (sender, _registry) = start(&post, &Limits { capacity: 10, ..Limits::default() });
    for n in 0..11 {
        sender.push(note(n, 1));
    }
    assert!(!sender.take_overflow());
    assert_eq!(sender.flush(LONG).await, 0);
    assert!(sender.take_overflow());
    assert!(!sender.take_overflow(), "once");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_panics_frees_its_object() {
    let post = post(|note, _| {
        assert_ne!(note.story, 1, "as the test wants");
        Outcome::Done(Verdict::Sent)
    });
    let (sender, _registry) = start(&post, &Limits::default());
    sender.push(note(1, 1));
    sender.push(note(1, 2));
    assert_eq!(sender.flush(LONG).await, 0);
    assert_eq!(post.sent.lock().iter().filter(|(_, n)| n.story == 2).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_starting_server_forbids_is_kept_and_what_stays_forbidden_is_not() {
    let forbidden = || Outcome::Failed(Failure::Forbidden("no rights".to_owned()));
    let starting = move |_: &Note, at| {
        if at < Duration::from_secs(10) { forbidden() } else { Outcome::Done(Verdict::Sent) }
    };
    let post_office = post(starting);
    let (sender, registry) = start(&post_office, &Limits::default());
    (0..10).for_each(|n| sender.push(note(n, 1)));
    assert_eq!(sender.flush(LONG).await, 0);
    assert!(scraped(&registry, r#"volmedic_reports_total{outlet="event",result="sent"} 10"#));
    assert_eq!(*post_office.forbidden.lock(), 0);

    let post_office = post(move |_, _| forbidden());
    let (sender, registry) = start(&post_office, &Limits::default());
    sender.push(note(0, 1));
    assert_eq!(sender.flush(LONG).await, 0);
    let tries = post_office.sent.lock().len();
    assert!((5..=11).contains(&tries), "{tries} tries in twenty seconds");
    (1..10).for_each(|n| sender.push(note(n, 1)));
    assert_eq!(sender.flush(LONG).await, 0);
    assert!(scraped(&registry, r#"volmedic_reports_total{outlet="event",result="forbidden"} 10"#));
    assert_eq!(post_office.sent.lock().len(), tries + 9, "once it is known, one try each");
}
