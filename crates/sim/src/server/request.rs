//! What a request asks for.

use std::fmt;

use http::Method;
use serde_json::Value;

#[derive(Debug, Clone)]
pub(super) enum Verb {
    Get,
    List { source: Option<String>, token: Option<String>, limit: usize },
    Watch { from: u64, seconds: u64 },
    Create(Value),
    Replace(Value),
    Merge(Value),
    Apply(Value),
    Delete,
    Other(String),
}

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) verb: Verb,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// It is about the status subresource.
    pub(super) status: bool,
    pub(super) manager: String,
    pub(super) force: bool,
}

impl Request {
    pub(super) fn read(parts: &http::request::Parts, body: &[u8]) -> Self {
        let mut path = parts.uri.path().split('/').filter(|part| !part.is_empty());
        let skipped = if path.next() == Some("api") { 1 } else { 2 };
        let path: Vec<&str> = path.skip(skipped).collect();
        let (namespace, path) = match path.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            all => ("", all),
        };
        let part = |place: usize| path.get(place).copied().unwrap_or_default().to_owned();
        let (resource, name, sub) = (part(0), part(1), part(2));
        let query = parts.uri.query().unwrap_or_default();
        let parameter = |wanted: &str| {
            query
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .find(|(key, _)| *key == wanted)
                .map(|(_, v)| plain(v))
        };
        let number = |name: &str| parameter(name).and_then(|text| text.parse::<u64>().ok());
        let value = || serde_json::from_slice::<Value>(body).unwrap_or_default();
        let kind = parts
            .headers
            .get(http::header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        let watches = parameter("watch").is_some_and(|watch| watch == "true" || watch == "1");
        let verb = match &parts.method {
            &Method::GET if watches => {
                let from = number("resourceVersion").unwrap_or(0);
                Verb::Watch { from, seconds: number("timeoutSeconds").unwrap_or(300) }
            }
            &Method::GET if name.is_empty() => {
                let source = parameter("fieldSelector")
                    .and_then(|fields| Some(fields.strip_prefix("source=")?.to_owned()));
                let limit =
                    number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
                Verb::List { source, token: parameter("continue"), limit }
            }
            &Method::GET => Verb::Get,
            &Method::POST => Verb::Create(value()),
            &Method::PUT => Verb::Replace(value()),
            &Method::DELETE if !name.is_empty() => Verb::Delete,
            &Method::PATCH if kind.contains("apply-patch") => Verb::Apply(value()),
            &Method::PATCH if kind.contains("merge-patch") => Verb::Merge(value()),
            other => Verb::Other(format!("{other} {kind}")),
        };
        let name = match &verb {
            Verb::Create(body) => body["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            _ => name,
        };
        Self {
            verb,
            resource,
            namespace: namespace.to_owned(),
            name,
            status: sub == "status",
            manager: parameter("fieldManager").unwrap_or_default(),
            force: parameter("force").is_some_and(|force| force == "true"),
        }
    }

    /// Whether it says something about a volume.
    pub(super) fn is_report(&self) -> bool {
        let writes = !matches!(self.verb, Verb::Get | Verb::List { .. } | Verb::Watch { .. });
        writes && ["events", "persistentvolumeclaims", "volumehealths"].contains(&&*self.resource)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match &self.verb {
            Verb::Get => "get",
            Verb::List { .. } => "list",
            Verb::Watch { .. } => "watch",
            Verb::Create(_) => "create",
            Verb::Replace(_) => "replace",
            Verb::Merge(_) => "patch",
            Verb::Apply(_) => "apply",
            Verb::Delete => "delete",
            Verb::Other(other) => other,
        };
        let status = if self.status { "/status" } else { "" };
        write!(f, "{verb} {}{status} {}", self.resource, self.name)
    }
}

/// Without percent encoding.
fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let encoded = if *first == b'%' { tail.get(..2) } else { None };
        let byte = encoded.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
