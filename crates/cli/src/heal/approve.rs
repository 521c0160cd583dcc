//! Consent to one remedy for one claim: an annotation with the time at which a person agreed.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;
use volmedic_heal::Rules;

use super::Consent;
use super::ask::Errand;

/// What was written.
#[derive(Debug, Serialize)]
pub(super) struct Approved {
    namespace: String,
    claim: String,
    remedy: &'static str,
    annotation: &'static str,
    /// As the healer reads it.
    time: String,
    /// Why it has no effect now.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Consent {
    fn name(self) -> &'static str {
        match self {
            Self::NodeHealer => "NodeHealer",
            Self::RecreatePods => "RecreatePods",
        }
    }

    /// The annotations for consent and for the mode. Consent to one remedy is none to the other.
    fn annotations(self) -> (&'static str, &'static str) {
        match self {
            Self::NodeHealer => (Rules::APPROVED, Rules::ANNOTATION),
            Self::RecreatePods => (Rules::RECREATE_APPROVED, Rules::RECREATE_ANNOTATION),
        }
    }
}

impl Errand {
    /// Writes the consent to this very claim, and to no other of the same name.
    pub(super) async fn approve(&self, remedy: Consent) -> anyhow::Result<Approved> {
        let found = self.bound_claim().await?;
        let (annotation, of_mode) = remedy.annotations();
        let time = format!("{:.0}", Timestamp::now());
        let put = Patch::Merge(json!({"metadata": {"uid": found.uid(), "annotations": {annotation: time}}}));
        let claims = self.claims();
        let why = format!(
            "the consent cannot be written to the claim {}/{}; it needs the right to patch the claim",
            self.namespace, self.claim
        );
        self.call(&why, claims.patch(&self.claim, &PatchParams::default(), &put)).await?;
        let mode = found.annotations().get(of_mode).map(String::as_str);
        Ok(Approved {
            namespace: self.namespace.clone(),
            claim: self.claim.clone(),
            remedy: remedy.name(),
            annotation,
            time,
            note: mode.and_then(|mode| note(of_mode, mode)),
        })
    }
}

/// What the claim's own annotation says against it.
fn note(annotation: &str, mode: &str) -> Option<String> {
    let mode: String = mode.chars().take(32).flat_map(char::escape_debug).collect();
    (mode != "approve").then(|| {
        format!(
            "the claim's annotation {annotation} is {mode}, and consent has an effect only where the mode is approve"
        )
    })
}

/// For people.
pub(super) fn text(approved: &Approved) -> String {
    let Approved { namespace, claim, remedy, annotation, time, note } = approved;
    let note = note.as_ref().map(|note| format!("Note: {note}.\n")).unwrap_or_default();
    format!(
        "{namespace}/{claim}: consent to {remedy} for the current problem ({annotation}={time})\n{note}\
         It expires after the hub's --heal-consent (default: 1 h). What would be done now: \
         volmedic heal {claim} -n {namespace} --dry-run\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consent_to_one_remedy_is_none_to_the_other() {
        let all = [Consent::NodeHealer, Consent::RecreatePods].map(Consent::annotations);
        assert_eq!(
            all,
            [
                ("volmedic.dev/heal-approved", "volmedic.dev/heal"),
                ("volmedic.dev/heal-recreate-pods-approved", "volmedic.dev/heal-recreate-pods"),
            ]
        );
        for remedy in [Consent::NodeHealer, Consent::RecreatePods] {
            let known = volmedic_health::Remedy::ALL.into_iter().any(|known| known.name() == remedy.name());
            assert!(known, "{remedy:?}");
        }
    }

    #[test]
    fn a_mode_in_which_consent_has_no_effect_is_named() {
        assert_eq!(note("volmedic.dev/heal", "approve"), None);
        let why = note("volmedic.dev/heal", "o\u{1b}ff").unwrap();
        assert!(why.contains(r"volmedic.dev/heal is o\u{1b}ff, and consent"), "{why}");
    }
}
