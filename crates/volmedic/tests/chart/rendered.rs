//! The chart with one set of values after the other.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::server::{find, taken, taken_file};
use crate::{chart, root};

/// Everything that can be switched on, together.
fn everything() -> Value {
    json!({
        "image": {"repository": "some.where/volmedic", "digest": format!("sha256:{}", "0".repeat(64))},
        "imagePullSecrets": [{"name": "pull"}],
        "hub": {"allClaims": true, "markVolumes": true, "extraArgs": ["--kube-api-qps=100"], "podLabels": {"team": "storage"}},
        "openshift": {"securityContextConstraints": true},
        "page": {"public": true, "tokenSecret": "page"},
        "push": {"enabled": true},
        "heal": {
            "enabled": true,
            "mode": "auto",
            "recreatePods": {"enabled": true, "mode": "approve"},
            "addonsSockets": ["/var/lib/kubelet/plugins/a/addons.sock", "/var/lib/kubelet/plugins/b/addons.sock"],
            "stageSecrets": [{"namespace": "rook-ceph", "names": ["rook-csi-rbd-node"]}],
        },
        "agent": {"privileged": true, "volumeStatsMetrics": true},
        "controllers": [{"driver": "hostpath"}, mine()],
        "controller": {"nodeWatcher": true},
        "metrics": {
            "monitors": {"enabled": true, "labels": {"release": "prometheus"}},
            "rules": {"enabled": true},
            "dashboard": {"enabled": true},
        },
        "networkPolicy": {"metricsFrom": [{"namespaceSelector": {}}], "clientsFrom": [{"podSelector": {}}]},
    })
}

/// A driver that the chart does not know.
pub(crate) fn mine() -> Value {
    json!({
        "driver": "mine",
        "csiDriver": "csi.example.com",
        "namespace": "kube-system",
        "workload": "deployment/my-csi-controller",
        "serviceAccount": "my-csi-controller-sa",
        "socketVolume": "socket-dir",
        "socket": "csi.sock",
    })
}

/// What comes of it, asked for once.
pub(crate) fn with_everything() -> &'static [Value] {
    static TAKEN: OnceLock<Vec<Value>> = OnceLock::new();
    TAKEN.get_or_init(|| taken(&everything()))
}

fn metrics_with_a_token() -> Value {
    json!({"metrics": {"auth": {"enabled": true}, "monitors": {"enabled": true}}, "controllers": [mine()]})
}

/// Sets of values that people use.
pub(crate) fn sets() -> Vec<(&'static str, Value)> {
    vec![
        ("as it is", json!({})),
        ("everything", everything()),
        ("no agents, one hub", json!({"agent": {"enabled": false}, "hub": {"replicas": 1}})),
        (
            "nothing around it",
            json!({
                "crds": {"install": false},
                "admissionPolicy": {"install": false},
                "networkPolicy": {"enabled": false},
                "page": {"enabled": false},
            }),
        ),
        ("metrics with a token", metrics_with_a_token()),
        (
            "certificates of others",
            json!({
                "push": {"enabled": true, "tlsSecret": "of-cert-manager"},
                "heal": {"enabled": true, "addonsSockets": ["/a/b.sock"]},
            }),
        ),
        (
            "all drivers",
            json!({
                "controllers": chart().drivers().unwrap().iter().map(|name| json!({"driver": name})).collect::<Vec<_>>(),
            }),
        ),
    ]
}

#[test]
fn helm_finds_nothing_to_complain_about() {
    chart().lint().unwrap();
}

#[test]
fn every_set_of_values_is_taken_by_the_api_server() {
    for (name, values) in sets() {
        let objects = taken(&values);
        assert!(objects.len() >= 5, "{name}: {} objects", objects.len());
        let hub = find(&objects, "Deployment", "volmedic-hub");
        let labels = &hub["spec"]["template"]["metadata"]["labels"];
        for selected in ["app.kubernetes.io/name", "app.kubernetes.io/component"] {
            assert_eq!(hub["spec"]["selector"]["matchLabels"][selected], labels[selected], "{name}");
        }
        // Two replicas must not be evicted together; one alone could never be.
        let budget = objects.iter().any(|object| object["kind"] == "PodDisruptionBudget");
        assert_eq!(budget, hub["spec"]["replicas"] != 1, "{name}");
    }
}

#[test]
fn labels_and_security_contexts_can_be_added_and_no_label_of_ours_replaced() {
    let objects = taken(&json!({
        "agent": {
            "podLabels": {"team": "storage", "app.kubernetes.io/component": "other"},
            "securityContext": {"seLinuxOptions": {"type": "spc_t"}, "capabilities": {"add": ["DAC_READ_SEARCH"]}},
        },
        "hub": {"securityContext": {"runAsUser": 1234}},
    }));
    let agent = &find(&objects, "DaemonSet", "volmedic-agent")["spec"]["template"];
    assert_eq!(agent["metadata"]["labels"]["team"], "storage");
    assert_eq!(agent["metadata"]["labels"]["app.kubernetes.io/component"], "agent");
    let security = &agent["spec"]["containers"][0]["securityContext"];
    assert_eq!(security["seLinuxOptions"], json!({"type": "spc_t"}));
    assert_eq!(security["capabilities"], json!({"drop": ["ALL"], "add": ["DAC_READ_SEARCH"]}));
    assert_eq!(security["readOnlyRootFilesystem"], true);
    let hub = &find(&objects, "Deployment", "volmedic-hub")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(hub["securityContext"]["runAsUser"], 1234);
    assert_eq!(hub["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
}

#[test]
fn metrics_with_a_token_are_probed_and_scraped_over_https_and_every_account_may_ask_about_tokens() {
    let objects = taken(&metrics_with_a_token());
    for (kind, name) in [("Deployment", "volmedic-hub"), ("DaemonSet", "volmedic-agent")] {
        let container = &find(&objects, kind, name)["spec"]["template"]["spec"]["containers"][0];
        assert!(container["args"].as_array().unwrap().contains(&json!("--metrics-auth")), "{container}");
        for probe in ["livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["httpGet"]["scheme"], "HTTPS", "{name}");
        }
    }
    let patch = find(&objects, "ConfigMap", "volmedic-sidecar-mine")["data"]["patch.yaml"].as_str().unwrap();
    assert!(patch.contains("- --metrics-auth") && patch.contains("scheme: HTTPS"), "{patch}");
    for (kind, name, field) in [
        ("ServiceMonitor", "volmedic-hub", "endpoints"),
        ("PodMonitor", "volmedic-agent", "podMetricsEndpoints"),
        ("PodMonitor", "volmedic-controllers", "podMetricsEndpoints"),
    ] {
        let endpoint = &find(&objects, kind, name)["spec"][field][0];
        let credentials = json!({"name": "volmedic-metrics-reader", "key": "token"});
        assert_eq!(endpoint["authorization"]["credentials"], credentials, "{name}");
        assert_eq!(
            (&endpoint["scheme"], &endpoint["honorLabels"]),
            (&json!("https"), &json!(true)),
            "{name}"
        );
    }
    let secret = find(&objects, "Secret", "volmedic-metrics-reader");
    assert_eq!(secret["type"], "kubernetes.io/service-account-token");
    let binding = find(&objects, "ClusterRoleBinding", "volmedic-metrics-auth");
    assert_eq!(binding["roleRef"]["name"], "system:auth-delegator");
    let accounts: Vec<&str> =
        binding["subjects"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(accounts, ["volmedic-hub", "volmedic-agent", "my-csi-controller-sa"]);
    for (name, values) in [("as it is", json!({})), ("everything", everything())] {
        let text = serde_json::to_string(&taken(&values)).unwrap();
        assert!(!text.contains("metrics-auth") && !text.contains("volmedic-metrics-reader"), "{name}");
    }
}

/// OpenShift's admission cannot be had here, so this compares what is asked for with what is allowed.
#[test]
fn on_openshift_the_constraints_allow_what_the_agent_asks_for_and_no_more() {
    let other = json!({
        "runAsUser": 1234,
        "readOnlyRootFilesystem": false,
        "capabilities": {"add": ["DAC_READ_SEARCH", "SYS_PTRACE"]},
        "seLinuxOptions": {"type": "volmedic_t"},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "volmedic.json"},
    });
    for (agent, selinux, seccomp) in [
        (json!({}), json!({"type": "spc_t"}), json!(["runtime/default"])),
        (json!({"privileged": true}), json!({"type": "spc_t"}), json!(null)),
        (json!({"sysAdmin": false}), json!({"type": "spc_t"}), json!(["runtime/default"])),
        (
            json!({"securityContext": other}),
            other["seLinuxOptions"].clone(),
            json!(["localhost/volmedic.json"]),
        ),
        (json!({"hostRoot": true}), json!({"type": "spc_t"}), json!(["runtime/default"])),
    ] {
        let objects = taken(&json!({"openshift": {"securityContextConstraints": true}, "agent": agent}));
        let pod = &find(&objects, "DaemonSet", "volmedic-agent")["spec"]["template"]["spec"];
        let security = &pod["containers"][0]["securityContext"];
        let constraints = find(&objects, "SecurityContextConstraints", "volmedic-agent");
        assert_eq!(constraints["users"], json!(["system:serviceaccount:volmedic:volmedic-agent"]));
        assert_eq!(constraints["allowHostPID"], pod["hostPID"]);
        assert_eq!(constraints["allowPrivilegedContainer"], security["privileged"] == true, "{agent}");
        assert_eq!(constraints["allowPrivilegeEscalation"], security["allowPrivilegeEscalation"] != false);
        let added = security["capabilities"]["add"].as_array().cloned().unwrap_or_default();
        assert_eq!(constraints["allowedCapabilities"], json!(added), "{agent}");
        assert_eq!(constraints["readOnlyRootFilesystem"], security["readOnlyRootFilesystem"], "{agent}");
        let user = json!({"type": "MustRunAs", "uid": security["runAsUser"]});
        assert_eq!(constraints["runAsUser"], user, "{agent}");
        assert_eq!(constraints["seLinuxContext"]["seLinuxOptions"], selinux, "{agent}");
        assert_eq!(constraints["seccompProfiles"], seccomp, "{agent}");
        let allowed = constraints["volumes"].as_array().unwrap();
        for volume in pod["volumes"].as_array().unwrap() {
            let kind = volume.as_object().unwrap().keys().find(|key| *key != "name").unwrap();
            assert!(allowed.iter().any(|one| one == kind), "{kind}");
        }
        // Both run as a user that restricted-v2 refuses.
        let bound = &find(&objects, "RoleBinding", "volmedic-hub-nonroot")["subjects"];
        let accounts: Vec<&Value> =
            bound.as_array().unwrap().iter().map(|subject| &subject["name"]).collect();
        assert_eq!(accounts, ["volmedic-hub", "volmedic-test"]);
    }
    let without = taken(&json!({}));
    assert!(without.iter().all(|object| object["kind"] != "SecurityContextConstraints"));
}

#[test]
fn the_pod_of_helm_test_runs_where_the_hub_runs() {
    let objects = taken(&json!({"hub": {
        "nodeSelector": {"pool": "infra"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}}},
        "securityContext": {"runAsUser": 1234},
    }}));
    let test = &find(&objects, "Pod", "volmedic-test")["spec"];
    let hub = &find(&objects, "Deployment", "volmedic-hub")["spec"]["template"]["spec"];
    for field in ["nodeSelector", "priorityClassName", "affinity"] {
        assert!(!hub[field].is_null());
        assert_eq!(test[field], hub[field], "{field}");
    }
    // The API server adds tolerations to pods.
    let tolerated = test["tolerations"].as_array().unwrap();
    assert!(tolerated.contains(&hub["tolerations"][0]), "{tolerated:?}");
    assert_eq!(test["containers"][0]["securityContext"], hub["containers"][0]["securityContext"]);
}

#[test]
fn what_the_chart_does_not_know_is_refused_with_a_sentence() {
    for (values, reported) in [
        (json!({"hub": {"replica": 3}}), "additional properties 'replica' not allowed"),
        (json!({"agent": {"monitorInterval": "often"}}), "/agent/monitorInterval"),
        (json!({"image": {"digest": "latest"}}), "/image/digest"),
        (json!({"page": {"public": true}}), "page.tokenSecret must name a Secret when page.public is on"),
        (
            json!({"controllers": [{"driver": "mine"}]}),
            "mine is not in files/drivers.yaml, so csiDriver must be given",
        ),
        (json!({"heal": {"mode": "always"}}), "/heal/mode"),
    ] {
        let error = chart().render("x", &values).unwrap_err().to_string();
        assert!(error.contains(reported), "{values}: {error}");
    }
}

/// Each relay makes its own certificate, and each token is requested for one node: nothing of it lies in a Secret or a file.
#[test]
fn relays_share_no_key_and_no_token() {
    let objects = with_everything();
    let secrets = objects.iter().filter(|object| object["kind"] == "Secret");
    let names: Vec<_> = secrets.map(|secret| secret["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["volmedic-hub-tls"]);
    let volumes =
        |kind: &str, name: &str| find(objects, kind, name)["spec"]["template"]["spec"]["volumes"].clone();
    let hub = volumes("Deployment", "volmedic-hub");
    assert!(hub.as_array().unwrap().iter().all(|volume| volume["projected"].is_null()), "{hub}");
    let agent = volumes("DaemonSet", "volmedic-agent");
    assert!(agent.as_array().unwrap().iter().all(|volume| volume["secret"].is_null()), "{agent}");
}

/// A healer that only recreates pods waits for no relay.
#[test]
fn relays_are_called_where_agents_run_some_or_nothing_else_heals() {
    let check = |heal: Value, expected: bool| {
        let objects = taken(&json!({"heal": heal}));
        let hub = find(&objects, "Deployment", "volmedic-hub");
        let arguments = hub["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
        assert_eq!(arguments.iter().any(|argument| argument == "--heal-relays"), expected, "{heal}");
    };
    check(json!({"enabled": true}), true);
    check(json!({"enabled": true, "addonsSockets": ["/a/b.sock"]}), true);
    check(json!({"enabled": true, "recreatePods": {"enabled": true}}), false);
    check(json!({"enabled": true, "addonsSockets": ["/a/b.sock"], "recreatePods": {"enabled": true}}), true);
    check(json!({"enabled": false, "addonsSockets": ["/a/b.sock"]}), false);
}

#[test]
fn the_manifests_are_what_the_chart_makes() {
    for (path, wanted) in chart().manifests().unwrap() {
        let present = std::fs::read_to_string(root().join(&path)).unwrap_or_default();
        assert!(present == wanted, "{path} is not what the chart makes; run `cargo xtask chart`");
    }
    let objects = taken_file(&root().join("deploy/manifests/volmedic.yaml"));
    assert_eq!(find(&objects, "Namespace", "volmedic")["metadata"]["name"], "volmedic");
    find(&objects, "DaemonSet", "volmedic-agent");
}
