//! How far the pods are confined, judged by the API server's own Pod Security admission.

use serde_json::{Value, json};

use crate::rendered::with_everything;
use crate::server::{NAMESPACE, STRICT, find, let_in, taken};

fn spec(objects: &[Value], kind: &str, name: &str) -> Value {
    find(objects, kind, name)["spec"]["template"]["spec"].clone()
}

#[test]
fn the_hub_passes_the_strictest_standard_whatever_is_on() {
    for objects in [&taken(&json!({}))[..], with_everything()] {
        let hub = spec(objects, "Deployment", "volmedic-hub");
        let_in(STRICT, &hub).unwrap();
    }
}

#[test]
fn the_agent_needs_the_host_and_says_no_more_than_that() {
    let agent = spec(&taken(&json!({})), "DaemonSet", "volmedic-agent");
    let_in(NAMESPACE, &agent).unwrap();
    let refused = let_in(STRICT, &agent).unwrap_err();
    for word in ["hostPath", "host namespaces", "SYS_ADMIN"] {
        assert!(refused.contains(word), "{word} in {refused}");
    }
    for word in ["privileged (container", "allowPrivilegeEscalation", "seccompProfile", "hostNetwork=true"] {
        assert!(!refused.contains(word), "{word} in {refused}");
    }
    let container = &agent["containers"][0];
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    // The host's files can be seen, and nothing of them be written but what the agent remembers.
    let mounts = container["volumeMounts"].as_array().unwrap();
    let writable =
        mounts.iter().filter(|mount| mount["readOnly"] != true).map(|mount| mount["name"].as_str().unwrap());
    assert_eq!(writable.collect::<Vec<_>>(), ["state"]);
    let fewer = spec(&taken(&json!({"agent": {"sysAdmin": false}})), "DaemonSet", "volmedic-agent");
    let added = &fewer["containers"][0]["securityContext"]["capabilities"]["add"];
    assert_eq!(*added, json!(["DAC_OVERRIDE", "DAC_READ_SEARCH"]));
}
