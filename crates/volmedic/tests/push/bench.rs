//! 1,000 reports a second. Run by `cargo xtask bench push`.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::caller::{Desk, report_in, send};
use crate::senders::{Line, Sender, asked, make_claims, resident};
use crate::stage::until;

const SENDERS: usize = 20;
const CLAIMS_EACH: usize = 50;
const RATE: usize = 1_000;
const LASTS: Duration = Duration::from_mins(1);
/// What the senders say of a claim changes every that number of rounds.
const CHANGES: usize = 10;

#[allow(clippy::cast_precision_loss, reason = "there are not that many")]
fn a_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// Not of all claims at the same time.
fn news(round: usize, claim: usize) -> usize {
    (round + claim) / CHANGES
}

fn percentile(sorted: &[Duration], percent: usize) -> String {
    let at = (sorted.len() * percent / 100).min(sorted.len() - 1);
    format!("{:.1} ms", sorted[at].as_secs_f64() * 1e3)
}

#[tokio::test]
#[ignore = "a measurement, run by `cargo xtask bench push`"]
async fn how_many_reports_it_takes() {
    // Who fell behind may hurry: that is measured, and not refused.
    let desk = Desk::open(&["--kube-api-qps=300", "--kube-api-burst=600", "--push-rate=1000"]).await;
    let stage = &desk.stage;
    let mut senders = Vec::new();
    for n in 0..SENDERS {
        let claims = make_claims(stage, n * CLAIMS_EACH, CLAIMS_EACH).await;
        senders.push(Sender::new(stage, n, claims).await);
    }
    until("the hub knows the claims", || async {
        let claim = &senders[SENDERS - 1].claims[CLAIMS_EACH - 1];
        let answer = send(desk.to, &desk.good, &report_in(&stage.namespace, claim, 600, &json!([])));
        if answer.status == 200 { Ok(true) } else { Err(answer.body) }
    })
    .await;

    let mut page = String::from("| what | figure |\n|---|---|\n");
    let mut row = |what: &str, figure: String| {
        println!("{what}: {figure}");
        let _ = writeln!(page, "| {what} | {figure} |");
    };
    row("accounts, connections, claims", format!("{SENDERS}, {SENDERS}, {}", SENDERS * CLAIMS_EACH));
    row(
        "sent",
        format!(
            "{RATE} a second for {} s, each claim's news changing every {CHANGES}th time",
            LASTS.as_secs()
        ),
    );
    row("resident memory before", format!("{} KiB", resident(&desk.hub)));
    let resources = ["tokenreviews", "subjectaccessreviews", "volumehealths"];
    let mut before = Vec::new();
    for resource in resources {
        before.push(asked(&stage.client, resource).await);
    }
    let each = RATE * usize::try_from(LASTS.as_secs()).expect("short") / SENDERS;
    let gap = LASTS / u32::try_from(each).expect("few");
    let highest = AtomicU64::new(0);
    let began = Instant::now();
    let mut answers: Vec<(u16, Duration)> = std::thread::scope(|scope| {
        let work = |sender: &'_ Sender, number: u32| {
            let (to, namespace, token) = (desk.to, stage.namespace.clone(), sender.token.clone());
            let (highest, hub) = (&highest, &desk.hub);
            let reports: Vec<_> = (0..each).map(|n| sender.report(&namespace, n, news)).collect();
            scope.spawn(move || {
                let mut line = Line::open(to, &token);
                let mut answers = Vec::with_capacity(reports.len());
                for (n, report) in (0_u32..).zip(&reports) {
                    // From when it was due, so that a hub that falls behind cannot hide it.
                    let due = began + gap * n + gap * number / u32::try_from(SENDERS).expect("few");
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    let status = line.send(report);
                    answers.push((status, due.elapsed()));
                    if n % 100 == 0 {
                        highest.fetch_max(resident(hub), Ordering::Relaxed);
                    }
                }
                answers
            })
        };
        let threads: Vec<_> = senders.iter().zip(0..).map(|(sender, number)| work(sender, number)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let took = began.elapsed();
    let good = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!(good, answers.len(), "every report is stored: {:?}", desk.counts().await);
    row("answered, all with 200", format!("{:.0} a second", a_second(answers.len(), took)));
    answers.sort_unstable_by_key(|(_, time)| *time);
    let times: Vec<Duration> = answers.iter().map(|(_, time)| *time).collect();
    for percent in [50, 90, 99, 100] {
        let what = if percent == 100 { "longest".to_owned() } else { format!("p{percent}") };
        row(&format!("from due to answered, {what}"), percentile(&times, percent));
    }
    row("resident memory, highest", format!("{} KiB", highest.load(Ordering::Relaxed)));
    for (resource, before) in resources.iter().zip(before) {
        let asked = usize::try_from(asked(&stage.client, resource).await - before).expect("not that many");
        row(
            &format!("requests to the API server for {resource}"),
            format!("{asked}, {:.1} a second", a_second(asked, took)),
        );
    }
    // What was said last is what is stored.
    for sender in &senders {
        for (claim, number) in sender.claims.iter().zip(0..) {
            let last = news(each / CLAIMS_EACH - 1, number);
            let line = format!("pushed/{} HealthWarning Degraded/Round{last}", sender.name);
            stage.wait_stored(claim, &[&line]).await;
        }
    }
    row("lost", "none: the last word on every claim is stored".to_owned());

    if let Ok(path) = std::env::var("VOLMEDIC_BENCH_PAGE") {
        let head = "# Reports, measured\n\nMade by `cargo xtask bench push`: one hub process, a real API server and those who report on one machine.\n\n";
        std::fs::write(&path, format!("{head}{page}")).expect("the page can be written");
    }
}
