//! The chart grants what its files grant, to those who need it, and no more.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::rendered::{mine, with_everything};
use crate::root;
use crate::server::{NAMESPACE, find, taken, taken_file};

fn shipped(file: &str) -> Vec<Value> {
    taken_file(&root().join("deploy/chart/files").join(file))
}

#[test]
fn with_everything_on_the_rules_are_those_of_the_files() {
    let objects = with_everything();
    for (file, kind, name, as_name) in [
        ("rbac-hub.yaml", "ClusterRole", "volmedic-hub", "volmedic-hub"),
        ("rbac-hub.yaml", "Role", "volmedic-hub", "volmedic-hub"),
        ("rbac-agent.yaml", "ClusterRole", "volmedic-agent", "volmedic-agent"),
        ("rbac-agent.yaml", "Role", "volmedic-agent", "volmedic-agent"),
        ("rbac-controller.yaml", "Role", "volmedic-controller", "volmedic-controller-mine"),
        ("rbac-healer.yaml", "ClusterRole", "volmedic-healer", "volmedic-healer"),
        ("rbac-healer.yaml", "ClusterRole", "volmedic-relay", "volmedic-relay"),
        ("rbac-healer.yaml", "Role", "volmedic-relay", "volmedic-relay"),
        ("rbac-healer.yaml", "Role", "volmedic-heal", "volmedic-heal"),
    ] {
        let wanted = find(&shipped(file), kind, name)["rules"].clone();
        assert_eq!(find(objects, kind, as_name)["rules"], wanted, "{kind}/{as_name} against {file}");
    }
    // The same for each driver, but for its name.
    let mut wanted =
        find(&shipped("rbac-controller.yaml"), "ClusterRole", "volmedic-controller")["rules"].clone();
    let rules = wanted.as_array_mut().unwrap();
    let rule = rules.iter_mut().find(|rule| rule["resources"] == json!(["drivers"])).unwrap();
    assert_eq!(rule["verbs"], json!(["report"]));
    rule["resourceNames"] = json!(["csi.example.com"]);
    assert_eq!(find(objects, "ClusterRole", "volmedic-controller-mine")["rules"], wanted);
    for policy in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        let files = ["admission-agent.yaml", "admission-health.yaml", "admission-hub.yaml"];
        let all: Vec<Value> = files.into_iter().flat_map(shipped).collect();
        for wanted in all.iter().filter(|object| object["kind"] == policy) {
            let name = wanted["metadata"]["name"].as_str().unwrap();
            assert_eq!(find(objects, policy, name)["spec"], wanted["spec"], "{name}");
        }
    }
}

/// What a subject may do, as resource and verb, through bindings of all kinds.
fn granted(objects: &[Value], namespace: &str, account: &str) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    let is_bound = |object: &&Value| {
        let subjects = object["subjects"].as_array().into_iter().flatten();
        let mut names = subjects.map(|subject| (subject["namespace"].as_str(), subject["name"].as_str()));
        names.any(|name| name == (Some(namespace), Some(account)))
    };
    for binding in objects.iter().filter(is_bound) {
        let role = &binding["roleRef"];
        // OpenShift has it: `use` of constraints for pods, and nothing else.
        if role["name"] == "system:openshift:scc:nonroot-v2" {
            continue;
        }
        let rules = &find(objects, role["kind"].as_str().unwrap(), role["name"].as_str().unwrap())["rules"];
        for rule in rules.as_array().unwrap() {
            let words = |field: &str| {
                let list = rule[field].as_array().into_iter().flatten();
                list.map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>()
            };
            for resource in words("resources") {
                all.extend(words("verbs").into_iter().map(|verb| (resource.clone(), verb)));
            }
        }
    }
    assert!(!all.is_empty(), "nothing is granted to {namespace}/{account}");
    all
}

#[test]
fn what_is_off_is_not_granted() {
    let may = |objects: &[Value], account: &str, resource: &str, verb: &str| {
        granted(objects, NAMESPACE, account).contains(&(resource.to_owned(), verb.to_owned()))
    };
    let (little, much) = (taken(&json!({})), with_everything());
    for (account, resource, verb) in [
        ("volmedic-hub", "tokenreviews", "create"),
        ("volmedic-hub", "subjectaccessreviews", "create"),
        ("volmedic-hub", "persistentvolumes", "patch"),
        ("volmedic-hub", "csiaddonsnodes", "heal"),
        ("volmedic-hub", "pods/eviction", "create"),
        ("volmedic-agent", "csiaddonsnodes", "create"),
        ("volmedic-agent", "secrets", "get"),
    ] {
        assert!(!may(&little, account, resource, verb), "{account}: {verb} {resource}, unasked");
        assert!(may(much, account, resource, verb), "{account}: {verb} {resource} is needed");
    }
}

/// Healing alone evicts nothing.
#[test]
fn the_right_to_evict_pods_comes_with_its_own_value_only() {
    let evicts = |objects: &[Value]| {
        granted(objects, NAMESPACE, "volmedic-hub")
            .contains(&("pods/eviction".to_owned(), "create".to_owned()))
    };
    assert!(!evicts(&taken(&json!({"heal": {"enabled": true}}))));
    assert!(!evicts(&taken(&json!({"heal": {"recreatePods": {"enabled": true}}}))), "healing is off");
    assert!(evicts(&taken(&json!({"heal": {"enabled": true, "recreatePods": {"enabled": true}}}))));
}

#[test]
fn a_controller_gets_its_rights_in_the_namespace_of_its_driver() {
    let objects = taken(&json!({"controllers": [mine()]}));
    let rights = granted(&objects, "kube-system", "my-csi-controller-sa");
    for (resource, verb) in [("persistentvolumes", "watch"), ("events", "create"), ("leases", "update")] {
        assert!(rights.contains(&(resource.to_owned(), verb.to_owned())), "{verb} {resource}");
    }
    // The node watcher is off.
    for resource in ["nodes", "pods"] {
        assert!(!rights.iter().any(|(granted, _)| granted == resource), "{resource}, unasked");
    }
    let role = find(&objects, "Role", "volmedic-controller-mine");
    assert_eq!(role["metadata"]["namespace"], "kube-system");
    // No account lies about unused; the one of the tests exists only while they run.
    let is_hook = |object: &&Value| !object["metadata"]["annotations"]["helm.sh/hook"].is_null();
    let accounts = objects.iter().filter(|object| object["kind"] == "ServiceAccount" && !is_hook(object));
    let names: BTreeSet<&str> = accounts.map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["volmedic-agent", "volmedic-hub"]));
}

/// doctor compares every policy on reports with the one that is shipped, so its account must be able to read all of them.
#[test]
fn the_pod_of_helm_test_may_read_every_policy_that_doctor_compares() {
    let role = find(with_everything(), "ClusterRole", "volmedic-test")["rules"].clone();
    let rule = role.as_array().unwrap().iter().find(|rule| !rule["resourceNames"].is_null()).unwrap();
    let named = |kind: &str| -> BTreeSet<String> {
        let all = ["admission-agent.yaml", "admission-health.yaml"].into_iter().flat_map(shipped);
        let names = all.filter(|object| object["kind"] == kind);
        names.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let readable = rule["resourceNames"].as_array().unwrap().iter();
    let readable: BTreeSet<String> = readable.map(|name| name.as_str().unwrap().to_owned()).collect();
    assert_eq!(readable, named("ValidatingAdmissionPolicy"));
    assert_eq!(readable, named("ValidatingAdmissionPolicyBinding"));
}
