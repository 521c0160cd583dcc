//! What `--redact` promises, with objects that try to get names through it.

use serde_json::{Value, json};

use super::super::super::findings::{Area, Findings, Report};
use super::super::kinds::KINDS;
use super::super::mask;
use super::super::objects::Selection;
use super::*;

fn of(names: &[(&'static str, &str)]) -> Replacer {
    let mut all = Names::default();
    for (called, name) in names {
        all.put(called, name);
    }
    Replacer::new(all).unwrap()
}

#[test]
fn a_name_is_replaced_everywhere_by_the_same_and_never_inside_of_another_word() {
    let names = of(&[
        ("claim", "data"),
        ("claim", "data-0"),
        ("node", "worker-1"),
        ("namespace", "default"),
        ("claim", "data"),
    ]);
    let check = |given: &str, expected: &str| assert_eq!(names.apply(given), expected, "{given}");
    check("shop/data-0 on worker-1.", "shop/claim-2 on node-1.");
    check("volmedic-agent-worker-1", "volmedic-agent-node-1");
    check("worker-10 metadata default/data", "worker-10 metadata default/claim-1");
    check("data", "claim-1");
    assert_eq!(of(&[("pod", "n")]).apply("kubectl get pods -n n"), "kubectl get pods -n n");
    assert_eq!(of(&[("pod", "n")]).apply("n"), "pod-1");
    check("ädata datä", "äclaim-1 datä");
    let mut value = json!({"data": ["data", 1], "x": {"y": "data-0"}, "level": "data"});
    names.apply_to(&mut value);
    assert_eq!(value, json!({"data": ["claim-1", 1], "x": {"y": "claim-2"}, "level": "data"}));
}

#[test]
fn a_shorter_name_is_found_where_a_longer_one_ends_within_a_word() {
    let names = of(&[
        ("namespace", "shop"),
        ("namespace", "shop-a"),
        ("pod", "a-b"),
        ("pod", "b-c"),
        ("path", "/export/hr"),
    ]);
    let check = |given: &str, expected: &str| assert_eq!(names.apply(given), expected, "{given}");
    check("shop-app", "namespace-1-app");
    check("shop-a-1 shop-a", "namespace-2-1 namespace-2");
    // Nothing of a name stays where two overlap.
    check("x a-b-c x", "x pod-1-pod-2 x");
    check("nas:/export/hr/1 /export/hrx", "nas:path-1/1 /export/hrx");
}

#[test]
fn addresses_are_replaced_but_those_of_every_machine() {
    let check = |given: &str, expected: &str| assert_eq!(of(&[]).apply(given), expected, "{given}");
    check("dial 10.1.2.3:9070: refused", "dial address-x: refused");
    check("from [fd00::1]:80, fe80::1%eth0.", "from [address-x]:80, address-x.");
    check("10.0.0.0/8 127.0.0.1:80 ::1 0.0.0.0", "address-x/8 127.0.0.1:80 ::1 0.0.0.0");
    check("volmedic::transition at 10:14:30 v1.37.1 1.2.3", "volmedic::transition at 10:14:30 v1.37.1 1.2.3");
}

/// Names of a hostile cluster: each is in a place from which it could get into an archive.
fn hostile() -> Vec<(&'static str, Vec<Value>)> {
    let metadata = |name: &str, namespace: &str| {
        json!({
            "name": name, "namespace": namespace, "uid": "00000000-0000-4000-8000-000000000001",
            "generateName": "sekret-generated-",
            "labels": {"sekret.example/label": "sekret-value", "team": "sekret-team"},
            "annotations": {"sekret.example/x": "sekret-annotation", "kubectl.kubernetes.io/last-applied-configuration": "sekret-applied"},
            "ownerReferences": [{"kind": "SekretDatabase", "name": "sekret-owner", "uid": "1"},
                {"kind": "ReplicaSet", "name": "sekret-deployment-6c9d4", "uid": "2"}],
            "managedFields": [{"manager": "sekret-manager"}],
            "finalizers": ["sekret.example/finalizer"], "selfLink": "/sekret",
        })
    };
    let status = json!({
        "phase": "Running", "message": "sekret-message", "reason": "Evicted", "nominatedNodeName": "sekret-nominated",
        "podIP": "10.9.8.7", "podIPs": [{"ip": "10.9.8.7"}, {"ip": "fd99::7"}], "hostIP": "10.9.8.1",
        "conditions": [{"type": "sekret.example/Gate", "status": "True"}, {"type": "Ready", "status": "True", "message": "sekret-ready"}],
        "containerStatuses": [{"name": "hub", "image": "sekret.example/status", "imageID": "sekret.example/id", "ready": true,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "pull sekret.example/waiting"}}}],
        "initContainerStatuses": [{"name": "sekret-init"}], "resourceClaimStatuses": [{"name": "sekret-resource"}],
    });
    let pod = json!({
        "metadata": metadata("sekret-pod", "sekret-namespace"),
        "spec": {
            "nodeName": "sekret-node.sekret.example", "serviceAccountName": "sekret-account", "hostname": "sekret-host",
            "imagePullSecrets": [{"name": "sekret-pull"}], "nodeSelector": {"sekret-selector": "sekret-selected"},
            "containers": [{"name": "sekret-container", "image": "sekret.example/app:1", "args": ["--sekret-argument"],
                "env": [{"name": "X", "value": "sekret-env"}]}],
            "volumes": [
                {"name": "sekret-mount", "persistentVolumeClaim": {"claimName": "sekret-claim"}},
                {"name": "b", "secret": {"secretName": "sekret-secret"}}, {"name": "c", "configMap": {"name": "sekret-map"}},
                {"name": "d", "nfs": {"server": "sekret-nfs", "path": "/sekret"}}, {"name": "e", "hostPath": {"path": "/sekret/host"}},
                {"name": "f", "csi": {"driver": "disk.example.net", "volumeAttributes": {"sekret-key": "sekret-inline"},
                    "nodePublishSecretRef": {"name": "sekret-publish"}}},
                {"name": "g", "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "sekret-template"}}}}},
            ],
        },
        "status": status,
    });
    let mut own = pod.clone();
    own["metadata"]["labels"]["app.kubernetes.io/name"] = "volmedic".into();
    own["metadata"]["name"] = "volmedic-hub-1".into();
    own["spec"]["containers"][0]["name"] = "hub".into();
    own["spec"]["containers"][0]["image"] = "registry.sekret.example/tools/volmedic:1".into();
    own["spec"]["containers"][0]["args"] = json!(["hub", "--lease-namespace=sekret-namespace"]);
    let node = json!({
        "metadata": metadata("sekret-node.sekret.example", ""),
        "spec": {"providerID": "aws:///zone/i-sekret", "podCIDR": "10.9.0.0/24", "taints": [{"key": "sekret-taint", "effect": "NoSchedule"}]},
        "status": {
            "addresses": [{"type": "Hostname", "address": "sekret-node"}, {"type": "ExternalIP", "address": "203.0.113.9"}],
            "conditions": [{"type": "SekretGpuHung", "status": "True"}, {"type": "Ready", "status": "True", "message": "sekret-kubelet"}],
            "nodeInfo": {"machineID": "5ekretmachine", "systemUUID": "5EKRET-SYSTEM", "bootID": "5ekret-boot", "kubeletVersion": "v1.37.1"},
            "images": [{"names": ["sekret.example/image"]}], "volumesInUse": ["kubernetes.io/csi/disk.example.net^sekret-handle"],
            "volumesAttached": [{"name": "kubernetes.io/csi/disk.example.net^sekret-handle", "devicePath": "sekret"}],
        },
    });
    let volume = |source: Value| {
        let mut spec = json!({
            "claimRef": {"namespace": "sekret-namespace", "name": "sekret-claim", "uid": "3"}, "storageClassName": "sekret-class",
            "mountOptions": ["sec=sekret"], "capacity": {"storage": "1Gi"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["sekret-node"]}]}]}},
        });
        for (name, source) in source.as_object().unwrap() {
            spec[name] = source.clone();
        }
        json!({"metadata": metadata("sekret-volume", ""), "spec": spec, "status": {"phase": "Bound", "message": "sekret-failed"}})
    };
    let csi = json!({"csi": {"driver": "disk.example.net", "volumeHandle": "sekret-handle", "fsType": "ext4",
        "volumeAttributes": {"server": "nas.sekret.example", "share": "/exports/hr-sekret", "sekret-name": "x"},
        "nodeStageSecretRef": {"name": "sekret-stage", "namespace": "sekret-namespace"}}});
    let reported = json!({"healthConditions": [{"status": "Degraded", "reason": "IOError",
        "message": "sekret-handle on nas.sekret.example:/exports/hr-sekret at 198.51.100.7 is slow"}]});
    let claim = json!({
        "metadata": metadata("sekret-claim", "sekret-namespace"),
        "spec": {"volumeName": "sekret-volume", "storageClassName": "sekret-class", "dataSource": {"kind": "VolumeSnapshot", "name": "sekret-snapshot"},
            "selector": {"matchLabels": {"a": "sekret-match"}}},
        "status": {"phase": "Bound", "healthStatus": reported, "conditions": [{"type": "Resizing", "message": "sekret-resize"}]},
    });
    let class = json!({
        "metadata": metadata("sekret-class", ""), "provisioner": "disk.example.net", "mountOptions": ["sekret"],
        "parameters": {"pool": "sekret-pool", "csi.storage.k8s.io/provisioner-secret-name": "sekret-provisioner"},
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["sekret-zone"]}]}],
    });
    let attachment = json!({
        "metadata": metadata("csi-5ekrethash", ""),
        "spec": {"attacher": "disk.example.net", "nodeName": "sekret-node.sekret.example", "source": {"persistentVolumeName": "sekret-volume"}},
        "status": {"attached": false, "attachError": {"message": "sekret-attach"}, "attachmentMetadata": {"a": "sekret-metadata"}},
    });
    let csi_node = json!({
        "metadata": metadata("sekret-node.sekret.example", ""),
        "spec": {"drivers": [{"name": "disk.example.net", "nodeID": "i-sekret", "topologyKeys": ["sekret-topology"]}]},
    });
    let health = json!({
        "metadata": metadata("sekret-claim", "sekret-namespace"), "spec": {"persistentVolumeClaimName": "sekret-claim"},
        "status": {"headline": {"health": "Unhealthy", "message": "reading sekret-handle failed on sekret-node", "vantage": "host/sekret-node.sekret.example"},
            "history": [{"time": "2026-08-21T10:00:00Z", "vantage": "host/sekret-removed"}],
            "vantages": [{"name": "pushed/sekret-watcher", "kind": "Pushed", "source": "sekret-watcher"}]},
    });
    let report = json!({
        "metadata": metadata("sekret-node.sekret.example", ""),
        "spec": {"nodeName": "sekret-node.sekret.example", "report": {"volumes": [{"volumeHandle": "sekret-inline-handle",
            "pods": [{"namespace": "sekret-namespace", "name": "sekret-past"}], "evidence": ["kernel: sekret-inline-handle of sekret-past"]}]}},
    });
    let lease = json!({
        "metadata": metadata("volmedic-agent-sekret-unlisted", "sekret-namespace"), "spec": {"holderIdentity": "sekret-holder"},
    });
    let event = json!({
        "metadata": metadata("sekret-pod.17a", "sekret-namespace"), "involvedObject": {"kind": "Pod", "name": "sekret-pod", "namespace": "sekret-namespace"},
        "source": {"component": "volmedic-agent", "host": "sekret-node"}, "message": "sekret-handle is bad", "reason": "VolumeConditionAbnormal",
    });
    let mut policy = json!({"metadata": metadata("volmedic-health", ""), "spec": {"validations": [{"expression": "'sekret'"}]}});
    policy["metadata"]["ownerReferences"] = json!([]);
    let workload = json!({
        "metadata": metadata("volmedic-hub", "sekret-namespace"),
        "spec": {"replicas": 2, "template": {"spec": {"nodeSelector": {"sekret": "x"}}}},
        "status": {"replicas": 2, "conditions": [{"type": "Progressing", "message": "sekret-progress"}]},
    });
    vec![
        ("volmedic-pods", vec![own]),
        ("deployments", vec![workload.clone()]),
        ("daemonsets", vec![workload]),
        ("namespaces", vec![json!({"metadata": metadata("sekret-namespace", "")})]),
        ("nodes", vec![node]),
        (
            "persistentvolumes",
            vec![
                volume(csi),
                volume(json!({"nfs": {"server": "sekret-nfs", "path": "/sekret-path"}})),
                volume(json!({"hostPath": {"path": "/sekret/host", "type": "Directory"}})),
                volume(json!({"local": {"path": "/sekret/local"}})),
                volume(json!({"iscsi": {"targetPortal": "sekret-portal:3260", "iqn": "iqn.sekret"}})),
            ],
        ),
        ("persistentvolumeclaims", vec![claim]),
        ("storageclasses", vec![class]),
        (
            "csidrivers",
            vec![
                json!({"metadata": {"name": "disk.example.net"}, "spec": {"tokenRequests": [{"audience": "sekret"}]}}),
            ],
        ),
        ("csinodes", vec![csi_node]),
        ("volumeattachments", vec![attachment]),
        ("pods", vec![pod]),
        ("volumehealths", vec![health]),
        ("nodevolumehealths", vec![report]),
        ("leases", vec![lease]),
        ("validatingadmissionpolicies", vec![policy.clone()]),
        ("validatingadmissionpolicybindings", vec![policy]),
        ("events", vec![event]),
    ]
}

const LOG: &str = "{\"level\":\"WARN\",\"fields\":{\"handle\":\"sekret-deleted\",\"vantage\":\"host/sekret-gone\",\"message\":\"sekret-deleted on sekret-gone\"}}\n\
    2026-08-21T10:00:00Z  INFO volmedic: cleared away node=\"sekret-away\" of sekret-away at 192.0.2.1:9070\n";

fn collected() -> Names {
    let mut names = Names::default();
    let hostile = hostile();
    assert_eq!(hostile.len(), KINDS.len(), "every kind has a hostile object");
    for (file, objects) in &hostile {
        let kind = KINDS.iter().find(|kind| kind.file == *file).unwrap();
        for object in objects {
            names.note(kind, object);
        }
    }
    names.note_log(LOG);
    names
}

/// All objects and the log as an archive has them.
fn archived(names: &Replacer) -> Vec<String> {
    let mut all = Vec::new();
    for (file, objects) in hostile() {
        let kind = KINDS.iter().find(|kind| kind.file == file).unwrap();
        let selection = Selection::new(kind, true);
        for mut object in objects {
            assert!(selection.includes(&object), "{file}");
            mask::object(&mut object);
            selection.keep(&mut object);
            names.object(&mut object);
            all.push(format!("{file}: {object}"));
        }
    }
    all.extend(names.log(LOG));
    all
}

#[test]
fn no_name_gets_into_an_archive() {
    let all = archived(&Replacer::new(collected()).unwrap());
    let addresses = ["10.9.", "fd99::", "203.0.113.", "198.51.100.", "192.0.2."];
    for text in &all {
        let lower = text.to_lowercase();
        assert!(!lower.contains("sekret") && !lower.contains("5ekret"), "{text}");
        assert!(!addresses.iter().any(|address| text.contains(address)), "{text}");
    }
    // What a reader needs is still there, and one volume can be followed.
    let all = all.join("\n");
    for word in [
        "\"claimName\":\"claim-1\"",
        "\"volumeHandle\":\"handle-1\"",
        "\"message\":\"handle-1 on attribute-",
        "\"driver\":\"disk.example.net\"",
        "\"ErrImagePull\"",
        "volmedic-hub-1",
        "registry-1/volmedic:1",
        "volmedic-agent-node-",
        "\"kubeletVersion\":\"v1.37.1\"",
    ] {
        assert!(all.contains(word), "{word} in {all}");
    }
}

#[test]
fn without_all_names_there_is_no_text() {
    let mut names = collected();
    names.set_unknown("nodes");
    let names = Replacer::new(names).unwrap();
    let all = archived(&names).join("\n");
    assert!(
        all.contains("\"message\":\"(left out)\"") && all.contains("\"evidence\":[\"(left out)\"]"),
        "{all}"
    );
    assert!(!all.contains("is bad") && !all.contains("kernel") && names.log(LOG).is_none(), "{all}");
    let mut found = Findings::default();
    found.problem(Area::Probing, "the agent on unlisted is not responding", "delete unlisted");
    let report = names.report(&report(found));
    assert_eq!(
        (&*report.findings[0].what, report.findings[0].fix.as_deref()),
        ("(left out)", Some("(left out)"))
    );
}

#[test]
fn in_the_findings_names_are_replaced_and_words_of_the_format_stay() {
    let mut found = Findings::default();
    found.problem(Area::Probing, "the agent on worker-1 is not responding", "kubectl get pods -n level");
    let names =
        of(&[("node", "worker-1"), ("namespace", "level"), ("namespace", "problem"), ("claim", "prod")]);
    let report = names.report(&report(found));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["cluster"], "(name replaced)");
    let expected = json!({"area": "probing", "level": "problem", "what": "the agent on node-1 is not responding",
        "fix": "kubectl get pods -n namespace-1"});
    assert_eq!(json["findings"], json!([expected]));
}

fn report(found: Findings) -> Report {
    Report {
        at: "2026-08-21T10:00:00Z".parse().unwrap(),
        cluster: "context prod-of-sekret".to_owned(),
        server: None,
        partial: false,
        findings: found.0,
        drivers: Vec::new(),
    }
}
