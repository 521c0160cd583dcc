//! The model of the API server is itself checked: a random sequence of requests goes to it and to a real kube-apiserver, and
//! what the product reads of the answers has to be the same.
//!
//! Not compared are texts for people, uids, times that the server sets, and the numbers of versions. Left out are requests
//! that the product never sends, and deleting a claim, which its finalizer delays.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod side;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use volmedic_sim::{Dice, Model};
use volmedic_testkit::ControlPlane;

use side::Side;

/// Requests of one sequence.
const REQUESTS: usize = 400;
/// For one request, and for the changes that a watch has to show.
const LIMIT: Duration = Duration::from_mins(1);
const NAMES: usize = 3;
/// Two writers of the same fields, as two releases or a foreign controller are.
const MANAGERS: [&str; 2] = ["one", "other"];
/// The uid of no object here.
const ANOTHER: &str = "00000000-0000-4000-8000-000000000000";
const EVENTS: &str = "events";
const CLAIMS: &str = "persistentvolumeclaims";
const LEASES: &str = "leases";
const HEALTHS: &str = "volumehealths";

/// Which version of an object a request names.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Version {
    None,
    Newest,
    Older,
}

/// What is asked of both servers.
#[derive(Debug, Clone)]
enum Step {
    Get {
        resource: &'static str,
        name: String,
    },
    List {
        resource: &'static str,
        limit: usize,
    },
    Next {
        resource: &'static str,
        limit: usize,
    },
    Create {
        resource: &'static str,
        body: Value,
    },
    Replace {
        name: String,
        holder: String,
        version: Version,
    },
    Merge {
        resource: &'static str,
        name: String,
        status: bool,
        patch: Value,
        version: Version,
    },
    Apply {
        resource: &'static str,
        name: String,
        status: Value,
        manager: &'static str,
        force: bool,
        uid: Uid,
    },
    Delete {
        resource: &'static str,
        name: String,
    },
    /// Of the changes of claims, from the version of one of them.
    Watch {
        name: String,
        version: Version,
    },
    Forbidden {
        name: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Uid {
    None,
    Right,
    Wrong,
}

/// The first body of an object.
fn made(resource: &str, namespace: &str, name: &str, dice: &mut Dice) -> Value {
    let metadata = json!({"name": name, "namespace": namespace});
    match resource {
        EVENTS => json!({
            "kind": "Event", "apiVersion": "v1", "metadata": metadata, "type": "Warning", "count": 1, "reason": "SlowIO",
            "involvedObject": {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": "claim-0"},
            "source": {"component": *dice.pick(&["us", "them"])},
        }),
        CLAIMS => json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": metadata,
            "spec": {"volumeName": format!("pv-{name}"), "accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "1Gi"}}},
        }),
        LEASES => json!({
            "kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata,
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
        }),
        _ => json!({
            "kind": "VolumeHealth", "apiVersion": "volmedic.dev/v1alpha1", "metadata": metadata,
            "spec": {"persistentVolumeClaimName": name},
        }),
    }
}

/// What a controller says of a claim.
fn said(resource: &str, dice: &mut Dice) -> Value {
    if dice.percent(20) {
        return json!({});
    }
    let time = *dice.pick(&["2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"]);
    let (status, reason) = *dice.pick(&[("Degraded", "SlowIO"), ("DataLoss", "DiskFailure")]);
    let is_over = dice.percent(25);
    if resource == CLAIMS {
        let conditions = json!([{"status": status, "reason": reason, "message": "x"}]);
        let mut health = json!({"healthConditions": conditions, "lastTransitionTime": time});
        if is_over {
            health = json!({"lastTransitionTime": time});
        }
        return json!({"healthStatus": health});
    }
    let condition = json!({
        "type": "HealthWarning", "status": "True", "errorCode": status, "reason": reason, "lastTransitionTime": time,
    });
    let conditions = if is_over { json!([]) } else { json!([condition]) };
    json!({"controllerReport": {"driver": "disk.example.net", "since": time, "healthConditions": conditions}})
}

fn step(dice: &mut Dice, namespace: &str) -> Step {
    let any = [EVENTS, CLAIMS, LEASES, HEALTHS];
    let resource = *dice.pick(&any);
    let with_status = *dice.pick(&[CLAIMS, HEALTHS]);
    let name = format!("claim-{}", dice.below(NAMES));
    let version = *dice.pick(&[Version::None, Version::Newest, Version::Newest, Version::Older]);
    let limit = 1 + dice.below(3);
    match dice.below(20) {
        0 => Step::Get { resource, name },
        1 => Step::List { resource, limit },
        2 | 3 => Step::Next { resource, limit },
        4..8 => Step::Create { resource, body: made(resource, namespace, &name, dice) },
        8 | 9 => Step::Replace { name, holder: dice.pick(&["a", "b", ""]).to_string(), version },
        10 | 11 => {
            let count = 1 + dice.below(3);
            let patch = json!({"count": count, "metadata": {"annotations": {"volmedic.dev/story": format!("{count}")}}});
            Step::Merge { resource: EVENTS, name, status: false, patch, version }
        }
        12 => {
            let patch = json!({"status": {"healthStatus": null}});
            Step::Merge { resource: CLAIMS, name, status: true, patch, version }
        }
        13..17 => Step::Apply {
            resource: with_status,
            name,
            status: said(with_status, dice),
            manager: dice.pick::<&str>(&MANAGERS),
            force: dice.percent(60),
            uid: *dice.pick(&[Uid::None, Uid::Right, Uid::Right, Uid::Wrong]),
        },
        17 => Step::Delete { resource: dice.pick::<&str>(&[EVENTS, LEASES, HEALTHS]), name },
        18 => Step::Watch { name, version: Version::Older },
        _ => Step::Forbidden { name },
    }
}

/// Has the real server refuse what the model is made to refuse.
fn refuse(plane: &ControlPlane, namespace: &str) {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "refuse"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [EVENTS]}
            ]},
            "validations": [{"expression": "object.reason != 'Refused'", "reason": "Forbidden"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "refuse"},
        "spec": {"policyName": "refuse", "validationActions": ["Deny"],
                 "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}},
    });
    let crds = format!("{}/../../deploy/chart/files/crds", env!("CARGO_MANIFEST_DIR"));
    let folder = std::env::temp_dir().join(format!("volmedic-sim-model-{}", std::process::id()));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding]});
    std::fs::write(&folder, list.to_string()).unwrap();
    for arguments in [
        &["apply", "-f", folder.to_str().unwrap()][..],
        &["apply", "-f", &crds],
        &["wait", "--for=condition=Established", "--timeout=180s", "-f", &crds],
    ] {
        let output = plane.kubectl().args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    std::fs::remove_file(&folder).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_answers_as_a_real_api_server_does() {
    let seed = volmedic_testkit::seed("the_model_answers_as_a_real_api_server_does");
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("model").await.unwrap();
    refuse(plane, &namespace);
    let mut real = Side::new(plane.client().await.unwrap(), None, &namespace);
    let model = Model::new(seed);
    let mut modelled = Side::new(model.client(), Some(model), &namespace);
    // What was before has no versions any more, as on a server that was just started.
    modelled.model.as_ref().unwrap().compact();
    let in_force = async {
        while real.take(&Step::Forbidden { name: "probe".to_owned() }).await["code"] != 403 {
            real.take(&Step::Delete { resource: EVENTS, name: "probe".to_owned() }).await;
        }
    };
    timeout(LIMIT, in_force).await.expect("the policy is in force");
    let mut dice = Dice::new(seed);
    let mut refusals = BTreeMap::<u64, usize>::new();
    let (mut differences, mut rewritten) = (Vec::new(), 0);
    for number in 0..REQUESTS {
        let step = step(&mut dice, &namespace);
        let mut answers = [real.take(&step).await, modelled.take(&step).await];
        *refusals.entry(answers[0]["code"].as_u64().unwrap_or(0)).or_default() += 1;
        let [real_answer, model_answer] = &mut answers;
        let object = &real_answer["object"];
        let is_shared = object["appliers"].as_array().is_some_and(|appliers| appliers.len() > 1);
        if let Step::Apply { resource, name, .. } = &step
            && (is_shared || *resource == HEALTHS)
            && *object == model_answer["object"]
            && real_answer["is new"] == true
            && model_answer["is new"] == false
        {
            // Of two appliers, one that applies the same again may be written down again. A controller is the only applier of
            // its field.
            model_answer["is new"] = modelled.rewrite(resource, name);
            rewritten += 1;
        }
        if answers[0] != answers[1] {
            differences.push(format!("{number}: {step:?}\n  real:  {}\n  model: {}", answers[0], answers[1]));
            // What follows from it would differ too.
            if differences.len() == 5 {
                break;
            }
        }
    }
    assert!(differences.is_empty(), "seed {seed}:\n{}", differences.join("\n"));
    assert!(rewritten < REQUESTS / 20, "seed {seed}: {rewritten} times");
    // A server that was started again knows no changes from before.
    plane.stop_apiserver().unwrap();
    plane.start_apiserver().unwrap();
    plane.wait_until_ready().unwrap();
    real.client = plane.client().await.unwrap();
    modelled.model.as_ref().unwrap().compact();
    let mut changes = Vec::new();
    for side in [&real, &modelled] {
        let versions = side.versions.iter().find(|((resource, _), all)| resource == CLAIMS && all.len() > 1);
        let oldest = versions.map(|(_, versions)| versions[0].clone()).expect("a claim was changed");
        changes.push(side.changes(&oldest).await);
    }
    assert_eq!(changes, [json!(410), json!(410)], "seed {seed}");
    for code in [200, 403, 404, 409, 422] {
        assert!(refusals.contains_key(&code), "no answer had the code {code}: {refusals:?}");
    }
}
