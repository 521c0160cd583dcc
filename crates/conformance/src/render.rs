//! The report for people and for machines.

use std::fmt::Write;

use crate::report::{Report, Verdict};

mod junit;

impl Report {
    /// A table of all rules and a summary.
    pub fn table(&self) -> String {
        let widest = self.outcomes.iter().map(|outcome| outcome.rule.len()).max().unwrap_or(0).max(4);
        let mut text = format!("{:<widest$}  {:<14}  EVIDENCE\n", "RULE", "RESULT");
        // Writing to a string cannot fail.
        for outcome in &self.outcomes {
            let _ =
                writeln!(text, "{:<widest$}  {:<14}  {}", outcome.rule, outcome.verdict, outcome.evidence);
        }
        let name = if self.driver.is_empty() { "the driver" } else { &self.driver };
        let _ = writeln!(
            text,
            "\n{name} {}: {} passed, {} failed, {} not applicable",
            self.version,
            self.count(Verdict::Pass),
            self.count(Verdict::Fail),
            self.count(Verdict::NotApplicable)
        );
        for outcome in self.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Fail) {
            let _ = writeln!(text, "{} is broken. It demands: {}", outcome.rule, outcome.demands);
        }
        if self.stopped {
            text.push_str("The run was stopped before every rule was judged.\n");
        }
        for leftover in &self.leftovers {
            let _ = writeln!(text, "Left behind: {leftover}");
        }
        text
    }

    /// The same as JSON.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}
