//! The whole of list and watch against a server that answers by script, on a clock that runs only when all wait.

use serde_json::json;

use super::*;
use crate::fake::{DRIVER, Reply, Server, bookmark, failure, page, status, volume, watch};
use crate::{Inventory, Metrics, Options};

const FOR_EVER: u64 = 1_000_000;

fn start(server: &Server) -> Inventory {
    let options = Options { driver: DRIVER.into(), node_watcher: false };
    Inventory::start(&server.client(), &options, &Metrics::default())
}

/// Waits on the paused clock, for an hour of its time at most.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let poll = async {
        while !condition() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(timeout(Duration::from_hours(1), poll).await.is_ok(), "never: {what}");
}

fn handles(inventory: &Inventory) -> Vec<String> {
    let mut handles = Vec::new();
    inventory.volumes().for_each(|handle| handles.push(handle.to_string()));
    handles.sort();
    handles
}

fn one(name: &str) -> serde_json::Value {
    volume(name, &format!("h-{name}"), &format!("ns/{name}/u"))
}

#[tokio::test(start_paused = true)]
async fn pages_then_changes() {
    let mut later = one("c");
    later["metadata"]["resourceVersion"] = json!("12");
    let server = Server::new([
        page(&[one("a")], "10", "next page"),
        page(&[one("b")], "10", ""),
        watch(&[("ADDED", later), bookmark("20"), ("DELETED", one("a"))], 60),
        watch(&[bookmark("30")], 60),
        watch(&[], FOR_EVER),
    ]);
    let inventory = start(&server);
    assert!(!inventory.is_ready());
    inventory.ready().await;
    assert_eq!(inventory.staleness(), None);
    until("five requests", || server.asked().len() == 5).await;
    assert_eq!(handles(&inventory), ["h-b", "h-c"]);
    let watched = |version| {
        format!(
            "/api/v1/persistentvolumes?watch=true&timeoutSeconds=290&allowWatchBookmarks=true&resourceVersion={version}"
        )
    };
    assert_eq!(
        server.asked(),
        [
            "/api/v1/persistentvolumes?&limit=500".to_owned(),
            "/api/v1/persistentvolumes?&limit=500&continue=next+page".to_owned(),
            watched("10").replace("watch=true", "&watch=true"),
            watched("1").replace("watch=true", "&watch=true"),
            watched("30").replace("watch=true", "&watch=true"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn changes_that_the_server_forgot_are_listed_again() {
    let expired = ("ERROR", status(410, "Expired", "too old resource version"));
    for gone in [watch(&[expired], 60), failure(410, "Expired", "too old resource version")] {
        let server = Server::new([
            page(&[one("a"), one("b")], "10", ""),
            gone,
            page(&[one("b"), one("c")], "90", ""),
            watch(&[], FOR_EVER),
        ]);
        let inventory = start(&server);
        inventory.ready().await;
        until("another list", || server.asked().len() == 4).await;
        assert_eq!(handles(&inventory), ["h-b", "h-c"]);
        assert_eq!(inventory.staleness(), None);
        assert!(server.asked()[3].ends_with("resourceVersion=90"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_begins_again_and_removes_nothing() {
    let expired = failure(410, "Expired", "the continue parameter is too old");
    let server = Server::new([
        page(&[one("a"), one("b")], "10", ""),
        watch(&[("ERROR", status(410, "Expired", "too old"))], 60),
        page(&[one("b")], "50", "more"),
        expired,
        page(&[one("b")], "60", "more"),
        Reply::Never,
        page(&[one("b")], "70", ""),
        watch(&[], FOR_EVER),
    ]);
    let inventory = start(&server);
    inventory.ready().await;
    until("the list is interrupted twice", || server.asked().len() == 6).await;
    assert_eq!(handles(&inventory), ["h-a", "h-b"]);
    until("the list is complete", || server.asked().len() == 8).await;
    assert_eq!(handles(&inventory), ["h-b"]);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_list_is_reported_which_rule_is_missing_and_keeps_trying() {
    let said = "persistentvolumes is forbidden: User \"x\" cannot list resource";
    let forbidden = || failure(403, "Forbidden", said);
    let server = Server::new([
        forbidden(),
        forbidden(),
        forbidden(),
        page(&[one("a")], "10", ""),
        watch(&[], FOR_EVER),
    ]);
    let inventory = start(&server);
    until("refused", || server.asked().len() == 2).await;
    let stale = inventory.staleness().unwrap();
    assert_eq!(stale.resource, "persistentvolumes");
    assert_eq!(
        stale.why,
        format!(
            "the API server does not let us list persistentvolumes: {said}; give our service account a ClusterRole with \
             the rule {{apiGroups: [\"\"], resources: [persistentvolumes], verbs: [list, watch]}}"
        )
    );
    inventory.ready().await;
    assert_eq!((handles(&inventory), inventory.staleness()), (vec!["h-a".to_owned()], None));
}

#[tokio::test(start_paused = true)]
async fn an_outage_keeps_what_was_known_and_says_since_when() {
    let server = Server::new([page(&[one("a")], "10", ""), watch(&[], 60)]);
    let inventory = start(&server);
    inventory.ready().await;
    // The server ends the watch after a minute and answers nothing from then on.
    let began = Instant::now();
    until("out of touch for long", || {
        inventory.staleness().is_some_and(|stale| stale.age > Duration::from_mins(10))
    })
    .await;
    let stale = inventory.staleness().unwrap();
    assert_eq!(stale.why, "the API server was asked to watch persistentvolumes and said nothing for 30 s");
    assert!(began.elapsed() < Duration::from_mins(12), "{:?}", began.elapsed());
    assert_eq!(handles(&inventory), ["h-a"]);
    let tries = server.asked().len();
    assert!((10..=25).contains(&tries), "{tries} tries in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_word_is_started_over() {
    let server = Server::new([page(&[], "10", ""), watch(&[bookmark("20")], FOR_EVER), watch(&[], FOR_EVER)]);
    let inventory = start(&server);
    inventory.ready().await;
    until("a second watch", || server.asked().len() == 3).await;
    assert!(server.asked()[2].ends_with("resourceVersion=20"));
    assert_eq!(inventory.staleness(), None);
}

#[tokio::test(start_paused = true)]
async fn a_dead_watch_is_noticed_and_dated_back_to_the_last_word() {
    let server = Server::new([page(&[one("a")], "10", ""), watch(&[bookmark("20")], FOR_EVER)]);
    let inventory = start(&server);
    inventory.ready().await;
    let heard = Instant::now();
    until("silence is trouble", || {
        inventory.staleness().is_some_and(|stale| stale.why.contains("said nothing for 30 s"))
    })
    .await;
    let age = inventory.staleness().unwrap().age;
    assert!(heard.elapsed().abs_diff(age) < Duration::from_secs(1), "{age:?} of {:?}", heard.elapsed());
    assert!(age < Duration::from_secs(200), "{age:?}");
    assert_eq!(handles(&inventory), ["h-a"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_makes_no_sense_leads_to_a_list() {
    let server = Server::new([
        page(&[one("a")], "10", ""),
        watch(&[("SURPRISE", one("a"))], 60),
        page(&[one("b")], "20", ""),
        watch(&[], FOR_EVER),
    ]);
    let inventory = start(&server);
    until("another list", || server.asked().len() == 4).await;
    assert_eq!(handles(&inventory), ["h-b"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_makes_no_sense_is_skipped_and_stays_as_it_was() {
    let broken = json!({"metadata": {"name": "a", "resourceVersion": "11"}, "spec": {"csi": "?"}});
    let server = Server::new([
        page(&[one("a"), json!({"metadata": {"name": "x"}, "spec": 7}), one("b")], "10", ""),
        watch(&[("MODIFIED", broken.clone()), ("ADDED", one("c")), ("ERROR", status(410, "Gone", ""))], 60),
        page(&[broken, one("c")], "20", ""),
        watch(&[], FOR_EVER),
    ]);
    let inventory = start(&server);
    until("the watch", || inventory.volumes().contains("h-c")).await;
    assert_eq!(handles(&inventory), ["h-a", "h-b", "h-c"]);
    until("another list", || server.asked().len() == 4).await;
    assert_eq!(handles(&inventory), ["h-a", "h-c"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_without_end_is_given_up() {
    let server = Server::new([page(&[one("a")], "10", "again"), page(&[], "10", "again")]);
    let inventory = start(&server);
    until("given up", || server.asked().len() == 3).await;
    let why = inventory.staleness().unwrap().why;
    assert!(why.starts_with("the list of persistentvolumes does not end"), "{why}");
    assert!(!inventory.is_ready());
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_immediately_are_not_begun_in_a_frenzy() {
    let replies = (0..100).map(|_| watch(&[], 0));
    let server = Server::new([page(&[], "10", "")].into_iter().chain(replies));
    let inventory = start(&server);
    inventory.ready().await;
    sleep(Duration::from_mins(10)).await;
    let tries = server.asked().len();
    assert!((10..60).contains(&tries), "{tries} tries in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_patience_gets_it() {
    let mut busy = status(429, "TooManyRequests", "later");
    busy["details"] = json!({"retryAfterSeconds": 45});
    let server = Server::new([Reply::Body(429, busy.to_string()), page(&[], "10", ""), watch(&[], FOR_EVER)]);
    let began = Instant::now();
    let inventory = start(&server);
    inventory.ready().await;
    assert!(began.elapsed() >= Duration::from_secs(45), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nobody_believes_an_inventory_that_nobody_keeps() {
    let server = Server::new([page(&[one("a")], "10", ""), watch(&[], FOR_EVER)]);
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = Metrics::register(&mut registry);
    let options = Options { driver: DRIVER.into(), node_watcher: false };
    let inventory = Inventory::start(&server.client(), &options, &metrics);
    inventory.ready().await;
    drop(inventory);
    until("the metrics say so", || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        !text.contains("volmedic_inventory_stale_seconds{resource=\"persistentvolumes\"} 0.0")
    })
    .await;
}

/// The list of one node's pods is short, and the API server can give it without asking etcd.
#[tokio::test(start_paused = true)]
async fn a_short_list_comes_from_the_cache_and_never_goes_back_in_time() {
    let expired = || watch(&[("ERROR", status(410, "Expired", "too old resource version"))], 60);
    let behind = || failure(504, "Timeout", "Too large resource version: 20, current: 5");
    let server = Server::new([
        // A server that splits the list after all.
        page(&[one("a")], "10", "next"),
        page(&[], "10", ""),
        watch(&[bookmark("20"), ("ERROR", status(410, "Expired", "too old resource version"))], 60),
        failure(500, "InternalError", "no such luck"),
        behind(),
        page(&[one("b")], "7", ""),
        expired(),
        page(&[one("c")], "8", ""),
        watch(&[], FOR_EVER),
    ]);
    let woken = Arc::new(tokio::sync::Notify::new());
    let link = Arc::new(Link::new("persistentvolumes", woken.clone()));
    let sink = Arc::new(crate::Volumes::new(DRIVER, woken));
    let (api, fields) = (Api::all(server.client()), Some("metadata.name=x".into()));
    let follower = Follower { api, fields, lists: Lists::Cached, sink: sink.clone(), link: link.clone() };
    let task = tokio::spawn(follower.run());
    until("all requests", || server.asked().len() == 9).await;
    let asked: Vec<String> = server
        .asked()
        .iter()
        .map(|url| {
            url.replace("/api/v1/persistentvolumes?", "").replace("&fieldSelector=metadata.name%3Dx", "")
        })
        .map(|url| if url.contains("watch=true") { "watch".to_owned() } else { url })
        .collect();
    assert_eq!(
        asked,
        [
            "&resourceVersion=0&resourceVersionMatch=NotOlderThan",
            "&continue=next",
            "watch",
            "&resourceVersion=20&resourceVersionMatch=NotOlderThan",
            "&resourceVersion=20&resourceVersionMatch=NotOlderThan",
            // The cluster was restored from a backup: what there is now counts.
            "&limit=500",
            "watch",
            "&resourceVersion=7&resourceVersionMatch=NotOlderThan",
            "watch",
        ]
    );
    assert!(link.is_in_touch());
    assert!(sink.contains("h-c") && !sink.contains("h-a") && !sink.contains("h-b"));
    task.abort();
}
