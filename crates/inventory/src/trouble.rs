//! Why a list or a watch failed, as a sentence.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Longer texts from elsewhere are cut.
const SAID_LIMIT: usize = 400;
/// A server that asks for more patience than this does not get it.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
}

impl Verb {
    /// What a role has to allow. Lists and watches are of no use without each other.
    fn rule(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List | Self::Watch => "list, watch",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
        })
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(
        "the API server does not let us {verb} {resource}: {said}; give our service account a ClusterRole with the \
         rule {{apiGroups: [\"{group}\"], resources: [{resource}], verbs: [{}]}}",
        .verb.rule()
    )]
    Forbidden { verb: Verb, resource: &'static str, group: &'static str, said: String },
    #[error(
        "the API server does not know who asks to {verb} {resource}: {said}; check the service account's token or the \
         kubeconfig"
    )]
    Unknown { verb: Verb, resource: &'static str, said: String },
    #[error(
        "the API server no longer has the changes of {resource} that we missed, so all of them are listed again"
    )]
    Expired { resource: &'static str },
    #[error("the API server failed to {verb} {resource} with code {code}: {said}")]
    Refused { verb: Verb, resource: &'static str, code: u16, said: String, wait: Duration },
    #[error(
        "the API server cannot be reached to {verb} {resource}: {why}; check that it runs and that nothing blocks the way"
    )]
    Unreachable { verb: Verb, resource: &'static str, why: String },
    #[error("the API server's answer to {verb} {resource} makes no sense: {why}")]
    Nonsense { verb: Verb, resource: &'static str, why: String },
    #[error("the API server was asked to {verb} {resource} and said nothing for {} s", .after.as_secs())]
    Silent { verb: Verb, resource: &'static str, after: Duration },
    #[error("the list of {resource} does not end: after page {pages} there is always another")]
    Endless { resource: &'static str, pages: usize },
    #[error("the API server ended a watch of {resource} as soon as it began")]
    Cut { resource: &'static str },
    #[error(
        "the kubelet's directory {path} cannot be read: {why}; check that it is the kubelet's root directory and that we \
         may read it"
    )]
    Directory { path: String, why: String },
    #[error(
        "reading the kubelet's directory {path} took longer than {} s; its file system may hang",
        .after.as_secs()
    )]
    SlowDirectory { path: String, after: Duration },
}

impl Trouble {
    pub(crate) fn new(verb: Verb, resource: &'static str, group: &'static str, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(verb, resource, group, &status),
            kube::Error::SerdeError(error) => Self::Nonsense { verb, resource, why: cut(error.to_string()) },
            kube::Error::FromUtf8(error) => Self::Nonsense { verb, resource, why: cut(error.to_string()) },
            other => Self::Unreachable { verb, resource, why: cut(chain(&other)) },
        }
    }

    pub(crate) fn from_status(
        verb: Verb,
        resource: &'static str,
        group: &'static str,
        status: &kube::core::Status,
    ) -> Self {
        let said = cut(match (&*status.message, &*status.reason) {
            ("", "") => "no reason given".to_owned(),
            ("", reason) => reason.to_owned(),
            (message, _) => message.to_owned(),
        });
        match status.code {
            // What kube makes of an event that it cannot read.
            0 => Self::Nonsense { verb, resource, why: said },
            401 => Self::Unknown { verb, resource, said },
            403 => Self::Forbidden { verb, resource, group, said },
            410 => Self::Expired { resource },
            code => {
                let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                let wait = Duration::from_secs(wait.into()).min(PATIENCE);
                Self::Refused { verb, resource, code, said, wait }
            }
        }
    }

    /// Part of the ordinary life of a watch; nobody has to do anything about it.
    pub(crate) fn heals_itself(&self) -> bool {
        matches!(self, Self::Expired { .. } | Self::Cut { .. })
    }

    /// Whether going on where the watch stopped would only meet the same trouble again.
    pub(crate) fn needs_list(&self) -> bool {
        matches!(self, Self::Expired { .. } | Self::Nonsense { .. })
    }

    /// Whether the server's cache has not seen the version yet that we have seen.
    pub(crate) fn is_ahead_of_server(&self) -> bool {
        // There is a machine-readable cause, too, but not in every version.
        matches!(self, Self::Refused { verb: Verb::List, said, .. } if said.contains("Too large resource version"))
    }

    /// How long the server asked us to stay away.
    pub(crate) fn wait(&self) -> Duration {
        match self {
            Self::Refused { wait, .. } => *wait,
            _ => Duration::ZERO,
        }
    }
}

/// An error and its causes in one line, leaving out causes that the text before already names.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

fn cut(mut text: String) -> String {
    if text.len() > SAID_LIMIT {
        text.truncate(text.floor_char_boundary(SAID_LIMIT));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_letters() {
        let long = "é".repeat(SAID_LIMIT);
        let short = cut(long);
        assert_eq!(short.len(), SAID_LIMIT + 3);
        assert!(short.ends_with("é..."));
        assert_eq!(cut("short".to_owned()), "short");
    }

    #[test]
    fn causes_are_reported_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("refused")]
        struct Cause;
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Error(&'static str, #[source] Cause);
        assert_eq!(chain(&Error("no way", Cause)), "no way: refused");
        assert_eq!(chain(&Error("no way: refused", Cause)), "no way: refused");
    }
}
