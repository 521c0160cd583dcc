//! Whether the API server limits who reports what, an agent to its own node, a controller to its own driver; and which tokens
//! the hub may request for itself. The policies that are installed are compared with those that are shipped.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::core::ClusterResourceScope;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use volmedic_api::{Arrived, Shape};
use volmedic_hub::World;

/// The policies and their bindings, as the chart installs them: who reports what.
const REPORTS: &[&str] = &[
    include_str!("../../../../deploy/chart/files/admission-agent.yaml"),
    include_str!("../../../../deploy/chart/files/admission-health.yaml"),
];
/// Which tokens the hub may request. The chart installs it with healing.
const TOKENS: &[&str] = &[include_str!("../../../../deploy/chart/files/admission-hub.yaml")];
const EVERY: Duration = Duration::from_mins(2);
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Which policies this hub relies on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policies {
    /// It heals, and requests a token for each node's relays.
    pub(super) tokens: bool,
}

/// What was found, each as the first difference.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    reports: Result<(), String>,
    tokens: Result<(), String>,
}

impl Policies {
    /// Asks until there is an answer.
    pub(super) async fn first_look(self, client: &Client, world: &Mutex<World>) {
        let mut pause = Duration::from_secs(1);
        loop {
            match self.look(client).await {
                Ok(found) => {
                    report_reports(&found.reports);
                    if self.tokens {
                        report_tokens(&found.tokens);
                    }
                    found.take_effect(world);
                    return;
                }
                Err(why) => tracing::warn!("cannot read the admission policies: {why}; trying again"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(30));
        }
    }

    pub(super) async fn keep_looking(
        self,
        client: Client,
        world: Arc<Mutex<World>>,
        woken: Arc<Notify>,
    ) -> Infallible {
        loop {
            tokio::time::sleep(EVERY).await;
            let Ok(found) = self.look(&client).await else { continue };
            let (reports, tokens) = found.take_effect(&world);
            if reports {
                report_reports(&found.reports);
                woken.notify_one();
            }
            if tokens {
                report_tokens(&found.tokens);
            }
        }
    }

    /// The outer error says that there is no answer at all.
    async fn look(self, client: &Client) -> Result<Found, String> {
        let first = |differences: Vec<Difference>| match differences.first() {
            Some(difference) => Err(difference.to_string()),
            None => Ok(()),
        };
        let reports = first(differences(client, CALL_LIMIT).await?);
        let tokens = if self.tokens { first(token_differences(client, CALL_LIMIT).await?) } else { Ok(()) };
        Ok(Found { reports, tokens })
    }
}

impl Found {
    /// Whether this is another finding than before, on reports and on tokens.
    fn take_effect(&self, world: &Mutex<World>) -> (bool, bool) {
        let mut world = world.lock();
        let (verified, unlimited) = (self.reports.is_ok(), self.tokens.is_err());
        let changed = (world.is_verified() != verified, world.are_tokens_unlimited() != unlimited);
        world.set_verified(verified);
        world.set_tokens_unlimited(unlimited);
        changed
    }
}

fn report_reports(found: &Result<(), String>) {
    match found {
        Ok(()) => tracing::info!("the API server lets every agent speak only for its own node"),
        Err(why) => tracing::error!(
            "the API server does not check that an agent speaks only for its own node, and a controller only for its own \
             driver: {why}; reports are marked as unverified, and nothing is healed because of them; apply \
             deploy/chart/files/admission-agent.yaml and deploy/chart/files/admission-health.yaml (Kubernetes 1.30 or later)"
        ),
    }
}

fn report_tokens(found: &Result<(), String>) {
    match found {
        Ok(()) => {
            tracing::info!("the API server lets the hub request tokens only for the relays of one node each");
        }
        Err(why) => tracing::error!(
            "the API server does not limit which tokens the hub may request for its own account: {why}; an attacker with a token \
             of the hub could request one that lasts; nothing is healed until it is installed; apply \
             deploy/chart/files/admission-hub.yaml (Kubernetes 1.30 or later)"
        ),
    }
}

/// A policy or a binding, as far as it counts.
#[derive(Clone, Debug, Deserialize)]
struct Spec {
    #[serde(default)]
    spec: Value,
}

macro_rules! shape {
    ($name:ident, $kind:literal, $plural:literal) => {
        #[derive(Clone, Debug, Deserialize)]
        #[serde(transparent)]
        struct $name(Spec);

        impl Shape for $name {
            type Scope = ClusterResourceScope;
            const KIND: &'static str = $kind;
            const PLURAL: &'static str = $plural;
            const GROUP: &'static str = "admissionregistration.k8s.io";
        }
    };
}

shape!(Policy, "ValidatingAdmissionPolicy", "validatingadmissionpolicies");
shape!(Binding, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");

/// The shipped objects of these files: kind, name and spec.
fn shipped(files: &'static [&'static str]) -> impl Iterator<Item = (String, String, Value)> {
    let documents = files.iter().flat_map(|file| file.split("\n---\n"));
    documents.filter_map(|document| {
        let object: Value = serde_saphyr::from_str(document).ok()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some((text(&object["kind"])?, text(&object["metadata"]["name"])?, object["spec"].clone()))
    })
}

/// A shipped object that the API server does not have as it was shipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub kind: String,
    pub name: String,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Missing,
    /// It may be there, but may not be read.
    Forbidden,
    /// Its spec is another one.
    Changed,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, what } = self;
        match what {
            What::Missing => write!(f, "the {kind} {name} is missing"),
            What::Forbidden => write!(f, "the {kind} {name} may not be read"),
            What::Changed => write!(f, "the {kind} {name} is not as shipped with this version"),
        }
    }
}

/// What of the policies on reports, and of their bindings, is not installed as shipped. An error says that there is no answer.
pub async fn differences(client: &Client, limit: Duration) -> Result<Vec<Difference>, String> {
    compare(client, REPORTS, limit).await
}

/// The same for the policy on the tokens that the hub requests. It is shipped with healing only.
pub async fn token_differences(client: &Client, limit: Duration) -> Result<Vec<Difference>, String> {
    compare(client, TOKENS, limit).await
}

async fn compare(
    client: &Client,
    files: &'static [&'static str],
    limit: Duration,
) -> Result<Vec<Difference>, String> {
    let all = async {
        let mut differences = Vec::new();
        for (kind, name, wanted) in shipped(files) {
            let found = if kind == Policy::KIND {
                let policies = Api::<Arrived<Policy>>::all(client.clone());
                found(policies.get_opt(&name).await)?.map(|Policy(found)| found.spec)
            } else {
                let bindings = Api::<Arrived<Binding>>::all(client.clone());
                found(bindings.get_opt(&name).await)?.map(|Binding(found)| found.spec)
            };
            let what = match found {
                Ok(found) if is_as_shipped(&wanted, &found) => continue,
                Ok(_) => What::Changed,
                Err(what) => what,
            };
            differences.push(Difference { kind, name, what });
        }
        Ok::<_, String>(differences)
    };
    tokio::time::timeout(limit, all).await.map_err(|_| "no answer in time".to_owned())?
}

/// What is read from the API server has its defaults in addition. Any other field that is not shipped is a difference: it
/// might take requests out of a policy.
fn is_as_shipped(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            let is_default = |name: &str, value: &Value| match name {
                "matchPolicy" => *value == json!("Equivalent"),
                "namespaceSelector" | "objectSelector" => *value == json!({}),
                "scope" => *value == json!("*"),
                _ => false,
            };
            wanted
                .iter()
                .all(|(name, value)| found.get(name).is_some_and(|found| is_as_shipped(value, found)))
                && found.iter().all(|(name, value)| wanted.contains_key(name) || is_default(name, value))
        }
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len()
                && wanted.iter().zip(found).all(|(wanted, found)| is_as_shipped(wanted, found))
        }
        _ => wanted == found,
    }
}

/// A refusal is no sign that the object is there, and neither is one that cannot be parsed.
fn found<T>(answer: kube::Result<Option<Arrived<T>>>) -> Result<Result<T, What>, String> {
    match answer {
        Ok(Some(found)) => Ok(found.body.map_err(|_| What::Changed)),
        Ok(None) => Ok(Err(What::Missing)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Err(What::Forbidden)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Err(What::Missing)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_policy_has_its_binding() {
        let all = || shipped(REPORTS).chain(shipped(TOKENS));
        let names: Vec<_> = all().map(|(kind, name, _)| format!("{kind}/{name}")).collect();
        assert_eq!((shipped(REPORTS).count(), shipped(TOKENS).count()), (12, 2), "{names:?}");
        for (kind, name, spec) in all() {
            if kind == Policy::KIND {
                assert!(names.contains(&format!("{}/{name}", Binding::KIND)), "{name}");
                assert_eq!(spec["failurePolicy"], "Fail", "{name}");
            } else {
                assert_eq!(
                    (&spec["policyName"], &spec["validationActions"]),
                    (&json!(name), &json!(["Deny"]))
                );
            }
        }
    }

    #[test]
    fn a_missing_policy_on_tokens_stops_healing_and_leaves_reports_verified() {
        let world = Mutex::new(World::default());
        let missing = || Err("it is missing".to_owned());
        let see = |reports: Result<(), String>, tokens: Result<(), String>| {
            let changed = Found { reports, tokens }.take_effect(&world);
            let world = world.lock();
            (changed, world.is_verified(), world.is_guarded())
        };
        assert_eq!(see(Ok(()), Ok(())), ((true, false), true, true));
        assert_eq!(see(Ok(()), missing()), ((false, true), true, false));
        assert_eq!(see(Ok(()), missing()), ((false, false), true, false));
        assert_eq!(see(missing(), Ok(())), ((true, true), false, false));
        assert_eq!(see(Ok(()), Ok(())), ((true, false), true, true));
    }

    /// Everything that takes a request out of a policy, or a rule out of it.
    #[test]
    fn a_policy_that_was_weakened_is_not_as_shipped() {
        let (_, _, shipped) = shipped(REPORTS).next().unwrap();
        let mut stored = shipped.clone();
        stored["matchConstraints"]["matchPolicy"] = json!("Equivalent");
        stored["matchConstraints"]["namespaceSelector"] = json!({});
        stored["matchConstraints"]["objectSelector"] = json!({});
        stored["matchConstraints"]["resourceRules"][0]["scope"] = json!("*");
        assert!(is_as_shipped(&shipped, &stored));
        let changes: [fn(&mut Value); 8] = [
            |spec| spec["failurePolicy"] = json!("Ignore"),
            |spec| spec["validations"][0]["expression"] = json!("true"),
            |spec| drop(spec["validations"].as_array_mut().unwrap().pop()),
            |spec| spec["validations"] = json!([]),
            |spec| spec["variables"][0]["expression"] = json!("'n1'"),
            |spec| {
                spec["matchConditions"]
                    .as_array_mut()
                    .unwrap()
                    .push(json!({"name": "x", "expression": "false"}));
            },
            |spec| spec["matchConstraints"]["excludeResourceRules"] = json!([{"resources": ["*"]}]),
            |spec| spec["matchConstraints"]["namespaceSelector"] = json!({"matchLabels": {"x": "y"}}),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut weak = stored.clone();
            change(&mut weak);
            assert!(!is_as_shipped(&shipped, &weak), "change {number}");
        }
    }
}
