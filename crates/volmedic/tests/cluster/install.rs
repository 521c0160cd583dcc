//! Volmedic as it is installed: the chart, rendered by Helm, on a real cluster. Its pods run from an image under the rights
//! and the confinement that it ships; what happens to a volume is read where people read it, and mended when that is on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use volmedic_testkit::NODE;
use volmedic_testkit::helm::Chart;
use volmedic_testkit::image::Image;

use crate::agent::{handle, say};
use crate::stage::{PROGRAM, Stage};
use crate::{KINDS, ready};

const NAMESPACE: &str = "volmedic";
const REPOSITORY: &str = "volmedic.test/volmedic";
/// A program to put into the image instead of the one that the tests are built with, such as one of `cargo xtask dist`.
const SHIPPED: &str = "VOLMEDIC_TEST_PROGRAM";

#[test]
fn what_the_chart_installs_tells_of_a_volume_that_fails() {
    let stage = Stage::start_healing();
    let mut objects = vec![crate::kind::definition()];
    objects.extend(KINDS.iter().flat_map(|kind| [kind.claim(), kind.pod("user", "true")]));
    stage.create(&objects.into());
    stage.import(&image());
    namespace(&stage);

    let manifests = Manifests::render(&stage, &json!({}));
    manifests.apply(&stage);
    crate::all_ready(&stage, "user");
    running(&stage);
    let lacking = lacking_here();
    assert_eq!(
        checks_off(&stage),
        [&lacking[..], &["kernel-log"]].concat(),
        "only that takes a privileged container"
    );
    a_fault_is_told_and_its_end(&stage);

    // An upgrade: agents that lack nothing, healing, and reports of others, with certificates that the chart makes.
    let manifests = Manifests::render(
        &stage,
        &json!({
            "agent": {"privileged": true},
            "push": {"enabled": true},
            "heal": {"enabled": true, "mode": "auto", "addonsSockets": [stage.addons()]},
            "hub": {"extraArgs": ["--heal-debounce=1s"]},
        }),
    );
    manifests.apply(&stage);
    running(&stage);
    stage.wait("every check runs", || {
        let off = checks_off(&stage);
        if off == lacking { Ok(()) } else { Err(format!("off: {off:?}")) }
    });
    a_dead_mounter_is_mended(&stage);

    uninstalled(&stage, &manifests);
    crate::delete_pods(&stage, "user");
    stage.kubectl(&["delete", "pvc", "--all", "--timeout=90s"]);
    stage.wait("nothing of the volumes is left", || {
        let traces = stage.traces();
        if traces.is_empty() { Ok(()) } else { Err(format!("{traces:#?}")) }
    });
    stage.stop();
}

fn image() -> Image {
    let program = std::env::var_os(SHIPPED).map_or_else(|| PathBuf::from(PROGRAM), PathBuf::from);
    let mut image = Image::new(&format!("{REPOSITORY}:{}", env!("CARGO_PKG_VERSION")));
    image.entrypoint = vec!["/volmedic".into()];
    image.program("volmedic", &program).unwrap();
    image
}

fn namespace(stage: &Stage) {
    let labels = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    stage.create(&json!([
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
    ]));
}

/// What Helm made of the chart.
struct Manifests {
    file: tempfile::NamedTempFile,
}

impl Manifests {
    /// With these values besides what this cluster needs.
    fn render(stage: &Stage, more: &Value) -> Self {
        let chart = Chart::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let mut values = json!({
            "image": {"repository": REPOSITORY, "pullPolicy": "Never"},
            "agent": {
                "kubeletDir": stage.folder().join("kubelet"),
                "stateDir": stage.folder().join("agent-state"),
                "monitorInterval": "2s",
                "probeTimeout": "5s",
            },
        });
        merge(&mut values, more);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), chart.render(NAMESPACE, &values).unwrap()).unwrap();
        Self { file }
    }

    fn path(&self) -> &str {
        self.file.path().to_str().unwrap()
    }

    fn apply(&self, stage: &Stage) {
        stage.wait("the manifests are taken", || {
            stage.try_kubectl(&["apply", "--server-side", "-f", self.path()])
        });
    }
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// Both replicas of the hub, and the agent of the one node, in the version that was applied last.
fn running(stage: &Stage) {
    for workload in ["deployment/volmedic-hub", "daemonset/volmedic-agent"] {
        stage.wait(&format!("{workload} is rolled out"), || {
            stage.try_kubectl(&["rollout", "status", workload, "-n", NAMESPACE, "--timeout=5s"]).map_err(
                |error| {
                    let pods = stage.try_kubectl(&["describe", "pods", "-n", NAMESPACE]).unwrap_or_default();
                    let logs = stage.try_kubectl(&["logs", workload, "-n", NAMESPACE, "--tail=20"]);
                    format!("{error}\n{pods}\n{}", logs.unwrap_or_else(|error| error))
                },
            )
        });
    }
}

/// The checks that this machine does not have what they need for, whoever runs them.
fn lacking_here() -> Vec<&'static str> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    if mounts.lines().any(|line| line.contains(" fusectl ")) { Vec::new() } else { vec!["fuse-connections"] }
}

/// The host's own checks that do not run on the node.
fn checks_off(stage: &Stage) -> Vec<String> {
    let checks = stage.wait("the agent reports", || {
        let text = stage.try_kubectl(&["get", "nodevolumehealth", NODE, "-o", "json"])?;
        let report: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let checks = report["spec"]["report"]["checks"].as_array();
        checks.filter(|checks| !checks.is_empty()).cloned().ok_or(text)
    });
    let off = checks.iter().filter(|check| check["running"] == false);
    off.map(|check| check["name"].as_str().unwrap().to_owned()).collect()
}

fn a_fault_is_told_and_its_end(stage: &Stage) {
    let (claim, fault) = ("ext4", "read-only");
    let volume = handle(stage, claim);
    ready(stage, "user-ext4");
    let began = Instant::now();
    stage.fault("inject", fault, &volume);
    let shown = headline(stage, claim, |line| line.contains("ReadOnlyFilesystem"));
    say(&format!("read-only on ext4, chart installed: told after {:.1} s", began.elapsed().as_secs_f32()));
    assert!(shown.contains("HealthFailure"), "{shown}");
    // The driver's controller may be the first to see it; the agent does, too, with its own eyes.
    let by_agent =
        format!(r#"jsonpath={{.status.vantages[?(@.name=="host/{NODE}")].healthConditions[*].reason}}"#);
    stage.wait("the agent's own checks see it", || {
        let seen = stage.try_kubectl(&["get", "volumehealth", claim, "-o", &by_agent])?;
        if seen == "ReadOnlyFilesystem" { Ok(()) } else { Err(format!("it sees {seen:?}")) }
    });
    let unverified = "jsonpath={.status.vantages[?(@.verified==false)].name}";
    assert_eq!(
        stage.kubectl(&["get", "volumehealth", claim, "-o", unverified]),
        "",
        "the policy is installed"
    );

    let table = status(stage);
    let row =
        table.lines().find(|line| line.contains("ReadOnlyFilesystem")).unwrap_or_else(|| panic!("{table}"));
    for word in ["default", claim, NODE, "user-ext4", "Inaccessible"] {
        assert!(row.contains(word), "{word} in {table}");
    }

    stage.fault("clear", fault, &volume);
    let wait = ["wait", "volumehealth/ext4", "--for=condition=Healthy", "--timeout=60s"];
    stage.kubectl(&wait);
}

/// What `volmedic status` shows to who may see everything.
fn status(stage: &Stage) -> String {
    let mut command = Command::new("timeout");
    command.args(["60", PROGRAM, "status", "--kubeconfig"]).arg(stage.plane().kubeconfig());
    let output = command.env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// By the driver, asked by the relay in the agent's pod, asked by the healer in the hub's.
fn a_dead_mounter_is_mended(stage: &Stage) {
    let (claim, pod) = ("fuse", "user-fuse");
    stage.wait("the relay is registered", || {
        let names = stage.try_kubectl(&["get", "csiaddonsnodes", "-n", NAMESPACE, "-o", "name"])?;
        if names.is_empty() { Err("there is no CSIAddonsNode".to_owned()) } else { Ok(()) }
    });
    let volume = handle(stage, claim);
    // A driver that is new to the healer has its volumes checked, which mends what is ill without a word.
    stage.wait("the healer has had all volumes checked", || {
        let checked = stage.says("driver", &format!("looked at to be healed volume=\"{volume}\""));
        if checked > 0 { Ok(()) } else { Err("the driver was not asked yet".to_owned()) }
    });
    let began = Instant::now();
    stage.fault("inject", "mounter-killed", &volume);
    stage.wait("the healer had it mended", || {
        let outcomes = "jsonpath={.status.heals[*].outcome}";
        let told = stage.try_kubectl(&["get", "volumehealth", claim, "-o", outcomes])?;
        if told.contains("Succeeded") { Ok(()) } else { Err(format!("heals: {told:?}")) }
    });
    say(&format!("mounter killed, chart with healing: mended after {:.1} s", began.elapsed().as_secs_f32()));
    stage.kubectl(&["exec", pod, "--", "timeout", "30", "touch", "/data/alive"]);
    stage.kubectl(&["wait", &format!("volumehealth/{claim}"), "--for=condition=Healthy", "--timeout=90s"]);
}

/// The line of `kubectl get volumehealth` about this claim, as soon as it is what is waited for.
fn headline(stage: &Stage, claim: &str, wanted: impl Fn(&str) -> bool) -> String {
    stage.wait(&format!("the headline of {claim}"), || {
        let table = stage.try_kubectl(&["get", "volumehealth", "--all-namespaces"])?;
        let line = table.lines().find(|line| line.split_whitespace().nth(1) == Some(claim) && wanted(line));
        line.map(str::to_owned).ok_or(table)
    })
}

/// All goes but the definitions, which the chart keeps on purpose, and what is stored in them.
fn uninstalled(stage: &Stage, manifests: &Manifests) {
    stage.kubectl(&["delete", "-f", manifests.path(), "--timeout=90s", "--ignore-not-found"]);
    stage.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=90s"]);
    let kinds = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,validatingadmissionpolicies,\
                 validatingadmissionpolicybindings,customresourcedefinitions,daemonsets,deployments,pods";
    let ours = "app.kubernetes.io/name=volmedic";
    let left = stage.kubectl(&["get", kinds, "--all-namespaces", "-l", ours, "-o", "name"]);
    assert_eq!(left, "");
}
