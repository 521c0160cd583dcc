//! The names that an archive must not have, and what they are replaced by: the same name by the same number everywhere, so
//! that a reader can still follow one volume.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::texts;
use super::kinds::Kind;
use super::objects::{Own, has_label, name};

/// With more names than this, replacing them takes too much memory.
const MOST: usize = 200_000;
/// Names that every cluster has, or Volmedic's own.
const PUBLIC: [&str; 12] = [
    "agent",
    "controller",
    "default",
    "docker.io/library",
    "hub",
    "kube-node-lease",
    "kube-public",
    "kube-system",
    "volmedic",
    "volmedic-agent",
    "volmedic-hub",
    "volmedic-test",
];
/// Parts of a PersistentVolume's spec, and of its `csi`, that have words of the API only or are read elsewhere.
const KNOWN: [&str; 5] =
    ["accessModes", "capacity", "claimRef", "persistentVolumeReclaimPolicy", "volumeMode"];
const KNOWN_CSI: [&str; 3] = ["driver", "fsType", "volumeHandle"];
/// Attributes that say nothing about anybody, and that are words in texts.
const WORDS: [&str; 14] = [
    "Directory",
    "DirectoryOrCreate",
    "Exists",
    "File",
    "In",
    "NotIn",
    "btrfs",
    "ext3",
    "ext4",
    "false",
    "none",
    "rw",
    "true",
    "xfs",
];
/// Fields of log lines that are names.
const LOGGED: [(&str, &str); 9] = [
    ("handle", "handle"),
    ("name", "claim"),
    ("namespace", "namespace"),
    ("node", "node"),
    ("persistent_volume", "volume"),
    ("pod", "pod"),
    ("volume", "volume"),
    ("claim", "claim"),
    ("vantage", "node"),
];

/// By name, what stands in its place.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) replaced: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
    /// Of which kinds names are missing.
    unknown: Vec<&'static str>,
}

impl Names {
    /// Some names of this kind are not known, so they could be in any text.
    pub(super) fn set_unknown(&mut self, kind: &'static str) {
        if !self.unknown.contains(&kind) {
            self.unknown.push(kind);
        }
    }

    pub(super) fn unknown(&self) -> &[&'static str] {
        &self.unknown
    }

    /// Takes the names that an object has, from the object as the API server has it.
    pub(super) fn note(&mut self, kind: &Kind, object: &Value) {
        // The names of Volmedic's own pods stay: a reader has to distinguish them.
        let is_own = |name: &str| {
            let generated = ["volmedic-hub-", "volmedic-agent-"];
            generated.iter().any(|prefix| name.starts_with(prefix))
        };
        let is_labelled = has_label(object);
        let metadata = &object["metadata"];
        let whole = name(object);
        match kind.file {
            "volmedic-pods" if is_own(whole) => {}
            "leases" => self.put("node", whole.strip_prefix("volmedic-agent-").unwrap_or_default()),
            _ if kind.called.is_empty() => {}
            _ => self.put(kind.called, whole),
        }
        if kind.called == "node" {
            // The kernel of a node may know only the first part of its name.
            self.put("node", whole.split('.').next().unwrap_or_default());
        }
        self.put("namespace", metadata["namespace"].as_str().unwrap_or_default());
        if !(is_labelled && is_own(whole)) {
            let generate = metadata["generateName"].as_str().unwrap_or_default();
            self.put("owner", generate.trim_end_matches('-'));
            for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
                self.note_owner(owner);
            }
        }
        for (path, called) in kind.names {
            for text in texts(object, path) {
                if !(kind.file == "leases" && is_own(text)) {
                    self.put(called, text);
                }
            }
        }
        match kind.plural {
            "events" => {
                let involved = &object["involvedObject"];
                let called = match involved["kind"].as_str().unwrap_or_default() {
                    "PersistentVolumeClaim" => "claim",
                    "PersistentVolume" => "volume",
                    "Pod" => "pod",
                    "Node" => "node",
                    _ => "object",
                };
                let about = involved["name"].as_str().unwrap_or_default();
                if !is_own(about) {
                    self.put(called, about);
                }
            }
            "persistentvolumes" => {
                let fields = |value: &Value, known: &[&str]| -> Vec<Value> {
                    let fields = value.as_object().into_iter().flatten();
                    let unknown =
                        fields.filter(|(name, _)| *name != "csi" && !known.contains(&name.as_str()));
                    unknown.map(|(_, field)| field.clone()).collect()
                };
                let spec = &object["spec"];
                let all = [fields(spec, &KNOWN), fields(&spec["csi"], &KNOWN_CSI)].concat();
                for field in &all {
                    self.note_attributes(field);
                }
            }
            "storageclasses" => self.note_attributes(&object["parameters"]),
            "volumehealths" => self.note_vantages(object),
            "pods" if Own::of(object).is_some() => self.note_containers(object),
            _ => {}
        }
    }

    fn note_owner(&mut self, owner: &Value) {
        let name = owner["name"].as_str().unwrap_or_default();
        self.put("owner", name);
        // It has the name of a Deployment or a CronJob, and a suffix.
        if ["ReplicaSet", "Job"].iter().any(|kind| owner["kind"] == *kind) {
            self.put("owner", name.rsplit_once('-').unwrap_or_default().0);
        }
    }

    /// Servers, shares, pools, paths: every text of a source or of parameters that is not a word of the API.
    fn note_attributes(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => fields.values().for_each(|field| self.note_attributes(field)),
            Value::Array(all) => all.iter().for_each(|one| self.note_attributes(one)),
            Value::String(text) => {
                let is_number = text.len() < 3 || text.parse::<f64>().is_ok();
                if !is_number && !WORDS.contains(&text.as_str()) {
                    self.put("attribute", text);
                }
            }
            _ => {}
        }
    }

    /// As in `host/worker-1`, also of nodes that were removed.
    fn note_vantages(&mut self, health: &Value) {
        for path in ["status.headline.vantage", "status.history.vantage", "status.vantages.name"] {
            for vantage in texts(health, path) {
                match vantage.split_once('/') {
                    Some(("pushed", source)) => self.put("source", source),
                    Some((_, node)) => self.put("node", node),
                    None => {}
                }
            }
        }
    }

    fn note_containers(&mut self, pod: &Value) {
        for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
            self.put("container", container["name"].as_str().unwrap_or_default());
            let image = container["image"].as_str().unwrap_or_default();
            self.put("registry", image.rsplit_once('/').unwrap_or_default().0);
        }
    }

    /// Takes the names in the fields of log lines: some are of objects that were deleted.
    pub(super) fn note_log(&mut self, text: &str) {
        for line in text.lines() {
            let json = line.starts_with('{').then(|| serde_json::from_str::<Value>(line).ok()).flatten();
            let field = |name: &str| match &json {
                Some(line) => line["fields"][name].as_str(),
                None => field_of(line, name),
            };
            for (name, called) in LOGGED {
                match (name, field(name).unwrap_or_default()) {
                    ("claim" | "pod", text) if text.contains('/') => {
                        let (namespace, name) = text.split_once('/').unwrap_or_default();
                        self.put("namespace", namespace);
                        self.put(called, name);
                    }
                    ("vantage", text) => self.put("node", text.split_once('/').unwrap_or_default().1),
                    ("name", _) if field("namespace").is_none() => {}
                    (_, text) => self.put(called, text),
                }
            }
        }
    }

    pub(super) fn put(&mut self, called: &'static str, name: &str) {
        let is_name = name.contains(char::is_alphanumeric) && !PUBLIC.contains(&name);
        if !is_name || self.replaced.contains_key(name) {
            return;
        }
        if self.replaced.len() >= MOST {
            return self.set_unknown("more objects than can be replaced");
        }
        let count = self.counts.entry(called).or_default();
        *count += 1;
        self.replaced.insert(name.to_owned(), format!("{called}-{count}"));
    }
}

/// The value of a field in a line of text, as in `handle="vol-1"` or `node=worker-1`.
fn field_of<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    let (at, _) = line.match_indices(field).find(|(at, _)| {
        let is_start = *at == 0 || line[..*at].ends_with([' ', '{']);
        is_start && line[at + field.len()..].starts_with('=')
    })?;
    let value = &line[at + field.len() + 1..];
    match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => value.split([' ', '}']).next(),
    }
}
