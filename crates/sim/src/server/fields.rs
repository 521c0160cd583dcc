//! The fields of an object as server-side apply owns them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A field below `status`, by its names. An item of a list that is owned item by item has a name that begins with [`ITEM`].
pub(super) type Path = Vec<String>;

const ITEM: &str = "k:";

/// What can be owned: fields that are no object with fields, and the conditions in the status of a claim one by one. Other lists
/// are owned as a whole.
pub(super) fn collect(path: Path, value: &Value, leaves: &mut BTreeMap<Path, Value>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                collect([&path[..], std::slice::from_ref(name)].concat(), value, leaves);
            }
        }
        Value::Array(items) if path == ["healthStatus", "healthConditions"] && !items.is_empty() => {
            for item in items {
                leaves.insert([&path[..], &[format!("{ITEM}{}", key(item))]].concat(), item.clone());
            }
        }
        _ => drop(leaves.insert(path, value.clone())),
    }
}

/// What distinguishes the conditions of a claim.
fn key(item: &Value) -> String {
    format!("{}/{}", item["status"].as_str().unwrap_or_default(), item["reason"].as_str().unwrap_or_default())
}

pub(super) fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| match name.strip_prefix(ITEM) {
        Some(wanted) => value.as_array()?.iter().find(|item| key(item) == wanted),
        None => value.get(name),
    })
}

pub(super) fn put_at(target: &mut Value, path: &[String], value: &Value) {
    let Some((first, rest)) = path.split_first() else {
        // An object without fields takes nothing away that others own in it.
        if *value != json!({}) || !target.is_object() {
            *target = value.clone();
        }
        return;
    };
    let Some(wanted) = first.strip_prefix(ITEM) else {
        if !target.is_object() {
            *target = json!({});
        }
        return put_at(&mut target[first], rest, value);
    };
    if !target.is_array() {
        *target = json!([]);
    }
    if let Some(items) = target.as_array_mut() {
        match items.iter_mut().find(|item| key(item) == wanted) {
            Some(item) => put_at(item, rest, value),
            None => items.push(value.clone()),
        }
    }
}

/// Objects and lists that have nothing left go too.
pub(super) fn remove_at(target: &mut Value, path: &[String]) {
    let Some((first, rest)) = path.split_first() else { return };
    match target {
        Value::Array(items) => items.retain(|item| first.strip_prefix(ITEM) != Some(&*key(item))),
        Value::Object(fields) => {
            if let (false, Some(inner)) = (rest.is_empty(), fields.get_mut(first)) {
                remove_at(inner, rest);
            }
            let is_empty = |value: &Value| *value == json!({}) || *value == json!([]);
            if rest.is_empty() || fields.get(first).is_some_and(is_empty) {
                fields.remove(first);
            }
        }
        _ => {}
    }
}
