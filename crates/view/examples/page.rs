//! Serves the page of an invented cluster, to try it: `cargo run -p volmedic-view --example page -- 20000`.

#![allow(clippy::print_stdout, reason = "it says where the page is")]

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::net::TcpListener;
use volmedic_health::{Condition, Ledger, Policy, Reason, Sight, Status, Subject, Vantage, WhyKind};
use volmedic_view::page::{Guard, router};
use volmedic_view::{About, AgentState, Call, History, Moment, NodeState, Row, Source};

const DRIVERS: [&str; 3] = ["block.csi.example.net", "files.csi.example.net", "local.csi.example.net"];

struct Cluster {
    rows: Vec<Row>,
    history: History,
}

impl Source for Cluster {
    fn rows(&self) -> Vec<Row> {
        self.rows.clone()
    }

    fn about(&self) -> About {
        let call = |name, count, median, slowest| Call {
            name,
            count,
            failed: 0,
            median: Duration::from_micros(median),
            slowest: Duration::from_micros(slowest),
        };
        About {
            title: "production-eu-1".into(),
            place: "an invented cluster".into(),
            facts: vec![("Kubernetes", "v1.37.1".into()), ("Agents", "5 of 6 nodes".into())],
            limits: vec!["there is no agent on worker-6, so nothing is known of mounts there".into()],
            trouble: None,
            calls: vec![call("ControllerListVolumeHealth", 312, 1_900, 41_000), call("Probe", 3, 400, 700)],
        }
    }

    fn history(&self) -> &History {
        &self.history
    }

    fn nodes(&self) -> Vec<NodeState> {
        let agent = |number: usize| match number {
            6 => AgentState { state: "none", well: false, since: None },
            4 => AgentState { state: "silent", well: false, since: Some(ago(6)) },
            _ => AgentState { state: "alive", well: true, since: None },
        };
        let node = |number: usize| NodeState {
            name: format!("worker-{number}").into(),
            state: if number == 4 { "not ready" } else { "ready" }.into(),
            well: number != 4,
            since: Timestamp::now().checked_sub(SignedDuration::from_mins(7)).ok(),
            agent: Some(agent(number)),
        };
        (1..=6).map(node).collect()
    }
}

fn ago(minutes: i64) -> Timestamp {
    Timestamp::now().checked_sub(SignedDuration::from_mins(minutes)).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn sick(status: Status, reason: &str, message: &str) -> Sight {
    Sight::adverse([Condition::new(status, Reason::new(reason), message)])
}

fn main() -> std::io::Result<()> {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(400);
    let history = History::new(1000);
    let mut ledger = Ledger::new(Policy { blind_after: 1, ..Policy::default() });
    let handle =
        |number: usize| format!("pvc-{:08x}-4c1e-9a77-{number:012x}", number * 2_654_435_761 % 0xffff_ffff);
    let driver = |number: usize| DRIVERS[number % 3];
    let mut see = |minutes, number: usize, vantage: Vantage, sight| {
        let subject = Subject::volume(driver(number), handle(number));
        for transition in ledger.record(ago(minutes), &subject, &vantage, sight) {
            let beliefs = ledger.beliefs(&subject);
            let belief = beliefs.iter().find(|(other, _)| **other == transition.vantage);
            history.record(Moment::new(&transition, belief.map(|(_, belief)| belief)));
        }
    };
    let node = |number: usize| Vantage::Node(format!("worker-{number}").into());
    let host = |number: usize| Vantage::Host(format!("worker-{number}").into());
    for number in 0..count {
        see(2000, number, Vantage::Controller, Sight::Healthy);
    }
    let trouble = [
        (1100, 3, Vantage::Controller, sick(Status::Degraded, "DiskDegrading", "3 reallocated sectors")),
        (640, 3, host(2), sick(Status::Degraded, "RWIOError", "2 I/O errors since 09:12")),
        (420, 3, host(2), Sight::Healthy),
        (
            260,
            3,
            Vantage::Controller,
            sick(Status::Inaccessible, "DiskFailure", "the disk does not answer any more"),
        ),
        (200, 3, node(2), Sight::not_seen(WhyKind::TimedOut, "NodeGetVolumeHealth took longer than 15 s")),
        (
            95,
            3,
            host(2),
            sick(Status::Inaccessible, "ReadOnlyFilesystem", "ext4 went read-only after an I/O error"),
        ),
        (
            90,
            8,
            node(5),
            sick(Status::DataLoss, "FilesystemCorruption", "3 of 3 checks say that it is corrupt"),
        ),
        (61, 10, host(4), sick(Status::Inaccessible, "IOHung", "statfs has not come back for 60 s")),
        (33, 11, Vantage::Controller, sick(Status::Degraded, "OutOfCapacity", "98 % of 200 GiB are used")),
        (21, 26, Vantage::Controller, sick(Status::Degraded, "OutOfCapacity", "99 % of 20 GiB are used")),
        (
            9,
            31,
            Vantage::Pushed("array-watcher".into()),
            sick(Status::Unrecognized(7), "FirmwareOld", "update wanted"),
        ),
        (4, 40, host(1), sick(Status::Inaccessible, "MounterDead", "the FUSE process is gone: ENOTCONN")),
        (2, 45, Vantage::Controller, Sight::not_seen(WhyKind::Failed, "Internal: backend busy")),
    ];
    for (minutes, number, vantage, sight) in trouble {
        if number < count {
            see(minutes, number, vantage, sight);
        }
    }
    let row = |number: usize| {
        let subject = Subject::volume(driver(number), handle(number));
        let seen_by = ledger.beliefs(&subject).into_iter().map(Into::into).collect();
        let app = ["orders", "ledger", "search", "media", "queue"][number % 5];
        Row {
            namespace: ["shop", "payments", "search", "media"][number % 4].into(),
            claim: format!("data-{app}-{}", number / 5).into(),
            nodes: vec![format!("worker-{}", number % 6 + 1).into()],
            pods: vec![format!("{app}-{}", number / 5).into()],
            why: Some("the driver answers with errors".into()),
            ..Row::new(driver(number).into(), handle(number).into()).with(ledger.headline(&subject), seen_by)
        }
    };
    let source = Arc::new(Cluster { rows: (0..count).map(row).collect(), history });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:8090").await?;
        println!("http://{}/", listener.local_addr()?);
        axum::serve(listener, router(source, Guard::Loopback)).await
    })
}
