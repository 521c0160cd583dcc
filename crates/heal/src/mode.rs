//! How much the healer may do, and who said so.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

/// How much may be done without a person. Each step includes what the one before it does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Nothing is done and nothing is said.
    Off,
    /// Says what it would do.
    #[default]
    Observe,
    /// Does it when a person agreed to this one case.
    Approve,
    /// Does it.
    Auto,
}

impl Mode {
    pub const ALL: [Self; 4] = [Self::Off, Self::Observe, Self::Approve, Self::Auto];

    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Approve => "approve",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is none of the modes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{given}\" is no healing mode; use off, observe, approve or auto")]
pub struct NoMode {
    given: String,
}

impl FromStr for Mode {
    type Err = NoMode;

    fn from_str(word: &str) -> Result<Self, NoMode> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == word)
            .ok_or_else(|| NoMode { given: word.chars().take(32).flat_map(char::escape_debug).collect() })
    }
}

/// Who set a mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Claim,
    Namespace(Box<str>),
    Class(Box<str>),
    Default,
    /// More was asked for than the operator lets anybody ask for.
    Ceiling,
    /// Reports may be forged, or the healer's tokens are not limited, so nothing is done.
    Unverified,
    /// The claim's annotation is no mode, so nothing is done.
    Misspelt(Box<str>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim => f.write_str("by the claim's annotation"),
            Self::Namespace(name) => write!(f, "for the namespace {name}"),
            Self::Class(name) => write!(f, "for the storage class {name}"),
            Self::Default => f.write_str("by default"),
            Self::Ceiling => f.write_str("because the operator allows no more than that"),
            Self::Unverified => f.write_str(
                "because an admission policy of Volmedic that healing relies on is missing or was changed",
            ),
            Self::Misspelt(why) => write!(f, "because of the claim's annotation: {why}"),
        }
    }
}

/// The mode that counts for one claim, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    pub mode: Mode,
    pub source: Source,
}

/// What the operator set. The most special rule counts: the claim's own annotation, then its namespace, then its
/// storage class, then the default; none goes beyond the ceiling.
#[derive(Debug, Clone)]
pub struct Rules {
    pub default: Mode,
    pub namespaces: BTreeMap<Box<str>, Mode>,
    pub classes: BTreeMap<Box<str>, Mode>,
    /// The most that anybody who may write an annotation can switch on.
    pub ceiling: Mode,
    /// Whether the reports can be trusted right now.
    pub reports: ReportTrust,
}

/// Whether the API server limits who reports what. While it does not, the healer only observes. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct ReportTrust {
    unverified: Arc<AtomicBool>,
}

impl ReportTrust {
    pub fn set_verified(&self, verified: bool) {
        self.unverified.store(!verified, Ordering::Relaxed);
    }

    fn ceiling(&self) -> Mode {
        if self.unverified.load(Ordering::Relaxed) { Mode::Observe } else { Mode::Auto }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            default: Mode::default(),
            namespaces: BTreeMap::new(),
            classes: BTreeMap::new(),
            ceiling: Mode::Auto,
            reports: ReportTrust::default(),
        }
    }
}

impl Rules {
    /// The annotation of a claim that names its mode.
    pub const ANNOTATION: &'static str = "volmedic.dev/heal";
    /// The annotation of a claim with the time at which a person agreed to repair it.
    pub const APPROVED: &'static str = "volmedic.dev/heal-approved";
    /// The same two for recreating pods. Consent to one remedy is none to the other.
    pub const RECREATE_ANNOTATION: &'static str = "volmedic.dev/heal-recreate-pods";
    pub const RECREATE_APPROVED: &'static str = "volmedic.dev/heal-recreate-pods-approved";

    /// As for a remedy that nobody switched on.
    pub fn off() -> Self {
        Self { default: Mode::Off, ..Self::default() }
    }

    pub fn ruling(&self, annotation: Option<&str>, namespace: &str, class: Option<&str>) -> Ruling {
        let (mode, source) = match annotation.map(str::parse::<Mode>) {
            Some(Ok(mode)) => (mode, Source::Claim),
            // Anyone who wrote it wanted something else than the rule. Watching is the one thing that harms in no case.
            Some(Err(why)) => (Mode::Observe, Source::Misspelt(why.to_string().into())),
            None => self.of_operator(namespace, class),
        };
        let trusted = self.reports.ceiling();
        if mode > trusted && self.ceiling > trusted {
            return Ruling { mode: trusted, source: Source::Unverified };
        }
        if mode > self.ceiling {
            return Ruling { mode: self.ceiling, source: Source::Ceiling };
        }
        Ruling { mode, source }
    }

    fn of_operator(&self, namespace: &str, class: Option<&str>) -> (Mode, Source) {
        if let Some(&mode) = self.namespaces.get(namespace) {
            return (mode, Source::Namespace(namespace.into()));
        }
        if let Some((class, &mode)) = class.and_then(|class| self.classes.get_key_value(class)) {
            return (mode, Source::Class(class.clone()));
        }
        (self.default, Source::Default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(annotation: Option<&str>, namespace: &str, class: Option<&str>, expected: &str) {
        let rules = Rules {
            namespaces: BTreeMap::from([("db".into(), Mode::Approve), ("vms".into(), Mode::Off)]),
            classes: BTreeMap::from([("fuse".into(), Mode::Auto)]),
            ..Rules::default()
        };
        let Ruling { mode, source } = rules.ruling(annotation, namespace, class);
        assert_eq!(format!("{mode} {source}"), expected);
    }

    #[test]
    fn reports_that_may_be_forged_are_only_observed() {
        let rules = Rules { default: Mode::Auto, ..Rules::default() };
        assert_eq!(rules.ruling(None, "a", None).mode, Mode::Auto);
        let shared = rules.clone();
        rules.reports.set_verified(false);
        for annotation in [None, Some("auto"), Some("approve")] {
            let ruling = shared.ruling(annotation, "a", None);
            assert_eq!((ruling.mode, ruling.source), (Mode::Observe, Source::Unverified), "{annotation:?}");
        }
        assert_eq!(shared.ruling(Some("off"), "a", None).mode, Mode::Off);
        rules.reports.set_verified(true);
        assert_eq!(shared.ruling(None, "a", None).mode, Mode::Auto);
    }

    #[test]
    fn the_most_special_rule_counts() {
        check(None, "web", None, "observe by default");
        check(None, "web", Some("fuse"), "auto for the storage class fuse");
        check(None, "web", Some("other"), "observe by default");
        check(None, "db", Some("fuse"), "approve for the namespace db");
        check(Some("auto"), "db", Some("fuse"), "auto by the claim's annotation");
        check(Some("off"), "web", Some("fuse"), "off by the claim's annotation");
        check(Some("auto"), "vms", None, "auto by the claim's annotation");
    }

    #[test]
    fn a_misspelt_annotation_does_nothing_and_says_so() {
        let why = "\"Auto\" is no healing mode; use off, observe, approve or auto";
        check(
            Some("Auto"),
            "web",
            Some("fuse"),
            &format!("observe because of the claim's annotation: {why}"),
        );
        let long = "\u{1b}".repeat(100_000);
        assert!(long.parse::<Mode>().unwrap_err().to_string().len() < 400);
    }

    #[test]
    fn nobody_goes_beyond_the_ceiling() {
        for ceiling in Mode::ALL {
            let rules = Rules { default: Mode::Auto, ceiling, ..Rules::default() };
            for annotation in [None, Some("auto"), Some("approve"), Some("observe"), Some("off"), Some("?")] {
                assert!(rules.ruling(annotation, "n", Some("c")).mode <= ceiling, "{annotation:?} {ceiling}");
            }
        }
    }

    #[test]
    fn without_any_word_of_anybody_it_only_observes() {
        assert_eq!(Rules::default().ruling(None, "n", None).mode, Mode::Observe);
    }
}
