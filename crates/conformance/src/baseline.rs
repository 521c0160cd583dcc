//! What changed since an earlier run, whose report was kept as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::report::{Report, Verdict};

/// An earlier report. Rules that are not known any more are in it, too.
#[derive(Clone, Debug, Deserialize)]
pub struct Baseline {
    #[serde(default)]
    driver: String,
    #[serde(default)]
    version: String,
    outcomes: Vec<Earlier>,
    #[serde(default)]
    stopped: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct Earlier {
    rule: String,
    verdict: Verdict,
}

/// A rule that has another result than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub rule: &'static str,
    /// `None` if the rule was not checked then.
    pub before: Option<Verdict>,
    pub now: Verdict,
}

impl Change {
    /// Whether the rule is broken now and was not then.
    pub fn is_regression(&self) -> bool {
        self.now == Verdict::Fail
    }
}

impl Baseline {
    /// Reads what `-o json` wrote. A run that was stopped is refused: what it did not check would seem new.
    pub fn parse(text: &str) -> Result<Self, String> {
        let baseline: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if baseline.stopped {
            return Err("that run was stopped before every rule was checked".to_owned());
        }
        Ok(baseline)
    }
}

impl Report {
    /// The rules with another result than in an earlier run, in the order of rules.
    pub fn since(&self, baseline: &Baseline) -> Vec<Change> {
        let before: BTreeMap<&str, Verdict> =
            baseline.outcomes.iter().map(|outcome| (outcome.rule.as_str(), outcome.verdict)).collect();
        let changes = self.outcomes.iter().map(|outcome| Change {
            rule: outcome.rule,
            before: before.get(outcome.rule).copied(),
            now: outcome.verdict,
        });
        changes.filter(|change| change.before != Some(change.now)).collect()
    }

    /// The same for people.
    pub fn comparison(&self, baseline: &Baseline) -> String {
        let changes = self.since(baseline);
        let mut text = format!("Compared with {} {}: ", baseline.driver, baseline.version);
        if changes.is_empty() {
            text.push_str("no rule has another result.\n");
            return text;
        }
        let _ = writeln!(text, "{} of {} rules have another result.", changes.len(), self.outcomes.len());
        for change in &changes {
            let before = change.before.map_or_else(|| "not checked".to_owned(), |before| before.to_string());
            let mark = if change.is_regression() { "newly broken" } else { "changed" };
            let _ = writeln!(text, "{mark}: {}, {before} before, {} now", change.rule, change.now);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Outcome;

    fn report(verdicts: &[(&'static str, Verdict)]) -> Report {
        let outcome = |&(rule, verdict): &(&'static str, Verdict)| Outcome {
            rule,
            demands: "",
            verdict,
            evidence: String::new(),
        };
        Report {
            driver: "d".to_owned(),
            version: "2".to_owned(),
            outcomes: verdicts.iter().map(outcome).collect(),
            leftovers: Vec::new(),
            stopped: false,
        }
    }

    #[test]
    fn only_rules_with_another_result_are_changes() {
        use Verdict::{Fail, NotApplicable, Pass};
        let before = report(&[("a", Pass), ("b", Fail), ("c", Fail), ("d", NotApplicable), ("gone", Pass)]);
        let baseline = Baseline::parse(&before.json().unwrap()).unwrap();
        let now = report(&[("a", Fail), ("b", Fail), ("c", Pass), ("d", Fail), ("new", Fail)]);
        let changes: Vec<(&str, bool)> =
            now.since(&baseline).iter().map(|change| (change.rule, change.is_regression())).collect();
        assert_eq!(changes, [("a", true), ("c", false), ("d", true), ("new", true)]);
        assert_eq!(before.since(&baseline), []);
        assert_eq!(before.comparison(&baseline), "Compared with d 2: no rule has another result.\n");
        let text = now.comparison(&baseline);
        assert!(text.contains("newly broken: new, not checked before, fail now"), "{text}");
        assert!(text.contains("changed: c, fail before, pass now"), "{text}");
    }

    #[test]
    fn what_is_no_report_or_no_whole_one_is_refused() {
        assert!(Baseline::parse("{}").unwrap_err().contains("outcomes"));
        assert!(Baseline::parse("RULE RESULT").is_err());
        let stopped = Report { stopped: true, ..report(&[]) };
        assert!(Baseline::parse(&stopped.json().unwrap()).unwrap_err().contains("stopped"));
    }
}
