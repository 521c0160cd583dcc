//! The report in the format that CI systems read: one test case for each rule.

use std::fmt::Write;

use crate::report::{Report, Verdict};

impl Report {
    /// As `JUnit` XML. A run that was stopped has an error, so that no CI takes it for a whole one.
    pub fn junit(&self) -> String {
        let suite = escape(if self.driver.is_empty() { "the driver" } else { &self.driver });
        let (failed, skipped) = (self.count(Verdict::Fail), self.count(Verdict::NotApplicable));
        let errors = usize::from(self.stopped);
        let tests = self.outcomes.len() + errors;
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"volmedic conformance\" tests=\"{tests}\" \
             failures=\"{failed}\" errors=\"{errors}\" skipped=\"{skipped}\">\n  <testsuite name=\"{suite}\" \
             tests=\"{tests}\" failures=\"{failed}\" errors=\"{errors}\" skipped=\"{skipped}\">\n    <properties>\n      \
             <property name=\"version\" value=\"{}\"/>\n    </properties>\n",
            escape(&self.version)
        );
        // Writing to a string cannot fail.
        for outcome in &self.outcomes {
            let _ = write!(text, "    <testcase classname=\"{suite}\" name=\"{}\">", escape(outcome.rule));
            let evidence = escape(&outcome.evidence);
            let _ = match outcome.verdict {
                Verdict::Pass => write!(text, "<system-out>{evidence}</system-out>"),
                Verdict::Fail => {
                    let demands = escape(outcome.demands);
                    write!(text, "<failure message=\"{demands}\">{evidence}</failure>")
                }
                Verdict::NotApplicable => write!(text, "<skipped message=\"{evidence}\"/>"),
            };
            text.push_str("</testcase>\n");
        }
        if self.stopped {
            let _ = writeln!(
                text,
                "    <testcase classname=\"{suite}\" name=\"the-run-is-whole\"><error message=\"the run was stopped before \
                 every rule was checked\"/></testcase>"
            );
        }
        if !self.leftovers.is_empty() {
            let left = self.leftovers.iter().map(|one| escape(one)).collect::<Vec<_>>().join("\n");
            let _ = writeln!(text, "    <system-err>Left behind: {left}</system-err>");
        }
        text.push_str("  </testsuite>\n</testsuites>\n");
        text
    }
}

/// Text as it may stand in an attribute and between tags. XML has no way to write most control characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\n' => escaped.push('\n'),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Outcome;

    fn report(stopped: bool) -> Report {
        let outcome = |rule, verdict, evidence: &str| Outcome {
            rule,
            demands: "Answers are \"true\" & short.",
            verdict,
            evidence: evidence.to_owned(),
        };
        Report {
            driver: "csi.example.com".to_owned(),
            version: "1.4".to_owned(),
            outcomes: vec![
                outcome("kept", Verdict::Pass, "it gave 3"),
                outcome("broken", Verdict::Fail, "it gave <none>\u{1b}]"),
                outcome("other", Verdict::NotApplicable, "it's not offered"),
            ],
            leftovers: vec!["volume <a>".to_owned()],
            stopped,
        }
    }

    #[test]
    fn each_rule_is_a_test_case_and_nothing_of_a_driver_is_markup() {
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <testsuites name=\"volmedic conformance\" tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\">\n  \
            <testsuite name=\"csi.example.com\" tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\">\n    \
            <properties>\n      <property name=\"version\" value=\"1.4\"/>\n    </properties>\n    \
            <testcase classname=\"csi.example.com\" name=\"kept\"><system-out>it gave 3</system-out></testcase>\n    \
            <testcase classname=\"csi.example.com\" name=\"broken\"><failure message=\"Answers are &quot;true&quot; &amp; \
            short.\">it gave &lt;none&gt;\u{fffd}]</failure></testcase>\n    \
            <testcase classname=\"csi.example.com\" name=\"other\"><skipped message=\"it&apos;s not offered\"/>\
            </testcase>\n    <system-err>Left behind: volume &lt;a&gt;</system-err>\n  </testsuite>\n</testsuites>\n";
        assert_eq!(report(false).junit(), expected);
    }

    #[test]
    fn a_run_that_was_stopped_has_an_error() {
        let text = report(true).junit();
        assert!(text.contains("tests=\"4\" failures=\"1\" errors=\"1\""), "{text}");
        assert!(text.contains("name=\"the-run-is-whole\"><error "), "{text}");
    }
}
