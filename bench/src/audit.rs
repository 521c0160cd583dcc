//! What one account asked of the API server, from the server's own audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

/// Requests, by verb and resource.
pub(crate) type Requests = BTreeMap<(String, String), u64>;

/// Only what `user` does is logged, so that filling the server is not slowed down.
pub(crate) fn policy(user: &str) -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [user]}, {"level": "None"}],
    })
}

#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    object_ref: Option<Object>,
}

#[derive(Deserialize)]
struct Object {
    resource: String,
    subresource: Option<String>,
}

impl Audit {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Where the log ends now.
    pub(crate) fn mark(&self) -> u64 {
        // It is not there before the first request.
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// What was asked for since `mark`.
    pub(crate) fn since(&self, mark: u64) -> Result<Requests> {
        let mut requests = Requests::new();
        let cannot = || format!("cannot read the audit log {}", self.path.display());
        let mut file = File::open(&self.path).with_context(cannot)?;
        file.seek(SeekFrom::Start(mark)).with_context(cannot)?;
        for line in BufReader::new(file).lines() {
            count(&line.with_context(cannot)?, &mut requests);
        }
        Ok(requests)
    }
}

/// A watch counts when it begins, everything else when it ends; a line that is still being written does not count.
fn count(line: &str, requests: &mut Requests) {
    let Ok(Line { stage, verb, object_ref }) = serde_json::from_str(line) else { return };
    if stage != if verb == "watch" { "ResponseStarted" } else { "ResponseComplete" } {
        return;
    }
    let resource = match object_ref {
        Some(Object { resource, subresource: Some(part) }) => format!("{resource}/{part}"),
        Some(Object { resource, subresource: None }) => resource,
        None => "other".to_owned(),
    };
    *requests.entry((verb, resource)).or_default() += 1;
}

/// Those that change something, leases aside.
pub(crate) fn writes(requests: &Requests) -> u64 {
    let reads = ["get", "list", "watch"];
    let of = |(verb, resource): &(String, String)| !reads.contains(&verb.as_str()) && resource != "leases";
    requests.iter().filter(|(what, _)| of(what)).map(|(_, count)| count).sum()
}

/// `12 update leases, 1 watch persistentvolumes`.
pub(crate) fn show(requests: &Requests) -> String {
    let each: Vec<String> =
        requests.iter().map(|((verb, resource), count)| format!("{count} {verb} {resource}")).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_once_and_leases_are_no_writes() {
        let mut requests = Requests::new();
        for line in [
            r#"{"stage":"ResponseStarted","verb":"watch","objectRef":{"resource":"persistentvolumes"}}"#,
            r#"{"stage":"ResponseComplete","verb":"watch","objectRef":{"resource":"persistentvolumes"}}"#,
            r#"{"stage":"ResponseComplete","verb":"update","objectRef":{"resource":"leases","name":"x"}}"#,
            r#"{"stage":"ResponseComplete","verb":"patch","objectRef":{"resource":"persistentvolumeclaims","subresource":"status"}}"#,
            r#"{"stage":"ResponseComplete","verb":"cre"#,
        ] {
            count(line, &mut requests);
        }
        assert_eq!(
            show(&requests),
            "1 patch persistentvolumeclaims/status, 1 update leases, 1 watch persistentvolumes"
        );
        assert_eq!(writes(&requests), 1);
        assert_eq!(show(&Requests::new()), "none");
    }
}
