//! The answer as a person reads it.

use std::fmt::Write;

use volmedic_heal::wish::{PlaceReply, Reply, Word};
use volmedic_view::render::{Inline, Markdown};

/// One paragraph for each node.
pub(super) fn table(claim: &str, reply: &Reply) -> String {
    let mut text = String::new();
    for reported in &reply.places {
        let PlaceReply { node, driver, volume_handle, outcome, why } = reported;
        let what = words(*outcome);
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

fn words(outcome: Word) -> &'static str {
    match outcome {
        Word::Well => "healthy, says the node plugin",
        Word::StillUnhealthy => "still unhealthy, says the node plugin",
        Word::Failed => "failed",
        Word::Refused => "not healed",
        Word::WouldBeHealed => "would be healed: nothing stands in the way",
        Word::UnderWay => "under way",
    }
}

/// One line for each node.
pub(super) fn markdown(claim: &str, reply: &Reply) -> String {
    let mut document = Markdown::default();
    document.heading(2, &Inline::words("Healing the claim ").then(&Inline::code(claim)));
    let row = |place: &PlaceReply| {
        let PlaceReply { node, driver, volume_handle, outcome, why } = place;
        let why = Inline::prose(&why.join("; "));
        [
            Inline::code(node),
            Inline::code(volume_handle),
            Inline::code(driver),
            Inline::words(words(*outcome)),
            why,
        ]
    };
    document.table(["Node", "Volume", "Driver", "Outcome", "Why"], reply.places.iter().map(row));
    if reply.omitted > 0 {
        document.paragraph(&Inline::prose(&format!("And on {} more nodes.", reply.omitted)));
    }
    document.finish()
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
        let reported = |node: &str, outcome, why: &[&str]| PlaceReply {
            node: node.into(),
            driver: "fuse.example.net".into(),
            volume_handle: "v1".into(),
            outcome,
            why: why.iter().map(|text| (*text).to_owned()).collect(),
        };
        let places = vec![
            reported("worker-1", Word::Refused, &["healing is off by default", "the node is cordoned"]),
            reported("worker-2", Word::Well, &["mounter \u{1b}[31mrestarted\n"]),
        ];
        assert_eq!(
            table("data", &Reply { places, omitted: 2 }),
            "v1 of fuse.example.net on worker-1: not healed\n  - healing is off by default\n  - the node is cordoned\n\
             v1 of fuse.example.net on worker-2: healthy, says the node plugin\n  - mounter  [31mrestarted \n\
             and on 2 more nodes\n"
        );
        let places =
            vec![reported("worker-1", Word::Refused, &["healing | is off", "the `node` is cordoned"])];
        assert_eq!(
            markdown("data", &Reply { places, omitted: 2 }),
            "## Healing the claim `data`\n\n| Node | Volume | Driver | Outcome | Why |\n|---|---|---|---|---|\n\
             | `worker-1` | `v1` | `fuse.example.net` | not healed | healing &#124; is off; the \\`node\\` is cordoned |\n\n\
             And on 2 more nodes.\n"
        );
        let nowhere = vec![reported("", Word::Failed, &["it does not exist"])];
        let shown = table("data", &Reply { places: nowhere, omitted: 0 });
        assert_eq!(shown, "claim data: failed\n  - it does not exist\n");
    }
}
