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
