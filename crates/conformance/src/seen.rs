//! What is judged of every answer, whichever rule asked for it.

use std::collections::HashSet;

use tonic::Status;
use volmedic_proto::csi as wire;

use crate::report::{Judged, broken, not_applicable};
use crate::text::{code, line};

/// The general limit of CSI on a string, and the one it has for node ids.
const STRING_LIMIT: usize = 128;
const NODE_ID_LIMIT: usize = 256;
/// What the API server of Kubernetes takes.
const REASON_LIMIT: usize = 256;
const MESSAGE_LIMIT: usize = 1024;

/// How often something was checked, how often it was wrong, and the first time that was.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    looked: usize,
    wrong: usize,
    first: Option<String>,
}

impl Tally {
    pub(crate) fn note(&mut self, wrong: Option<String>) {
        self.looked += 1;
        if let Some(wrong) = wrong {
            self.wrong += 1;
            self.first.get_or_insert(wrong);
        }
    }

    /// `what` is what was checked.
    pub(crate) fn judge(&self, what: &str) -> Judged {
        match &self.first {
            Some(first) if self.wrong > 1 => broken(format!("{first}; and {} more", self.wrong - 1)),
            Some(first) => broken(first.clone()),
            None if self.looked == 0 => not_applicable(format!("there were no {what} to check")),
            None => Ok(format!("{} {what} checked", self.looked)),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) deadlines: Tally,
    pub(crate) details: Tally,
    pub(crate) sentences: Tally,
    pub(crate) secrets: Tally,
    pub(crate) strings: Tally,
    pub(crate) statuses: Tally,
    pub(crate) reasons: Tally,
    pub(crate) messages: Tally,
    pub(crate) unique: Tally,
    pub(crate) condition_messages: Tally,
}

impl Seen {
    pub(crate) fn failed(&mut self, call: &str, status: &Status) {
        let details = (!status.details().is_empty())
            .then(|| format!("{call}: the status has {} bytes of details", status.details().len()));
        self.details.note(details);
        // That a whole service is missing is said by gRPC itself, which has no words for it.
        if status.code() != tonic::Code::Unimplemented {
            let mute = status.message().trim().is_empty();
            self.sentences.note(mute.then(|| format!("{call}: {} without a message", code(status.code()))));
        }
    }

    pub(crate) fn string(&mut self, call: &str, field: &str, text: &str) {
        let limit = if field == "node_id" { NODE_ID_LIMIT } else { STRING_LIMIT };
        let long = text.len() > limit;
        self.strings
            .note(long.then(|| format!("{call}: {field} has {} bytes, {limit} are allowed", text.len())));
    }

    pub(crate) fn condition(&mut self, call: &str, condition: &wire::VolumeCondition) {
        let wire::VolumeCondition { abnormal, message } = condition;
        let mute = message.trim().is_empty();
        self.condition_messages.note(mute.then(|| format!("{call}: abnormal={abnormal} without a message")));
    }

    pub(crate) fn health(&mut self, call: &str, health: &wire::VolumeHealth) {
        self.string(call, "volume_id", &health.volume_id);
        let mut before = HashSet::new();
        for entry in &health.health_statuses {
            let wire::volume_health::VolumeHealthEntry { status, reason, message } = entry;
            let known = matches!(
                wire::VolumeHealthErrorType::try_from(*status),
                Ok(wire::VolumeHealthErrorType::Degraded
                    | wire::VolumeHealthErrorType::Inaccessible
                    | wire::VolumeHealthErrorType::DataLoss)
            );
            self.statuses.note((!known).then(|| format!("{call}: status {status} is none that CSI defines")));
            self.reason(call, reason);
            self.message(call, message);
            let again = !before.insert((*status, reason.as_str()));
            self.unique
                .note(again.then(|| format!("{call}: status {status} with {:?} comes twice", line(reason))));
        }
    }

    pub(crate) fn reason(&mut self, call: &str, reason: &str) {
        self.reasons
            .note(why_no_reason(reason).map(|why| format!("{call}: reason {:?} {why}", line(reason))));
    }

    fn message(&mut self, call: &str, message: &str) {
        let long = message.len() > MESSAGE_LIMIT;
        self.messages.note(long.then(|| {
            format!("{call}: a message of {} bytes, at most {MESSAGE_LIMIT} are allowed", message.len())
        }));
    }

    /// Storage health: one entry alone; what is said of several, the rule itself judges.
    pub(crate) fn storage(
        &mut self,
        call: &str,
        entry: &wire::node_get_storage_health_response::StorageBackendHealth,
    ) {
        self.reason(call, &entry.reason);
        self.message(call, &entry.message);
    }
}

/// CamelCase, and nothing that the API server would refuse.
fn why_no_reason(reason: &str) -> Option<&'static str> {
    if reason.is_empty() {
        Some("is empty")
    } else if reason.len() > REASON_LIMIT {
        Some("is longer than 256 bytes")
    } else if !reason.starts_with(|c: char| c.is_ascii_uppercase()) {
        Some("does not start with a capital letter")
    } else if !reason.bytes().all(|b| b.is_ascii_alphanumeric()) {
        Some("is not CamelCase: only letters and digits are")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::why_no_reason;

    #[test]
    fn reasons() {
        for good in ["VolumeNotFound", "IOHung", "X", "Raid5Degraded"] {
            assert_eq!(why_no_reason(good), None, "{good}");
        }
        for bad in ["", "volumeNotFound", "Volume Not Found", "Volume_Not_Found", "Größe", &"X".repeat(257)]
        {
            assert!(why_no_reason(bad).is_some(), "{bad}");
        }
    }
}
