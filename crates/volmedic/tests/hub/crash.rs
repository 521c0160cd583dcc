//! Killed at random while everything changes, the hub ends up where it would have without.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::stage::{Stage, everything, start_hub};

const CHANGES: usize = 300;
const KILLED_EVERY: usize = 40;
const CLAIMS: usize = 12;
const NODES: usize = 3;

/// The same numbers on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits fit") % sides
    }
}

#[tokio::test]
async fn killed_at_random_it_ends_where_it_would_have_ended() {
    let stage = Stage::own(&everything()).await;
    let mut nodes = Vec::new();
    for n in 0..NODES {
        nodes.push(stage.make_node(&format!("n{n}")).await);
    }
    let claims: Vec<String> = (0..CLAIMS).map(|n| format!("claim-{n}")).collect();
    for (n, claim) in claims.iter().enumerate() {
        stage.used_claim(claim, &nodes[n % NODES]).await;
    }
    let agents = [stage.agent(&nodes[0]).await, stage.agent(&nodes[1]).await, stage.agent(&nodes[2]).await];
    let kubeconfig = stage.kubeconfig().await;
    let arguments = ["--leader-election=false", "--keep-recovered=1h"];
    let mut hub = start_hub(&kubeconfig, &arguments);
    hub.wait_log("merging what is known").await;

    let reasons = [("Degraded", "SlowIO"), ("Inaccessible", "IOHung"), ("DataLoss", "LegsLost")];
    let mut dice = Dice(42);
    let mut ill: BTreeMap<usize, (&str, &str)> = BTreeMap::new();
    for change in 1..=CHANGES {
        let claim = dice.roll(CLAIMS);
        match dice.roll(4) {
            3 => drop(ill.remove(&claim)),
            n => drop(ill.insert(claim, reasons[n])),
        }
        let node = claim % NODES;
        let here = ill.iter().filter(|(claim, _)| *claim % NODES == node);
        let here: Vec<_> =
            here.map(|(claim, (status, reason))| (claims[*claim].as_str(), *status, *reason)).collect();
        let report = stage.report(&here);
        crate::stage::apply_report(&agents[node], &nodes[node], &report).await.expect("a report");
        if change % KILLED_EVERY == 0 {
            tokio::time::sleep(Duration::from_millis(u64::try_from(dice.roll(300)).expect("small"))).await;
            hub.kill();
            hub = start_hub(&kubeconfig, &arguments);
        }
    }
    stage.calm().await;
    let mut with_object = 0;
    for (n, claim) in claims.iter().enumerate() {
        let node = &nodes[n % NODES];
        if let Some((status, reason)) = ill.get(&n) {
            let word = if *status == "Degraded" { "HealthWarning" } else { "HealthFailure" };
            stage.wait_stored(claim, &[&format!("host/{node} {word} {status}/{reason}")]).await;
            with_object += 1;
        } else if stage.stored(claim).await.is_some() {
            stage.wait_stored(claim, &[&format!("host/{node} Healthy")]).await;
            with_object += 1;
        }
    }
    assert_eq!(stage.versions().await.len(), with_object, "and nothing else is there");
    for claim in &claims {
        let Some(object) = stage.healths().get_opt(claim).await.expect("an answer") else { continue };
        let history = object.status.expect("a status").history;
        let doubled = history.windows(2).find(|two| {
            (&two[0].health, &two[0].status, &two[0].reason)
                == (&two[1].health, &two[1].status, &two[1].reason)
        });
        assert!(doubled.is_none(), "a restart told {doubled:?} twice");
    }
}
