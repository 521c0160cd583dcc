//! The page as HTTP answers, without a browser: what every answer says, and that nothing hostile gets through.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use jiff::Timestamp;
use tower::ServiceExt;
use volmedic_health::{Condition, Ledger, Policy, Reason, Sight, Status, Subject, Vantage};
use volmedic_view::page::{Guard, router};
use volmedic_view::{About, Call, Heal, History, Moment, NodeState, Query, Row, Snapshot, Sort, Source};

struct Shelf {
    rows: Vec<Row>,
    history: History,
    about: About,
    standing_by: Option<String>,
}

impl Source for Shelf {
    fn rows(&self) -> Vec<Row> {
        self.rows.clone()
    }

    fn about(&self) -> About {
        self.about.clone()
    }

    fn history(&self) -> &History {
        &self.history
    }

    fn heals(&self, _: &str, _: &str) -> Vec<Heal> {
        let (remedy, message) = (HOSTILE.to_owned(), HOSTILE.to_owned());
        let at = Timestamp::UNIX_EPOCH;
        vec![Heal { at, outcome: "Failed", well: Some(false), remedy, node: Some(HOSTILE.into()), message }]
    }

    fn standing_by(&self) -> Option<String> {
        self.standing_by.clone()
    }

    fn nodes(&self) -> Vec<NodeState> {
        vec![NodeState {
            name: "worker-2".into(),
            state: "not ready".into(),
            well: false,
            since: None,
            agent: None,
        }]
    }
}

/// Everything that came from elsewhere is hostile here.
const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u{202e}gnp.exe";

fn hostile() -> Arc<Shelf> {
    let mut ledger = Ledger::new(Policy::default());
    let subject = Subject::volume(HOSTILE, HOSTILE);
    let vantage = Vantage::Node(HOSTILE.into());
    let sight = Sight::adverse([Condition::new(Status::Degraded, Reason::new(HOSTILE), HOSTILE)]);
    let history = History::new(10);
    let reported = ledger.record(Timestamp::now(), &subject, &vantage, sight);
    let beliefs = ledger.beliefs(&subject);
    for transition in &reported {
        history.record(Moment::new(transition, beliefs.first().map(|(_, belief)| belief)));
    }
    let seen_by = beliefs.into_iter().map(Into::into).collect();
    let row = Row {
        namespace: HOSTILE.into(),
        claim: HOSTILE.into(),
        nodes: vec![HOSTILE.into()],
        pods: vec![HOSTILE.into()],
        ..Row::new(HOSTILE.into(), HOSTILE.into()).with(ledger.headline(&subject), seen_by)
    };
    let other = Row::new("tame.example".into(), "x".repeat(253).into());
    let about = About {
        title: HOSTILE.into(),
        place: HOSTILE.into(),
        facts: vec![("Version", HOSTILE.into())],
        limits: vec![HOSTILE.into(), HOSTILE.into()],
        trouble: Some(HOSTILE.into()),
        calls: vec![Call {
            name: "Probe",
            count: 1,
            failed: 1,
            median: Duration::ZERO,
            slowest: Duration::ZERO,
        }],
    };
    Arc::new(Shelf { rows: vec![row, other], history, about, standing_by: None })
}

async fn get(source: &Arc<Shelf>, guard: Guard, request: Request<Body>) -> Response {
    router(source.clone(), guard).oneshot(request).await.unwrap()
}

async fn page(source: &Arc<Shelf>, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
    let answer = get(source, Guard::Loopback, request).await;
    let status = answer.status();
    let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(answer.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

/// No attribute twice, no inline code or style, and of elements only those that we write.
fn assert_tame(path: &str, html: &str) {
    for tag in html.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').unwrap();
        assert!(!text.contains('\u{202e}'), "{path}: {text} is turned around");
        let mut inside = false;
        let mut outside = String::new();
        for c in tag.chars() {
            inside ^= c == '"';
            outside.push(if inside { '_' } else { c });
        }
        let mut attributes: Vec<&str> = outside.split_whitespace().skip(1).collect();
        let whole = attributes.len();
        attributes.sort_unstable();
        attributes.dedup_by_key(|attribute| attribute.split('=').next().unwrap().to_owned());
        assert_eq!(attributes.len(), whole, "{path}: an attribute comes twice in <{tag}>");
        assert!(!attributes.iter().any(|a| a.starts_with("on") || a.starts_with("style")), "{path}: <{tag}>");
        assert!(!tag.starts_with("script") || tag.contains(" src=\"assets/"), "{path}: <{tag}>");
        assert!(!tag.starts_with("img") || tag.contains(" src=\"assets/"), "{path}: <{tag}>");
    }
}

#[tokio::test]
async fn hostile_names_are_harmless_on_every_page() {
    let source = hostile();
    let mut encoded = String::new();
    for byte in HOSTILE.bytes() {
        write!(encoded, "%{byte:02X}").unwrap();
    }
    let volume = format!("/volume?driver={encoded}&volume={encoded}&window={encoded}");
    let search = format!("/?q={encoded}&driver={encoded}&namespace={encoded}&node={encoded}");
    let missing = format!("/volume?driver=x&volume={encoded}");
    for (path, status, shows) in [
        ("/", StatusCode::OK, "&lt;script&gt;alert(1)"),
        (&search, StatusCode::OK, "&lt;script&gt;alert(1)"),
        (&volume, StatusCode::OK, "What was reported"),
        (&volume, StatusCode::OK, "What was done to heal it"),
        (&missing, StatusCode::NOT_FOUND, "No such volume"),
        ("/nodes", StatusCode::OK, "not ready"),
        ("/source", StatusCode::OK, "Calls to the driver"),
        ("/?health=nonsense&page=99999999999999999999&per=x&sort=", StatusCode::OK, "Volumes"),
    ] {
        let (got, html) = page(&source, path).await;
        assert_eq!(got, status, "{path}");
        assert!(html.contains(shows), "{path}: no {shows} in {html}");
        assert_tame(path, &html);
    }
}

#[tokio::test]
async fn machines_get_json() {
    let source = hostile();
    let (status, text) = page(&source, "/api/volumes?health=NotWell&per=1").await;
    assert_eq!(status, StatusCode::OK);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["matched"], &value["pages"]), (&2.into(), &2.into()), "{text}");
    assert_eq!(value["volumes"][0]["health"], "Degraded");
    assert_eq!(value["volumes"][0]["seenBy"][0]["conditions"][0]["status"], "Degraded");
    let (status, text) = page(&source, "/api/volume?driver=x&volume=y").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{text}");
}

#[tokio::test]
async fn nobody_writes_and_strangers_do_not_read() {
    let source = hostile();
    let ask = |method: &str, host: &str| {
        Request::builder().method(method).uri("/").header("host", host).body(Body::empty()).unwrap()
    };
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let answer = get(&source, Guard::Loopback, ask(method, "localhost")).await;
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
    // A website whose name points here must not read the page through a user's browser.
    let answer = get(&source, Guard::Loopback, ask("GET", "rebound.example:8080")).await;
    assert_eq!(answer.status(), StatusCode::MISDIRECTED_REQUEST);

    let answer = get(&source, Guard::token("s3cret"), ask("GET", "anything.example")).await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert!(answer.headers().contains_key(header::WWW_AUTHENTICATE));
    for path in ["/", "/changes", "/api/volumes", "/assets/page.js", "/volume?driver=a&volume=b"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = get(&source, Guard::token("s3cret"), request).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
        let request =
            Request::get(path).header("authorization", "Bearer s3cret").body(Body::empty()).unwrap();
        let answer = get(&source, Guard::token("s3cret"), request).await;
        assert_ne!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test]
async fn who_stands_by_shows_nothing_that_looks_like_an_empty_cluster() {
    let mut source = hostile();
    Arc::get_mut(&mut source).unwrap().standing_by = Some(format!("{HOSTILE} leads"));
    for path in ["/", "/nodes", "/source", "/volume?driver=a&volume=b"] {
        let (status, html) = page(&source, path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(html.contains("Standing by") && !html.contains("<table"), "{path}: {html}");
        assert_tame(path, &html);
    }
    let (status, text) = page(&source, "/api/volumes").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["standingBy"], format!("{HOSTILE} leads"));
    // What makes it come to life later is there.
    for path in ["/assets/page.js", "/changes"] {
        let request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
        assert_eq!(get(&source, Guard::Loopback, request).await.status(), StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn changes_come_as_they_happen() {
    let source = hostile();
    let request = Request::get("/changes").header("host", "localhost").body(Body::empty()).unwrap();
    let answer = get(&source, Guard::Loopback, request).await;
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut body = answer.into_body();
    let mut next = async || {
        let frame =
            tokio::time::timeout(Duration::from_mins(2), body.frame()).await.unwrap().unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    };
    assert!(next().await.contains("event: hello"));
    let moment = source.history.latest(1)[0].clone();
    source.history.record(Moment { text: "it changed\n\nevent: forged".into(), ..(*moment).clone() });
    let event = next().await;
    assert!(event.contains("event: change") && event.contains(r"it changed\n\nevent: forged"), "{event}");
}

/// The time that this thread spent on a processor: what others do on this machine does not count.
fn spent() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}

/// What a hundred thousand rows cost. The figures are printed; the bound is only there to notice a wrong order of growth.
#[test]
fn a_hundred_thousand_rows_answer_quickly() {
    let row = |number: usize| {
        let mut row = Row::new("disk.example.net".into(), format!("pvc-{number:08}").into());
        row.namespace = format!("team-{}", number % 500).into();
        row.claim = format!("data-{number}").into();
        row.nodes = vec![format!("worker-{}", number % 300).into()];
        row.pods = vec![format!("web-{number}").into()];
        row.health = volmedic_health::Health::Healthy;
        if number.is_multiple_of(100) {
            let condition = Condition::new(Status::Degraded, Reason::new("OutOfCapacity"), "99 % used");
            row.health = volmedic_health::Health::Adverse(Status::Degraded);
            row.condition = Some(condition);
            row.since = Some(Timestamp::from_second(i64::try_from(number).unwrap()).unwrap());
        }
        row
    };
    let rows: Vec<Row> = (0..100_000).map(row).collect();
    let began = spent();
    let snapshot = Snapshot::new(Timestamp::now(), rows);
    println!("snapshot of 100,000 rows: {:?}", spent().saturating_sub(began));
    for (what, query) in [
        ("first page", Query::default()),
        ("last page", Query { page: 2000, ..Query::default() }),
        ("search", Query { search: "web-99999".into(), ..Query::default() }),
        ("search of nothing", Query { search: "nowhere to be found".into(), ..Query::default() }),
        ("by name", Query { sort: Sort::Name, page: 1000, ..Query::default() }),
        ("one node", Query { node: "worker-7".into(), sort: Sort::Oldest, ..Query::default() }),
    ] {
        let began = spent();
        let page = snapshot.page(&query);
        let took = spent().saturating_sub(began);
        println!("{what}: {} of {} in {took:?}", page.rows.len(), page.matched);
        assert!(took < Duration::from_secs(5), "{what} took {took:?}");
    }
    assert_eq!(snapshot.page(&Query { search: "web-99999".into(), ..Query::default() }).matched, 1);
}
