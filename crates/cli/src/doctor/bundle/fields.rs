//! Allow-lists of fields: what is not named is not in the archive, whatever an API server adds in a later release.

use std::collections::BTreeMap;

use serde_json::Value;

/// The end of a path whose whole subtree stays.
const WHOLE: &str = "**";

/// A tree of field names, made from paths such as `spec.volumes.csi.driver`. A path leads through arrays. Its end keeps a
/// text, a number or a boolean, but of an object only that it is there. With the end `**` everything below is kept.
#[derive(Debug, Default)]
pub(super) struct Fields(BTreeMap<&'static str, Self>);

impl Fields {
    /// A path that begins with `!` is left out where names are replaced.
    pub(super) fn new(paths: &[&[&'static str]], redact: bool) -> Self {
        let mut root = Self::default();
        for path in paths.iter().copied().flatten().copied() {
            let path = match path.strip_prefix('!') {
                Some(_) if redact => continue,
                Some(path) => path,
                None => path,
            };
            let mut node = &mut root;
            for name in path.split('.') {
                node = node.0.entry(name).or_default();
            }
        }
        root
    }

    /// Leaves out everything that is not in the tree.
    pub(super) fn keep(&self, value: &mut Value) {
        if self.0.contains_key(WHOLE) {
            return;
        }
        match value {
            Value::Array(all) => all.iter_mut().for_each(|one| self.keep(one)),
            Value::Object(fields) => {
                fields.retain(|name, _| self.0.contains_key(name.as_str()));
                for (name, field) in fields.iter_mut() {
                    if let Some(below) = self.0.get(name.as_str()) {
                        below.keep(field);
                    }
                }
            }
            // A text where an object is expected: no path leads to it.
            other if !self.0.is_empty() => *other = Value::Null,
            _ => {}
        }
    }
}

/// All texts at a path. `*` stands for each name of an object.
pub(super) fn texts<'a>(value: &'a Value, path: &str) -> Vec<&'a str> {
    let mut found = vec![value];
    for name in path.split('.') {
        let below = found.into_iter().flat_map(elements).flat_map(|one| match one.as_object() {
            Some(fields) if name == "*" => fields.values().collect(),
            Some(fields) => fields.get(name).into_iter().collect(),
            None => Vec::new(),
        });
        found = below.collect();
    }
    found.into_iter().flat_map(elements).filter_map(Value::as_str).collect()
}

/// The elements of an array, else the value itself.
fn elements(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(all) => all.iter().collect(),
        one => vec![one],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_no_path_names_is_left_out() {
        let object = json!({
            "a": {"b": [{"c": 1, "d": "x"}, {"c": {"hidden": "y"}}, "text"], "e": {"f": "z"}, "list": ["p", {"q": "r"}]},
            "g": {"h": {"i": ["j"]}},
            "k": "l",
        });
        let paths: &[&'static str] = &["a.b.c", "a.list", "!a.e", "g.**", "k.below"];
        let check = |redact: bool, expected: Value| {
            let mut kept = object.clone();
            Fields::new(&[paths], redact).keep(&mut kept);
            assert_eq!(kept, expected);
        };
        let list = json!(["p", {}]);
        let b = json!([{"c": 1}, {"c": {}}, null]);
        let g = json!({"h": {"i": ["j"]}});
        check(true, json!({"a": {"b": b, "list": list}, "g": g, "k": null}));
        check(false, json!({"a": {"b": b, "e": {}, "list": list}, "g": g, "k": null}));
    }

    #[test]
    fn texts_are_found_through_arrays_and_below_any_name() {
        let object = json!({"a": [{"b": "1"}, {"b": ["2", 3]}, 4], "c": {"x": "5", "y": {"z": "6"}}});
        assert_eq!(texts(&object, "a.b"), ["1", "2"]);
        assert_eq!(texts(&object, "c.*"), ["5"]);
        assert_eq!(texts(&object, "c.*.z"), ["6"]);
        assert!(texts(&object, "none.at.all").is_empty());
    }
}
