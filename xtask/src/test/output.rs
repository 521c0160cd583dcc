//! What a test program printed, as counts and as the names of what failed.

/// The test kit prints a line `NAME not run: Kubernetes V has no F` for a test that has nothing to check on the release of Kubernetes under
/// test. The test harness counts it as passed.
const NOT_RUN: &str = " not run: Kubernetes v";

/// The tests of one run of one program.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Tests {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) ignored: usize,
    /// Of those that failed.
    pub(super) names: Vec<String>,
    /// The tests that had nothing to check, each with the reason.
    pub(super) not_run: Vec<String>,
}

impl Tests {
    /// Reads the closing lines of Rust's test harness, which libtest-mimic prints too.
    ///
    /// The line of a single test may be broken by what that test prints itself; the closing lines are whole.
    pub(super) fn read(output: &str) -> Self {
        let mut tests = Self::default();
        let mut lines = output.lines();
        while let Some(line) = lines.next() {
            if line == "failures:" {
                // The second list of this name has the names; the first one has the outputs.
                let names = lines.clone().take_while(|line| line.starts_with("    "));
                tests.names.extend(names.map(|name| name.trim().to_owned()));
            } else if let Some(result) = line.strip_prefix("test result: ") {
                tests.passed += count(result, "passed");
                tests.failed += count(result, "failed");
                tests.ignored += count(result, "ignored");
            } else if line.contains(NOT_RUN) {
                tests.not_run.push(line.to_owned());
            }
        }
        tests.passed = tests.passed.saturating_sub(tests.not_run.len());
        tests
    }
}

/// The number in front of a word: 12 for `passed` in `ok. 12 passed; 0 failed`.
fn count(result: &str, word: &str) -> usize {
    let words: Vec<&str> = result.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    let found = words.windows(2).find(|pair| pair[1] == word);
    found.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_and_failures_named() {
        let output = "\nrunning 4 tests\ntest a::b ... a word of its own\nok\ntest a::c ... FAILED\n\nfailures:\n\n\
                      ---- a::c stdout ----\n    thread panicked\n\nfailures:\n    a::c\n    d\n\n\
                      test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1s\n";
        let names = vec!["a::c".into(), "d".into()];
        let expected = Tests { passed: 12, failed: 2, ignored: 1, names, not_run: Vec::new() };
        assert_eq!(Tests::read(output), expected);
        assert_eq!(Tests::read("no tests here"), Tests::default());
    }

    #[test]
    fn a_test_that_had_nothing_to_check_did_not_pass() {
        let line = "a::b not run: Kubernetes v1.30.0 has no such field";
        let output = format!("{line}\ntest a::b ... ok\ntest result: ok. 3 passed; 0 failed; 0 ignored\n");
        let found = Tests::read(&output);
        assert_eq!((found.passed, found.not_run), (2, vec![line.to_owned()]));
    }
}
