//! Whether the API server lets an agent speak only for its own node.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::Notify;
use volmedic_hub::World;

/// The name of the policy and of its binding, as in deploy/chart/files/admission-agent.yaml.
const NAME: &str = "volmedic-agent";
const EVERY: Duration = Duration::from_mins(2);
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Asks until there is an answer.
pub(super) async fn first_look(client: &Client) -> bool {
    let mut pause = Duration::from_secs(1);
    loop {
        match look(client).await {
            Ok(enforced) => {
                tell(enforced);
                return enforced;
            }
            Err(why) => tracing::warn!("cannot read the admission policy of the agents: {why}; trying again"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(30));
    }
}

pub(super) async fn keep_looking(client: Client, world: Arc<Mutex<World>>, woken: Arc<Notify>) -> Infallible {
    loop {
        tokio::time::sleep(EVERY).await;
        let Ok(enforced) = look(&client).await else { continue };
        let changed = world.lock().is_verified() != enforced;
        if changed {
            tell(enforced);
            world.lock().set_verified(enforced);
            woken.notify_one();
        }
    }
}

fn tell(enforced: bool) {
    if enforced {
        tracing::info!("the API server lets every agent speak only for its own node");
    } else {
        tracing::error!(
            "the API server does not check that an agent speaks only for its own node: the ValidatingAdmissionPolicy \
             {NAME} or its binding is missing, or does not deny; what agents report is marked as unverified; apply \
             deploy/chart/files/admission-agent.yaml (Kubernetes 1.30 or later)"
        );
    }
}

/// An error only where there is no answer at all.
async fn look(client: &Client) -> Result<bool, String> {
    let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
    let both = async {
        let policy = found(policies.get_opt(NAME).await)?;
        let binding = found(bindings.get_opt(NAME).await)?;
        Ok::<_, String>((policy, binding))
    };
    let both = tokio::time::timeout(CALL_LIMIT, both).await.map_err(|_| "no answer".to_owned())?;
    let (policy, binding) = both?;
    let denies = binding.and_then(|binding| binding.spec).is_some_and(|spec| {
        spec.policy_name.as_deref() == Some(NAME)
            && spec.validation_actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny"))
    });
    let fails = policy
        .and_then(|policy| policy.spec)
        .is_some_and(|spec| spec.failure_policy.as_deref() != Some("Ignore"));
    Ok(denies && fails)
}

/// To be refused an answer is no sign that the policy is there.
fn found<T>(answer: kube::Result<Option<T>>) -> Result<Option<T>, String> {
    match answer {
        Ok(found) => Ok(found),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
