//! A proto file as a flat list of named facts, and the difference between two such lists.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::descriptor::{Enum, Field, File, Msg, Range, Service};

/// From the full name of a thing to all that is known about it, in one line.
pub(crate) type Facts = BTreeMap<String, String>;

/// Everything in the file that can be seen on the wire or in the options.
pub(crate) fn of(file: &File) -> Facts {
    let package = file.package.as_deref().unwrap_or_default();
    let mut facts = Facts::new();
    add(&mut facts, format!("{package} syntax"), file.syntax.clone().unwrap_or_default());
    for message in &file.messages {
        of_message(&mut facts, package, message);
    }
    for list in &file.enums {
        of_enum(&mut facts, package, list);
    }
    for service in &file.services {
        of_service(&mut facts, package, service);
    }
    for extension in &file.extensions {
        let extendee = extension.extendee.as_deref().unwrap_or("nothing");
        add(
            &mut facts,
            name(package, extension.name.as_ref()),
            format!("{} extends {extendee}", of_field(extension, &[])),
        );
    }
    facts
}

/// What stands in one list and not, or not so, in the other. What lies inside a thing that is missing as a whole is
/// not reported again.
pub(crate) fn differences(ours: &Facts, theirs: &Facts) -> Vec<String> {
    let mut all = Vec::new();
    for (key, mine) in ours {
        match theirs.get(key) {
            Some(yours) if yours == mine => {}
            Some(yours) => all.push(format!("changed: {key}: ours {mine}, theirs {yours}")),
            None if parent_is_missing(key, ours, theirs) => {}
            None => all.push(format!("only ours: {key}: {mine}")),
        }
    }
    for (key, yours) in theirs {
        if !ours.contains_key(key) && !parent_is_missing(key, theirs, ours) {
            all.push(format!("only theirs: {key}: {yours}"));
        }
    }
    all.sort();
    all
}

fn parent_is_missing(key: &str, here: &Facts, there: &Facts) -> bool {
    let mut parents = key.match_indices(['.', '/', ' ']).map(|(end, _)| &key[..end]);
    parents.any(|parent| here.contains_key(parent) && !there.contains_key(parent))
}

fn of_message(facts: &mut Facts, scope: &str, message: &Msg) {
    let path = name(scope, message.name.as_ref());
    let options = message.options.clone().unwrap_or_default();
    let map = flag(options.map_entry, " map-entry");
    add(facts, path.clone(), format!("message{map}{}", flag(options.alpha, " alpha")));
    let oneofs: Vec<&str> =
        message.oneofs.iter().map(|oneof| oneof.name.as_deref().unwrap_or_default()).collect();
    for field in &message.fields {
        add(facts, name(&path, field.name.as_ref()), of_field(field, &oneofs));
    }
    // The end of a message's range is the first number that is free again.
    of_reserved(facts, &path, &message.reserved, 1, &message.reserved_names);
    for nested in &message.messages {
        of_message(facts, &path, nested);
    }
    for list in &message.enums {
        of_enum(facts, &path, list);
    }
}

fn of_field(field: &Field, oneofs: &[&str]) -> String {
    let options = field.options.clone().unwrap_or_default();
    let number = field.number.unwrap_or_default();
    let label = match field.label {
        Some(1) => "",
        Some(2) => " required",
        Some(3) => " repeated",
        other => panic!("field {:?} has the label {other:?}, which no proto compiler writes", field.name),
    };
    let kind = match (type_name(field.r#type), field.type_name.as_deref()) {
        (kind, None) => kind.to_owned(),
        (kind, Some(name)) => format!("{kind} {name}"),
    };
    let json = field.json_name.as_deref().unwrap_or_default();
    let oneof = field.oneof_index.map(|index| {
        let name = usize::try_from(index).ok().and_then(|index| oneofs.get(index));
        format!(" oneof {}", name.unwrap_or(&"that does not exist"))
    });
    format!(
        "{number}{label} {kind} json {json}{}{}{}{}",
        oneof.unwrap_or_default(),
        flag(field.proto3_optional, " optional"),
        flag(options.secret, " secret"),
        flag(options.alpha, " alpha"),
    )
}

fn of_enum(facts: &mut Facts, scope: &str, list: &Enum) {
    let path = name(scope, list.name.as_ref());
    let alpha = flag(list.options.as_ref().and_then(|options| options.alpha), " alpha");
    add(facts, path.clone(), format!("enum{alpha}"));
    for value in &list.values {
        let number = value.number.unwrap_or_default();
        let alpha = flag(value.options.as_ref().and_then(|options| options.alpha), " alpha");
        add(facts, name(&path, value.name.as_ref()), format!("{number}{alpha}"));
    }
    of_reserved(facts, &path, &list.reserved, 0, &list.reserved_names);
}

fn of_reserved(facts: &mut Facts, path: &str, ranges: &[Range], beyond: i32, names: &[String]) {
    for range in ranges {
        let (start, end) = (range.start.unwrap_or_default(), range.end.unwrap_or_default() - beyond);
        add(facts, format!("{path} reserved {start}"), format!("to {end}"));
    }
    for name in names {
        add(facts, format!("{path} reserved {name}"), "name".to_owned());
    }
}

fn of_service(facts: &mut Facts, scope: &str, service: &Service) {
    let path = name(scope, service.name.as_ref());
    let alpha = flag(service.options.as_ref().and_then(|options| options.alpha), " alpha");
    add(facts, path.clone(), format!("service{alpha}"));
    for method in &service.methods {
        let alpha = flag(method.options.as_ref().and_then(|options| options.alpha), " alpha");
        let (input, output) =
            (method.input.as_deref().unwrap_or_default(), method.output.as_deref().unwrap_or_default());
        let (sent, answered) =
            (flag(method.client_streaming, "stream "), flag(method.server_streaming, "stream "));
        let key = format!("{path}/{}", method.name.as_deref().unwrap_or_default());
        add(facts, key, format!("{sent}{input} -> {answered}{output}{alpha}"));
    }
}

fn add(facts: &mut Facts, key: String, fact: String) {
    match facts.entry(key) {
        Entry::Vacant(place) => {
            place.insert(fact);
        }
        Entry::Occupied(before) => {
            panic!("{} occurs twice in one file: {} and {fact}", before.key(), before.get())
        }
    }
}

fn name(scope: &str, name: Option<&String>) -> String {
    format!("{scope}.{}", name.map_or("", String::as_str))
}

fn flag(set: Option<bool>, text: &'static str) -> &'static str {
    if set == Some(true) { text } else { "" }
}

fn type_name(number: Option<i32>) -> &'static str {
    const NAMES: [&str; 18] = [
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group",
        "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
    ];
    let index = number.and_then(|number| usize::try_from(number - 1).ok());
    index.and_then(|index| NAMES.get(index)).unwrap_or(&"type-unknown-to-proto")
}
