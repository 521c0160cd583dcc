//! One volume as it is shown: whose it is, how it is, who says so, and what to do.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use volmedic_health::{Condition, Headline, Health, Held, Vantage};

use crate::Grade;

/// One claim and its volume; or one volume, where there are no claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Empty where there is no cluster, or the volume has no claim. So are claim, nodes and pods.
    pub namespace: Box<str>,
    pub claim: Box<str>,
    /// The handle that the driver knows it by.
    pub volume: Arc<str>,
    pub driver: Arc<str>,
    pub nodes: Vec<Arc<str>>,
    /// Names of pods in the claim's namespace.
    pub pods: Vec<Box<str>>,
    /// The worst that anybody sees.
    pub health: Health,
    /// What is wrong, if something is.
    pub condition: Option<Condition>,
    pub since: Option<Timestamp>,
    /// Why it is not known, where it is not.
    pub why: Option<Arc<str>>,
    /// The same in one CamelCase word.
    pub why_word: Option<Arc<str>>,
    /// What to do next, where the source knows better than the reason does.
    pub advice: Option<Arc<str>>,
    /// Its health is unknown, and nothing has failed: the driver has no way to report it.
    pub mute: bool,
    /// What each vantage says, in the order of vantages.
    pub seen_by: Vec<Sighting>,
}

/// What one vantage says of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    pub vantage: Vantage,
    pub health: Health,
    /// Worst first.
    pub conditions: Vec<Held>,
    pub blind_since: Option<Timestamp>,
    pub flapping_since: Option<Timestamp>,
}

impl Row {
    /// A volume of which nothing is known yet.
    pub fn new(driver: Arc<str>, volume: Arc<str>) -> Self {
        Self {
            namespace: Box::default(),
            claim: Box::default(),
            volume,
            driver,
            nodes: Vec::new(),
            pods: Vec::new(),
            health: Health::Unknown,
            condition: None,
            since: None,
            why: None,
            why_word: None,
            advice: None,
            mute: false,
            seen_by: Vec::new(),
        }
    }

    /// Takes over what a ledger says of the volume.
    pub fn with(mut self, headline: Headline, seen_by: Vec<Sighting>) -> Self {
        let Headline { health, seen, condition } = headline;
        self.health = health;
        self.since = seen.map(|(_, since)| since);
        self.condition = condition;
        self.seen_by = seen_by;
        self
    }

    pub fn grade(&self) -> Grade {
        Grade::of(self.health)
    }

    /// The reason of the problem, or why it is not known; empty if the volume is healthy.
    pub fn reason(&self) -> &str {
        match (&self.condition, &self.why_word) {
            (Some(condition), _) => condition.reason.as_str(),
            (None, Some(word)) => word,
            (None, None) => "",
        }
    }

    /// The problem in the words of the vantage that saw it, or why nothing is known.
    pub fn message(&self) -> &str {
        match (&self.condition, &self.why) {
            (Some(condition), _) => &condition.message,
            (None, Some(why)) => why,
            (None, None) => "",
        }
    }

    /// What to do next; empty if the volume is healthy.
    pub fn next(&self) -> &str {
        if let Some(advice) = &self.advice {
            return advice;
        }
        match (&self.condition, self.health) {
            (Some(condition), _) => condition.reason.advice(),
            (None, Health::Unknown) if self.mute => {
                "Nothing to repair: the driver does not report health. Host checks by the agent on its node can."
            }
            (None, Health::Unknown) => "Check that the storage driver runs and answers.",
            (None, _) => "",
        }
    }

    /// The names of those who see what is wrong; of all, where nothing is.
    pub fn seers(&self) -> impl Iterator<Item = &Vantage> {
        let matters = |sighting: &&Sighting| sighting.health == self.health || self.condition.is_none();
        self.seen_by.iter().filter(matters).map(|sighting| &sighting.vantage)
    }

    /// Worst first; what is newest among equals; then by name.
    pub(crate) fn rank(&self) -> impl Ord + '_ {
        (Reverse(self.health), self.since.is_none(), Reverse(self.since), self.name())
    }

    pub(crate) fn name(&self) -> impl Ord + '_ {
        (&*self.namespace, &*self.claim, &*self.driver, &*self.volume)
    }
}

impl Sighting {
    pub fn since(&self) -> Option<Timestamp> {
        self.conditions.first().map(|held| held.since).or(self.blind_since)
    }
}

impl From<(&Vantage, volmedic_health::Belief)> for Sighting {
    fn from((vantage, belief): (&Vantage, volmedic_health::Belief)) -> Self {
        let health = belief.health();
        let volmedic_health::Belief { seen: _, conditions, blind_since, flapping_since } = belief;
        Self { vantage: vantage.clone(), health, conditions, blind_since, flapping_since }
    }
}

/// The shape that machines read. Absent fields say that there is nothing of that kind.
impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut row = serializer.serialize_struct("Row", 13)?;
        macro_rules! field {
            ($name:literal, $value:expr) => {
                match $value {
                    Some(value) => row.serialize_field($name, &value)?,
                    None => row.skip_field($name)?,
                }
            };
        }
        field!("namespace", text(&self.namespace));
        field!("claim", text(&self.claim));
        row.serialize_field("volume", &*self.volume)?;
        row.serialize_field("driver", &*self.driver)?;
        field!("nodes", (!self.nodes.is_empty()).then(|| names(&self.nodes)));
        field!("pods", (!self.pods.is_empty()).then(|| names(&self.pods)));
        row.serialize_field("health", &self.health.to_string())?;
        field!("status", self.condition.as_ref().map(|condition| condition.status.to_string()));
        field!("reason", text(self.reason()));
        field!("message", text(self.message()));
        field!("since", self.since);
        row.serialize_field("seenBy", &self.seen_by)?;
        field!("next", text(self.next()));
        row.end()
    }
}

fn names<T: AsRef<str>>(names: &[T]) -> Vec<&str> {
    names.iter().map(AsRef::as_ref).collect()
}

impl Serialize for Sighting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape<'a> {
            vantage: String,
            health: String,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            conditions: Vec<Shown<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            blind_since: Option<Timestamp>,
            #[serde(skip_serializing_if = "Option::is_none")]
            flapping_since: Option<Timestamp>,
        }
        #[derive(Serialize)]
        struct Shown<'a> {
            status: String,
            reason: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            message: &'a str,
            since: Timestamp,
        }
        let conditions = self.conditions.iter().map(|Held { condition, since }| Shown {
            status: condition.status.to_string(),
            reason: condition.reason.as_str(),
            message: &condition.message,
            since: *since,
        });
        Shape {
            vantage: self.vantage.name(),
            health: self.health.to_string(),
            conditions: conditions.collect(),
            blind_since: self.blind_since,
            flapping_since: self.flapping_since,
        }
        .serialize(serializer)
    }
}
