//! What Volmedic reports about a claim, by vantage, before and after something happens to its volume.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::NAMESPACE;
use crate::stage::{PROGRAM, Stage};

const PAUSE: Duration = Duration::from_millis(500);
/// Some intervals of every vantage, for those that report later than the first.
const SETTLE: Duration = Duration::from_secs(15);

/// The conditions of each vantage, as status, reason and message. The node's name is left out of theirs: there is one.
type Conditions = BTreeMap<String, Vec<[String; 3]>>;

/// One claim at one moment.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) conditions: Conditions,
    pub(super) headline: String,
}

impl Look {
    pub(super) fn at(stage: &Stage, claim: &str) -> Self {
        let arguments = ["get", "volumehealth", claim, "--ignore-not-found", "-o", "json"];
        // While the node is down, so may be what answers.
        let text = stage.try_kubectl(&arguments).unwrap_or_default();
        let Ok(health) = serde_json::from_str::<Value>(&text) else { return Self::default() };
        let word = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let headline = &health["status"]["headline"];
        let headline = format!("{} {}", word(headline, "health"), word(headline, "reason"));
        let mut look = Self { conditions: Conditions::new(), headline: headline.trim().to_owned() };
        for vantage in health["status"]["vantages"].as_array().into_iter().flatten() {
            let kind = word(vantage, "kind").to_lowercase();
            for condition in vantage["healthConditions"].as_array().into_iter().flatten() {
                let condition =
                    [word(condition, "severity"), word(condition, "reason"), word(condition, "message")];
                look.conditions.entry(kind.clone()).or_default().push(condition);
            }
        }
        look
    }

    /// Whether anything is wrong from any vantage.
    pub(super) fn is_quiet(&self) -> bool {
        self.conditions.is_empty()
    }
}

/// What one vantage reported, and after how long.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) after_seconds: f32,
}

/// All that was reported about one claim because of one fault.
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct Observation {
    /// By vantage; only what was not reported before the fault.
    pub(super) reports: BTreeMap<String, Vec<Report>>,
    pub(super) headline: String,
    /// The claim's row of `volmedic status`.
    pub(super) status: String,
    /// Lines of the agent's and the sidecar's log about the driver itself.
    pub(super) of_the_driver: Vec<String>,
}

/// Watches a claim for `limit` at most, and for [`SETTLE`] after the last new report.
pub(super) fn observe(stage: &Stage, claim: &str, before: &Look, limit: Duration) -> Observation {
    let began = Instant::now();
    let mut seen = Observation::default();
    let mut last = None;
    while began.elapsed() < limit && last.is_none_or(|last: Instant| last.elapsed() < SETTLE) {
        let look = Look::at(stage, claim);
        for (vantage, conditions) in &look.conditions {
            let old = before.conditions.get(vantage).map(Vec::as_slice).unwrap_or_default();
            for [status, reason, message] in conditions {
                let known = old.iter().any(|[_, known, _]| known == reason);
                let reports = seen.reports.entry(vantage.clone()).or_default();
                if !known && !reports.iter().any(|report| report.reason == *reason) {
                    let (status, reason, message) = (status.clone(), reason.clone(), message.clone());
                    let after_seconds = (began.elapsed().as_secs_f32() * 10.0).round() / 10.0;
                    reports.push(Report { status, reason, message, after_seconds });
                    last = Some(Instant::now());
                }
            }
        }
        if !look.headline.is_empty() {
            seen.headline = look.headline;
        }
        sleep(PAUSE);
    }
    seen.reports.retain(|_, reports| !reports.is_empty());
    seen.status = status(stage, claim);
    seen
}

/// How long until a claim is reported as before, or `None` when it is not within `limit`.
pub(super) fn recovered(stage: &Stage, claim: &str, before: &Look, limit: Duration) -> Option<f32> {
    let began = Instant::now();
    let names = |look: &Look| -> Vec<(String, String)> {
        let all = look.conditions.iter();
        all.flat_map(|(vantage, all)| all.iter().map(|one| (vantage.clone(), one[1].clone()))).collect()
    };
    while began.elapsed() < limit {
        if names(&Look::at(stage, claim)) == names(before) {
            return Some((began.elapsed().as_secs_f32() * 10.0).round() / 10.0);
        }
        sleep(PAUSE);
    }
    None
}

/// The claim's row of `volmedic status`, as a person sees it.
pub(super) fn status(stage: &Stage, claim: &str) -> String {
    let mut command = Command::new("timeout");
    command.args(["60", PROGRAM, "status", "-n", "default", "--limit=0"]);
    command.env("KUBECONFIG", stage.kubeconfig()).env("NO_COLOR", "1").stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let row = text.lines().find(|line| line.split_whitespace().nth(1) == Some(claim));
    let shown = row.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
    shown.unwrap_or_else(|| format!("no row; {}", String::from_utf8_lossy(&output.stderr)))
}

/// What the agent's log, and the sidecar's if there is one, say about a driver since a moment.
pub(super) fn log_lines(stage: &Stage, driver: &str, sidecar: Option<&str>, since: Instant) -> Vec<String> {
    let since = format!("--since={}s", since.elapsed().as_secs() + 1);
    let mut logs =
        stage.try_kubectl(&["logs", "daemonset/volmedic-agent", "-n", NAMESPACE, &since]).unwrap_or_default();
    if let Some(workload) = sidecar {
        logs += &stage.try_kubectl(&["logs", workload, "-c", "volmedic", &since]).unwrap_or_default();
    }
    let messages = logs.lines().filter(|line| line.contains(driver)).filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let level = line["level"].as_str()?;
        let message = line["fields"]["message"].as_str().or_else(|| line["message"].as_str())?;
        ["WARN", "ERROR"].contains(&level).then(|| message.to_owned())
    });
    let mut found: Vec<String> = messages.collect();
    found.dedup();
    found.truncate(4);
    found
}
