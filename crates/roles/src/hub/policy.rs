//! Whether the API server limits who reports what: an agent to its own node, a controller to its own driver. The policies
//! that are installed are compared with those that are shipped.

use std::convert::Infallible;
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

/// The policies and their bindings, as the chart installs them.
const SHIPPED: [&str; 2] = [
    include_str!("../../../../deploy/chart/files/admission-agent.yaml"),
    include_str!("../../../../deploy/chart/files/admission-health.yaml"),
];
const EVERY: Duration = Duration::from_mins(2);
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Asks until there is an answer.
pub(super) async fn first_look(client: &Client) -> bool {
    let mut pause = Duration::from_secs(1);
    loop {
        match look(client).await {
            Ok(found) => {
                report(found.as_ref());
                return found.is_ok();
            }
            Err(why) => tracing::warn!("cannot read the admission policies: {why}; trying again"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(30));
    }
}

pub(super) async fn keep_looking(client: Client, world: Arc<Mutex<World>>, woken: Arc<Notify>) -> Infallible {
    loop {
        tokio::time::sleep(EVERY).await;
        let Ok(found) = look(&client).await else { continue };
        let changed = world.lock().is_verified() != found.is_ok();
        if changed {
            report(found.as_ref());
            world.lock().set_verified(found.is_ok());
            woken.notify_one();
        }
    }
}

fn report(found: Result<&(), &String>) {
    match found {
        Ok(()) => tracing::info!("the API server lets every agent speak only for its own node"),
        Err(why) => tracing::error!(
            "the API server does not check that an agent speaks only for its own node, and a controller only for its own \
             driver: {why}; reports are marked as unverified, and nothing is healed because of them; apply \
             deploy/chart/files/admission-agent.yaml and deploy/chart/files/admission-health.yaml (Kubernetes 1.30 or later)"
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

/// The shipped objects: kind, name and spec.
fn shipped() -> impl Iterator<Item = (String, String, Value)> {
    let documents = SHIPPED.into_iter().flat_map(|file| file.split("\n---\n"));
    documents.filter_map(|document| {
        let object: Value = serde_saphyr::from_str(document).ok()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some((text(&object["kind"])?, text(&object["metadata"]["name"])?, object["spec"].clone()))
    })
}

/// Whether all is as shipped; if not, the first difference. The outer error says that there is no answer at all.
async fn look(client: &Client) -> Result<Result<(), String>, String> {
    let all = async {
        for (kind, name, wanted) in shipped() {
            let found = if kind == Policy::KIND {
                let policies = Api::<Arrived<Policy>>::all(client.clone());
                found(policies.get_opt(&name).await)?.map(|Policy(found)| found.spec)
            } else {
                let bindings = Api::<Arrived<Binding>>::all(client.clone());
                found(bindings.get_opt(&name).await)?.map(|Binding(found)| found.spec)
            };
            match found {
                None => return Ok(Err(format!("the {kind} {name} is missing, or may not be read"))),
                Some(found) if !is_as_shipped(&wanted, &found) => {
                    return Ok(Err(format!("the {kind} {name} is not as shipped with this version")));
                }
                Some(_) => {}
            }
        }
        Ok::<_, String>(Ok(()))
    };
    tokio::time::timeout(CALL_LIMIT, all).await.map_err(|_| "no answer".to_owned())?
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

/// A refusal is no sign that the policy is there, and neither is an object that cannot be read.
fn found<T>(answer: kube::Result<Option<Arrived<T>>>) -> Result<Option<T>, String> {
    match answer {
        Ok(found) => Ok(found.and_then(|found| found.body.ok())),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_policy_has_its_binding() {
        let names: Vec<_> = shipped().map(|(kind, name, _)| format!("{kind}/{name}")).collect();
        assert_eq!(names.len(), 8, "{names:?}");
        for (kind, name, spec) in shipped() {
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

    /// Everything that takes a request out of a policy, or a rule out of it.
    #[test]
    fn a_policy_that_was_weakened_is_not_as_shipped() {
        let (_, _, shipped) = shipped().next().unwrap();
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
