//! Objects, their versions, and who owns which field: what etcd and the API server's registry do, as far as the product
//! makes use of it. No time and no network in here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fields::{Path, at, collect, put_at, remove_at};

/// Resource, namespace, name.
pub(super) type Key = (String, String, String);

/// Items of one page at most, whatever was asked for: few objects have to show what happens between pages.
const PAGE: usize = 3;

/// What the schema of VolumeHealths demands of a controller's report.
const REQUIRED: [&str; 2] = ["driver", "since"];

/// An answer that is not a success.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) details: Value,
}

pub(super) type Answer = Result<Value, Refusal>;

/// One change, for watches.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) resource: String,
    pub(super) kind: &'static str,
    pub(super) object: Value,
}

/// How a server without a field answers who applies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unkept {
    /// The field is known, and its feature is off.
    Dropped,
    /// The release does not have the field.
    Refused,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    version: u64,
    objects: BTreeMap<Key, Value>,
    /// When an event is forgotten.
    ends: BTreeMap<Key, Duration>,
    changes: Vec<Change>,
    /// Nothing up to this version can be gone on from.
    compacted: u64,
    /// What follows after a page, by its token.
    rests: BTreeMap<String, (u64, Vec<Value>)>,
    /// Fields of status that this server does not keep.
    unknown: BTreeMap<(String, String), Unkept>,
    event_ttl: Duration,
}

impl Refusal {
    pub(super) fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self { code, reason, message, details: json!({}) }
    }

    fn absent(key: &Key) -> Self {
        let (resource, _, name) = key;
        let details = json!({"name": name, "kind": resource});
        Self { details, ..Self::new(404, "NotFound", format!("{resource} {name:?} not found")) }
    }

    fn conflict(key: &Key, why: &str) -> Self {
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {} {:?}: {why}", key.0, key.2))
    }

    /// A field that may not be like this.
    fn invalid(key: &Key, field: &str) -> Self {
        let message = format!("{} {:?} is invalid: {field}: Invalid value", key.0, key.2);
        let cause = json!({"reason": "FieldValueInvalid", "message": "Invalid value", "field": field});
        Self { details: json!({"causes": [cause]}), ..Self::new(422, "Invalid", message) }
    }

    pub(super) fn expired() -> Self {
        let message = "The provided continue parameter or resourceVersion is too old".to_owned();
        Self::new(410, "Expired", message)
    }

    pub(super) fn body(&self) -> Value {
        let Self { code, reason, message, details } = self;
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": code, "reason": reason, "message": message, "details": details,
        })
    }
}

impl Store {
    pub(super) fn new(event_ttl: Duration) -> Self {
        Self { version: 100, event_ttl, ..Self::default() }
    }

    pub(super) fn forget_status(&mut self, resource: &str, field: &str, unkept: Unkept) {
        self.unknown.insert((resource.to_owned(), field.to_owned()), unkept);
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn find(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    pub(super) fn all(&self, resource: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(key, _)| key.0 == resource).map(|(_, object)| object)
    }

    /// Events whose time has come.
    pub(super) fn expire(&mut self, now: Duration) {
        let over: Vec<Key> =
            self.ends.iter().filter(|(_, end)| **end <= now).map(|(key, _)| key.clone()).collect();
        for key in over {
            self.ends.remove(&key);
            self.objects.remove(&key);
        }
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.version;
        self.changes.clear();
        self.rests.clear();
    }

    pub(super) fn get(&self, key: &Key) -> Answer {
        self.objects.get(key).cloned().ok_or_else(|| Refusal::absent(key))
    }

    /// A page; the rest of a list is as it was when the list began.
    pub(super) fn list(
        &mut self,
        resource: &str,
        source: Option<&str>,
        token: Option<&str>,
        limit: usize,
    ) -> Answer {
        let (version, mut rest) = match token {
            Some(token) => self.rests.get(token).cloned().ok_or_else(Refusal::expired)?,
            None => (self.version, self.all(resource).cloned().collect()),
        };
        // A page that is full ends, whether or not anything is wanted of what follows: the last page may be empty.
        let (mut read, mut items) = (0, Vec::new());
        while read < rest.len() && items.len() < PAGE.min(limit) {
            let object = &rest[read];
            if source.is_none_or(|source| object["source"]["component"] == source) {
                items.push(object.clone());
            }
            read += 1;
        }
        rest.drain(..read);
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if !rest.is_empty() {
            let next = format!("{resource}-{version}-{}", rest.len());
            metadata["continue"] = json!(next);
            metadata["remainingItemCount"] = json!(rest.len());
            self.rests.insert(next, (version, rest));
        }
        Ok(json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
    }

    pub(super) fn create(
        &mut self,
        now: Duration,
        wall: &str,
        key: Key,
        mut body: Value,
        manager: &str,
    ) -> Answer {
        if self.objects.contains_key(&key) {
            let message = format!("{} {:?} already exists", key.0, key.2);
            return Err(Refusal::new(409, "AlreadyExists", message));
        }
        if key.0 == "volumehealths"
            && let Some(body) = body.as_object_mut()
        {
            // It has a status subresource.
            body.remove("status");
        }
        let uid = body["metadata"]["uid"]
            .as_str()
            .map_or_else(|| format!("uid-{}", self.version + 1), str::to_owned);
        body["metadata"]["uid"] = json!(uid);
        body["metadata"]["namespace"] = json!(key.1);
        body["metadata"]["creationTimestamp"] = json!(wall);
        body["metadata"]["managedFields"] =
            json!([{"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {}}]);
        Ok(self.put(now, key, body, "ADDED"))
    }

    pub(super) fn replace(&mut self, now: Duration, wall: &str, key: Key, mut body: Value) -> Answer {
        let old = match self.get(&key) {
            // Whatever version is named.
            Err(_) if key.0 == "leases" => return self.create(now, wall, key, body, ""),
            old => old?,
        };
        let expected = &body["metadata"]["resourceVersion"];
        if expected.is_null() && key.0 == "leases" {
            return Err(Refusal::invalid(&key, "metadata.resourceVersion"));
        }
        if !expected.is_null() && *expected != old["metadata"]["resourceVersion"] {
            return Err(Refusal::conflict(&key, "the object has been modified"));
        }
        for field in ["uid", "creationTimestamp", "managedFields", "namespace"] {
            body["metadata"][field] = old["metadata"][field].clone();
        }
        body["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        body["metadata"]["name"] = json!(key.2);
        // What changes nothing is no write.
        Ok(if body == old { old } else { self.put(now, key, body, "MODIFIED") })
    }

    pub(super) fn merge(&mut self, now: Duration, key: Key, patch: &Value, status_only: bool) -> Answer {
        let old = self.get(&key)?;
        let meta = &patch["metadata"];
        if !meta["resourceVersion"].is_null() && meta["resourceVersion"] != old["metadata"]["resourceVersion"]
        {
            return Err(Refusal::conflict(&key, "the object has been modified"));
        }
        if !meta["uid"].is_null() && meta["uid"] != old["metadata"]["uid"] {
            return Err(Refusal::invalid(&key, "metadata.uid"));
        }
        let mut new = old.clone();
        if status_only {
            merge(&mut new["status"], &patch["status"]);
        } else {
            merge(&mut new, patch);
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        let mut owners = owners(&old);
        for fields in owners.values_mut() {
            // What another writer changes or takes away, nobody has applied any more.
            fields.retain(|path| {
                let now = at(&new["status"], path);
                now.is_some() && now == at(&old["status"], path)
            });
        }
        new["metadata"]["managedFields"] = managed(&old, &owners);
        // A patch that changes nothing is no write.
        Ok(if new == old { old } else { self.put(now, key, new, "MODIFIED") })
    }

    /// Server-side apply on the status subresource. Objects are owned field by field, lists as a whole.
    pub(super) fn apply_status(
        &mut self,
        now: Duration,
        key: Key,
        body: &Value,
        manager: &str,
        force: bool,
    ) -> Answer {
        let old = self.get(&key)?;
        let mut wanted = body["status"].as_object().cloned().unwrap_or_default();
        for ((resource, field), unkept) in &self.unknown {
            if *resource == key.0 && wanted.remove(field).is_some() && *unkept == Unkept::Refused {
                let message = format!(
                    "failed to create typed patch object: .status.{field}: field not declared in schema"
                );
                return Err(Refusal::new(500, "", message));
            }
        }
        let mut owners = owners(&old);
        let mut new = old.clone();
        if !new["status"].is_object() {
            new["status"] = json!({});
        }
        let mut leaves = BTreeMap::new();
        for (field, value) in &wanted {
            collect(vec![field.clone()], value, &mut leaves);
        }
        if wanted.is_empty() && key.0 == "volumehealths" {
            // The status itself has an owner then.
            leaves.insert(Path::new(), json!({}));
        }
        for (path, value) in &leaves {
            let others = owners.iter().any(|(owner, fields)| owner != manager && fields.contains(path));
            if others && *value != json!({}) && at(&new["status"], path) != Some(value) {
                if !force {
                    let field = format!(".status.{}", path.join("."));
                    let cause =
                        json!({"reason": "FieldManagerConflict", "message": "conflict", "field": field});
                    let details = json!({"causes": [cause]});
                    return Err(Refusal {
                        details,
                        ..Refusal::new(409, "Conflict", "Apply failed".to_owned())
                    });
                }
                for (_, fields) in owners.iter_mut().filter(|(owner, _)| *owner != manager) {
                    fields.remove(path);
                }
            }
        }
        let uid = &body["metadata"]["uid"];
        // Of a custom resource, the status subresource ignores it.
        if key.0 != "volumehealths" && !uid.is_null() && *uid != old["metadata"]["uid"] {
            return Err(Refusal::invalid(&key, "metadata.uid"));
        }
        let had = owners.remove(manager).unwrap_or_default();
        for path in had.iter().filter(|path| !leaves.contains_key(*path)) {
            if !owners.values().any(|fields| fields.contains(path)) {
                remove_at(&mut new["status"], path);
            }
        }
        for (path, value) in &leaves {
            put_at(&mut new["status"], path, value);
        }
        if !leaves.is_empty() {
            owners.insert(manager.to_owned(), leaves.into_keys().collect());
        }
        let report = &new["status"]["controllerReport"];
        if report.is_object() && REQUIRED.iter().any(|field| report[field].is_null()) {
            let mut refusal = Refusal::invalid(&key, "status.controllerReport");
            let cause = json!({"reason": "FieldValueRequired", "message": "Required value"});
            refusal.details["causes"]
                .as_array_mut()
                .into_iter()
                .for_each(|causes| causes.push(cause.clone()));
            return Err(refusal);
        }
        new["metadata"]["managedFields"] = managed(&old, &owners);
        Ok(if new == old { old } else { self.put(now, key, new, "MODIFIED") })
    }

    pub(super) fn delete(&mut self, key: &Key) -> Answer {
        let mut object = self.get(key)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.remove(key);
        if self.ends.remove(key).is_none() {
            let (version, resource) = (self.version, key.0.clone());
            self.changes.push(Change { version, resource, kind: "DELETED", object: object.clone() });
        }
        Ok(object)
    }

    /// What happened after a version; `None` if that is not known any more.
    pub(super) fn since(&self, version: u64, resource: &str) -> Option<Vec<Change>> {
        if version < self.compacted {
            return None;
        }
        let after =
            self.changes.iter().filter(|change| change.version > version && change.resource == resource);
        Some(after.cloned().collect())
    }

    pub(super) fn put(&mut self, now: Duration, key: Key, mut object: Value, kind: &'static str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["name"] = json!(key.2);
        if key.0 == "events" {
            self.ends.insert(key.clone(), now + self.event_ttl);
        } else {
            let (version, resource) = (self.version, key.0.clone());
            self.changes.push(Change { version, resource, kind, object: object.clone() });
        }
        self.objects.insert(key, object.clone());
        object
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (field, value) in patch {
        match (value, target.as_object_mut()) {
            (Value::Null, Some(target)) => drop(target.remove(field)),
            (_, Some(target)) => merge(target.entry(field.clone()).or_insert(Value::Null), value),
            (_, None) => {}
        }
    }
}

/// Who applied which fields of status.
fn owners(object: &Value) -> BTreeMap<String, BTreeSet<Path>> {
    let entries = object["metadata"]["managedFields"].as_array();
    let applied = entries.into_iter().flatten().filter(|entry| entry["operation"] == "Apply");
    applied
        .map(|entry| {
            let mut leaves = BTreeMap::new();
            collect(Vec::new(), &entry["fieldsV1"]["f:status"], &mut leaves);
            let name = |field: String| field.trim_start_matches("f:").to_owned();
            let paths = leaves.into_keys().map(|path| path.into_iter().map(name).collect()).collect();
            (entry["manager"].as_str().unwrap_or_default().to_owned(), paths)
        })
        .collect()
}

fn managed(object: &Value, owners: &BTreeMap<String, BTreeSet<Path>>) -> Value {
    let entries = object["metadata"]["managedFields"].as_array();
    let updates = entries.into_iter().flatten().filter(|entry| entry["operation"] != "Apply").cloned();
    let applied = owners.iter().filter(|(_, fields)| !fields.is_empty()).map(|(manager, fields)| {
        let mut owned = json!({});
        for path in fields {
            let path: Path = path.iter().map(|name| format!("f:{name}")).collect();
            put_at(&mut owned, &path, &json!({}));
        }
        json!({
            "manager": manager, "operation": "Apply", "subresource": "status", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": owned},
        })
    });
    Value::Array(updates.chain(applied).collect())
}

#[cfg(test)]
mod tests;
