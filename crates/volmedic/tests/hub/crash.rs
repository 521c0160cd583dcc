//! Killed at random while everything changes, the hub ends up where it would have without.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use volmedic_testkit::seed;

use crate::stage::{Stage, apply_report, everything, start_hub};

const CHANGES: usize = 500;
/// One of this number of changes in a row is followed by a kill, whatever the seed.
const PER_KILL: usize = 40;
const KILLS: usize = CHANGES / PER_KILL;
const CLAIMS: usize = 12;
const NODES: usize = 3;

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits fit") % sides
    }
}

#[tokio::test]
async fn killed_at_random_it_ends_where_it_would_have_ended() {
    let seed = seed("killed_at_random_it_ends_where_it_would_have_ended");
    let (left_alone, killed) = tokio::join!(run(seed, false), run(seed, true));
    assert_eq!((left_alone.kills, left_alone.ends.len()), (0, CLAIMS));
    assert_eq!(killed.kills, KILLS);
    assert_eq!(killed.ends, left_alone.ends, "seed {seed}");
}

struct Run {
    kills: usize,
    /// What is stored of each claim.
    ends: BTreeMap<String, Value>,
}

/// The same changes each time for the same seed.
async fn run(seed: u64, kill: bool) -> Run {
    let stage = Stage::own(&everything()).await;
    let (mut nodes, mut agents) = (Vec::new(), Vec::new());
    for n in 0..NODES {
        nodes.push(stage.make_node(&format!("n{n}")).await);
        agents.push(stage.agent(&nodes[n]).await);
        stage.beat(&nodes[n], 3600).await;
    }
    let claims: Vec<String> = (0..CLAIMS).map(|n| format!("claim-{n:02}")).collect();
    for (n, claim) in claims.iter().enumerate() {
        stage.used_claim(claim, &nodes[n % NODES]).await;
    }
    let kubeconfig = stage.kubeconfig().await;
    let arguments = ["--leader-election=false", "--keep-recovered=1h"];
    let mut hub = start_hub(&kubeconfig, &arguments);
    hub.wait_log("merging what is known").await;

    let reasons = [("Degraded", "SlowIO"), ("Inaccessible", "IOHung"), ("DataLoss", "LegsLost")];
    let mut unhealthy: BTreeMap<usize, (&str, &str)> = (0..CLAIMS).map(|n| (n, reasons[0])).collect();
    let tell = async |unhealthy: &BTreeMap<usize, (&str, &str)>, node: usize| {
        let here = unhealthy.iter().filter(|(claim, _)| *claim % NODES == node);
        let here: Vec<_> =
            here.map(|(claim, (status, reason))| (claims[*claim].as_str(), *status, *reason)).collect();
        apply_report(&agents[node], &nodes[node], &stage.report(&here)).await.expect("a report");
    };
    // Each has an object before the first kill, so that it has one afterwards whatever was missed.
    for node in 0..NODES {
        tell(&unhealthy, node).await;
    }
    for (n, claim) in claims.iter().enumerate() {
        let line = format!("host/{} HealthWarning Degraded/SlowIO", nodes[n % NODES]);
        stage.wait_stored(claim, &[&line]).await;
    }
    let (mut changes, mut fate, mut kills) = (Dice(seed), Dice(!seed), 0);
    let mut fatal = 0;
    for change in 0..CHANGES {
        if change % PER_KILL == 0 {
            // What is left over at the end has none.
            fatal = if change / PER_KILL < KILLS { change + fate.roll(PER_KILL) } else { CHANGES };
        }
        let claim = changes.roll(CLAIMS);
        match changes.roll(4) {
            3 => drop(unhealthy.remove(&claim)),
            n => drop(unhealthy.insert(claim, reasons[n])),
        }
        tell(&unhealthy, claim % NODES).await;
        if kill && change == fatal {
            let later = u64::try_from(fate.roll(300)).expect("small");
            tokio::time::sleep(Duration::from_millis(later)).await;
            hub.kill();
            hub = start_hub(&kubeconfig, &arguments);
            kills += 1;
        }
    }
    hub.wait_log("merging what is known").await;
    for (n, claim) in claims.iter().enumerate() {
        let node = &nodes[n % NODES];
        let line = match unhealthy.get(&n) {
            Some((status @ "Degraded", reason)) => format!("host/{node} HealthWarning {status}/{reason}"),
            Some((status, reason)) => format!("host/{node} HealthFailure {status}/{reason}"),
            None => format!("host/{node} Healthy"),
        };
        stage.wait_stored(claim, &[&line]).await;
    }
    assert_eq!(stage.calm().await.len(), CLAIMS, "and nothing else is there");
    let mut ends = BTreeMap::new();
    for claim in claims {
        let object = stage.healths().get(&claim).await.expect("the object");
        let status = object.status.expect("a status");
        let line = |n: usize| {
            let past = &status.history[n];
            (past.health, past.status, past.reason.clone())
        };
        let doubled = (1..status.history.len()).find(|n| line(*n) == line(n - 1));
        assert_eq!(doubled, None, "a restart told something twice: {:?}", status.history);
        let text = json!({"spec": object.spec, "status": status}).to_string();
        let plain = text.replace(&stage.namespace, "NAMESPACE");
        ends.insert(claim, without_times(serde_json::from_str(&plain).expect("JSON")));
    }
    Run { kills, ends }
}

/// What was written when, and from which version, differs from run to run; so does what was overtaken before anybody saw
/// it. All else must not.
fn without_times(mut object: Value) -> Value {
    let status = object["status"].as_object_mut().expect("a status");
    status.remove("history");
    forget(&mut object, &["time", "since", "lastProbeTime", "lastTransitionTime", "observed"]);
    object
}

fn forget(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !names.contains(&name.as_str()));
            fields.values_mut().for_each(|value| forget(value, names));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| forget(value, names)),
        _ => {}
    }
}
