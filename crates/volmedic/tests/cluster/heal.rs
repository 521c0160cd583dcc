//! Healing on a real cluster: mounters die under pods that write, and what may be repaired is, without a restart of the
//! pod; what may not is left alone, with the reason.

mod clinic;
mod reported;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use volmedic_driver::fault::{Fault, Faults};
use volmedic_testkit::IMAGE;

use crate::agent::say;
use clinic::Clinic;
use reported::{ABNORMAL, NORMAL, Reported, SKIPPED, STARTED, SUCCEEDED};
use writer::Writer;

/// Trouble must last long enough for the agent to report it. What was repaired is known to be healthy before it is checked
/// again.
const QUICK: [&str; 4] =
    ["--heal-debounce=8s", "--heal-pause=1s", "--heal-look-again=1s", "--heal-cooldown=10s"];
/// Nothing is waited for, and what falls unhealthy again is tried again immediately.
const HASTY: [&str; 5] =
    ["--heal-debounce=1s", "--heal-pause=1s", "--heal-look-again=1s", "--heal-cooldown=1s", "--heal-tries=2"];
/// Number of volumes that fail together.
const CROWD: usize = 50;
const UPDATED_AT: &str = "sidecar.csiaddons.openshift.io/lastUpdatedAt";

#[test]
fn what_dies_under_running_pods_is_repaired_as_far_as_it_may_be() {
    let began = Instant::now();
    let mut clinic = Clinic::open();
    let claims = ["auto", "observe", "approve"];
    let mut objects = vec![
        Clinic::claim("auto", Some("auto")),
        // Nobody said anything about this one.
        Clinic::claim("observe", None),
        Clinic::claim("approve", Some("approve")),
    ];
    objects.extend((0..CROWD).map(|number| Clinic::claim(&crowded(number), Some("auto"))));
    objects.extend(claims.map(Writer::object));
    objects.push(crowd());
    clinic.stage.create(&objects.into());
    let writers = claims.map(|claim| Writer::of(&clinic, claim));
    crate::ready(&clinic.stage, "crowd");
    clinic.start_hub(&QUICK);
    clinic.all_checked(&BTreeMap::new());
    say(&format!(
        "{} volumes in use and checked once after {:.0} s",
        CROWD + 3,
        began.elapsed().as_secs_f32()
    ));

    each_in_its_own_way(&clinic, &writers);
    checked_once_after_a_restart(&mut clinic);
    killed_in_the_middle(&mut clinic, &writers[0]);
    given_up(&clinic, &writers[2]);
    held_by_the_brake(&mut clinic);
    for writer in &writers {
        writer.is_unharmed(&clinic);
    }

    let stage = &clinic.stage;
    stage.kubectl(&["delete", "daemonset", "volmedic-agent", "--timeout=90s"]);
    stage.kubectl(&["delete", "pods", "--all", "--timeout=90s"]);
    stage.kubectl(&["delete", "pvc", "--all", "--timeout=90s"]);
    stage.wait("nothing of the volumes is left", || {
        let traces = stage.traces();
        if traces.is_empty() { Ok(()) } else { Err(format!("{traces:#?}")) }
    });
    clinic.close();
    say(&format!("all of it took {:.0} s", began.elapsed().as_secs_f32()));
}

/// Three mounters die together. One volume is repaired by itself, one when a person agrees, one not at all until somebody
/// says that it may be; and no pod notices more than that it had to wait.
fn each_in_its_own_way(clinic: &Clinic, writers: &[Writer; 3]) {
    let [auto, observe, approve] = writers;
    let began = Instant::now();
    for writer in writers {
        clinic.kill_mounter(&writer.handle).expect("a mounter to kill");
    }
    auto.goes_on(clinic);
    say(&format!(
        "auto: the pod writes again {:.1} s after its mounter was killed",
        began.elapsed().as_secs_f32()
    ));
    for object in [auto.pod(), auto.pvc()] {
        reports_its_story(clinic, &object);
    }

    let skipped =
        reported::wait(clinic, &approve.pvc(), SKIPPED, &["needs a person's consent", "heal-approved"]);
    assert_eq!(skipped.count, 1);
    assert!(reported::on(clinic, &approve.pvc(), STARTED).is_empty());
    let agreed = Instant::now();
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    clinic.annotate("approve", "heal-approved", &now);
    approve.goes_on(clinic);
    say(&format!(
        "approve: the pod writes again {:.1} s after a person agreed",
        agreed.elapsed().as_secs_f32()
    ));
    reports_its_story(clinic, &approve.pvc());

    let would = ["only observes", "it would ask the node plugin to heal the volume"];
    for object in [observe.pvc(), observe.pod()] {
        assert_eq!(reported::wait(clinic, &object, SKIPPED, &would).count, 1);
        assert!(reported::on(clinic, &object, STARTED).is_empty());
    }
    assert!(clinic.mounter(&observe.handle).is_none(), "a healer healed what is only observed");
    clinic.annotate("observe", "heal", "auto");
    observe.goes_on(clinic);
    for writer in writers {
        reported::wait(clinic, &writer.pod(), NORMAL, &["recovered from"]);
        writer.is_unharmed(clinic);
    }
}

/// That it is unhealthy is reported once, why it was healed, and at the end that it is healthy. Who sees it unhealthy and who heals it are
/// different programs: which of them the API server hears first is not promised.
fn reports_its_story(clinic: &Clinic, object: &str) {
    let mendable = |one: &Reported| ["MounterDead", "IOHung"].iter().any(|why| one.message.contains(why));
    let started = reported::wait(clinic, object, STARTED, &["because of"]);
    assert!(mendable(&started), "{object}: {started:#?}");
    reported::wait(clinic, object, SUCCEEDED, &["the node plugin says that it is healthy"]);
    let story = clinic.stage.wait(&format!("{object} says that it is healthy"), || {
        let story = reported::story(clinic, object, &[ABNORMAL, STARTED, SUCCEEDED, NORMAL]);
        let last = |reason: &str| story.iter().rposition(|one| one.reason == reason);
        let over = last(ABNORMAL).is_some_and(|unhealthy| last(NORMAL).is_some_and(|well| unhealthy < well));
        if over { Ok(story) } else { Err(format!("{story:#?}")) }
    });
    let first = |reason: &str| story.iter().position(|one| one.reason == reason).unwrap();
    assert!(first(STARTED) < first(SUCCEEDED), "{object}: {story:#?}");
    // A sight from before the heal must not bring it back: the mounter died once.
    let mut dead = story.iter().filter(|one| one.reason == ABNORMAL && one.message.contains("MounterDead"));
    assert!(dead.all(|one| one.count == 1), "{object}: {story:#?}");
    let reasons: Vec<&str> = story.iter().map(|one| one.reason.as_str()).collect();
    say(&format!("told on {object}: {}", reasons.join(", ")));
}

/// The registration shows that the node plugin is another one, and each volume that may be repaired is checked once.
fn checked_once_after_a_restart(clinic: &mut Clinic) {
    clinic.gauge("hub", "volmedic_heal_open", 0);
    let (registered, before) = (clinic.registration(), clinic.asked());
    clinic.stage.restart_driver();
    clinic.stage.wait("the registration shows the restart", || {
        let now = clinic.registration();
        let changed =
            now["metadata"]["annotations"][UPDATED_AT] != registered["metadata"]["annotations"][UPDATED_AT];
        if changed { Ok(()) } else { Err(now.to_string()) }
    });
    assert_eq!(clinic.registration()["metadata"]["uid"], registered["metadata"]["uid"]);
    // Consent was given for one case only, so that volume is not among them.
    clinic.all_checked(&before);
    clinic.stage.agent_looks(2);
    clinic.all_checked(&before);
}

/// The driver hangs while it is asked, and the healer dies over that. The heal is neither lost nor done twice.
fn killed_in_the_middle(clinic: &mut Clinic, writer: &Writer) {
    let faults = Faults::at(clinic.stage.state().clone());
    let started = reported::times(clinic, &writer.pvc(), STARTED);
    let lives = clinic.mounter(&writer.handle).expect("a mounter").generation;
    faults.inject(Fault::DriverFrozen, None).unwrap();
    clinic.kill_mounter(&writer.handle).expect("a mounter to kill");
    clinic.stage.wait("the healer begins", || {
        let now = reported::times(clinic, &writer.pvc(), STARTED);
        if now == started + 1 { Ok(()) } else { Err(format!("{now} times")) }
    });
    clinic.gauge("agent", "volmedic_relay_heals_under_way", 1);
    clinic.kill_hub();
    faults.clear(Fault::DriverFrozen, None).unwrap();
    writer.goes_on(clinic);
    clinic.start_hub(&HASTY);
    clinic.stage.agent_looks(2);
    assert_eq!(reported::times(clinic, &writer.pvc(), STARTED), started + 1, "it was healed twice");
    assert_eq!(
        clinic.mounter(&writer.handle).expect("a mounter").generation,
        lives + 1,
        "it was healed twice"
    );
    writer.is_unharmed(clinic);
}

/// Whatever is started dies again within seconds. That is tried a limited number of times, and reported once.
fn given_up(clinic: &Clinic, writer: &Writer) {
    clinic.annotate(writer.claim, "heal", "auto");
    let started = reported::times(clinic, &writer.pvc(), STARTED);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| kill_again_and_again(clinic, writer, &over));
        let end = Ends(&over);
        for object in [writer.pvc(), writer.pod()] {
            reported::wait(clinic, &object, SKIPPED, &["2 tries brought no lasting success", "given up"]);
        }
        clinic.stage.agent_looks(2);
        drop(end);
    });
    // A try that was made earlier counts too, if the volume has not been well for long since then.
    let tries = reported::times(clinic, &writer.pvc(), STARTED) - started;
    assert!((1..=2).contains(&tries), "{tries} tries");
    for object in [writer.pvc(), writer.pod()] {
        let reported = reported::on(clinic, &object, SKIPPED);
        let given_up: Vec<_> = reported.iter().filter(|one| one.message.contains("given up")).collect();
        assert!(matches!(given_up[..], [only] if only.count == 1), "{given_up:#?}");
    }
    // A person stands above that.
    clinic.heal(writer.claim);
    writer.goes_on(clinic);
}

/// Sets it when dropped, so that a failed test does not wait for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each has a moment to look well.
fn kill_again_and_again(clinic: &Clinic, writer: &Writer, over: &AtomicBool) {
    let mut seen: Option<(i32, Instant)> = None;
    while !over.load(Ordering::Relaxed) {
        let now = clinic.mounter(&writer.handle).map(|found| found.pid);
        seen = match (seen, now) {
            (Some((old, since)), Some(pid)) if old == pid => Some((old, since)),
            (_, Some(pid)) => Some((pid, Instant::now())),
            (_, None) => None,
        };
        if seen.is_some_and(|(_, since)| since.elapsed() > Duration::from_millis(1500)) {
            clinic.kill_mounter(&writer.handle);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Fifty together are no trouble of volumes. Nothing is touched, until an operator says that it may be.
fn held_by_the_brake(clinic: &mut Clinic) {
    clinic.kill_hub();
    let before = clinic.asked();
    clinic.start_hub(&["--heal-look-again=1s", "--heal-debounce=5s", "--heal-cooldown=1s"]);
    // Of the others some were tried lately and are left alone for a while.
    clinic.checked(&before, |claim| claim.starts_with("crowd-"));
    let handles = clinic.handles("crowd-");
    assert_eq!(handles.len(), CROWD);
    let before = clinic.asked();
    for handle in &handles {
        clinic.kill_mounter(handle).expect("a mounter to kill");
    }
    let outage = ["are unhealthy at the same time", "looks like an outage"];
    // Reported of each, so each was judged.
    clinic.stage.wait("all are skipped", || {
        let reported = reported::everything(clinic).into_iter();
        let skipped = reported
            .filter(|one| one.reason == SKIPPED && outage.iter().all(|word| one.message.contains(word)));
        let skipped: BTreeSet<String> = skipped.map(|one| one.on).collect();
        let missing =
            (0..CROWD).filter(|number| !skipped.contains(&format!("pvc/{}", crowded(*number)))).count();
        if missing == 0 { Ok(()) } else { Err(format!("{missing} are not")) }
    });
    assert_eq!(clinic.asked(), before, "the brake let one through");
    assert!(handles.iter().all(|handle| clinic.mounter(handle).is_none()));
    let touched = |reported: &Reported| reported.on.starts_with("pvc/crowd-") && reported.reason == STARTED;
    let touched: Vec<_> = reported::everything(clinic).into_iter().filter(touched).collect();
    assert!(touched.is_empty(), "{touched:#?}");

    clinic.kill_hub();
    let released = Instant::now();
    clinic.start_hub(&[
        "--heal-brake-percent=100",
        "--heal-debounce=1s",
        "--heal-per-node=8",
        "--heal-cooldown=1s",
    ]);
    clinic.stage.wait("all are healed", || {
        let dead = handles.iter().filter(|handle| clinic.mounter(handle).is_none()).count();
        if dead == 0 { Ok(()) } else { Err(format!("{dead} are not")) }
    });
    say(&format!("{CROWD} volumes healed {:.1} s after the brake was off", released.elapsed().as_secs_f32()));
}

fn crowded(number: usize) -> String {
    format!("crowd-{number}")
}

/// One pod with many volumes.
fn crowd() -> Value {
    let names: Vec<String> = (0..CROWD).map(crowded).collect();
    let volume = |name: &String| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let mount = |name: &String| json!({"name": name, "mountPath": format!("/{name}")});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "crowd", "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never",
                            "volumeMounts": names.iter().map(mount).collect::<Vec<_>>()}],
            "volumes": names.iter().map(volume).collect::<Vec<_>>(),
        },
    })
}
