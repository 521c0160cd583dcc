//! Metrics that need a token, as the real API server judges it.

use std::time::{Duration, Instant};

use http::{Request, header};
use kube::client::Body;
use kube::{Client, Config};
use tokio::task::JoinSet;
use volmedic_testkit::Part;

use crate::process::Controller as Process;
use crate::senders::asked;
use crate::stage::{QUICK, Stage, everything, kubectl, start_hub, until};

/// A hub whose metrics need a token, and a client that accepts the certificate that it made itself.
async fn hub(stage: &Stage) -> (Process, Client) {
    let delegator = ["--clusterrole=system:auth-delegator", "--serviceaccount=default:volmedic-hub"];
    kubectl(&stage.plane, &[&["create", "clusterrolebinding", "metrics-auth"], &delegator[..]].concat());
    let hub = start_hub(&stage.kubeconfig().await, &[&QUICK[..], &["--metrics-auth"]].concat());
    hub.wait_log("merging what is known").await;
    hub.wait_log("serving health and metrics on https://").await;
    let log = hub.log();
    let (_, rest) = log.split_once("metrics on ").expect("an address");
    let url = rest.strip_suffix("/metrics").or_else(|| rest.split("/metrics").next()).expect("an address");
    let mut config = Config::new(url.parse().expect("a URL"));
    config.accept_invalid_certs = true;
    // A refusal is what is tested.
    config.default_retry = false;
    (hub, Client::try_from(config).expect("a client"))
}

struct Answer {
    status: u16,
    headers: http::HeaderMap,
    body: String,
}

async fn get(client: &Client, path: &str, token: Option<&str>) -> Answer {
    let mut request = Request::get(path);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let answer = client.send(request.body(Body::empty()).expect("a request")).await.expect("it answers");
    let (head, body) = answer.into_parts();
    let body = body.collect_bytes().await.expect("a body");
    Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}

async fn expect(client: &Client, path: &str, token: Option<&str>, status: u16, says: &str) {
    let answer = get(client, path, token).await;
    assert_eq!(answer.status, status, "{path}: {}", answer.body);
    assert!(answer.body.contains(says), "{path}: {says:?} is not in {:?}", answer.body);
}

/// The token of an account that may read the metrics.
async fn reader(stage: &Stage, name: &str) -> String {
    let token = stage.plane.token(&stage.namespace, name, None).await.expect("a token");
    let subject = format!("--serviceaccount={}:{name}", stage.namespace);
    let role = ["--verb=get", "--non-resource-url=/metrics"];
    kubectl(&stage.plane, &[&["create", "clusterrole", name], &role[..]].concat());
    kubectl(
        &stage.plane,
        &["create", "clusterrolebinding", name, &format!("--clusterrole={name}"), &subject],
    );
    token
}

fn unknown_token(number: usize) -> String {
    format!("eyJhbGciOiJSUzI1NiJ9.e30.{number:08}")
}

#[tokio::test]
async fn metrics_need_a_token_with_the_right_and_probes_need_none() {
    let stage = Stage::own(&everything()).await;
    let (_hub, client) = hub(&stage).await;

    expect(&client, "/healthz", None, 200, "ok").await;
    until("the hub is ready", || async {
        Ok::<_, String>(get(&client, "/readyz", None).await.status == 200)
    })
    .await;
    expect(&client, "/healthz/leader-election", None, 200, "ok").await;

    expect(&client, "/metrics", None, 401, "Authorization: Bearer").await;
    expect(&client, "/anything", None, 401, "Authorization: Bearer").await;
    let refused = get(&client, "/metrics", Some(&unknown_token(0))).await;
    assert_eq!(
        (refused.status, &refused.headers[header::WWW_AUTHENTICATE]),
        (401, &"Bearer".parse().unwrap())
    );
    expect(&client, "/metrics", Some("nonsense"), 401, "not valid").await;

    let stranger = stage.plane.token(&stage.namespace, "stranger", None).await.expect("a token");
    expect(&client, "/metrics", Some(&stranger), 403, "the verb get on the nonResourceURL /metrics").await;
    let scraper = reader(&stage, "scraper").await;
    until("the right is known", || async {
        Ok::<_, String>(get(&client, "/metrics", Some(&scraper)).await.status == 200)
    })
    .await;
    expect(&client, "/metrics", Some(&scraper), 200, "volmedic_build_info").await;
    expect(&client, "/anything", Some(&scraper), 404, "").await;
}

#[tokio::test]
async fn while_the_api_server_decides_nothing_the_answer_says_so_in_time() {
    let stage = Stage::own(&everything()).await;
    let (_hub, client) = hub(&stage).await;
    let mut readers = Vec::new();
    for name in ["one", "two", "three"] {
        readers.push(reader(&stage, name).await);
    }
    until("the right is known", || async {
        Ok::<_, String>(get(&client, "/metrics", Some(&readers[0])).await.status == 200)
    })
    .await;

    // It takes connections and does not answer.
    stage.plane.pause(Part::ApiServer).expect("the API server can be frozen");
    let began = Instant::now();
    let answer = get(&client, "/metrics", Some(&readers[1])).await;
    assert_eq!((answer.status, &answer.headers[header::RETRY_AFTER]), (503, &"1".parse().unwrap()));
    assert!(answer.body.contains("the API server did not decide in time"), "{}", answer.body);
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
    expect(&client, "/healthz", None, 200, "ok").await;
    stage.plane.resume(Part::ApiServer).expect("it goes on");

    stage.plane.stop_apiserver().expect("the API server stops");
    expect(&client, "/metrics", Some(&readers[2]), 503, "the API server cannot be asked who sent this").await;
    stage.plane.start_apiserver().expect("the API server starts");
    until("it is answered again", || async {
        Ok::<_, String>(get(&client, "/metrics", Some(&readers[2])).await.status == 200)
    })
    .await;
}

/// Lasts longer than an answer of the API server holds, so that the reader's token is asked about again under the flood.
#[tokio::test]
async fn a_flood_of_bad_tokens_does_not_reach_the_api_server_and_locks_no_reader_out() {
    const LASTS: Duration = Duration::from_secs(35);
    let stage = Stage::own(&everything()).await;
    let (_hub, client) = hub(&stage).await;
    let scraper = reader(&stage, "scraper").await;
    until("the right is known", || async {
        Ok::<_, String>(get(&client, "/metrics", Some(&scraper)).await.status == 200)
    })
    .await;
    let before = asked(&stage.client, "tokenreviews").await;
    let (began, mut number, mut refused) = (Instant::now(), 0, [0_usize; 2]);
    while began.elapsed() < LASTS {
        let mut flood = JoinSet::new();
        for _ in 0..20 {
            number += 1;
            let client = client.clone();
            flood.spawn(async move { get(&client, "/metrics", Some(&unknown_token(number))).await.status });
        }
        for status in flood.join_all().await {
            match status {
                401 => refused[0] += 1,
                429 => refused[1] += 1,
                other => panic!("{other}"),
            }
        }
        expect(&client, "/metrics", Some(&scraper), 200, "volmedic_build_info").await;
    }
    let reviews = asked(&stage.client, "tokenreviews").await - before;
    println!(
        "{number} bad tokens in {:.1?}: {refused:?} were 401 and 429; {reviews} reviews",
        began.elapsed()
    );
    // One per second and the burst of the flood, and those of the reader.
    let seconds = began.elapsed().as_secs() + 1;
    let most = seconds + 10 + seconds / 30 + 1;
    assert!(reviews <= most, "{reviews} reviews, at most {most} expected");
    assert!(reviews >= 11, "the flood was not asked about at all: {reviews}");
    assert!(refused[1] > 50, "{refused:?}");
}
