//! A thousand volumes turn bad at the same time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use volmedic_testkit::{Feature, objects, server_has, sim::Adverse, sim::capability as can};

use crate::server::Request;
use crate::stage::{INACCESSIBLE, Stage};

const VOLUMES: usize = 1_000;
/// Number of claims that are made at the same time.
const WRITERS: usize = 16;
/// The maximum number of writes that are on their way when the first answer comes.
const IN_FLIGHT: usize = 16;
/// The promise of ten seconds is kept on a clock of its own, in the tests of what sends reports. Here the API server sets the
/// pace, and it shares the machine.
const BOUND: Duration = Duration::from_mins(5);

impl Stage {
    /// Many bound claims at the same time.
    async fn many_claims(&self, count: usize) {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (client, namespace, driver) =
                (self.client.clone(), self.namespace.clone(), self.driver.clone());
            writers.spawn(async move {
                for n in (writer..count).step_by(WRITERS) {
                    let (name, handle) = (format!("c{n}"), format!("{namespace}.c{n}"));
                    objects::bound_claim(&client, &namespace, &name, &driver, &handle)
                        .await
                        .expect("a bound claim");
                }
            });
        }
        self.sim.add_volumes((0..count).map(|n| self.handle(&format!("c{n}"))));
        while let Some(done) = writers.join_next().await {
            done.expect("no writer fails");
        }
    }
}

#[tokio::test]
async fn a_thousand_volumes_turn_bad_immediately() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.many_claims(VOLUMES).await;
    let controller = stage.watching(&["--http-endpoint=127.0.0.1:0"]).await;
    stage.rounds("ControllerListVolumeHealth", 2).await;

    let cut =
        Adverse { status: INACCESSIBLE, reason: "NetworkError".into(), message: "the array is gone".into() };
    let began = Instant::now();
    for adverse in stage.sim.behaviour().volumes.values_mut() {
        *adverse = vec![cut.clone()];
    }
    let sent = format!("volmedic_reports_total{{outlet=\"event\",result=\"sent\"}} {VOLUMES}");
    while !controller.get("/metrics").await.1.contains(&sent) {
        assert!(began.elapsed() < BOUND, "not all was told within {BOUND:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{VOLUMES} events {:.1} s after {VOLUMES} volumes turned bad", began.elapsed().as_secs_f64());
    let events = stage.all_events().await;
    let reported: BTreeSet<_> =
        events.iter().filter_map(|event| event.involved_object.name.clone()).collect();
    assert_eq!((events.len(), reported.len()), (VOLUMES, VOLUMES), "each claim once");
    let absent = |request: &Request| {
        let asked = (request.verb.as_str(), request.resource.as_str());
        if server_has(Feature::ClaimHealth) {
            // VolumeHealths are not installed here, nor is their API group, for which the controller asks once.
            request.code == 404 && matches!(asked, (_, "volumehealths") | ("get", ""))
        } else {
            // They are, and the Lease that goes with them is in a namespace where this controller has no rights.
            let is_lease = request.code == 403 && asked == ("get", "leases");
            is_lease || (request.code == 500 && asked == ("patch", "persistentvolumeclaims/status"))
        }
    };
    let (absent, refused): (Vec<_>, Vec<_>) =
        stage.requests().into_iter().filter(|request| request.code >= 400).partition(absent);
    assert!(refused.is_empty(), "the API server had enough of us: {refused:?}");
    let writes = absent.iter().filter(|request| request.verb == "patch" && request.code == 500).count();
    assert!(writes <= IN_FLIGHT, "{writes} writes to a field that this release does not have");
}
