//! A report that somebody sends: what it may say, and why one is refused. Pure.

mod metrics;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use volmedic_health::{Condition, MAX_CONDITIONS, MAX_MESSAGE_BYTES, Reason, Status, sanitize_reason};

use crate::facts::Pushed;
pub use metrics::{METRICS, ReportCounts};

/// A body may be this long.
pub const MAX_BODY: usize = 64 * 1024;
/// How long a report may stand without being sent again.
pub const TTL: std::ops::RangeInclusive<u64> = 10..=86_400;
/// For which audience a token must be issued.
pub const AUDIENCE: &str = "volmedic-hub";
/// What it takes to report: this verb on the claim's VolumeHealth.
pub const VERB: &str = "report";
/// What the service takes and answers, for machines.
pub const OPENAPI: &str = include_str!("push/openapi.json");

const LONGEST_SOURCE: usize = 63;
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;
/// A longer text than this is cut where it is stored, as any driver's is.
const LONGEST_MESSAGE: usize = MAX_MESSAGE_BYTES;

/// What somebody who watches a volume sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Report {
    /// The claim; or else the volume.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub claim: Option<ReportedClaim>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub volume: Option<ReportedVolume>,
    /// Who reports. What one source says replaces what it said before.
    pub source: String,
    /// What is wrong; nothing, if all is healthy.
    pub conditions: Vec<ReportedCondition>,
    /// What is not reported again for this long is no longer believed.
    #[serde(deserialize_with = "whole")]
    pub ttl_seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportedClaim {
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportedVolume {
    pub driver: String,
    pub volume_handle: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportedCondition {
    /// Degraded, Inaccessible or DataLoss.
    pub status: String,
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Either it is there or it is left out; null is neither.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// In JSON, 600.0 is as whole as 600.
fn whole<'de, D: Deserializer<'de>>(value: D) -> Result<u64, D::Error> {
    let number = serde_json::Number::deserialize(value)?;
    let rounded = || number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..1e15).contains(float));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, positive and small"
    )]
    let whole = number.as_u64().or_else(|| rounded().map(|float| float as u64));
    whole.ok_or_else(|| serde::de::Error::custom(format!("{number} is no number of seconds")))
}

/// Which part of a report is wrong, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    pub field: String,
    pub why: String,
    /// It looks as the description says, and yet it cannot be meant.
    pub contradicts_itself: bool,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

fn wrong<T>(field: impl Into<String>, why: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { field: field.into(), why: why.into(), contradicts_itself: false })
}

impl Report {
    /// Reads a body. A report that is not wholly right is refused as a whole: nothing of it is stored.
    pub fn read(body: &[u8]) -> Result<Self, Wrong> {
        if body.len() > MAX_BODY {
            return wrong("body", format!("it has {} bytes, and {MAX_BODY} are allowed", body.len()));
        }
        let report: Self = serde_json::from_slice(body)
            .or_else(|error| wrong("body", format!("it is no report: {error}")))?;
        report.check()?;
        Ok(report)
    }

    fn check(&self) -> Result<(), Wrong> {
        match (&self.claim, &self.volume) {
            (Some(claim), None) => {
                name("claim.namespace", &claim.namespace, LONGEST_LABEL)?;
                name("claim.name", &claim.name, LONGEST_NAME)?;
            }
            (None, Some(volume)) => {
                driver("volume.driver", &volume.driver)?;
                text("volume.volumeHandle", &volume.volume_handle, volmedic_api::resource::limit::HANDLE)?;
                if volume.volume_handle.is_empty() {
                    return wrong("volume.volumeHandle", "it may not be empty");
                }
            }
            _ => return wrong("claim", "give either the claim or the volume, and not both"),
        }
        name("source", &self.source, LONGEST_SOURCE)?;
        if !TTL.contains(&self.ttl_seconds) {
            let why = format!("{} is not between {} and {}", self.ttl_seconds, TTL.start(), TTL.end());
            return wrong("ttlSeconds", why);
        }
        if self.conditions.len() > MAX_CONDITIONS {
            let why = format!("there are {}, and {MAX_CONDITIONS} are allowed", self.conditions.len());
            return wrong("conditions", why);
        }
        for (n, one) in self.conditions.iter().enumerate() {
            let field = |part: &str| format!("conditions[{n}].{part}");
            if Status::from_api_value(&one.status).is_none() {
                let why = format!("{:?} is none of Degraded, Inaccessible and DataLoss", one.status);
                return wrong(field("status"), why);
            }
            if one.reason.is_empty() || sanitize_reason(&one.reason) != one.reason {
                let why = "it must be one word of letters, digits, and _ , : inside, as in DiskDegrading";
                return wrong(field("reason"), why);
            }
            text(&field("message"), &one.message, LONGEST_MESSAGE)?;
            let same =
                |other: &ReportedCondition| (&other.status, &other.reason) == (&one.status, &one.reason);
            if self.conditions[..n].iter().any(same) {
                let why = format!("{}/{} is given twice", one.status, one.reason);
                return Err(Wrong { field: field("reason"), why, contradicts_itself: true });
            }
        }
        Ok(())
    }

    /// As the merge takes it.
    pub fn pushed(&self, now: Timestamp) -> Pushed {
        let condition = |one: &ReportedCondition| {
            let status = Status::from_api_value(&one.status).unwrap_or(Status::Unrecognized(0));
            Condition::new(status, Reason::new(&one.reason), &one.message)
        };
        let ttl = Duration::from_secs(self.ttl_seconds);
        Pushed {
            source: self.source.as_str().into(),
            conditions: self.conditions.iter().map(condition).collect(),
            expires: now.checked_add(ttl).unwrap_or(Timestamp::MAX),
        }
    }
}

/// A name as objects have them.
fn name(field: &str, value: &str, limit: usize) -> Result<(), Wrong> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    short(field, value, limit)?;
    if !value.starts_with(ends) || !value.ends_with(ends) || !value.chars().all(plain) {
        return wrong(
            field,
            "it must be made of small letters, digits, - and . and begin and end with one of the first two",
        );
    }
    Ok(())
}

/// A name as CSI drivers have them.
fn driver(field: &str, value: &str) -> Result<(), Wrong> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let ends = |c: char| c.is_ascii_alphanumeric();
    short(field, value, LONGEST_LABEL)?;
    if !value.starts_with(ends) || !value.ends_with(ends) || !value.chars().all(plain) {
        let why = "it must be made of letters, digits, - and . and begin and end with one of the first two";
        return wrong(field, why);
    }
    Ok(())
}

fn text(field: &str, value: &str, limit: usize) -> Result<(), Wrong> {
    short(field, value, limit)?;
    if value.trim() != value || !value.chars().all(printable) {
        return wrong(field, "it holds control characters, or blanks at its ends");
    }
    Ok(())
}

/// What would be left out of a message where it is stored.
fn printable(c: char) -> bool {
    let framed = || format!("|{c}|");
    c == ' ' || c.is_ascii_graphic() || volmedic_health::sanitize_message(&framed()) == framed()
}

/// Length is counted in characters, as the description's readers do.
fn short(field: &str, value: &str, limit: usize) -> Result<(), Wrong> {
    match value.chars().count() {
        long if long > limit => wrong(field, format!("it has {long} characters, and {limit} are allowed")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn good() -> Value {
        json!({
            "claim": {"namespace": "shop", "name": "data"}, "source": "smart-scan", "ttlSeconds": 600,
            "conditions": [{"status": "Degraded", "reason": "DiskDegrading", "message": "9 sectors"}],
        })
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut Value), expected: &str) {
        let mut report = good();
        change(&mut report);
        let why = Report::read(report.to_string().as_bytes()).expect_err("it is wrong").to_string();
        assert!(why.contains(expected), "{why}");
    }

    #[test]
    fn a_right_report_is_taken_and_says_until_when() {
        let report = Report::read(good().to_string().as_bytes()).unwrap();
        let pushed = report.pushed(Timestamp::UNIX_EPOCH);
        assert_eq!(pushed.expires.to_string(), "1970-01-01T00:10:00Z");
        assert_eq!(pushed.conditions[0].to_string(), "Degraded/DiskDegrading");
        let mut well = good();
        well["conditions"] = json!([]);
        assert!(Report::read(well.to_string().as_bytes()).is_ok(), "all is well is a report too");
        let mut volume = good();
        volume.as_object_mut().unwrap().remove("claim");
        volume["volume"] = json!({"driver": "disk.example.net", "volumeHandle": "vol-1"});
        volume["ttlSeconds"] = json!(600.0);
        assert!(Report::read(volume.to_string().as_bytes()).is_ok());
        let mut long = good();
        long["conditions"][0]["message"] = json!("ü".repeat(1024));
        let stored = Report::read(long.to_string().as_bytes()).unwrap().pushed(Timestamp::UNIX_EPOCH);
        let message = &stored.conditions[0].message;
        assert!(message.len() <= MAX_MESSAGE_BYTES && message.ends_with('…'), "cut as any other is");
    }

    #[test]
    fn a_wrong_report_is_refused_with_the_field_and_the_reason() {
        refused(|r| r["ttlSeconds"] = json!(9), "ttlSeconds: 9 is not between 10 and 86400");
        refused(|r| r["ttlSeconds"] = json!(4_000_000_000_u64), "ttlSeconds");
        refused(|r| r["ttlSeconds"] = json!(-1), "body: it is no report");
        refused(|r| r["source"] = json!("Smart Scan"), "source: it must be made of small letters");
        refused(|r| r["ttlSeconds"] = json!(600.5), "600.5 is no number of seconds");
        refused(|r| r["ttlSeconds"] = json!("600"), "body: it is no report");
        refused(|r| r["source"] = json!("x".repeat(64)), "source: it has 64 characters");
        refused(|r| r["claim"]["name"] = json!("../x"), "claim.name");
        refused(|r| r["claim"] = Value::Null, "body: it is no report");
        refused(|r| drop(r.as_object_mut().unwrap().remove("claim")), "give either the claim or the volume");
        refused(
            |r| {
                r.as_object_mut().unwrap().remove("claim");
                r["volume"] = json!({"driver": "-disk", "volumeHandle": "h"});
            },
            "volume.driver: it must be made of letters",
        );
        refused(
            |r| {
                r.as_object_mut().unwrap().remove("claim");
                r["volume"] = json!({"driver": "disk", "volumeHandle": ""});
            },
            "volume.volumeHandle: it may not be empty",
        );
        refused(|r| r["volume"] = json!({"driver": "d", "volumeHandle": "h"}), "give either");
        refused(
            |r| r["conditions"][0]["status"] = json!("Fine"),
            "conditions[0].status: \"Fine\" is none of",
        );
        refused(
            |r| r["conditions"][0]["reason"] = json!("disk bad"),
            "conditions[0].reason: it must be one word",
        );
        refused(|r| r["conditions"][0]["message"] = json!("a\u{7}b"), "control characters");
        refused(|r| r["conditions"][0]["message"] = json!("abc\u{202e}cba"), "control characters");
        refused(|r| r["conditions"][0]["message"] = json!(" a"), "blanks at its ends");
        refused(|r| r["conditions"][0]["message"] = json!("x".repeat(2_000)), "1024 are allowed");
        refused(|r| r["conditions"][0]["surprise"] = json!(1), "unknown field `surprise`");
        refused(
            |r| {
                let one = r["conditions"][0].clone();
                r["conditions"] = json!([one, one]);
            },
            "conditions[1].reason: Degraded/DiskDegrading is given twice",
        );
        refused(
            |r| {
                r["conditions"] =
                    (0..17).map(|n| json!({"status": "Degraded", "reason": format!("R{n}")})).collect();
            },
            "there are 17, and 16 are allowed",
        );
        let long = vec![b' '; MAX_BODY + 1];
        assert!(Report::read(&long).unwrap_err().why.contains("65536 are allowed"));
    }

    #[test]
    fn the_description_names_every_field_and_bound() {
        let api: Value = serde_json::from_str(OPENAPI).expect("it is JSON");
        let schemas = &api["components"]["schemas"];
        for (schema, about) in [("ReportOnClaim", "claim"), ("ReportOnVolume", "volume")] {
            let report = &schemas[schema];
            let fields: Vec<&str> =
                report["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            let mut expected = [about, "conditions", "source", "ttlSeconds"];
            expected.sort_unstable();
            assert_eq!(fields, expected, "{schema}");
        }
        let check = |pointer: &str, expected: usize| {
            assert_eq!(schemas.pointer(pointer), Some(&json!(expected)), "{pointer}");
        };
        check("/Ttl/minimum", usize::try_from(*TTL.start()).unwrap());
        check("/Ttl/maximum", usize::try_from(*TTL.end()).unwrap());
        check("/Conditions/maxItems", MAX_CONDITIONS);
        check("/Source/maxLength", LONGEST_SOURCE);
        check("/Condition/properties/message/maxLength", LONGEST_MESSAGE);
        check("/Condition/properties/reason/maxLength", volmedic_health::MAX_REASON_BYTES);
        check("/Claim/properties/namespace/maxLength", LONGEST_LABEL);
        check("/Claim/properties/name/maxLength", LONGEST_NAME);
        check("/Volume/properties/driver/maxLength", LONGEST_LABEL);
        check("/Volume/properties/volumeHandle/maxLength", volmedic_api::resource::limit::HANDLE);
    }

    #[test]
    fn fuzz_push_body() {
        volmedic_testkit::fuzz("push-body", |body| match Report::read(body) {
            Ok(report) => {
                let pushed = report.pushed(Timestamp::UNIX_EPOCH);
                assert!(pushed.expires > Timestamp::UNIX_EPOCH);
                let _ = report.pushed(Timestamp::MAX);
                true
            }
            Err(wrong) => {
                assert!(!wrong.to_string().is_empty());
                false
            }
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_survived(body in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(Report::read(&body).is_err());
        }

        #[test]
        fn what_is_taken_is_stored_as_it_was_sent(reason in "[A-Za-z0-9_,:. -]{1,20}", message in ".{0,40}") {
            let mut report = good();
            report["conditions"][0]["reason"] = json!(reason);
            report["conditions"][0]["message"] = json!(message);
            if let Ok(read) = Report::read(report.to_string().as_bytes()) {
                let pushed = read.pushed(Timestamp::UNIX_EPOCH);
                prop_assert_eq!(pushed.conditions[0].reason.as_str(), reason);
                prop_assert_eq!(&*pushed.conditions[0].message, message);
            }
        }
    }
}
