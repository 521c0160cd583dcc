//! What may not be said, and how it may not be sent.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::caller::{Desk, answer, call, failing, report, send};

#[tokio::test]
async fn what_may_not_be_said_is_refused_with_a_reason_and_nothing_is_stored() {
    let desk = Desk::open(&[]).await;
    let (stage, to, good) = (&desk.stage, desk.to, &desk.good);
    let sick = report(stage, "data", 600, &failing());
    let with = |change: &dyn Fn(&mut Value)| {
        let mut body = sick.clone();
        change(&mut body);
        body
    };
    let message = |text: &str| with(&|body| body["conditions"][0]["message"] = json!(text));
    let before = desk.counts().await;
    for (body, code, word) in [
        (report(stage, "absent", 600, &failing()), 404, "there is no claim"),
        (with(&|body| body["ttlSeconds"] = json!(5)), 400, "ttlSeconds: 5 is not between 10 and 86400"),
        (with(&|body| body["ttlSeconds"] = json!(1_000_000)), 400, "ttlSeconds"),
        (with(&|body| body["ttlSeconds"] = json!(1e300)), 400, "no number of seconds"),
        (with(&|body| body["ttlSeconds"] = json!(-600)), 400, "no number of seconds"),
        (message("ding\u{7}"), 400, "control characters"),
        (message("two\nlines"), 400, "control characters"),
        (message("\u{1b}[31mred"), 400, "control characters"),
        (message("abc\u{202e}cba"), 400, "control characters"),
        (message("nul\u{0}"), 400, "control characters"),
        (message(&"x".repeat(1_025)), 400, "1024 are allowed"),
        (with(&|body| body["source"] = json!("smart\nscan")), 400, "source"),
        (with(&|body| body["claim"]["name"] = json!("../../secrets")), 400, "claim.name"),
        (with(&|body| body["claim"]["namespace"] = json!("")), 400, "claim.namespace"),
        (with(&|body| body["conditions"][0]["reason"] = json!("two words")), 400, "reason"),
        (with(&|body| body["conditions"][0]["status"] = json!("Fine")), 400, "none of Degraded"),
        (
            with(&|body| body["conditions"] = json!([sick["conditions"][0], sick["conditions"][0]])),
            422,
            "conditions[1].reason: Degraded/DiskDegrading is given twice",
        ),
        (with(&|body| body["surprise"] = json!(1)), 400, "unknown field `surprise`"),
        (with(&|body| body["volume"] = json!({"driver": "d", "volumeHandle": "h"})), 400, "not both"),
        (with(&|body| body["conditions"] = Value::Null), 400, "it is no report"),
        (json!([]), 400, "it is no report"),
        (Value::Null, 400, "it is no report"),
    ] {
        send(to, good, &body).is_problem(code, word);
    }
    let bearer = format!("Bearer {good}");
    let (token, json_type) = (("Authorization", bearer.as_str()), ("Content-Type", "application/json"));
    let raw = |headers: &[(&str, &str)], body: &[u8]| call(to, "POST", "/v1/reports", headers, body);
    for body in
        [&b""[..], b"{", b"\xff\xfe", "[".repeat(60_000).as_bytes(), br#"{"source":"a","source":"a"}"#]
    {
        raw(&[token, json_type], body).is_problem(400, "it is no report");
    }
    raw(&[token, json_type], &vec![b'x'; 10 << 20]).is_problem(413, "at most 65536 bytes");
    // A length that is not given is found out.
    let endless = format!("{:x}\r\n{}\r\n", 40_000, " ".repeat(40_000)).repeat(3);
    let head = format!(
        "POST /v1/reports HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nAuthorization: {bearer}\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{endless}"
    );
    let mut stream = connect(&desk);
    let _ = stream.write_all(head.as_bytes());
    answer(&mut stream).is_problem(413, "at most 65536 bytes");

    let text = sick.to_string();
    for kind in [
        &[token][..],
        &[token, ("Content-Type", "text/plain")],
        &[token, ("Content-Type", "application/jsonl")],
    ] {
        raw(kind, text.as_bytes()).is_problem(415, "application/json");
    }
    for method in ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let answer = call(to, method, "/v1/reports", &[token, json_type], b"");
        answer.is_problem(405, "POST");
        assert_eq!(answer.header("allow"), Some("POST"), "{method}: {}", answer.head);
    }
    call(to, "GET", "/", &[], b"").is_problem(404, "reports go to /v1/reports");
    assert_eq!(call(to, "GET", "/v1/openapi.json", &[], b"").body["openapi"], json!("3.0.3"));
    desk.nothing_is_stored().await;

    let after = desk.counts().await;
    let more = |result: &str| {
        after.get(result).copied().unwrap_or_default() - before.get(result).copied().unwrap_or_default()
    };
    let counted = ["unknown_claim", "contradictory", "invalid", "too_long", "not_json", "stored"].map(more);
    assert_eq!(counted, [1, 1, 20 + 5, 2, 3, 0], "each is counted by why: {after:?}");
    // The same service takes what is right.
    assert_eq!(send(to, good, &sick).status, 200);
    stage.wait_stored("data", &["pushed/smart-scan HealthWarning Degraded/DiskDegrading"]).await;
}

fn connect(desk: &Desk) -> TcpStream {
    let stream = TcpStream::connect(desk.to).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_mins(3))).expect("a limit for reads");
    stream
}

#[tokio::test]
async fn who_dawdles_is_shown_out_and_the_others_are_served() {
    let desk = Desk::open(&[]).await;
    // More than there is room for, and none of them says anything.
    let mut idle: Vec<TcpStream> = (0..300).map(|_| connect(&desk)).collect();
    let began = Instant::now();
    let sick = report(&desk.stage, "data", 600, &failing());
    assert_eq!(send(desk.to, &desk.good, &sick).status, 200, "room is made for who has something to say");
    println!("a report beside 300 idle connections took {:.1} s", began.elapsed().as_secs_f64());
    let mut nothing = [0; 1];
    assert_eq!(idle[0].read(&mut nothing).unwrap_or_default(), 0, "it was closed");
    drop(idle);

    // A body that does not come, and a head that comes letter by letter.
    let head = format!(
        "POST /v1/reports HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: 1000\r\n\r\n{{",
        desk.good
    );
    let mut slow = connect(&desk);
    slow.write_all(head.as_bytes()).expect("it reads");
    let mut slower = connect(&desk);
    let letters = std::thread::spawn(move || {
        let began = Instant::now();
        let written = |stream: &mut TcpStream| stream.write_all(b"P").is_ok();
        while written(&mut slower) {
            assert!(began.elapsed() < Duration::from_mins(3), "nobody minds");
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    answer(&mut slow).is_problem(408, "too slowly");
    letters.join().expect("it was shown out");
    assert_eq!(desk.counts().await.get("too_slow"), Some(&1));
}
