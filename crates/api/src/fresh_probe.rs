//! How the hub asks an agent for a new probe of one volume, and how the agent answers: by two annotations of the agent's
//! Lease. The agent writes the Lease every few seconds anyway, so that it sees a request costs no request of its own, and
//! neither side needs a right or an open port for it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The annotation that the hub writes.
pub const PROBE_REQUESTS: &str = "volmedic.dev/probe-requests";
/// The annotation that the agent writes.
pub const PROBE_ANSWERS: &str = "volmedic.dev/probe-answers";

/// Maximum number of requests, and of answers, on one Lease.
const MOST: usize = 16;
/// What is longer was not written by Volmedic.
const LONGEST: usize = 128 * 1024;
/// Maximum number of bytes of a message.
const MESSAGE: usize = 512;

/// A volume that is to be probed now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeRequest {
    /// Names this request and no other.
    pub id: String,
    pub driver: String,
    pub volume_handle: String,
    /// By the clock of the hub. It is old when the hub no longer waits.
    pub time: Timestamp,
}

/// What a new probe found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeAnswer {
    /// Of the request.
    pub id: String,
    pub found: Found,
    /// The reasons of the conditions that were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    Healthy,
    Unhealthy,
    /// The volume could not be probed.
    NotProbed,
    /// The probe was begun and did not end in time.
    NotEnded,
}

impl ProbeAnswer {
    pub fn new(id: &str, found: Found, reasons: Vec<String>, message: &str) -> Self {
        let message = message[..message.floor_char_boundary(MESSAGE)].to_owned();
        Self { id: id.to_owned(), found, reasons, message }
    }
}

type Annotations = BTreeMap<String, String>;

/// The requests on a Lease. What cannot be read is left out.
pub fn probe_requests(annotations: Option<&Annotations>) -> Vec<ProbeRequest> {
    read(annotations, PROBE_REQUESTS)
}

/// The answers on a Lease. What cannot be read is left out.
pub fn probe_answers(annotations: Option<&Annotations>) -> Vec<ProbeAnswer> {
    read(annotations, PROBE_ANSWERS)
}

/// The requests as they are written; the newest ones, if there are too many.
pub fn requests_text(mut requests: Vec<ProbeRequest>) -> String {
    requests.drain(..requests.len().saturating_sub(MOST));
    serde_json::to_string(&requests).unwrap_or_default()
}

/// The answers as they are written; the newest ones, if there are too many.
pub fn answers_text(mut answers: Vec<ProbeAnswer>) -> String {
    answers.drain(..answers.len().saturating_sub(MOST));
    serde_json::to_string(&answers).unwrap_or_default()
}

fn read<T: serde::de::DeserializeOwned>(annotations: Option<&Annotations>, key: &str) -> Vec<T> {
    let text = annotations.and_then(|all| all.get(key)).filter(|text| text.len() <= LONGEST);
    let values = text.and_then(|text| serde_json::from_str::<Vec<serde_json::Value>>(text).ok());
    let values = values.unwrap_or_default().into_iter().take(MOST);
    values.filter_map(|value| serde_json::from_value(value).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str) -> ProbeRequest {
        let time = "2026-11-19T12:00:00Z".parse().unwrap();
        ProbeRequest { id: id.to_owned(), driver: "d".to_owned(), volume_handle: "h".to_owned(), time }
    }

    #[test]
    fn what_is_written_is_read_again_and_is_bounded() {
        let all: Vec<_> = (0..40).map(|n| request(&n.to_string())).collect();
        let text = requests_text(all);
        let read = probe_requests(Some(&Annotations::from([(PROBE_REQUESTS.to_owned(), text)])));
        assert_eq!(read.len(), MOST);
        assert_eq!((&*read[0].id, &read[15]), ("24", &request("39")));
        let long = ProbeAnswer::new("1", Found::NotEnded, vec!["IOHung".to_owned()], &"é".repeat(4000));
        let text = answers_text(vec![long.clone()]);
        let read = probe_answers(Some(&Annotations::from([(PROBE_ANSWERS.to_owned(), text)])));
        assert_eq!(read, [long]);
        assert!(read[0].message.len() <= MESSAGE);
    }

    #[test]
    fn what_was_not_written_by_us_is_left_out() {
        for text in ["", "{}", "[", "[1,{}]", &format!("[{}", " ".repeat(LONGEST))] {
            let annotations = Annotations::from([(PROBE_REQUESTS.to_owned(), text.to_owned())]);
            assert_eq!(probe_requests(Some(&annotations)), []);
        }
        let mixed = format!("[7,{}]", serde_json::to_string(&request("a")).unwrap());
        let annotations = Annotations::from([(PROBE_REQUESTS.to_owned(), mixed)]);
        assert_eq!(probe_requests(Some(&annotations)), [request("a")]);
        assert_eq!(probe_requests(None), []);
    }
}
