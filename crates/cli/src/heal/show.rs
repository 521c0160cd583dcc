//! The answer as a person reads it.

use std::fmt::Write;

use volmedic_heal::wish::{Reply, Told, Word};

/// One paragraph for each node.
pub(super) fn table(claim: &str, reply: &Reply) -> String {
    let mut text = String::new();
    for told in &reply.places {
        let Told { node, driver, volume_handle, outcome, why } = told;
        let what = match outcome {
            Word::Well => "well, says the node plugin",
            Word::StillIll => "still ill, says the node plugin",
            Word::Failed => "failed",
            Word::Refused => "not mended",
            Word::WouldBeMended => "would be mended: nothing stands in the way",
            Word::UnderWay => "under way",
        };
        let place = if node.is_empty() {
            format!("claim {}", plain(claim))
        } else {
            format!("{} of {} on {}", plain(volume_handle), plain(driver), plain(node))
        };
        // Writing into a string does not fail.
        let _ = writeln!(text, "{place}: {what}");
        for sentence in why {
            let _ = writeln!(text, "  - {}", plain(sentence));
        }
    }
    if reply.omitted > 0 {
        let _ = writeln!(text, "and on {} more nodes", reply.omitted);
    }
    text
}

/// What others wrote must not move the cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guard_has_a_line_and_nothing_escapes() {
        let told = |node: &str, outcome, why: &[&str]| Told {
            node: node.into(),
            driver: "fuse.example.net".into(),
            volume_handle: "v1".into(),
            outcome,
            why: why.iter().map(|text| (*text).to_owned()).collect(),
        };
        let places = vec![
            told("worker-1", Word::Refused, &["healing is off by default", "the node is cordoned"]),
            told("worker-2", Word::Well, &["mounter \u{1b}[31mrestarted\n"]),
        ];
        assert_eq!(
            table("data", &Reply { places, omitted: 2 }),
            "v1 of fuse.example.net on worker-1: not mended\n  - healing is off by default\n  - the node is cordoned\n\
             v1 of fuse.example.net on worker-2: well, says the node plugin\n  - mounter  [31mrestarted \n\
             and on 2 more nodes\n"
        );
        let nowhere = vec![told("", Word::Failed, &["it does not exist"])];
        let shown = table("data", &Reply { places: nowhere, omitted: 0 });
        assert_eq!(shown, "claim data: failed\n  - it does not exist\n");
    }
}
