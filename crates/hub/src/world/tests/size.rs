//! What the world of a large cluster takes.

use super::*;

const CLAIMS: usize = 100_000;
const NODES: usize = 1_000;

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("this process");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// `cargo test -p volmedic-hub --lib hundred_thousand -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "figures for the person who runs it")]
fn what_a_hundred_thousand_claims_take() {
    let before = resident();
    let mut world = World::untracked();
    let name = |number: usize| {
        let (namespace, claim) = (format!("team-{:03}", number % 300), format!("data-database-{number:06}"));
        (namespace, claim, format!("3f0b2c1e-7d7e-4b64-9f0e-{number:012}"))
    };
    for number in 0..CLAIMS {
        let (namespace, claim, uid) = name(number);
        let spec = json!({"volumeName": format!("pvc-{uid}"), "accessModes": ["ReadWriteOnce"], "storageClassName": "fast"});
        world.put_claim(&namespace, &claim, &uid, &read(json!({"spec": spec, "status": {"phase": "Bound"}})));
    }
    for number in 0..CLAIMS {
        let (namespace, claim, uid) = name(number);
        let handle = format!("csi-vol-8d4a5fba-5c3f-11ef-{number:012}");
        let spec = json!({"csi": {"driver": DRIVER, "volumeHandle": handle},
                          "claimRef": {"namespace": namespace, "name": claim, "uid": uid}});
        world.put_volume(&format!("pvc-{uid}"), &read(json!({ "spec": spec })));
    }
    let volumes = resident();
    println!("{CLAIMS} claims and volumes: {} MiB", (volumes - before) / 1024);
    for number in 0..CLAIMS {
        let (namespace, claim, _) = name(number);
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
        let spec = json!({"nodeName": format!("worker-{:04}", number % NODES), "volumes": [volume]});
        let pod = read(json!({"spec": spec, "status": {"phase": "Running"}}));
        world.put_pod(&namespace, &format!("database-{number:06}-0"), &pod);
    }
    let pods = resident();
    println!("and as many pods: {} MiB more", (pods - volumes) / 1024);
    let began = Instant::now();
    let keys = world.claim_keys();
    let unknown = keys.iter().filter(|key| {
        let status = crate::merge(now().day, &world.facts(key), None);
        status.headline.health == volmedic_api::resource::HealthWord::HealthUnknown
    });
    println!("merging all of them: {} in {:.1?}", unknown.count(), began.elapsed());
    let (before, began) = (resident(), Instant::now());
    for key in &keys {
        world.judge(now().day, key);
    }
    println!(
        "judging all of them: {:.1?}, {} MiB more",
        began.elapsed(),
        resident().saturating_sub(before) / 1024
    );
    let began = Instant::now();
    let (shown, omitted) = (world.counts().len(), world.worst(1000).1);
    println!("what a scrape reads: {shown} counts in {:.1?}, {omitted} omitted", began.elapsed());
}
