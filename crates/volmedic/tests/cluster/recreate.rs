//! Recreating pods on a real cluster, beside a driver that nobody can ask to heal: mounters die, and pods that may be evicted are
//! replaced by pods that write again. A PodDisruptionBudget holds, and nothing else is touched. No relay is installed, and the
//! hub calls none. A local volume, which has no driver at all, is healed in the same way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use volmedic_driver::mounter;
use volmedic_testkit::sidecars::Companion;
use volmedic_testkit::{IMAGE, NODE};

use crate::agent::{handle, say};
use crate::stage::{PROGRAM, Stage};

const HOME: &str = "default";
const QUICK: [&str; 11] = [
    "--heal-recreate-pods",
    "--heal-debounce=1s",
    "--heal-pause=1s",
    "--heal-longest-pause=3s",
    "--heal-look-again=1s",
    "--heal-cooldown=30s",
    "--heal-brake-percent=100",
    "--heal-recreate-debounce=3s",
    "--heal-recreate-patience=5s",
    "--heal-recreate-settle=6s",
    "--heal-recreate-deadline=4m",
];
/// Goes on whatever becomes of the volume, so that only an eviction ends it.
const SCRIPT: &str = "trap 'exit 0' TERM; while true; do date > /data/last 2>/dev/null; sleep 0.2; done";

struct Scene {
    hub: Option<Companion>,
    stage: Stage,
}

#[test]
fn pods_are_recreated_where_they_may_be_and_only_there() {
    let began = Instant::now();
    let mut scene = Scene::open();
    let names = ["web", "db", "alone", "kept"];
    let mut objects: Vec<Value> = names
        .iter()
        .map(|name| match *name {
            "kept" => claim(name, None),
            name => claim(name, Some("auto")),
        })
        .collect();
    objects.extend([
        workload("Deployment", "web"),
        workload("StatefulSet", "db"),
        workload("Deployment", "kept"),
    ]);
    objects.extend([bare_pod("alone"), budget("web", 1), workload("Deployment", "disk")]);
    objects.extend(local_volume("disk", &scene.file("disk")));
    scene.stage.create(&objects.into());
    let disk = scene.ready("disk");
    let before: Vec<(String, String)> = names.iter().map(|name| scene.ready(name)).collect();
    scene.stage.wait("the budget is known to allow nothing", || {
        let path = "jsonpath={.status.currentHealthy}/{.status.disruptionsAllowed}";
        let found = scene.stage.try_kubectl(&["get", "pdb", "web", "-o", path])?;
        if found == "1/0" { Ok(()) } else { Err(found) }
    });
    scene.start_agent();
    scene.start_hub();
    say(&format!("all run after {:.0} s", began.elapsed().as_secs_f32()));

    for name in names {
        scene.kill_mounter(name);
    }
    let folder = format!("pods/{}/volumes/kubernetes.io~local-volume/disk", disk.1);
    unmount(scene.stage.kubelet().join(folder), UnmountFlags::DETACH).unwrap();
    let killed = Instant::now();
    // The StatefulSet has no budget.
    scene.event("db", "HealingSucceeded", &["it was mounted again and is healthy"]);
    say(&format!("db: healthy under a new pod after {:.1} s", killed.elapsed().as_secs_f32()));
    // The Deployment has one.
    scene.event("web", "HealingFailed", &["the eviction of pod web-", "disruption budget"]);
    assert_eq!(scene.pod("web").1, before[0].1, "the budget was not respected");
    // This one has no controller, and of this one nobody said anything.
    scene.event("alone", "HealingSkipped", &["pod alone has no controller"]);
    assert!(scene.events("kept", "Healing").is_empty());

    let allowed = Instant::now();
    scene.stage.kubectl(&["patch", "pdb", "web", "--type=merge", "-p", r#"{"spec":{"minAvailable":0}}"#]);
    let started = scene.event("web", "HealingSucceeded", &["replaced: web-"]);
    say(&format!(
        "web: healthy under a new pod {:.1} s after the budget allowed it",
        allowed.elapsed().as_secs_f32()
    ));
    assert!(!started.is_empty());
    scene.event("web", "HealingStarted", &["RecreatePods is auto by the claim's annotation"]);

    scene.event("disk", "HealingSucceeded", &["it was mounted again and is healthy"]);
    for (name, old) in ["web", "db", "disk"].iter().zip(before[..2].iter().chain([&disk])) {
        let (pod, uid) = scene.ready(name);
        assert_ne!(uid, old.1, "{name} has its old pod");
        scene.writes(&pod);
        let path = r#"jsonpath={range .status.heals[*]}{.remedy} {.outcome} {.attempt}{"\n"}{end}"#;
        let heals = scene.stage.kubectl(&["get", "volumehealth", name, "-o", path]);
        assert_eq!(heals.lines().filter(|line| *line == "RecreatePods Succeeded 1").count(), 1, "{heals}");
    }
    for (name, old) in ["alone", "kept"].iter().zip(&before[2..]) {
        assert_eq!(scene.pod(name), *old, "{name} was touched");
    }
    let (code, said) = scene.heal(&["kept", "--dry-run"]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("recreating pods is off by default") && !said.contains("relay"), "{said}");
    say(&format!("all of it took {:.0} s", began.elapsed().as_secs_f32()));
    scene.close();
}

impl Scene {
    fn open() -> Self {
        let stage = Stage::start();
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/files");
        // Without the policies the healer only observes.
        let policies = ["admission-agent.yaml", "admission-health.yaml", "admission-hub.yaml"];
        for part in
            ["crds", "rbac-agent.yaml", "rbac-hub.yaml", "rbac-healer.yaml"].into_iter().chain(policies)
        {
            stage.kubectl(&["apply", "-n", HOME, "-f", files.join(part).to_str().unwrap()]);
        }
        Self { hub: None, stage }
    }

    /// With a token of its node, so that it may report about it.
    fn start_agent(&mut self) {
        let stage = &mut self.stage;
        let bound = ["--bound-object-kind=Node", &format!("--bound-object-name={NODE}")].map(str::to_owned);
        let token = ["create", "token", "volmedic-agent", "--duration=1h", &bound[0], &bound[1]];
        let token = stage.kubectl(&token);
        stage.write_kubeconfig(&stage.folder().join("agent.kubeconfig"), &token);
        stage.start_agent();
        stage.wait("the agent reports on its node", || stage.try_kubectl(&["get", "nodevolumehealth", NODE]));
    }

    /// With the rights that are shipped, and no relay to ask.
    fn start_hub(&mut self) {
        let stage = &self.stage;
        let kubeconfig = self.file("hub.kubeconfig");
        stage.write_kubeconfig(
            &kubeconfig,
            &stage.kubectl(&["create", "token", "volmedic-hub", "--duration=1h"]),
        );
        let mut command = Command::new(PROGRAM);
        command.env("POD_NAMESPACE", HOME);
        command.args(["hub", "--leader-election=false", "--http-endpoint=127.0.0.1:0", "--heal"]);
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.args(QUICK);
        self.hub = Some(stage.companion("hub", command));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.stage.folder().join(name)
    }

    /// The name and uid of the one pod of a workload that does not end.
    fn pods(&self, name: &str) -> Result<Vec<(String, String, bool)>, String> {
        let list = self.stage.try_kubectl(&["get", "pods", "-l", &format!("app={name}"), "-o", "json"])?;
        let list: Value = serde_json::from_str(&list).map_err(|error| error.to_string())?;
        let pods = list["items"].as_array().unwrap().iter();
        let here = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.filter(|one| one["type"] == "Ready").any(|one| one["status"] == "True")
        };
        let all = here.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]), ready(pod)));
        Ok(all.collect())
    }

    fn pod(&self, name: &str) -> (String, String) {
        match &self.pods(name).unwrap()[..] {
            [(pod, uid, _)] => (pod.clone(), uid.clone()),
            other => panic!("{name} has {other:?}"),
        }
    }

    fn ready(&self, name: &str) -> (String, String) {
        self.stage.wait(&format!("{name} is ready"), || match &self.pods(name)?[..] {
            [(pod, uid, true)] => Ok((pod.clone(), uid.clone())),
            other => Err(format!("{other:?}")),
        })
    }

    fn writes(&self, pod: &str) {
        let command = ["exec", pod, "--", "sh", "-c", "echo again > /data/word && cat /data/word"];
        assert_eq!(self.stage.kubectl(&command).trim(), "again");
    }

    fn kill_mounter(&self, claim: &str) {
        let volume = self.stage.state().volume(&handle(&self.stage, claim));
        let found = mounter::find(&volume).unwrap().expect("a mounter to kill");
        kill_process(Pid::from_raw(found.pid).unwrap(), Signal::KILL).unwrap();
    }

    /// The messages of events on a claim whose reason begins like this.
    fn events(&self, claim: &str, reason: &str) -> Vec<(String, String)> {
        let fields = format!("involvedObject.kind=PersistentVolumeClaim,involvedObject.name={claim}");
        let list = self.stage.kubectl(&["get", "events", "--field-selector", &fields, "-o", "json"]);
        let list: Value = serde_json::from_str(&list).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = list["items"].as_array().unwrap().iter();
        let all = all.map(|event| (text(&event["reason"]), text(&event["message"])));
        all.filter(|(found, _)| found.starts_with(reason)).collect()
    }

    fn event(&self, claim: &str, reason: &str, words: &[&str]) -> String {
        self.stage.wait(&format!("{claim} has {reason} with {words:?}"), || {
            let events = self.events(claim, "Healing");
            let wanted = |(found, text): &&(String, String)| {
                found == reason && words.iter().all(|word| text.contains(word))
            };
            let found = events.iter().find(wanted).map(|(_, text)| text.clone());
            found.ok_or_else(|| format!("{events:#?}\n{}", self.hubs_log()))
        })
    }

    fn hubs_log(&self) -> String {
        let log = fs::read_to_string(self.stage.folder().join("logs/hub.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn heal(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new("timeout");
        command.args(["60", PROGRAM, "heal"]).args(arguments).args(["--namespace", HOME]);
        command.arg(format!("--kubeconfig={}", self.stage.kubeconfig().display()));
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }

    fn close(mut self) {
        let mut hub = self.hub.take().unwrap();
        hub.check().unwrap();
        hub.stop().unwrap();
        let stage = &self.stage;
        stage.kubectl(&["delete", "deployments,statefulsets,pods", "--all", "--timeout=120s"]);
        stage.kubectl(&["delete", "pvc", "--all", "--timeout=120s"]);
        stage.kubectl(&["delete", "pv", "disk", "--timeout=120s"]);
        stage.wait("nothing of the volumes is left", || {
            let traces = stage.traces();
            if traces.is_empty() { Ok(()) } else { Err(format!("{traces:#?}")) }
        });
        self.stage.stop();
    }
}

fn claim(name: &str, mode: Option<&str>) -> Value {
    let mut claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": HOME},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "volmedic-fuse",
                 "resources": {"requests": {"storage": "4Mi"}}},
    });
    if let Some(mode) = mode {
        claim["metadata"]["annotations"] = json!({"volmedic.dev/heal-recreate-pods": mode});
    }
    claim
}

/// A directory of the node, and a claim on it.
fn local_volume(name: &str, folder: &Path) -> [Value; 2] {
    fs::create_dir_all(folder).unwrap();
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]});
    let volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "4Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": HOME, "name": name},
            "local": {"path": folder},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    });
    let mut claim = claim(name, Some("auto"));
    claim["spec"]["storageClassName"] = json!("");
    claim["spec"]["volumeName"] = json!(name);
    [volume, claim]
}

fn template(name: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", SCRIPT],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
        },
    })
}

fn workload(kind: &str, name: &str) -> Value {
    let mut spec =
        json!({"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template(name)});
    if kind == "StatefulSet" {
        spec["serviceName"] = json!(name);
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": HOME}, "spec": spec})
}

fn bare_pod(name: &str) -> Value {
    let mut pod = template(name);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["namespace"] = json!(HOME);
    pod
}

fn budget(name: &str, at_least: u32) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": HOME},
        "spec": {"minAvailable": at_least, "selector": {"matchLabels": {"app": name}}},
    })
}
