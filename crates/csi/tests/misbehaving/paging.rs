//! Lists, right and wrong: each pass ends, keeps what it heard, and says what was wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;
use tonic::Code;
use volmedic_csi::{
    Broken, Kind, Limits, Listed, ListedVolume, Method, Oddity, Pager, PassEnd, Secrets, Session, Visit,
    VolumeHealth,
};
use volmedic_proto::csi;

use crate::fake::{Call, Fake, Reply, Running, SOON, Scene, fail, says, settings, unanswered};

pub(crate) fn entry(id: &str) -> csi::list_volumes_response::Entry {
    let volume = csi::Volume { volume_id: id.into(), ..Default::default() };
    csi::list_volumes_response::Entry { volume: Some(volume), status: None }
}

pub(crate) fn page(ids: &[&str], next_token: &str) -> Reply {
    let entries = ids.iter().map(|id| entry(id)).collect();
    csi::ListVolumesResponse { entries, next_token: next_token.into() }.into()
}

/// `v<from>` to `v<to - 1>`.
pub(crate) fn numbered(from: usize, to: usize, next_token: &str) -> Reply {
    let entries = (from..to).map(|i| entry(&format!("v{i}"))).collect();
    csi::ListVolumesResponse { entries, next_token: next_token.into() }.into()
}

/// A correct list with this number of volumes. The token is the index of the first volume of the page.
pub(crate) fn honest(call: &Call, volumes: usize) -> Reply {
    let asked: csi::ListVolumesRequest = call.read();
    let from: usize = if asked.starting_token.is_empty() { 0 } else { asked.starting_token.parse().unwrap() };
    let size = if asked.max_entries == 0 { volumes } else { usize::try_from(asked.max_entries).unwrap() };
    let to = volumes.min(from + size);
    let next_token = if to < volumes { to.to_string() } else { String::new() };
    numbered(from, to, &next_token)
}

pub(crate) fn limits() -> Limits {
    Limits { page_deadline: SOON, ..Limits::default() }
}

pub(crate) fn start(scene: &Scene, list: impl Fn(Call) -> Reply + Send + Sync + 'static) -> Running {
    Fake::new().capabilities(&[3, 11], &[]).on(Method::ListVolumes, list).start(&scene.socket())
}

pub(crate) async fn walk(session: &Session, pager: &mut Pager) -> (Vec<ListedVolume>, PassEnd) {
    let mut volumes = Vec::new();
    let end = pager.list_volumes(session, |listed: Listed<ListedVolume>| volumes.push(listed.entry)).await;
    (volumes, end)
}

/// A pass over a list that at some point gets no answer any more.
async fn pass_unanswered(
    list: impl Fn(Call) -> Option<Reply> + Send + Sync + 'static,
    limits: Limits,
) -> (Vec<String>, PassEnd) {
    let (got, has_it) = unbounded_channel();
    let list = move |call: Call| {
        list(call).unwrap_or_else(|| {
            // Only the first is waited for.
            let _ = got.send(());
            Reply::Never
        })
    };
    let scene = Scene::new();
    let _fake = start(&scene, list);
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(limits);
    let (volumes, end) = unanswered(walk(&session, &mut pager), has_it).await;
    (volumes.into_iter().map(|volume| volume.volume_id).collect(), end)
}

/// One pass over a scripted list: the ids that came, and how it ended. The oddities must show up in the metrics, too.
async fn pass(
    list: impl Fn(Call) -> Reply + Send + Sync + 'static,
    limits: Limits,
) -> (Vec<String>, PassEnd) {
    let scene = Scene::new();
    let _fake = start(&scene, list);
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let (volumes, end) = walk(&session, &mut Pager::new(limits)).await;
    for (oddity, count) in end.counts.oddities.iter() {
        let label = oddity.label();
        scene.scraped(&format!(
            "volmedic_csi_oddities_total{{driver_name=\"fake.example\",oddity=\"{label}\"}} {count}"
        ));
    }
    (volumes.into_iter().map(|volume| volume.volume_id).collect(), end)
}

fn count(end: &PassEnd, oddity: Oddity) -> u64 {
    end.counts.oddities.count(oddity)
}

#[tokio::test]
async fn an_honest_list() {
    let (ids, end) = pass(|call| honest(&call, 1234), limits()).await;
    assert_eq!(ids, (0..1234).map(|i| format!("v{i}")).collect::<Vec<_>>());
    assert!(end.complete(), "{end}");
    assert!(end.counts.oddities.is_empty(), "{end}");
    assert_eq!(end.counts.volumes, 1234);
    says(end, &["ListVolumes of driver fake.example was complete: 1234 volumes in "]);
}

#[tokio::test]
async fn an_empty_list_is_complete() {
    let (ids, end) = pass(|_| page(&[], ""), limits()).await;
    assert!(ids.is_empty());
    assert!(end.complete());
    assert_eq!(end.counts.pages, 1);
}

/// A list that fills its last page exactly is asked for again, and is then complete.
#[tokio::test]
async fn exactly_one_page() {
    let (ids, end) = pass(|call| honest(&call, 500), limits()).await;
    assert_eq!(ids.len(), 500);
    assert!(end.complete() && end.counts.oddities.is_empty(), "{end}");
}

#[tokio::test]
async fn a_token_loop() {
    let list = |call: Call| {
        let asked: csi::ListVolumesRequest = call.read();
        match asked.starting_token.as_str() {
            "" => page(&["a"], "one"),
            "one" => page(&["b"], "two"),
            _ => page(&["c"], "one"),
        }
    };
    let (ids, end) = pass(list, limits()).await;
    assert_eq!(ids, ["a", "b", "c"]);
    assert_eq!(count(&end, Oddity::TokenLoop), 1);
    says(
        &end,
        &[
            "was incomplete: 3 volumes in 3 pages",
            "the driver's pages go in a circle: page 3 gave a token that an earlier page had given",
            "what the pages before it said is kept",
        ],
    );
    // The shortest loop of all.
    let (ids, end) = pass(|_| page(&["a"], "same"), limits()).await;
    assert_eq!((ids.len(), end.counts.pages), (2, 2));
    assert!(matches!(end.broken, Some(Broken::TokenLoop { page: 2 })));
}

#[tokio::test]
async fn repeated_pages() {
    // Ignores the token and makes up a new one each time.
    let (ids, end) = pass(|call| page(&["a", "b"], &call.nth.to_string()), limits()).await;
    assert_eq!(ids.len(), 8);
    assert_eq!(end.counts.volumes, 2);
    assert_eq!(count(&end, Oddity::RepeatedPage), 3);
    assert_eq!(count(&end, Oddity::DuplicateId), 6);
    says(&end, &["3 pages in a row with nothing but volumes it had listed before", "ignore starting_token"]);
}

#[tokio::test]
async fn one_repeated_page_is_survived() {
    let list = |call: Call| match call.nth {
        0 => page(&["a", "b"], "1"),
        1 => page(&["a", "b"], "2"),
        _ => page(&["c"], ""),
    };
    let (ids, end) = pass(list, limits()).await;
    assert_eq!(ids, ["a", "b", "a", "b", "c"]);
    assert!(end.complete());
    assert_eq!(count(&end, Oddity::RepeatedPage), 1);
    says(
        end,
        &["odd: 1 × page with nothing but volumes already listed, 2 × volume listed again in the same pass"],
    );
}

#[tokio::test]
async fn a_volume_listed_again_is_marked() {
    let scene = Scene::new();
    let _fake = start(&scene, |_| page(&["a", "b", "a"], ""));
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut marks = Vec::new();
    let mut pager = Pager::new(limits());
    let end = pager
        .list_volumes(&session, |listed: Listed<ListedVolume>| {
            marks.push((listed.entry.volume_id, listed.again));
        })
        .await;
    assert_eq!(marks, [("a".into(), false), ("b".into(), false), ("a".into(), true)]);
    assert!(end.complete());
}

/// Takes each piece of a list only when it is let.
struct Slow<'a> {
    gate: Arc<Semaphore>,
    seen: &'a mut Vec<String>,
}

impl Visit<ListedVolume> for Slow<'_> {
    fn entry(&mut self, listed: Listed<ListedVolume>) {
        self.seen.push(listed.entry.volume_id);
    }

    async fn breathe(&mut self) {
        self.gate.acquire().await.unwrap().forget();
    }
}

#[tokio::test]
async fn a_slow_reader_of_a_page_holds_back_all_but_the_next() {
    let scene = Scene::new();
    let [asked, taken] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let (count, done, (moment, mut moments)) = (asked.clone(), taken.clone(), unbounded_channel());
    let _fake = start(&scene, move |call| {
        moment.send(done.load(Ordering::SeqCst)).unwrap();
        count.fetch_add(1, Ordering::SeqCst);
        match call.nth {
            0 => page(&["a"], "1"),
            1 => page(&["b"], "2"),
            2 => page(&["c"], "3"),
            _ => page(&["d"], ""),
        }
    });
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(limits());
    let gate = Arc::new(Semaphore::new(0));
    let mut seen = Vec::new();
    let slow = Slow { gate: gate.clone(), seen: &mut seen };
    let mut walk = Box::pin(pager.list_volumes(&session, slow));
    for pages in 1..=4 {
        let ahead = (pages + 1).min(4);
        let deadline = std::time::Instant::now() + SOON;
        // And a moment more, in which all pages would come if nothing held them back.
        while asked.load(Ordering::SeqCst) < ahead {
            assert!(std::time::Instant::now() < deadline, "page {ahead} is not asked for");
            let early = tokio::time::timeout(Duration::from_millis(20), &mut walk).await;
            assert!(early.is_err(), "it ended before page {pages} was taken");
        }
        let early = tokio::time::timeout(Duration::from_millis(50), &mut walk).await;
        assert!(early.is_err(), "it ended before page {pages} was taken");
        taken.fetch_add(1, Ordering::SeqCst);
        gate.add_permits(1);
    }
    gate.add_permits(1);
    assert!(tokio::time::timeout(SOON, &mut walk).await.unwrap().complete());
    drop(walk);
    assert_eq!(seen, ["a", "b", "c", "d"]);
    // Of each page that was asked for: how many were taken before it.
    let early: Vec<u64> = std::iter::from_fn(|| moments.try_recv().ok()).collect();
    assert_eq!(early, [0, 0, 1, 2], "it asks for one page ahead");
}

#[tokio::test]
async fn shrinking_and_empty_pages() {
    let list = |call: Call| match call.nth {
        0 => page(&["a", "b", "c"], "1"),
        1 => page(&["d", "e"], "2"),
        2 => page(&["f"], "3"),
        3 => page(&[], "4"),
        _ => page(&["g"], ""),
    };
    let (ids, end) = pass(list, limits()).await;
    assert_eq!(ids.concat(), "abcdefg");
    assert!(end.complete());
    assert_eq!(count(&end, Oddity::ShrinkingPage), 2);
    assert_eq!(count(&end, Oddity::EmptyPage), 1);
    says(end, &["2 × page shorter than the one before it, and not the last"]);
}

#[tokio::test]
async fn empty_pages_without_end() {
    let (_, end) = pass(|call| page(&[], &call.nth.to_string()), limits()).await;
    assert_eq!(end.counts.pages, 100);
    says(end, &["100 empty pages in a row, each promising another"]);
}

#[tokio::test]
async fn a_list_of_half_the_volumes_is_pointed_out() {
    let scene = Scene::new();
    let _fake = start(&scene, |call| honest(&call, if call.nth == 0 { 100 } else { 49 }));
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(limits());
    assert_eq!(walk(&session, &mut pager).await.1.shrunk_from, None);
    let (_, end) = walk(&session, &mut pager).await;
    assert!(end.complete());
    assert_eq!(end.shrunk_from, Some(100));
    says(end, &["49 volumes", "the list before had 100 volumes"]);
    assert_eq!(walk(&session, &mut pager).await.1.shrunk_from, None);
}

#[tokio::test]
async fn duplicate_and_empty_ids() {
    let (ids, end) = pass(|_| page(&["a", "", "a", "", "b"], ""), limits()).await;
    assert_eq!(ids, ["a", "a", "b"]);
    assert_eq!(count(&end, Oddity::DuplicateId), 1);
    assert_eq!(count(&end, Oddity::EmptyId), 2);
    assert!(!end.complete());
    says(
        end,
        &[
            "2 × entry without a volume id",
            "2 × an entry whose volume id is missing or cannot be read",
            "must name each volume",
        ],
    );
}

#[tokio::test]
async fn health_with_duplicates_and_unknown_numbers() {
    let scene = Scene::new();
    let health = |id: &str, entries: &[(i32, &str)]| csi::VolumeHealth {
        volume_id: id.into(),
        health_statuses: entries
            .iter()
            .map(|(status, reason)| csi::volume_health::VolumeHealthEntry {
                status: *status,
                reason: (*reason).into(),
                message: "m".into(),
            })
            .collect(),
    };
    let entries = vec![
        health("a", &[(2, "Gone"), (2, "Gone"), (1, "Gone")]),
        health("b", &[(99, "New")]),
        health("c", &[]),
    ];
    let _fake = Fake::new()
        .capabilities(&[16, 17], &[])
        .on(Method::ControllerListVolumeHealth, move |call| {
            let asked: csi::ControllerListVolumeHealthRequest = call.read();
            assert_eq!(asked.secrets["password"], "hunter2");
            csi::ControllerListVolumeHealthResponse { entries: entries.clone(), next_token: String::new() }
                .into()
        })
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let secrets = Secrets::new([("password".to_owned(), "hunter2".to_owned())].into());
    let mut seen = Vec::new();
    let mut pager = Pager::new(limits());
    let end = pager
        .list_health(&session, &secrets, |listed: Listed<VolumeHealth>| {
            let conditions = listed.entry.conditions.iter().map(|c| format!(" {}/{}", c.status, c.reason));
            seen.push(format!("{}:{}", listed.entry.volume_id, conditions.collect::<String>()));
        })
        .await;
    assert_eq!(seen, ["a: 2/Gone 1/Gone", "b: 99/New", "c:"]);
    assert!(end.complete());
    assert_eq!(count(&end, Oddity::DuplicateCondition), 1);
    assert_eq!(count(&end, Oddity::UnknownStatus), 1);
    says(end, &["ControllerListVolumeHealth of driver fake.example was complete: 3 volumes in 1 page"]);
}

#[tokio::test]
async fn a_page_that_never_comes() {
    let list = |call: Call| (call.nth == 0).then(|| page(&["a"], "1"));
    let (ids, end) = pass_unanswered(list, limits()).await;
    assert_eq!(ids, ["a"]);
    // Asked for in halves, three times, and then left.
    assert_eq!(end.counts.retries, 3);
    says(
        &end,
        &[
            "ListVolumes to driver fake.example failed: no answer came in time",
            "what the pages before it said is kept",
        ],
    );
    assert!(matches!(&end.broken, Some(Broken::Call(error)) if error.kind() == Kind::Deadline));
}

/// Too many entries, reported in three ways: the page size comes down until it fits, and stays there.
#[tokio::test]
async fn pages_that_are_too_much() {
    // A slow one costs a deadline for each time that it is asked for less, so it is asked once.
    let slow = Limits { first_size: 200, page_deadline: Duration::from_secs(5), ..limits() };
    for (too_much, limits, times) in [("slow", slow, 1), ("exhausted", limits(), 3), ("huge", limits(), 3)] {
        let scene = Scene::new();
        let _fake = start(&scene, move |call| {
            let asked: csi::ListVolumesRequest = call.read();
            if asked.max_entries <= 100 {
                return honest(&call, 250);
            }
            match too_much {
                "slow" => Reply::Never,
                "exhausted" => fail(Code::ResourceExhausted, "too many"),
                _ => Reply::Message(vec![0; 70 << 20]),
            }
        });
        let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
        let mut pager = Pager::new(limits);
        let (volumes, end) = walk(&session, &mut pager).await;
        assert!(end.complete(), "{too_much}: {end}");
        assert_eq!((volumes.len(), end.counts.retries), (250, times), "{too_much}: {end}");
        says(end, &[&format!("asked {times} time"), "to send a page in smaller pieces"]);
        let (_, end) = walk(&session, &mut pager).await;
        assert_eq!(end.counts.retries, 0, "{too_much}: the size that fits was forgotten: {end}");
    }
}

/// As csi-driver-host-path does: the list ends at max_entries, without a token.
#[tokio::test]
async fn a_list_cut_without_a_token() {
    let scene = Scene::new();
    let _fake = start(&scene, |call| {
        let asked: csi::ListVolumesRequest = call.read();
        let size = if asked.max_entries == 0 { 2000 } else { usize::try_from(asked.max_entries).unwrap() };
        numbered(0, size.min(2000), "")
    });
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(limits());
    let (volumes, end) = walk(&session, &mut pager).await;
    assert_eq!(volumes.len(), 2000);
    assert!(end.complete());
    says(end, &["1 × list cut at max_entries with no token for the rest"]);
    // It is known now, and not tried again.
    let (volumes, end) = walk(&session, &mut pager).await;
    assert_eq!((volumes.len(), end.counts.oddities.is_empty()), (2000, true));
}

#[tokio::test]
async fn a_list_that_may_be_cut() {
    let list = |call: Call| {
        let asked: csi::ListVolumesRequest = call.read();
        if asked.max_entries == 0 { fail(Code::Internal, "no") } else { numbered(0, 500, "") }
    };
    let (ids, end) = pass(list, limits()).await;
    assert_eq!(ids.len(), 500);
    says(
        end,
        &["was incomplete", "exactly as full as asked for", "asking for the rest without a limit failed"],
    );
}

#[tokio::test]
async fn max_entries_refused() {
    let list = |call: Call| {
        let asked: csi::ListVolumesRequest = call.read();
        if asked.max_entries > 0 { fail(Code::InvalidArgument, "no paging") } else { honest(&call, 700) }
    };
    let (ids, end) = pass(list, limits()).await;
    assert_eq!(ids.len(), 700);
    assert!(end.complete());
    assert_eq!(count(&end, Oddity::MaxEntriesRefused), 1);
}

#[tokio::test]
async fn a_driver_that_ignores_max_entries() {
    let (ids, end) = pass(|_| numbered(0, 3000, ""), limits()).await;
    assert_eq!(ids.len(), 3000);
    assert!(end.complete());
    assert_eq!(count(&end, Oddity::OversizedPage), 1);
}

#[tokio::test]
async fn a_refused_token_restarts_the_pass_once() {
    let list = |call: Call| match call.nth {
        0 => page(&["a", "b"], "old"),
        1 => fail(Code::Aborted, "token expired"),
        2 => page(&["a", "b"], "new"),
        _ => page(&["c"], ""),
    };
    let (ids, end) = pass(list, limits()).await;
    assert_eq!(ids, ["a", "b", "a", "b", "c"]);
    assert!(end.complete());
    // Seen again because of the restart, which is no fault of the list.
    assert_eq!((end.counts.volumes, end.counts.restarts, count(&end, Oddity::DuplicateId)), (3, 1, 0));
    says(&end, &["started again because the driver refused its own token"]);

    let list = |call: Call| {
        let asked: csi::ListVolumesRequest = call.read();
        if asked.starting_token.is_empty() { page(&["a"], "t") } else { fail(Code::Aborted, "token expired") }
    };
    let (_, end) = pass(list, limits()).await;
    assert_eq!((end.complete(), end.counts.restarts), (false, 1));
    says(end, &["ListVolumes to driver fake.example failed", "token expired"]);
}

#[tokio::test]
async fn the_bounds_of_a_pass() {
    let endless = |call: Call| page(&[&format!("v{}", call.nth)], &format!("t{}", call.nth));
    let (ids, end) = pass(endless, Limits { max_pages: 7, ..limits() }).await;
    assert_eq!(ids.len(), 7);
    says(end, &["the driver sent 7 pages and promised another"]);

    let (ids, end) = pass(endless, Limits { max_entries: 5, ..limits() }).await;
    assert_eq!(ids.len(), 5);
    says(end, &["the driver listed 5 entries and went on"]);

    let stuck = move |call: Call| (call.nth < 3).then(|| endless(call));
    let (ids, end) = pass_unanswered(stuck, Limits { pass_deadline: SOON / 2, ..limits() }).await;
    assert_eq!(ids.len(), 3);
    assert!(!end.complete());
    assert!(end.took >= SOON / 2 && end.took < SOON, "the pass ends before the page's own deadline: {end}");

    let (_, end) = pass(endless, Limits { pass_deadline: Duration::ZERO, ..limits() }).await;
    says(end, &["the list did not end within 0"]);

    let (_, end) = pass(|_| page(&["a"], &"t".repeat(70_000)), limits()).await;
    says(end, &["a page token of 70000 bytes; at most 65536 are taken"]);
}

#[tokio::test]
async fn other_errors_break_the_pass_immediately() {
    for (code, part) in [
        (Code::Internal, "something broke inside the driver: boom; read the driver's log"),
        (
            Code::Unimplemented,
            "the driver does not implement it: boom; do not ask again until the driver has changed",
        ),
        (Code::Unavailable, "is not available: boom; ask again after a growing pause"),
    ] {
        let list = move |call: Call| if call.nth == 0 { page(&["a"], "1") } else { fail(code, "boom") };
        let (ids, end) = pass(list, limits()).await;
        assert_eq!((ids.len(), end.counts.retries), (1, 0));
        says(end, &["ListVolumes to driver fake.example failed: ", part]);
    }
}
