//! What a PersistentVolume is marked with, so that selectors and people find it.

use volmedic_api::resource::{HealthWord, VolumeHealthStatus};

use crate::world::Marks;

/// Longer texts are cut: annotations are read by people.
const LONGEST: usize = 4096;

pub(super) fn of(status: &VolumeHealthStatus) -> Marks {
    let all = status.vantages.iter().flat_map(|entry| &entry.health_conditions);
    let mut messages: Vec<String> = Vec::new();
    for one in all {
        // A semicolon parts one from the next, so none may be inside.
        let text = match one.message.replace(';', ",") {
            message if message.is_empty() => one.reason.clone(),
            message => format!("{} - {message}", one.reason),
        };
        if !messages.contains(&text) {
            messages.push(text);
        }
    }
    if messages.is_empty() || status.headline.health == HealthWord::Healthy {
        return Marks::default();
    }
    let mut message = messages.join("; ");
    message.truncate(message.floor_char_boundary(LONGEST));
    Marks { label: Some(status.headline.health.as_str().into()), message: Some(message.into()) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn condition(reason: &str, message: &str) -> Value {
        json!({
            "type": "HealthFailure", "status": "True", "errorCode": "Inaccessible", "reason": reason,
            "message": message, "lastTransitionTime": "2026-08-21T10:00:00Z",
        })
    }

    /// Of a volume with these conditions from one vantage after the other.
    fn status(health: &str, vantages: &[&[Value]]) -> VolumeHealthStatus {
        let entry = |(at, conditions): (usize, &&[Value])| {
            json!({
                "name": format!("host/w-{at}"), "kind": "Host", "node": format!("w-{at}"), "health": health,
                "since": "2026-08-21T10:00:00Z", "healthConditions": conditions,
            })
        };
        let entries: Vec<Value> = vantages.iter().enumerate().map(entry).collect();
        serde_json::from_value(json!({"headline": {"health": health}, "vantages": entries})).unwrap()
    }

    fn message(vantages: &[&[Value]]) -> String {
        of(&status("HealthFailure", vantages)).message.unwrap_or_default().into()
    }

    #[test]
    fn the_message_has_every_error_once_joined_by_semicolons() {
        let hung = condition("IOHung", "statfs did not come back within 10 s");
        assert_eq!(message(&[std::slice::from_ref(&hung)]), "IOHung - statfs did not come back within 10 s");
        let removed = condition("DiskRemoved", "sda is gone");
        let two = "IOHung - statfs did not come back within 10 s; DiskRemoved - sda is gone";
        assert_eq!(message(&[&[hung.clone(), removed.clone()]]), two);
        assert_eq!(message(&[&[hung.clone(), removed.clone()], &[], &[hung, removed]]), two);
    }

    #[test]
    fn a_semicolon_only_separates_errors() {
        let odd = condition("X", "first; second; node w is down");
        let bare = condition("Y", "");
        assert_eq!(message(&[&[odd, bare]]), "X - first, second, node w is down; Y");
    }

    #[test]
    fn the_label_is_the_health_and_both_marks_go_with_the_last_error() {
        let slow = condition("SlowIO", "slow");
        let marks = of(&status("HealthWarning", &[std::slice::from_ref(&slow)]));
        assert_eq!(
            (marks.label.as_deref(), marks.message.as_deref()),
            (Some("HealthWarning"), Some("SlowIO - slow"))
        );
        assert_eq!(of(&status("Healthy", &[&[]])), Marks::default());
        assert_eq!(of(&status("HealthUnknown", &[])), Marks::default(), "what nothing probes has no error");
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let long: Vec<Value> = (0..9).map(|at| condition(&format!("R{at}"), &"ö".repeat(500))).collect();
        let message = message(&[&long]);
        assert!(message.len() <= LONGEST && message.len() > LONGEST - 4, "{}", message.len());
        assert!(message.starts_with("R0 - ö") && message.ends_with('ö'));
    }
}
