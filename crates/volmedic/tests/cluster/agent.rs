//! The agent on the node of a real cluster: what happens to volumes under running pods is read where people read it, and
//! neither a restart of the kubelet, of the agent or of the API server nor pods that come and go make it say anything
//! that is not so, or anything twice.

mod reported;

use std::time::Instant;

use serde_json::Value;
use volmedic_testkit::{NODE, Part};

use crate::stage::{KUBECTL_WAITS, Stage};
use crate::{KINDS, Kind, all_ready, delete_pods};
use reported::{ABNORMAL, NORMAL, Reported, UNWATCHED, from_host, reported, settled};

/// Pods `reader-*` must run and be well.
pub(crate) fn watches(stage: &mut Stage) {
    stage.start_agent();
    for text in ["the kubelet's directory is", "connected to the driver"] {
        stage.wait("the agent finds the kubelet and the driver", || {
            if stage.agent_says(text) > 0 { Ok(()) } else { Err(format!("it does not say {text:?}")) }
        });
    }
    stage.agent_looks(2);
    assert_eq!(reported(stage), Vec::<Reported>::new(), "nothing is wrong yet");

    unmounted_and_back(stage);
    restarts_while_read_only(stage);
    full_while_the_server_is_away(stage);
    deleted_while_the_mounter_is_dead(stage);
    pods_come_and_go(stage);
    the_driver_is_not_asked_twice(stage);
}

fn unmounted_and_back(stage: &Stage) {
    let case = Case::begin(stage, "ext4", "target-unmounted", "Inaccessible/VolumeUnmounted");
    case.kubelet_says();
    case.over();
    assert_eq!(
        from_host(stage, "reader-ext4"),
        [(ABNORMAL, "VolumeUnmounted", 1), (NORMAL, "VolumeUnmounted", 1)]
    );
}

/// First the kubelet is killed and started, then the agent, twice; the second time the volume gets well meanwhile.
fn restarts_while_read_only(stage: &mut Stage) {
    let bad = [(ABNORMAL, "ReadOnlyFilesystem", 1)];
    Case::begin(stage, "xfs", "read-only", "Inaccessible/ReadOnlyFilesystem").kubelet_says();
    settled(stage, Some(("reader-xfs", "ReadOnlyFilesystem")));
    stage.agent_looks(2);
    let before = reported(stage);

    stage.plane().kill(Part::Kubelet).unwrap();
    stage.plane().start(Part::Kubelet).unwrap();
    // It works again when pods come up.
    let passers: Vec<Value> =
        KINDS.iter().filter(|kind| kind.name != "xfs").map(|kind| kind.pod("passer", "true")).collect();
    stage.create(&passers.into());
    for kind in KINDS.iter().filter(|kind| kind.name != "xfs") {
        crate::ready(stage, &format!("passer-{}", kind.name));
    }
    stage.agent_looks(3);
    delete_pods(stage, "passer");
    stage.agent_looks(2);
    assert_eq!(reported(stage), before, "after a restart of the kubelet");

    stage.kill_agent();
    stage.start_agent();
    stage.agent_looks(3);
    assert_eq!(reported(stage), before, "after a restart of the agent");
    assert_eq!(from_host(stage, "reader-xfs"), bad);

    stage.kill_agent();
    stage.fault("clear", "read-only", &handle(stage, "xfs"));
    stage.start_agent();
    let line = described(stage, "reader-xfs", NORMAL, "ReadOnlyFilesystem");
    assert!(
        line.contains("Normal") && line.contains("recovered from Inaccessible/ReadOnlyFilesystem"),
        "{line}"
    );
    stage.agent_looks(2);
    let both = [(ABNORMAL, "ReadOnlyFilesystem", 1), (NORMAL, "ReadOnlyFilesystem", 1)];
    assert_eq!(from_host(stage, "reader-xfs"), both);
}

fn full_while_the_server_is_away(stage: &Stage) {
    let handle = handle(stage, "ext4");
    stage.plane().stop_apiserver().unwrap();
    let began = Instant::now();
    stage.fault("inject", "full", &handle);
    stage.wait("the agent sees it while nobody can be told", || {
        if stage.agent_says("OutOfCapacity") > 0 {
            Ok(())
        } else {
            Err("its log has no OutOfCapacity".to_owned())
        }
    });
    stage.plane().start_apiserver().unwrap();
    let back = Instant::now();
    let line = described(stage, "reader-ext4", ABNORMAL, "OutOfCapacity");
    let seconds = back.elapsed().as_secs_f32();
    say(&format!("full on ext4 while the API server was away: told {seconds:.1} s after it was back"));
    assert!(line.contains("Warning") && line.contains("default/ext4"), "{line}");
    let condition = "Degraded/OutOfCapacity";
    let case = Case { stage, kind: "ext4", fault: "full", condition, handle, began };
    case.kubelet_says();
    case.over();
    let mut reported = from_host(stage, "reader-ext4");
    reported.retain(|(_, condition, _)| *condition == "OutOfCapacity");
    assert_eq!(reported, [(ABNORMAL, "OutOfCapacity", 1), (NORMAL, "OutOfCapacity", 1)]);
}

/// What ends with the pod is closed, not healed; and the next user of the volume gets no report of it.
fn deleted_while_the_mounter_is_dead(stage: &Stage) {
    Case::begin(stage, "fuse", "mounter-killed", "Inaccessible/MounterDead").kubelet_says();
    stage.kubectl(&["delete", "pod", "reader-fuse", KUBECTL_WAITS]);
    stage.wait("what was told is closed", || {
        let reported = from_host(stage, "reader-fuse");
        let closed = reported == [(ABNORMAL, "MounterDead", 1), (UNWATCHED, "MounterDead", 1)];
        if closed { Ok(()) } else { Err(format!("{reported:?}")) }
    });
    let fuse = KINDS.iter().find(|kind| kind.name == "fuse").unwrap();
    stage.create(&vec![fuse.pod("next", "true")].into());
    crate::ready(stage, "next-fuse");
    assert_eq!(fuse.read(stage, "next"), fuse.word(), "the data is there");
    stage.agent_looks(3);
    assert_eq!(from_host(stage, "next-fuse"), []);
    stage.kubectl(&["delete", "pod", "next-fuse", KUBECTL_WAITS]);
}

/// All kinds of volumes together, mounted and unmounted, and pods that end by themselves; and nothing was ever reported but
/// what was done.
fn pods_come_and_go(stage: &Stage) {
    settled(stage, None);
    let before = reported(stage);
    let ends = |kind: &Kind| {
        let mut pod = kind.pod("doer", "exit 0");
        pod["spec"]["restartPolicy"] = "Never".into();
        pod
    };
    stage.create(&KINDS.iter().map(ends).collect());
    for kind in &KINDS {
        stage.wait("a pod ends by itself", || {
            let pod = format!("doer-{}", kind.name);
            match stage.try_kubectl(&["get", "pod", &pod, "-o", "jsonpath={.status.phase}"])?.as_str() {
                "Succeeded" => Ok(()),
                other => Err(format!("{pod} is {other}")),
            }
        });
    }
    stage.agent_looks(2);
    delete_pods(stage, "doer");
    for _ in 0..2 {
        stage.create(&KINDS.iter().map(|kind| kind.pod("comer", "true")).collect());
        all_ready(stage, "comer");
        delete_pods(stage, "comer");
    }
    stage.agent_looks(2);
    assert_eq!(reported(stage), before);
    let done = [
        ("reader-ext4", "VolumeUnmounted"),
        ("reader-ext4", "OutOfCapacity"),
        ("reader-xfs", "ReadOnlyFilesystem"),
        ("reader-fuse", "MounterDead"),
    ];
    for one in &before {
        assert!(done.contains(&(one.pod.as_str(), one.condition.as_str())), "{one:?}");
    }
}

/// The kubelet asks the driver about the health of volumes. The agent reads that, and asks for itself only where it says
/// otherwise than the agent saw last: fewer times than there were rounds, and in each round it checked all volumes.
fn the_driver_is_not_asked_twice(stage: &Stage) {
    assert!(stage.agent_says("the kubelet asks the driver about volumes already") > 0);
    let metrics = stage.agents_metrics();
    let calls: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("csi_sidecar_operations_seconds_count")).collect();
    let count = |method: &str| -> u32 {
        let lines = calls.iter().filter(|line| line.contains(&format!("/{method}\"")));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u32>().ok()).sum()
    };
    assert_eq!(count("NodeGetCapabilities"), 1, "{calls:#?}");
    // Asked for once a round, of the storage as a whole.
    let rounds = count("NodeGetStorageHealth");
    assert!(rounds > 0 && count("NodeGetVolumeHealth") < rounds, "{calls:#?}");
}

/// One fault under the pod `reader-<kind>`.
struct Case<'a> {
    stage: &'a Stage,
    kind: &'static str,
    fault: &'static str,
    condition: &'static str,
    handle: String,
    began: Instant,
}

impl<'a> Case<'a> {
    /// Does it, and reads on the pod what a person needs to know.
    fn begin(stage: &'a Stage, kind: &'static str, fault: &'static str, condition: &'static str) -> Self {
        let handle = handle(stage, kind);
        let began = Instant::now();
        stage.fault("inject", fault, &handle);
        let case = Self { stage, kind, fault, condition, handle, began };
        let line = described(stage, &case.pod(), ABNORMAL, case.reason());
        case.say(&format!("the agent says {condition} after {:.1} s", began.elapsed().as_secs_f32()));
        let claim = format!("default/{kind}");
        for word in ["Warning", "volmedic-agent", condition, &claim, &case.handle, NODE, " since ", "Next: "]
        {
            assert!(line.contains(word), "{word:?} is not in {line}");
        }
        case
    }

    fn over(&self) {
        let began = Instant::now();
        self.stage.fault("clear", self.fault, &self.handle);
        let line = described(self.stage, &self.pod(), NORMAL, self.reason());
        self.say(&format!("recovery told after {:.1} s", began.elapsed().as_secs_f32()));
        assert!(line.contains("Normal") && line.contains("recovered from"), "{line}");
    }

    /// Waits for what the kubelet has in the pod's status, and shows it. What it says, the agent passes on.
    fn kubelet_says(&self) {
        let path = r#"jsonpath={.status.volumeHealth[?(@.name=="data")].healthConditions}"#;
        let said = self.stage.wait(&format!("the kubelet says {} on {}", self.reason(), self.pod()), || {
            let text = self.stage.try_kubectl(&["get", "pod", &self.pod(), "-o", path])?;
            let conditions: Value = serde_json::from_str(&text).unwrap_or_default();
            let all = conditions.as_array().into_iter().flatten();
            let shown = all.map(|one| {
                let word = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
                format!("{}/{} ({})", word("status"), word("reason"), word("message"))
            });
            let shown = shown.collect::<Vec<_>>().join(", ");
            if shown.contains(self.reason()) { Ok(shown) } else { Err(format!("it has {text:?}")) }
        });
        self.say(&format!("the kubelet says {said} after {:.1} s", self.began.elapsed().as_secs_f32()));
    }

    fn pod(&self) -> String {
        format!("reader-{}", self.kind)
    }

    fn reason(&self) -> &'static str {
        self.condition.split_once('/').unwrap().1
    }

    fn say(&self, what: &str) {
        say(&format!("{} on {}: {what}", self.fault, self.kind));
    }
}

/// The line about this, seen by the host's own checks, that `kubectl describe pod` shows.
fn described(stage: &Stage, pod: &str, reason: &str, condition: &str) -> String {
    stage.wait(&format!("{reason} {condition} is reported on {pod}"), || {
        let shown = stage.try_kubectl(&["describe", "pod", pod])?;
        let is_it = |line: &&str| [reason, condition, "host checks"].iter().all(|word| line.contains(word));
        shown.lines().find(is_it).map(str::to_owned).ok_or(shown)
    })
}

pub(crate) fn handle(stage: &Stage, claim: &str) -> String {
    let volume = stage.kubectl(&["get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}"]);
    stage.kubectl(&["get", "pv", &volume, "-o", "jsonpath={.spec.csi.volumeHandle}"])
}

#[expect(clippy::print_stderr, reason = "figures for whoever reads the test's output")]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}
