//! One of the two servers: how a step is asked, and what of its answers the product reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::timeout;
use volmedic_sim::{Dice, Model};

use crate::{ANOTHER, CLAIMS, EVENTS, HEALTHS, LEASES, LIMIT, Step, Uid, Version, made};

/// One server, and what it answered so far.
pub(crate) struct Side {
    pub(crate) client: Client,
    /// Set for the model: what the test does to it instead of an administrator.
    pub(crate) model: Option<Model>,
    namespace: String,
    /// Versions of each object, oldest first.
    pub(crate) versions: BTreeMap<(String, String), Vec<String>>,
    uids: BTreeMap<(String, String), String>,
    /// Where the list of a resource goes on.
    places: BTreeMap<String, String>,
}

impl Side {
    pub(crate) fn new(client: Client, model: Option<Model>, namespace: &str) -> Self {
        let (versions, uids, places) = Default::default();
        Self { client, model, namespace: namespace.to_owned(), versions, uids, places }
    }

    fn version(&self, resource: &str, name: &str, version: Version) -> Option<String> {
        let known = self.versions.get(&(resource.to_owned(), name.to_owned()));
        match (version, known) {
            (Version::None, _) => None,
            // Of an object that never was: any that is no longer there.
            (_, None) => Some("1".to_owned()),
            (Version::Newest, Some(all)) => all.last().cloned(),
            (Version::Older, Some(all)) => all.iter().rev().nth(1).or(all.last()).cloned(),
        }
    }

    /// The model writes an object as it is, as the real server did.
    pub(crate) fn rewrite(&mut self, resource: &str, name: &str) -> Value {
        let version = self.model.as_ref().and_then(|model| model.rewrite(resource, &self.namespace, name));
        let known = self.versions.get_mut(&(resource.to_owned(), name.to_owned()));
        let is_new = version.zip(known).map(|(version, known)| known.push(version)).is_some();
        json!(is_new)
    }

    async fn ask(&self, method: Method, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let text = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, kind)
            .body(Body::from(text))
            .unwrap();
        let exchange = async {
            let response = self.client.send(request).await.unwrap();
            let code = response.status().as_u16();
            let text = response.into_body().collect().await.unwrap().to_bytes();
            (code, serde_json::from_slice(&text).unwrap_or_default())
        };
        timeout(LIMIT, exchange).await.unwrap_or_else(|_| panic!("no answer about {path}"))
    }

    /// The answer in the words that both servers have in common.
    pub(crate) async fn take(&mut self, step: &Step) -> Value {
        let namespace = self.namespace.clone();
        let object = |resource: &str, name: &str| format!("{}/{name}", collection(resource, &namespace));
        let json_body = "application/json";
        let (resource, (code, mut body)) = match step {
            Step::Get { resource, name } => {
                (*resource, self.ask(Method::GET, &object(resource, name), json_body, &Value::Null).await)
            }
            Step::List { resource, limit } | Step::Next { resource, limit } => {
                let mut path = format!("{}?limit={limit}", collection(resource, &namespace));
                if *resource == EVENTS {
                    path += "&fieldSelector=source%3Dus";
                }
                if matches!(step, Step::Next { .. })
                    && let Some(place) = self.places.remove(*resource)
                {
                    let _ = write!(path, "&continue={place}");
                }
                let answer = self.ask(Method::GET, &path, json_body, &Value::Null).await;
                let next = answer.1["metadata"]["continue"].as_str().filter(|next| !next.is_empty());
                match next {
                    Some(next) => drop(self.places.insert((*resource).to_owned(), next.to_owned())),
                    None => drop(self.places.remove(*resource)),
                }
                (*resource, answer)
            }
            Step::Create { resource, body } => {
                let path = format!("{}?fieldManager=creator", collection(resource, &namespace));
                (*resource, self.ask(Method::POST, &path, json_body, body).await)
            }
            Step::Replace { name, holder, version } => {
                let mut body = made(LEASES, &namespace, name, &mut Dice::new(0));
                body["spec"]["holderIdentity"] = json!(holder);
                body["metadata"]["resourceVersion"] = json!(self.version(LEASES, name, *version));
                (LEASES, self.ask(Method::PUT, &object(LEASES, name), json_body, &body).await)
            }
            Step::Merge { resource, name, status, patch, version } => {
                let mut patch = patch.clone();
                if let Some(version) = self.version(resource, name, *version) {
                    patch["metadata"]["resourceVersion"] = json!(version);
                }
                if *status && *version == Version::None {
                    patch["metadata"]["uid"] = json!(ANOTHER);
                }
                let sub = if *status { "/status" } else { "" };
                let path = format!("{}{sub}?fieldManager=merger", object(resource, name));
                (*resource, self.ask(Method::PATCH, &path, "application/merge-patch+json", &patch).await)
            }
            Step::Apply { resource, name, status, manager, force, uid } => {
                let (kind, version) = match *resource {
                    CLAIMS => ("PersistentVolumeClaim", "v1"),
                    _ => ("VolumeHealth", "volmedic.dev/v1alpha1"),
                };
                let mut body = json!({"kind": kind, "apiVersion": version, "metadata": {"name": name}});
                if *resource == CLAIMS && status == &json!({}) {
                    // As the product takes its field away.
                } else {
                    body["status"] = status.clone();
                }
                let known = self.uids.get(&((*resource).to_owned(), name.clone()));
                body["metadata"]["uid"] = match uid {
                    Uid::None => Value::Null,
                    Uid::Right => json!(known),
                    Uid::Wrong => json!(ANOTHER),
                };
                let path = format!("{}/status?fieldManager={manager}&force={force}", object(resource, name));
                (*resource, self.ask(Method::PATCH, &path, "application/apply-patch+yaml", &body).await)
            }
            Step::Delete { resource, name } => {
                let (code, _) =
                    self.ask(Method::DELETE, &object(resource, name), json_body, &Value::Null).await;
                self.versions.remove(&((*resource).to_owned(), name.clone()));
                // A success has the object or a Status, depending on the resource. The product deletes nothing.
                return json!({"code": code});
            }
            Step::Watch { name, version } => {
                let key = (CLAIMS.to_owned(), name.clone());
                if !self.versions.contains_key(&key) {
                    return json!("it never was");
                }
                let from = self.version(CLAIMS, name, *version).unwrap_or_default();
                return json!({"from": self.changes(&from).await});
            }
            Step::Forbidden { name } => {
                let mut body = made(EVENTS, &namespace, name, &mut Dice::new(0));
                body["reason"] = json!("Refused");
                self.model.as_ref().inspect(|model| model.forbid(true));
                let path = collection(EVENTS, &namespace);
                let answer = self.ask(Method::POST, &path, json_body, &body).await;
                self.model.as_ref().inspect(|model| model.forbid(false));
                (EVENTS, answer)
            }
        };
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut is_new = false;
        if code < 300 && body["items"].is_null() {
            let key = (resource.to_owned(), name);
            let version = body["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            let uid = body["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            self.uids.insert(key.clone(), uid);
            let known = self.versions.entry(key).or_default();
            is_new = known.last() != Some(&version);
            if is_new {
                known.push(version);
            }
        }
        let mut shown = json!({"code": if code < 300 { 200 } else { code }, "is new": is_new});
        if code >= 300 {
            let causes = body["details"]["causes"].as_array();
            let reasons: BTreeSet<&str> =
                causes.into_iter().flatten().filter_map(|cause| cause["reason"].as_str()).collect();
            shown["reason"] = body["reason"].clone();
            shown["causes"] = json!(reasons);
            let about_uid = |cause: &Value| cause["field"] == "metadata.uid";
            shown["about the uid"] = json!(causes.is_some_and(|causes| causes.iter().any(about_uid)));
        } else if let Some(items) = body["items"].as_array_mut() {
            shown["items"] = items.iter().map(|item| product_reads(resource, item)).collect();
            shown["goes on"] = json!(self.places.contains_key(resource));
        } else {
            shown["object"] = product_reads(resource, &body);
        }
        shown
    }

    /// The changes of claims after a version, up to the newest that this side knows of.
    pub(crate) async fn changes(&self, from: &str) -> Value {
        let path = format!(
            "{}?watch=true&resourceVersion={from}&timeoutSeconds=50&allowWatchBookmarks=true",
            collection(CLAIMS, &self.namespace)
        );
        let request = Request::builder().uri(&path).body(Body::empty()).unwrap();
        let number = |version: &str| version.parse::<u64>().unwrap_or(0);
        let all = self.versions.iter().filter(|((resource, _), _)| resource == CLAIMS);
        let newest = all.filter_map(|(_, versions)| versions.last()).map(|version| number(version)).max();
        let Some(newest) = newest.filter(|newest| *newest > number(from)) else { return json!([]) };
        let read = async {
            let response = self.client.send(request).await.unwrap();
            if response.status() != 200 {
                return json!(response.status().as_u16());
            }
            let (mut body, mut text, mut changes) = (response.into_body(), Vec::new(), Vec::new());
            while let Some(frame) = body.frame().await {
                text.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let change: Value = serde_json::from_slice(&line).unwrap();
                    if change["type"] == "ERROR" {
                        return change["object"]["code"].clone();
                    }
                    if change["type"] == "BOOKMARK" {
                        continue;
                    }
                    changes.push(json!([change["type"], product_reads(CLAIMS, &change["object"])]));
                    let version =
                        change["object"]["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                    if number(version) >= newest {
                        return json!(changes);
                    }
                }
            }
            json!(["ended early", changes])
        };
        timeout(LIMIT, read).await.unwrap_or_else(|_| panic!("a watch from {from} did not come to {newest}"))
    }
}

/// As much of an object as the product reads.
fn product_reads(resource: &str, object: &Value) -> Value {
    let meta = &object["metadata"];
    let fields: &[&str] = match resource {
        EVENTS => &["type", "reason", "count", "involvedObject", "source"],
        LEASES | HEALTHS => &["spec"],
        _ => &[],
    };
    let mut shown: Value = fields.iter().map(|field| ((*field).to_owned(), object[field].clone())).collect();
    shown["name"] = meta["name"].clone();
    shown["annotations"] = meta["annotations"].clone();
    if resource == CLAIMS {
        shown["health"] = object["status"]["healthStatus"].clone();
        // In which order conditions of several writers are is no promise.
        if let Some(conditions) = shown["health"]["healthConditions"].as_array_mut() {
            conditions.sort_by_key(Value::to_string);
        }
        shown["volume"] = object["spec"]["volumeName"].clone();
    }
    if resource == HEALTHS {
        shown["report"] = object["status"]["controllerReport"].clone();
    }
    if resource == CLAIMS {
        let managers = meta["managedFields"].as_array().into_iter().flatten();
        let appliers: BTreeSet<&str> = managers
            .filter(|manager| manager["operation"] == "Apply")
            .filter_map(|manager| manager["manager"].as_str())
            .collect();
        shown["appliers"] = json!(appliers);
    }
    without_nothing(shown)
}

/// A field that is `null` or empty is no field, as the product reads it.
fn without_nothing(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, without_nothing(value)));
            let is_nothing = |value: &Value| {
                value.is_null() || *value == json!("") || *value == json!({}) || *value == json!([])
            };
            Value::Object(fields.filter(|(_, value)| !is_nothing(value)).collect())
        }
        Value::Array(items) => items.into_iter().map(without_nothing).collect(),
        other => other,
    }
}

fn collection(resource: &str, namespace: &str) -> String {
    let group = match resource {
        LEASES => "/apis/coordination.k8s.io/v1",
        HEALTHS => "/apis/volmedic.dev/v1alpha1",
        _ => "/api/v1",
    };
    format!("{group}/namespaces/{namespace}/{resource}")
}
