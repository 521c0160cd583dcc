//! Alerts and dashboard: they speak of metrics that exist, and every alert has a page that says what to do.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use volmedic_testkit::packages;

use crate::rendered::with_everything;
use crate::root;
use crate::server::{find, taken};

const TESTS: &str = "crates/volmedic/tests/chart/alerts.yaml";

fn promtool(arguments: &[&str]) {
    packages::ensure(&["prometheus"]).unwrap();
    let mut command = Command::new("timeout");
    command.args(["60", "promtool"]).args(arguments).current_dir(root());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
}

#[test]
fn promtool_takes_the_rules_and_they_fire_when_they_should() {
    promtool(&["check", "rules", "deploy/chart/files/alerts.yaml"]);
    promtool(&["test", "rules", TESTS]);
}

/// Names of metrics in the documentation; a histogram has three series of its own.
fn documented() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let mut names = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        let ends: &[&str] = if cells[2] == "histogram" { &["_bucket", "_count", "_sum"] } else { &[""] };
        names.extend(ends.iter().map(|end| format!("{name}{end}")));
    }
    assert!(names.len() > 30, "{names:?}");
    names
}

/// Words of an expression that have the form of our metrics' names.
fn metrics(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("volmedic_") || word.starts_with("csi_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_dashboard_and_the_alerts_show_what_there_is() {
    let documented = documented();
    let text = fs::read_to_string(root().join("deploy/chart/files/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{} has the id of another", panel["title"]);
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{}", panel["title"]);
        for target in panel["targets"].as_array().unwrap() {
            let used = metrics(target["expr"].as_str().unwrap());
            assert!(!used.is_empty(), "{}", panel["title"]);
            let unknown: Vec<_> = used.difference(&documented).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?} are not in docs/metrics.md", panel["title"]);
        }
    }
    for (alert, expression) in alerts().iter().map(|rule| (&rule["alert"], rule["expr"].as_str().unwrap())) {
        let used = metrics(expression);
        let unknown: Vec<_> = used.difference(&documented).collect();
        assert!(!used.is_empty() && unknown.is_empty(), "{alert}: {unknown:?} are not in docs/metrics.md");
    }
}

/// As the API server takes them from the chart.
fn alerts() -> Vec<Value> {
    let objects = with_everything();
    let groups = find(objects, "PrometheusRule", "volmedic")["spec"]["groups"].as_array().unwrap().clone();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

#[test]
fn every_alert_has_its_page_and_its_test_and_only_the_unusable_is_critical() {
    let tests = fs::read_to_string(root().join(TESTS)).unwrap();
    let mut pages = BTreeSet::new();
    for rule in alerts() {
        let name = rule["alert"].as_str().unwrap();
        let page = rule["annotations"]["runbook"].as_str().unwrap();
        assert_eq!(page, format!("docs/runbooks/{name}.md"));
        let text = fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.starts_with(&format!("# {name}\n")), "{page}");
        for part in ["## What it means", "## What to do"] {
            assert!(text.contains(part), "{page} has no `{part}`");
        }
        pages.insert(format!("{name}.md"));
        assert!(tests.contains(&format!("alertname: {name}\n")), "{name} never fires in a test");
        let proven = rule["expr"].as_str().unwrap().contains(r#"status="Inaccessible""#)
            || rule["expr"].as_str().unwrap().contains(r#"status="DataLoss""#);
        let severity = if proven { "critical" } else { "warning" };
        assert_eq!(rule["labels"]["severity"], severity, "{name}");
    }
    let found = fs::read_dir(root().join("docs/runbooks")).unwrap();
    let found: BTreeSet<String> =
        found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, pages, "pages and alerts go together");
}

#[test]
fn with_a_url_of_the_runbooks_every_alert_leads_to_its_page() {
    let url = "https://git.example.com/volmedic/docs/runbooks";
    for given in [url.to_owned(), format!("{url}/")] {
        let objects = taken(&json!({"metrics": {"rules": {"enabled": true, "runbookUrl": given}}}));
        let groups = &find(&objects, "PrometheusRule", "volmedic")["spec"]["groups"];
        let rules = groups[0]["rules"].as_array().unwrap();
        assert!(rules.len() > 5, "{groups}");
        for rule in rules {
            let page = format!("{url}/{}.md", rule["alert"].as_str().unwrap());
            assert_eq!(rule["annotations"]["runbook"], page);
            assert_eq!(rule["annotations"]["runbook_url"], page);
        }
    }
}

#[test]
fn the_sidecars_of_all_controllers_are_scraped_by_the_port_that_they_have() {
    let monitor = find(with_everything(), "PodMonitor", "volmedic-controllers");
    let spec = &monitor["spec"];
    assert_eq!(spec["namespaceSelector"]["matchNames"], json!(["default", "kube-system"]), "each once");
    assert_eq!(spec["selector"], json!({}), "no label of another project's pods is known");
    assert_eq!(spec["podMetricsEndpoints"][0]["honorLabels"], true);
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    // Nothing but its name selects the port, so the container must have it.
    let patch = &find(with_everything(), "ConfigMap", "volmedic-sidecar-mine")["data"]["patch.yaml"];
    let port = spec["podMetricsEndpoints"][0]["port"].as_str().unwrap();
    assert!(patch.as_str().unwrap().contains(&format!("{{name: {port}, containerPort: 9820}}")), "{patch}");
    let alone = taken(&json!({"metrics": {"monitors": {"enabled": true}}}));
    let monitors = alone.iter().filter(|object| object["kind"] == "PodMonitor");
    assert_eq!(monitors.count(), 1, "only that of the agents, where there is no sidecar");
}

/// `promtool` runs them; here it is checked that the page has the same text.
#[test]
fn the_joins_of_the_documentation_are_those_that_are_tested() {
    let words = |path: &str| {
        let text = fs::read_to_string(root().join(path)).unwrap();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let (page, tests) = (words("docs/monitoring.md"), words(TESTS));
    let joins: Vec<&str> = tests.split("- expr: | ").skip(1).collect();
    assert_eq!(joins.len(), 2, "{tests}");
    for join in joins {
        let join = join.split(" eval_time:").next().unwrap();
        assert!(page.contains(&format!("``` {join} ```")), "docs/monitoring.md has not: {join}");
    }
}
