//! Values that may be secret, masked by what they are called. Names of Secrets stay: they say where to look.

use serde_json::Value;

const MASK: &str = "(masked)";
const SUSPICIOUS: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "apikey",
    "privatekey",
    "authorization",
    "cookie",
];
/// Names, sizes and the like of secrets, which are none.
const HARMLESS: [&str; 6] = ["name", "namespace", "ref", "file", "expirationseconds", "path"];
/// Words before the secret in an Authorization header.
const SCHEMES: [&str; 5] = ["bearer", "basic", "digest", "negotiate", "token"];
/// What ends a value that is not quoted.
const ENDS: &str = "\"\\,;&'`<>(){}[]|";

fn is_secret(key: &str) -> bool {
    let key: String =
        key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    SUSPICIOUS.iter().any(|word| key.contains(word)) && !HARMLESS.iter().any(|end| key.ends_with(end))
}

/// Masks what may be secret in an object, and leaves out what managed it.
pub(super) fn object(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    walk(object, false);
}

/// `secret` is true below a name that is one of a secret.
fn walk(value: &mut Value, secret: bool) {
    match value {
        Value::Object(fields) => {
            // An environment variable has its name beside its value.
            let is_named = |key: &str| fields.get(key).and_then(Value::as_str).is_some_and(is_secret);
            let is_named = is_named("name") || is_named("key");
            for (key, field) in fields.iter_mut() {
                let is_harmless = HARMLESS.iter().any(|end| key.to_ascii_lowercase().ends_with(end));
                let inherits = secret && !is_harmless;
                walk(field, inherits || is_secret(key) || (is_named && key == "value"));
            }
        }
        Value::Array(all) => {
            let mut after = false;
            for one in all {
                // As in the arguments `--password` and `x`.
                let text = one.as_str().unwrap_or_default();
                let is_value = after && !text.starts_with('-');
                after = text.starts_with('-') && !text.contains('=') && is_secret(text);
                walk(one, secret || is_value);
            }
        }
        Value::String(text) if secret && !text.is_empty() => MASK.clone_into(text),
        Value::String(text) => *text = self::text(text),
        Value::Number(_) if secret => *value = MASK.into(),
        _ => {}
    }
}

/// Masks what follows `password=` and its like, as in mount options, arguments, headers and JSON; passwords in URLs, JSON Web
/// Tokens and private keys.
pub(super) fn text(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_of_word) {
        let (before, after) = rest.split_at(at);
        masked.push_str(before);
        let end = after.find(|c| !is_of_word(c)).unwrap_or(after.len());
        let (word, after) = after.split_at(end);
        if let Some(behind) = whole(before, word, after) {
            masked.push_str(MASK);
            rest = behind;
            continue;
        }
        masked.push_str(word);
        let secret = if before.ends_with("://") { password_in_url(after) } else { secret_after(word, after) };
        let (separator, length) = secret.unwrap_or_default();
        masked.push_str(&after[..separator]);
        if length > 0 {
            masked.push_str(MASK);
        }
        rest = &after[separator + length..];
    }
    masked.push_str(rest);
    masked
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// If a secret begins with this word: what is behind the secret.
fn whole<'a>(before: &str, word: &str, after: &'a str) -> Option<&'a str> {
    // The header and the claims of a JSON Web Token are JSON in base64, which begins so.
    if word.len() > 20 && word.starts_with("eyJ") && word.contains('.') {
        return Some(after);
    }
    // A password without a user, as in `redis://:password@host`.
    if before.ends_with("://:") {
        return authority(after).rfind('@').map(|at| &after[at..]);
    }
    let line = after.split(['\n', '\\']).next().unwrap_or_default();
    if !word.ends_with("-BEGIN") || !line.contains("PRIVATE KEY") {
        return None;
    }
    let (_, behind) = after.split_once("-----END").unwrap_or_default();
    Some(behind.split_once("-----").unwrap_or_default().1)
}

/// The part of a URL that may have a password.
fn authority(text: &str) -> &str {
    text.split(|c: char| c.is_whitespace() || "/\"'".contains(c)).next().unwrap_or_default()
}

/// In `https://user:password@host`, after the first word of the user: lengths of what is before the password, and of the
/// password.
fn password_in_url(after: &str) -> Option<(usize, usize)> {
    let at = authority(after).rfind('@')?;
    let colon = after[..at].find(':')?;
    Some((colon + 1, at - colon - 1))
}

/// The secret that this word announces: lengths of what is between them, and of the secret.
fn secret_after(word: &str, after: &str) -> Option<(usize, usize)> {
    let blanks = |text: &str| text.len() - text.trim_start_matches([' ', '\t']).len();
    let is_scheme = word.eq_ignore_ascii_case("bearer");
    let mut start = opening(after).map_or(0, Quote::length);
    let is_closed = start > 0;
    start += blanks(&after[start..]);
    if after[start..].starts_with([':', '=']) {
        start += 1;
        start += blanks(&after[start..]);
    } else if is_closed
        || start == 0
        || !(word.starts_with('-') || is_scheme)
        || after[start..].starts_with('-')
    {
        return None;
    }
    if !is_scheme && !is_secret(word) {
        return None;
    }
    let quote = opening(&after[start..]);
    start += quote.map_or(0, Quote::length);
    let value = &after[start..];
    let mut length = match quote {
        Some(quote) => quote.end(value),
        None => end_of_word(value),
    };
    let is_header = word.to_ascii_lowercase().ends_with("authorization");
    if is_header && SCHEMES.iter().any(|scheme| value[..length].eq_ignore_ascii_case(scheme)) {
        length += blanks(&value[length..]);
        length += end_of_word(&value[length..]);
    }
    (length > 0).then_some((start, length))
}

/// A quote, which is escaped where JSON is in JSON.
#[derive(Clone, Copy)]
struct Quote {
    backslashes: usize,
    quote: char,
}

fn opening(text: &str) -> Option<Quote> {
    let backslashes = text.len() - text.trim_start_matches('\\').len();
    let quote = text[backslashes..].chars().next().filter(|c| "\"'".contains(*c))?;
    Some(Quote { backslashes, quote })
}

impl Quote {
    fn length(self) -> usize {
        self.backslashes + 1
    }

    /// The length of the value up to the same quote, on this line at most. A quote with other backslashes is of the value.
    fn end(self, value: &str) -> usize {
        let mut backslashes = 0;
        for (at, c) in value.char_indices() {
            let is_end = backslashes == self.backslashes || (self.backslashes == 0 && backslashes % 2 == 0);
            if c == '\n' {
                return at;
            }
            if c == self.quote && is_end {
                return at - self.backslashes;
            }
            backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        }
        value.len()
    }
}

fn end_of_word(value: &str) -> usize {
    value.find(|c: char| c.is_whitespace() || ENDS.contains(c)).unwrap_or(value.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_may_be_secret_is_masked_and_names_stay() {
        let check = |given: &str, expected: &str| assert_eq!(text(given), expected, "{given}");
        check("vers=3.0,password=abc,uid=1", "vers=3.0,password=(masked),uid=1");
        check(
            "--page-token-file=/etc/x --push-token=abc next",
            "--page-token-file=/etc/x --push-token=(masked) next",
        );
        check("--password abc --token --verbose", "--password (masked) --token --verbose");
        check(r#"{"token":"x","token":"","pool":"y"}"#, r#"{"token":"(masked)","token":"","pool":"y"}"#);
        check(r#"{"password": "a\"b\\", "x": "y"}"#, r#"{"password": "(masked)", "x": "y"}"#);
        check(r#"was {\"token\": \"x\", \"a\":1}"#, r#"was {\"token\": \"(masked)\", \"a\":1}"#);
        check("Authorization: Bearer abc.def= next", "Authorization: (masked) next");
        check("authorization: \"Basic YTpi\", next", "authorization: \"(masked)\", next");
        check("sent with bearer abc, next", "sent with bearer (masked), next");
        check("GET https://user:p%40ss@host/x", "GET https://user:(masked)@host/x");
        check("redis://:pass@host:1/", "redis://:(masked)@host:1/");
        check("https://host:8443/x@y", "https://host:8443/x@y");
        check("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln.", "jwt (masked)");
        check("a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b", "a (masked) b");
        check("-----BEGIN CERTIFICATE-----\nMII\n-----END", "-----BEGIN CERTIFICATE-----\nMII\n-----END");
        check("the secret was not found; a token is needed", "the secret was not found; a token is needed");
        check("secretName=a", "secretName=a");
        check("a=b=c", "a=b=c");
        check("token=", "token=");
        check("pässword tøken=ü passwd='ü'", "pässword tøken=ü passwd='(masked)'");
    }

    #[test]
    fn below_the_name_of_a_secret_everything_is_masked_but_names() {
        let mut given = json!({
            "metadata": {"managedFields": [1], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "x", "a": "b", "j": "{\"token\":\"x\"}"}},
            "spec": {
                "csi": {"nodeStageSecretRef": {"name": "s", "namespace": "n"}, "volumeAttributes": {"adminPassword": "p", "pool": "q"}},
                "env": [{"name": "API_TOKEN", "value": "t"}, {"name": "HOME", "value": "/"}, {"key": "password", "value": 7}],
                "automountServiceAccountToken": true,
                "tokens": ["a", {"b": "c", "d": [1]}],
                "credentials": {"user": "u", "fileName": "f"},
                "args": ["--password", "x", "--verbose", "--token", "--y", "z"],
                "volumes": [{"secret": {"secretName": "s"}}],
            },
        });
        object(&mut given);
        let expected = json!({
            "metadata": {"annotations": {"a": "b", "j": "{\"token\":\"(masked)\"}"}},
            "spec": {
                "csi": {"nodeStageSecretRef": {"name": "s", "namespace": "n"}, "volumeAttributes": {"adminPassword": "(masked)", "pool": "q"}},
                "env": [{"name": "API_TOKEN", "value": "(masked)"}, {"name": "HOME", "value": "/"}, {"key": "password", "value": "(masked)"}],
                "automountServiceAccountToken": true,
                "tokens": ["(masked)", {"b": "(masked)", "d": ["(masked)"]}],
                "credentials": {"user": "(masked)", "fileName": "f"},
                "args": ["--password", "(masked)", "--verbose", "--token", "--y", "z"],
                "volumes": [{"secret": {"secretName": "s"}}],
            },
        });
        assert_eq!(given, expected);
    }
}
