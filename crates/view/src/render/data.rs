//! For machines. Both formats have the same shape.

use serde::Serialize;

use crate::{About, Grade, Row, Snapshot};

/// Everything together: the source, the counts, and the rows, worst first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<&'a About>,
    at: jiff::Timestamp,
    counts: Counted,
    volumes: Vec<&'a Row>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counted {
    total: usize,
    data_loss: usize,
    inaccessible: usize,
    degraded: usize,
    unrecognized: usize,
    unknown: usize,
    healthy: usize,
}

impl<'a> Document<'a> {
    /// `rows` are those of the snapshot that are wanted; the counts are of all.
    pub fn new(about: Option<&'a About>, snapshot: &'a Snapshot, rows: Vec<&'a Row>) -> Self {
        let counts = snapshot.counts();
        let counts = Counted {
            total: counts.total(),
            data_loss: counts.get(Grade::DataLoss),
            inaccessible: counts.get(Grade::Inaccessible),
            degraded: counts.get(Grade::Degraded),
            unrecognized: counts.get(Grade::Unrecognized),
            unknown: counts.get(Grade::Unknown),
            healthy: counts.get(Grade::Healthy),
        };
        Self { about, at: snapshot.at(), counts, volumes: rows }
    }
}

/// Ends with a line break.
pub fn json(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(text)
}

/// Ends with a line break.
pub fn yaml(value: &impl Serialize) -> Result<String, serde_saphyr::SerializeError> {
    let mut text = serde_saphyr::to_string(value)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}
