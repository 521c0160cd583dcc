//! Volmedic as README.md and docs/install.md say that it is installed: their lines are read from a clean clone and typed as
//! they are, on the cluster of `cargo xtask cluster up`. What happens to a volume is read where people read it, and healed
//! when that is on. After the removal exactly that is left which docs/install.md lists.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};
use volmedic_testkit::NODE;

use crate::agent::{handle, say};
use crate::stage::{DRIVER, KUBECTL_WAITS, Named, Stage, Turn, newcomers};
use crate::{KINDS, ready};
use documents::{blocks, code, rows, section};
use remains::Objects;
use terminal::Terminal;

mod documents;
mod remains;
mod terminal;

const NAMESPACE: &str = "volmedic";

#[test]
fn the_documents_lead_to_an_installation_that_works_and_out_of_it() {
    let mut terminal = Terminal::open();
    let (readme, install) = (terminal.read("README.md"), terminal.read("docs/install.md"));
    let readme = section(&readme, "## On a cluster");
    let [build, put_in] = blocks(readme)[..] else { panic!("two blocks were expected:\n{readme}") };
    let said = terminal.in_turn(build);
    assert!(said.starts_with("1/3 "), "says what it does before it does it: {said}");

    let turn = Turn::take();
    let all = rows(readme);
    let ours =
        all.iter().find(|row| row[1].contains("cargo xtask cluster up")).expect("a row for our cluster");
    let cluster = Named(newcomers());
    terminal.types(&code(ours[1]).join("\n"));
    let mut stage = Stage::start_on(cluster, turn);
    let mut objects = vec![crate::kind::definition()];
    objects.extend(KINDS.iter().flat_map(|kind| [kind.claim(), kind.pod("user", "true")]));
    stage.create(&objects.into());
    crate::all_ready(&stage, "user");
    let before = Objects::of(&stage);

    // The one line that is longer on some clusters.
    let is_install = |line: &&str| line.starts_with("helm install ");
    let line = put_in.lines().find(is_install).expect("a line for helm");
    let [more] = code(ours[2])[..] else { panic!("one flag was expected: {ours:?}") };
    let said = terminal.types(&put_in.replace(line, &format!("{line} {more}")));
    say(&said);
    running(&stage);
    let lacking = lacking_here();
    assert_eq!(
        checks_off(&stage),
        [&lacking[..], &["kernel-log"]].concat(),
        "only that takes a privileged container"
    );
    a_fault_is_reported_and_its_end(&stage, &mut terminal, put_in.lines().last().unwrap());

    upgraded(&stage, &mut terminal, line);
    stage.wait("every check runs", || {
        let off = checks_off(&stage);
        if off == lacking { Ok(()) } else { Err(format!("off: {off:?}")) }
    });
    a_dead_mounter_is_healed(&stage);

    removed(&mut stage, &mut terminal, section(&install, "## Removing"), &before);
    crate::delete_pods(&stage, "user");
    stage.kubectl(&["delete", "pvc", "--all", KUBECTL_WAITS]);
    stage.wait("nothing of the volumes is left", || {
        let traces = stage.traces();
        if traces.is_empty() { Ok(()) } else { Err(format!("{traces:#?}")) }
    });
    stage.stop();
}

/// Both replicas of the hub, and the agent of the one node, in the version that was installed last.
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

/// The checks for which this machine lacks something. Other tests mount fusectl too, elsewhere and for a moment: only the
/// usual mount point counts.
fn lacking_here() -> Vec<&'static str> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let usual = |line: &str| line.contains(" /sys/fs/fuse/connections fusectl ");
    if mounts.lines().any(usual) { Vec::new() } else { vec!["fuse-connections"] }
}

/// The host checks that do not run on the node.
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

/// With the chart's own intervals.
fn a_fault_is_reported_and_its_end(stage: &Stage, terminal: &mut Terminal, status: &str) {
    let (claim, fault) = ("ext4", "read-only");
    let volume = handle(stage, claim);
    ready(stage, "user-ext4");
    let began = Instant::now();
    stage.fault("inject", fault, &volume);
    // The driver's controller may be the first to see it; the agent's host checks see it, too.
    let by_agent =
        format!(r#"jsonpath={{.status.vantages[?(@.name=="host/{NODE}")].healthConditions[*].reason}}"#);
    stage.wait("the agent's own checks see it", || {
        let seen = stage.try_kubectl(&["get", "volumehealth", claim, "-o", &by_agent])?;
        if seen == "ReadOnlyFilesystem" { Ok(()) } else { Err(format!("they see {seen:?}")) }
    });
    say(&format!("read-only on ext4: reported by the agent after {:.1} s", began.elapsed().as_secs_f32()));
    let headline = stage.kubectl(&["get", "volumehealth", claim]);
    assert!(headline.contains("HealthFailure"), "{headline}");
    let unverified = "jsonpath={.status.vantages[?(@.verified==false)].name}";
    assert_eq!(
        stage.kubectl(&["get", "volumehealth", claim, "-o", unverified]),
        "",
        "the policy is installed"
    );

    let table = terminal.types(status);
    say(&table);
    let row =
        table.lines().find(|line| line.contains("ReadOnlyFilesystem")).unwrap_or_else(|| panic!("{table}"));
    for word in ["default", claim, NODE, "user-ext4", "Inaccessible"] {
        assert!(row.contains(word), "{word} in {table}");
    }

    stage.fault("clear", fault, &volume);
    stage.kubectl(&["wait", "volumehealth/ext4", "--for=condition=Healthy", KUBECTL_WAITS]);
}

/// Agents that lack nothing, marks on volumes, healing, and reports of others, with certificates that the chart makes.
fn upgraded(stage: &Stage, terminal: &mut Terminal, install: &str) {
    let values = json!({
        "agent": {"privileged": true, "monitorInterval": "2s", "probeTimeout": "5s"},
        "push": {"enabled": true},
        "heal": {"enabled": true, "mode": "auto", "addonsSockets": [stage.addons()]},
        "hub": {"markVolumes": true, "extraArgs": ["--heal-debounce=1s"]},
    });
    let upgrade = install.replacen("helm install", "helm upgrade", 1);
    terminal.types(&format!("{upgrade} --reuse-values --set-json '{values}'"));
    running(stage);
}

/// By the driver, asked by the relay in the agent's pod, asked by the healer in the hub's.
fn a_dead_mounter_is_healed(stage: &Stage) {
    let (claim, pod) = ("fuse", "user-fuse");
    stage.wait("the relay is registered", || {
        let names = stage.try_kubectl(&["get", "csiaddonsnodes", "-n", NAMESPACE, "-o", "name"])?;
        if names.is_empty() { Err("there is no CSIAddonsNode".to_owned()) } else { Ok(()) }
    });
    let volume = handle(stage, claim);
    // A driver that is new to the healer has its volumes checked, which heals what is unhealthy without a report.
    stage.wait("the healer has had all volumes checked", || {
        let checked = stage.says("driver", &format!("checked to be healed volume=\"{volume}\""));
        if checked > 0 { Ok(()) } else { Err("the driver was not asked yet".to_owned()) }
    });
    let began = Instant::now();
    stage.fault("inject", "mounter-killed", &volume);
    stage.wait("the healer had it healed", || {
        let outcomes = "jsonpath={.status.heals[*].outcome}";
        let stored = stage.try_kubectl(&["get", "volumehealth", claim, "-o", outcomes])?;
        if stored.contains("Succeeded") { Ok(()) } else { Err(format!("heals: {stored:?}")) }
    });
    say(&format!("mounter killed, chart with healing: healed after {:.1} s", began.elapsed().as_secs_f32()));
    stage.kubectl(&["exec", pod, "--", "timeout", "30", "touch", "/data/alive"]);
    stage.kubectl(&["wait", &format!("volumehealth/{claim}"), "--for=condition=Healthy", KUBECTL_WAITS]);
}

/// With a volume that is unhealthy, which leaves the most.
fn removed(stage: &mut Stage, terminal: &mut Terminal, page: &str, before: &Objects) {
    let volume = handle(stage, "ext4");
    stage.fault("inject", "drive-bad", &volume);
    let marked = ["get", "pv", "--selector=volmedic.dev/health", "-o", "name"];
    stage.wait("the volume is marked, in all ways", || {
        let health = "jsonpath={.status.healthStatus.healthConditions[*].reason}";
        let (volumes, claim) =
            (stage.try_kubectl(&marked)?, stage.try_kubectl(&["get", "pvc", "ext4", "-o", health])?);
        if volumes.is_empty() || claim.is_empty() { Err(format!("{volumes:?}, {claim:?}")) } else { Ok(()) }
    });

    let [uninstall, clear] = blocks(page)[..] else { panic!("two blocks were expected:\n{page}") };
    // "First take the sidecars out of their drivers."
    stage.end("controller");
    terminal.types(uninstall);
    let listed: BTreeSet<String> =
        rows(page).iter().flat_map(|row| code(row[0])).map(str::to_owned).collect();
    stage.wait("what is left is what docs/install.md lists", || {
        let found = Objects::of(stage).since(before);
        if found == listed { Ok(()) } else { Err(format!("left: {found:?}, listed: {listed:?}")) }
    });

    terminal.types(clear);
    let lease = page.split('`').find(|text| text.contains("delete lease")).expect("how to delete a Lease");
    let driver = DRIVER.replace('.', "-");
    terminal.types(&lease.replace("<namespace>", "default").replace("<driver>", &driver));
    stage.wait("nothing is left", || {
        let found = Objects::of(stage).since(before);
        if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    });
    stage.fault("clear", "drive-bad", &volume);
}
