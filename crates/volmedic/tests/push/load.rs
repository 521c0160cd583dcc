//! Many reports at the same time: what is lost, what is refused, and what it costs the API server.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::caller::{Desk, report, report_in, send};
use crate::senders::{Line, Sender, asked, make_claims, resident};
use crate::stage::until;

#[tokio::test]
async fn under_load_nothing_is_lost_and_who_hurries_is_slowed_down() {
    const SENDERS: usize = 8;
    const EACH: usize = 100;
    // In one burst each may send as many as it will.
    let desk = Desk::open(&["--push-rate=20"]).await;
    let stage = &desk.stage;
    let mut senders = Vec::new();
    for n in 0..SENDERS {
        let claims = make_claims(stage, n * 5, 5).await;
        senders.push(Sender::new(stage, n, claims).await);
    }
    let first = &senders[0];
    until("the hub knows the claims", || async {
        let last = &senders[SENDERS - 1];
        let (namespace, claim) = (&stage.namespace, &last.claims[4]);
        let all_well = report_in(namespace, claim, 600, &json!([]));
        let answer = send(desk.to, &desk.good, &all_well);
        if answer.status == 200 { Ok(true) } else { Err(answer.body) }
    })
    .await;
    let before =
        (asked(&stage.client, "tokenreviews").await, asked(&stage.client, "subjectaccessreviews").await);
    let (memory, at_first) = (resident(&desk.hub), desk.counts().await);
    let began = Instant::now();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let work = |sender| {
            let (to, namespace) = (desk.to, &stage.namespace);
            scope.spawn(move || {
                let sender: &Sender = sender;
                let mut line = Line::open(to, &sender.token);
                // Every other round says something new.
                (0..EACH)
                    .map(|n| line.send(&sender.report(namespace, n, |round, _| round / 2)))
                    .collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = senders.iter().map(work).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let took = began.elapsed();
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let after =
        (asked(&stage.client, "tokenreviews").await, asked(&stage.client, "subjectaccessreviews").await);
    let (reviews, rights) = (after.0 - before.0, after.1 - before.1);
    let grown = resident(&desk.hub).saturating_sub(memory);
    println!(
        "{} reports in {took:.1?}; {reviews} token reviews, {rights} access reviews, {grown} KiB more memory",
        statuses.len()
    );

    // What was said last is what is stored, of every sender on every claim.
    let last = format!("Round{}", (EACH / 5 - 1) / 2);
    for sender in &senders {
        let line = format!("pushed/{} HealthWarning Degraded/{last}", sender.name);
        for claim in &sender.claims {
            stage.wait_stored(claim, &[&line]).await;
        }
    }
    // An answer of the API server is good for a while: it is not asked for every report.
    let rounds = u64::try_from(SENDERS).expect("few") * (1 + began.elapsed().as_secs() / 30);
    assert!(
        reviews <= 2 * rounds && rights <= 10 * rounds,
        "{reviews} and {rights} in {:?}",
        began.elapsed()
    );
    assert!(grown < 64 << 10, "{grown} KiB");

    // Faster than allowed: refused, by a document that says when to come again, and the others do not feel it.
    let hasty = report(stage, &first.claims[0], 600, &json!([]));
    // From several places at the same time: on a busy machine one alone may not be fast enough.
    let deadline = Instant::now() + Duration::from_mins(3);
    let hurry = || loop {
        let answer = send(desk.to, &first.token, &hasty);
        if answer.status != 200 {
            return answer;
        }
        assert!(Instant::now() < deadline, "nobody minds");
    };
    let slowed = std::thread::scope(|scope| {
        let all: Vec<_> = (0..SENDERS).map(|_| scope.spawn(hurry)).collect();
        all.into_iter().map(|one| one.join().expect("it was slowed down")).next_back().expect("some")
    });
    slowed.is_problem(429, "this account reports too fast; try again in 1 s");
    assert_eq!(slowed.header("retry-after"), Some("1"));
    assert_eq!(send(desk.to, &desk.good, &report(stage, "data", 600, &json!([]))).status, 200);
    let counts = desk.counts().await;
    assert!(counts["too_fast"] >= 1, "{counts:?}");
    for result in ["api_server", "late"] {
        assert_eq!(counts.get(result), at_first.get(result), "{counts:?}");
    }
}
