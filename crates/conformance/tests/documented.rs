//! The page for users lists every rule, in order, with what it demands.

use std::path::Path;

use volmedic_conformance::rules;

#[test]
fn the_page_has_every_rule() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
    let text = std::fs::read_to_string(&page).expect("docs/conformance.md can be read");
    let reported: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = rules().map(|(name, demands)| format!("| `{name}` | {demands} |")).collect();
    assert_eq!(reported, expected, "the table of rules in docs/conformance.md is not that of the code");
}
