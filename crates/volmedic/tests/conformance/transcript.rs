//! What a person sees, whole. To renew it after a change that was meant: `UPDATE_TRANSCRIPTS=1 cargo test`.

use std::fs;
use std::path::Path;

use crate::conformance;
use crate::ground::Ground;

/// Everything that differs from run to run gets a name instead.
fn redact(reported: &str, ground: &Ground) -> String {
    let reported = reported.replace(&ground.path().display().to_string(), "GROUND");
    let mut clean = String::new();
    for line in reported.lines() {
        let figures = line.starts_with("stats-usage") || line.ends_with(" checked");
        let words = line.split(' ').map(|word| redact_word(word, figures)).collect::<Vec<_>>();
        clean.push_str(words.join(" ").trim_end());
        clean.push('\n');
    }
    clean
}

fn redact_word(word: &str, figures: bool) -> String {
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    for (mark, name) in [("volmedic-conformance-", "RUN"), ("vol-", "ID")] {
        if let Some((before, after)) = word.split_once(mark) {
            let rest = after.trim_start_matches(hex);
            if after.len() - rest.len() >= 8 {
                return format!("{before}{mark}{name}{rest}");
            }
        }
    }
    let bare = word.trim_end_matches(',');
    if figures && !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit()) {
        return word.replace(bare, "N");
    }
    word.to_owned()
}

#[test]
fn the_table() {
    let mut ground = Ground::new();
    ground.start(&[]);
    let output = conformance(&ground, &[]).output().unwrap();
    let reported = redact(&String::from_utf8(output.stdout).unwrap(), &ground);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/table.txt");
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        fs::write(&file, &reported).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        reported,
        expected,
        "the table is not what it was; if that is meant, renew {}",
        file.display()
    );
    ground.assert_clean();
}
