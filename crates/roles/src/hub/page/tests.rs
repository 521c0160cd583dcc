use serde_json::json;

use super::*;

fn stored(history: &serde_json::Value) -> VolumeHealthStatus {
    serde_json::from_value(json!({"history": history, "driver": "d", "volumeHandle": "v"})).expect("a status")
}

#[test]
fn only_another_headline_is_news() {
    let key = ClaimKey::new("shop", "data");
    let line = |time: &str, health: &str| json!({"time": time, "health": health, "message": "m"});
    let (well, unhealthy) =
        (line("2026-08-21T10:00:00Z", "Healthy"), line("2026-08-21T10:05:00Z", "HealthFailure"));
    let (first, second) = (stored(&json!([well])), stored(&json!([unhealthy, well])));
    assert!(news(&key, None, &first).is_none(), "a new object that says that all is well");
    assert!(news(&key, None, &second).is_some(), "a new object that says that something is wrong");
    assert!(news(&key, Some(&second), &second).is_none());
    let reported = news(&key, Some(&first), &second).expect("another headline");
    assert_eq!((reported.known_as.as_deref(), reported.warning), (Some("shop/data"), true));
}

#[test]
fn what_cannot_be_seen_is_said() {
    let check = |alive, silent, missing, verified, expected: &[&str]| {
        let agents = Agents { alive, silent, missing, all: alive + silent + missing };
        let limits = limits(&agents, verified);
        let starts = limits.iter().zip(expected).all(|(limit, start)| limit.starts_with(start));
        assert!(limits.len() == expected.len() && starts, "{limits:?}");
    };
    check(3, 0, 0, true, &[]);
    check(0, 0, 3, false, &["no agent runs"]);
    check(
        1,
        1,
        1,
        false,
        &["1 of 3 nodes", "the lease of one agent expired", "the API server does not check"],
    );
    check(0, 0, 0, true, &[]);
}

const CLAIMS: usize = 100_000;
const NODES: usize = 1_000;

/// A world as the watches leave it: each claim is used by a pod, and one in a hundred is unhealthy.
fn large_world() -> World {
    let mut world = World::default();
    let node = |number: usize| format!("worker-{:04}", number % NODES);
    for number in 0..CLAIMS {
        let (namespace, claim) = (format!("team-{:03}", number % 300), format!("data-database-{number:06}"));
        let (uid, handle) = (
            format!("3f0b2c1e-7d7e-4b64-9f0e-{number:012}"),
            format!("csi-vol-8d4a5fba-5c3f-11ef-{number:012}"),
        );
        let pv = format!("pvc-{uid}");
        let body =
            serde_json::from_value(json!({"spec": {"volumeName": pv, "accessModes": ["ReadWriteOnce"]}}));
        world.put_claim(&namespace, &claim, &uid, &body.expect("a claim"));
        let body = json!({"spec": {"csi": {"driver": "disk.example.net", "volumeHandle": handle},
                                   "claimRef": {"namespace": namespace, "name": claim, "uid": uid}}});
        world.put_volume(&pv, &serde_json::from_value(body).expect("a volume"));
        let body = json!({"spec": {"nodeName": node(number), "volumes": [{"name": "data",
                          "persistentVolumeClaim": {"claimName": claim}}]}, "status": {"phase": "Running"}});
        world.put_pod(
            &namespace,
            &format!("database-{number:06}-0"),
            &serde_json::from_value(body).expect("a pod"),
        );
        if number.is_multiple_of(100) {
            let time = "2026-08-21T10:00:00Z";
            let status = json!({
                "headline": {"health": "HealthFailure", "status": "Inaccessible", "reason": "IOHung",
                             "message": "statfs has not come back for 60 s", "since": time, "vantage": "host/w"},
                "driver": "disk.example.net", "volumeHandle": handle,
                "vantages": [{"name": "host/w", "kind": "Host", "node": "w", "health": "HealthFailure", "since": time,
                    "healthConditions": [{"type": "HealthFailure", "status": "True", "errorCode": "Inaccessible",
                                          "reason": "IOHung", "message": "", "lastTransitionTime": time}]}],
                "history": [{"time": time, "health": "HealthFailure", "status": "Inaccessible", "reason": "IOHung"}],
            });
            let object = serde_json::from_value(
                json!({"metadata": {"uid": uid, "resourceVersion": "1"}, "status": status}),
            );
            world.put_stored(&namespace, &claim, &object.expect("an object"));
        }
    }
    for number in 0..NODES {
        world.put_report(&node(number), &volmedic_api::resource::NodeReport::default());
    }
    world.set_nodes((0..NODES).map(|number| node(number).into()).collect());
    world
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("this process");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// What the page costs a hub with 100,000 claims:
/// `cargo test --release -p volmedic --bin volmedic hundred_thousand -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "figures for whoever runs it")]
async fn what_the_page_of_a_hundred_thousand_claims_costs() {
    use std::time::Instant;
    let before = resident();
    let world = Arc::new(Mutex::new(large_world()));
    let link = Arc::new(volmedic_inventory::Link::new("nodes", Arc::default()));
    let source = Arc::new(Source {
        world,
        history: Arc::new(History::new(CHANGES)),
        nodes: Arc::new(Nodes::new(link, Arc::default())),
        in_touch: Box::new(|| Ok(())),
        leader: String::new(),
    });
    println!("the world of {CLAIMS} claims on {NODES} nodes: {} MiB", (resident() - before) / 1024);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = volmedic_view::page::router(source, volmedic_view::page::Guard::Loopback);
    let served = tokio::spawn(async move { axum::serve(listener, router).await });
    let without = resident();
    for path in [
        "/",
        "/",
        "/?page=2000",
        "/?q=database-099",
        "/?q=nowhere",
        "/?sort=name&page=1000",
        "/?health=NotWell",
        "/?node=worker-0007",
        "/nodes",
        "/volume?driver=disk.example.net&volume=csi-vol-8d4a5fba-5c3f-11ef-000000099900",
        "/api/volumes?per=500",
    ] {
        let began = Instant::now();
        let asked = path.to_owned();
        let bytes = tokio::task::spawn_blocking(move || get(address, &asked)).await.expect("an answer");
        println!("{path}: {bytes} bytes in {:.0?}", began.elapsed());
    }
    println!("while somebody looks: {} MiB more", (resident() - without) / 1024);
    tokio::time::sleep(Duration::from_secs(3)).await;
    tokio::task::spawn_blocking(move || get(address, "/")).await.expect("an answer");
    println!("and after a second snapshot: {} MiB more", (resident() - without) / 1024);
    tokio::time::sleep(Duration::from_secs(65)).await;
    println!("a minute after the last look: {} MiB more", resident().saturating_sub(without) / 1024);
    served.abort();
}

fn get(address: std::net::SocketAddr, path: &str) -> usize {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer[..200.min(answer.len())])
    );
    answer.len()
}
