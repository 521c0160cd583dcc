//! The table for an issue or a document.

use jiff::Timestamp;
use volmedic_health::Vantage;
use volmedic_view::Row;
use volmedic_view::render::{Inline, Markdown};
use volmedic_view::text::Age;

/// `total` counts also the rows that are left out.
pub(super) fn compose(rows: &[Row], total: usize, now: Timestamp) -> String {
    let line = |row: &Row| {
        let since = row.since.map(|since| Age::between(since, now).to_string()).unwrap_or_default();
        let seers: Vec<String> = row.seers().map(Vantage::name).collect();
        [
            Inline::code(&row.namespace),
            Inline::code(&row.claim),
            Inline::code(&row.volume),
            Inline::code(&row.driver),
            Inline::code(&row.nodes.join(", ")),
            Inline::prose(&row.health.to_string()),
            Inline::prose(row.reason()),
            Inline::prose(&since),
            Inline::code(&seers.join(", ")),
            Inline::prose(row.next()),
        ]
    };
    let head =
        ["Namespace", "Claim", "Volume", "Driver", "Node", "Health", "Reason", "Since", "Seen by", "Next"];
    let mut document = Markdown::default();
    document.table(head, rows.iter().map(line));
    if rows.len() < total {
        let rest = format!("And {} more; `--limit 0` shows all.", total - rows.len());
        document.paragraph(&Inline::prose(&rest.replace('`', "")));
    }
    document.finish()
}
