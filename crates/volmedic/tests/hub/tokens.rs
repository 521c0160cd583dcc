//! What a real token of an agent may write, and that it is the shipped policy that says so.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::storage::v1::CSINode;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use volmedic_testkit::objects;

use crate::stage::{CRDS, HOME, POLICY, RBAC, Stage, apply_report, install, kubectl, until};

/// Something that the agent on `own` tries to write.
struct Attempt {
    what: &'static str,
    outcome: Result<(), String>,
}

/// Everything that only the policy stands against.
async fn against_the_policy(stage: &Stage, agent: &Client, own: &str, other: &str) -> Vec<Attempt> {
    let unbound =
        stage.plane.client_for(HOME, "volmedic-agent").await.expect("a token that is bound to no pod");
    let empty = stage.report(&[]);
    let on = |kind: &str, host: &str| event(kind, &stage.namespace, host);
    let mut unmarked = on("Pod", own);
    unmarked.metadata.labels = None;
    let mut attempts = Vec::new();
    let mut note = |what, outcome: Result<(), Error>| {
        attempts.push(Attempt { what, outcome: outcome.map_err(|error| error.to_string()) });
    };
    note("another node's report", apply_report(agent, other, &empty).await.map(drop));
    note("a report without a node in the token", apply_report(&unbound, own, &empty).await.map(drop));
    note("another node's lease", lease(agent, &format!("volmedic-agent-{other}")).await);
    note("the hub's lease", lease(agent, "volmedic-hub").await);
    note("an event that names another node", create_event(agent, &stage.namespace, on("Pod", other)).await);
    note(
        "an event on a claim",
        create_event(agent, &stage.namespace, on("PersistentVolumeClaim", own)).await,
    );
    let mut elsewhere = event("Node", HOME, own);
    elsewhere.involved_object.name = Some(other.to_owned());
    note("an event on another node", create_event(agent, HOME, elsewhere).await);
    note("an event without its mark", create_event(agent, &stage.namespace, unmarked).await);
    note("an event on a node that is none", create_event(agent, HOME, event("Node", HOME, own)).await);
    attempts
}

/// Events on a pod that is not on the node of the agent.
async fn on_a_pod_elsewhere(stage: &Stage, agent: &Client, own: &str) -> Vec<Attempt> {
    let mut elsewhere = event("Pod", &stage.namespace, own);
    elsewhere.involved_object.name = Some("elsewhere".to_owned());
    let created = create_event(agent, &stage.namespace, elsewhere).await;
    let patched = patch_event(agent, &stage.namespace, "told-elsewhere", own).await;
    [("an event on a pod elsewhere", created), ("a change to an event on a pod elsewhere", patched)]
        .into_iter()
        .map(|(what, outcome)| Attempt { what, outcome: outcome.map_err(|error| error.to_string()) })
        .collect()
}

/// What no agent may write, policy or not: it has no right to.
async fn against_the_rights(stage: &Stage, agent: &Client) -> Vec<Attempt> {
    let health = "/apis/volmedic.dev/v1alpha1/namespaces";
    let (namespace, client) = (&stage.namespace, agent);
    let mut attempts = Vec::new();
    for (what, path, subresource) in [
        ("a VolumeHealth", format!("{health}/{namespace}/volumehealths"), None),
        ("a VolumeHealth's status", format!("{health}/{namespace}/volumehealths"), Some("status")),
        ("a claim", format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims"), None),
        (
            "a claim's status",
            format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims"),
            Some("status"),
        ),
        ("a PersistentVolume", "/api/v1/persistentvolumes".to_owned(), None),
        ("a pod", format!("/api/v1/namespaces/{namespace}/pods"), None),
    ] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
        let request = kube::api::Request::new(path);
        let params = PatchParams::default();
        let request = match subresource {
            Some(subresource) => request.patch_subresource(subresource, "data", &params, &patch),
            None => request.patch("data", &params, &patch),
        };
        let outcome = client.request::<Value>(request.expect("a request")).await;
        attempts.push(Attempt { what, outcome: outcome.map(drop).map_err(|error| error.to_string()) });
    }
    attempts
}

pub(crate) fn event(kind: &str, namespace: &str, host: &str) -> Event {
    serde_json::from_value(json!({
        "metadata": {"generateName": "test-", "namespace": namespace, "labels": {"volmedic.dev/reported-by": "agent"}},
        "involvedObject": {"kind": kind, "namespace": namespace, "name": "data"},
        "reason": "VolumeConditionAbnormal", "type": "Warning", "message": "as a test says",
        "source": {"component": "volmedic-agent", "host": host},
    }))
    .expect("an event")
}

async fn create_event(client: &Client, namespace: &str, event: Event) -> Result<(), Error> {
    let api = Api::<Event>::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &event).await.map(drop)
}

/// The newer form of events has no place for the node it comes from.
async fn newer_event(client: &Client, namespace: &str, pod: &str) -> Result<(), String> {
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"generateName": "test-", "labels": {"volmedic.dev/reported-by": "agent"}},
        "regarding": {"kind": "Pod", "namespace": namespace, "name": pod},
        "reason": "VolumeConditionAbnormal", "type": "Warning", "note": "as a test says", "action": "Look",
        "eventTime": "2026-08-21T10:00:00.000000Z",
        "reportingController": "volmedic-agent", "reportingInstance": "test",
    });
    let events = kube::api::Request::new(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"));
    let body = serde_json::to_vec(&event).expect("JSON");
    let request = events.create(&PostParams::default(), body).expect("a request");
    client.request::<Value>(request).await.map(drop).map_err(|error| error.to_string())
}

/// Takes over an event that somebody else wrote.
async fn patch_event(client: &Client, namespace: &str, name: &str, host: &str) -> Result<(), Error> {
    let patch = json!({
        "metadata": {"labels": {"volmedic.dev/reported-by": "agent"}},
        "source": {"component": "volmedic-agent", "host": host}, "message": "it is gone",
    });
    let api = Api::<Event>::namespaced(client.clone(), namespace);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

async fn lease(client: &Client, name: &str) -> Result<(), Error> {
    let lease = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"holderIdentity": "x"}}));
    let api = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(client.clone(), HOME);
    api.create(&PostParams::default(), &lease.expect("a lease")).await.map(drop)
}

#[tokio::test]
async fn an_agents_token_writes_for_its_own_node_and_the_policy_is_why() {
    let stage = Stage::own(&[&[CRDS, POLICY], &RBAC[..]].concat()).await;
    let (own, other) = (stage.make_node("own").await, stage.make_node("other").await);
    stage.used_claim("data", &own).await;
    let pod = objects::pod(&stage.client, &stage.namespace, "elsewhere", &other, &[]).await;
    pod.expect("a pod on another node");
    let mut reported = event("Pod", &stage.namespace, &other);
    reported.metadata.name = Some("told-elsewhere".to_owned());
    reported.involved_object.name = Some("elsewhere".to_owned());
    create_event(&stage.client, &stage.namespace, reported).await.expect("an event of somebody else");
    let agent = stage.agent(&own).await;
    // Agents are not given the newer form of events; should somebody give it to them, the policy holds there, too.
    let rule = ["--verb=create", "--resource=events.events.k8s.io"];
    kubectl(&stage.plane, &[&["create", "clusterrole", "newer-events"], &rule[..]].concat());
    let account = format!("--serviceaccount={HOME}:volmedic-agent");
    kubectl(
        &stage.plane,
        &["create", "clusterrolebinding", "newer-events", "--clusterrole=newer-events", &account],
    );
    // The API server needs a moment to take a policy in.
    let empty = stage.report(&[]);
    until("the policy is in force", || async {
        Ok::<_, String>(apply_report(&agent, &other, &empty).await.is_err())
    })
    .await;

    until("the other policy is in force, too", || async {
        let attempts = on_a_pod_elsewhere(&stage, &agent, &own).await;
        Ok::<_, String>(attempts.iter().all(|attempt| attempt.outcome.is_err()))
    })
    .await;
    for attempt in on_a_pod_elsewhere(&stage, &agent, &own).await {
        let why = attempt.outcome.expect_err(attempt.what);
        // Both policies refuse the change of an existing event; either may be named.
        let named =
            ["may not write an event on pod elsewhere", "may not change an event that it did not write"];
        assert!(named.iter().any(|named| why.contains(named)), "{}: {why}", attempt.what);
        println!("{}: {why}", attempt.what);
    }
    // So does the right that was just given.
    until("an event that names no node is refused for that", || async {
        let nameless = newer_event(&agent, &stage.namespace, "data").await.expect_err("it names no node");
        if nameless.contains("name that node as its source") { Ok(true) } else { Err(nameless) }
    })
    .await;
    for attempt in against_the_policy(&stage, &agent, &own, &other).await {
        let why = attempt.outcome.expect_err(attempt.what);
        assert!(why.contains("ValidatingAdmissionPolicy 'volmedic-agent'"), "{}: {why}", attempt.what);
        println!("{}: {why}", attempt.what);
    }
    for attempt in against_the_rights(&stage, &agent).await {
        let why = attempt.outcome.expect_err(attempt.what);
        assert!(why.contains("cannot patch resource"), "{}: {why}", attempt.what);
    }
    apply_report(&agent, &own, &empty).await.expect("its own report");
    lease(&agent, &format!("volmedic-agent-{own}")).await.expect("its own lease");
    create_event(&agent, &stage.namespace, event("Pod", &stage.namespace, &own))
        .await
        .expect("an event on a pod");
    let mut about_itself = event("Node", HOME, &own);
    about_itself.involved_object.name = Some(own.clone());
    create_event(&agent, HOME, about_itself).await.expect("an event on its own node");
    let kubelet = kubectl(&stage.plane, &["create", "-n", HOME, "-o", "name", "-f", &anybodys_lease()]);
    assert!(kubelet.contains("anybody"), "who is no agent is left alone: {kubelet}");

    kubectl(&stage.plane, &["delete", "validatingadmissionpolicybinding", "volmedic-agent"]);
    until("the policy is gone", || async {
        Ok::<_, String>(apply_report(&agent, &other, &empty).await.is_ok())
    })
    .await;
    for attempt in against_the_policy(&stage, &agent, &own, &other).await {
        assert_eq!(attempt.outcome, Ok(()), "without the policy nothing stands against {}", attempt.what);
    }
    for attempt in against_the_rights(&stage, &agent).await {
        attempt.outcome.expect_err(attempt.what);
    }
    // The other policy still holds, for both forms of events.
    newer_event(&agent, &stage.namespace, "data").await.expect("on a pod of its own node");
    let mut elsewhere = on_a_pod_elsewhere(&stage, &agent, &own).await;
    let newer = newer_event(&agent, &stage.namespace, "elsewhere").await;
    elsewhere.push(Attempt { what: "an event of the newer form on a pod elsewhere", outcome: newer });
    for attempt in elsewhere {
        let why = attempt.outcome.expect_err(attempt.what);
        assert!(why.contains("may not write an event on pod elsewhere"), "{}: {why}", attempt.what);
    }
    kubectl(&stage.plane, &["delete", "validatingadmissionpolicybinding", "volmedic-agent-pods"]);
    until("the policy about pods is gone", || async {
        let attempts = on_a_pod_elsewhere(&stage, &agent, &own).await;
        Ok::<_, String>(attempts.iter().all(|attempt| attempt.outcome.is_ok()))
    })
    .await;
    newer_event(&agent, &stage.namespace, "elsewhere").await.expect("nothing stands against it");
    // What is written without it is marked.
    let hub = crate::stage::start_hub(&stage.kubeconfig().await, &crate::stage::QUICK);
    hub.wait_log("does not check that an agent speaks only for its own node").await;
    stage.tell(&own, &stage.report(&[("data", "Degraded", "SlowIO")])).await;
    let object = stage.wait_stored("data", &[&format!("host/{own} HealthWarning Degraded/SlowIO")]).await;
    assert_eq!(object.status.expect("a status").vantages[0].verified, Some(false));
    install(&stage.plane, &[POLICY]);
}

/// A file with a lease that is none of ours.
fn anybodys_lease() -> String {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("anybodys-lease.json");
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "anybody"}});
    std::fs::write(&path, lease.to_string()).expect("the file can be written");
    path.display().to_string()
}

/// The registration of a relay, as the agent writes it.
fn relay(node: &str, name: &str, driver: &str) -> Value {
    json!({
        "apiVersion": "csiaddons.openshift.io/v1alpha1", "kind": "CSIAddonsNode",
        "metadata": {"name": name, "namespace": HOME},
        "spec": {"driver": {"name": driver, "endpoint": "pod://p.default:9070", "nodeID": node}},
    })
}

async fn csi_node(client: &Client, node: &str, drivers: &[&str]) {
    let drivers: Vec<Value> =
        drivers.iter().map(|driver| json!({"name": driver, "nodeID": format!("id-of-{node}")})).collect();
    let object = json!({"metadata": {"name": node}, "spec": {"drivers": drivers}});
    let object: CSINode = serde_json::from_value(object).expect("a CSINode");
    Api::all(client.clone()).create(&PostParams::default(), &object).await.expect("it is created");
}

/// A registration that exists may change while its driver is away, and a new one needs the driver. Without the binding,
/// nothing else refuses it.
async fn only_drivers_of_the_node(stage: &Stage, relays: &Api<DynamicObject>, own: &str) {
    let mine = format!("{own}-{HOME}-daemonset-volmedic-agent");
    let (post, delete) = (PostParams::default(), DeleteParams::default());
    let object = |driver: &str| {
        let object = relay(own, &format!("{mine}-{driver}"), driver);
        serde_json::from_value::<DynamicObject>(object).expect("an object")
    };
    relays.create(&post, &object("e")).await.expect("a driver of the node");
    // The kubelet takes a driver out that restarts, and writes null for an empty list.
    let nodes = Api::<CSINode>::all(stage.client.clone());
    let empty = Patch::Merge(json!({"spec": {"drivers": []}}));
    nodes.patch(own, &PatchParams::default(), &empty).await.expect("no driver is left");
    until("the node has no drivers", || async {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        match relays.create(&params, &object("d")).await {
            Err(error) if error.to_string().contains("does not have") => Ok(true),
            Err(error) => Err(error.to_string()),
            Ok(_) => Ok(false),
        }
    })
    .await;
    let name = format!("{mine}-e");
    let mut found = relays.get(&name).await.expect("it is there");
    found.data["spec"]["driver"]["endpoint"] = "pod://p.default:3".into();
    relays.replace(&name, &post, &found).await.expect("it may be written again while its driver restarts");
    relays.delete(&name, &delete).await.expect("it may be deleted");
    kubectl(&stage.plane, &["delete", "validatingadmissionpolicybinding", "volmedic-agent-relays"]);
    until("nothing else refuses an invented driver", || async {
        match relays.create(&post, &object("x")).await {
            Ok(_) => Ok::<_, String>(true),
            Err(Error::Api(status)) if status.message.contains("volmedic-agent-relays") => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
}

/// What the agent on one node may not do to objects of another one: the rights are given, the policy refuses.
#[tokio::test]
async fn an_agents_token_neither_changes_nor_deletes_what_belongs_to_others() {
    let stage = Stage::own(&[&[CRDS, POLICY], &RBAC[..]].concat()).await;
    crate::kind::define(&stage.client).await;
    let (own, other) = (stage.make_node("own").await, stage.make_node("other").await);
    // Each has its drivers. No node has all.
    csi_node(&stage.client, &own, &["d", "e"]).await;
    csi_node(&stage.client, &other, &["d", "f"]).await;
    // More rights than the agent is given, so that only the policy stands against it.
    let rule = [
        "--verb=*",
        "--resource=csiaddonsnodes.csiaddons.openshift.io,leases,events,nodevolumehealths.volmedic.dev",
    ];
    kubectl(&stage.plane, &[&["create", "clusterrole", "all"], &rule[..]].concat());
    let account = format!("--serviceaccount={HOME}:volmedic-agent");
    kubectl(&stage.plane, &["create", "clusterrolebinding", "all", "--clusterrole=all", &account]);
    stage.used_claim("data", &own).await;
    let (agent, of_other) = (stage.agent(&own).await, stage.agent(&other).await);
    let kind = kube::api::ApiResource::erase::<volmedic_api::addons::CsiAddonsNode>(&());
    let relays = |client: &Client| Api::<DynamicObject>::namespaced_with(client.clone(), HOME, &kind);
    let object = |value: Value| serde_json::from_value::<DynamicObject>(value).expect("an object");
    let (mine, theirs) = (
        format!("{own}-{HOME}-daemonset-volmedic-agent"),
        format!("{other}-{HOME}-daemonset-volmedic-agent"),
    );
    let post = PostParams::default();
    until("each registers its own relay", || async {
        for (client, node, name) in [(&agent, &own, &mine), (&of_other, &other, &theirs)] {
            match relays(client).create(&post, &object(relay(node, name, "d"))).await {
                Err(Error::Api(status)) if status.code == 409 => {}
                outcome => drop(outcome?),
            }
        }
        Ok::<_, Error>(true)
    })
    .await;
    until("the policy is in force", || async {
        let outcome = relays(&agent).create(&post, &object(relay(&own, "junk-0", "d"))).await;
        let why = outcome.map_or_else(|error| error.to_string(), |_| "it is accepted".to_owned());
        if why.contains("ValidatingAdmissionPolicy 'volmedic-agent'") { Ok(true) } else { Err(why) }
    })
    .await;
    let delete = DeleteParams::default();
    let refuse = |what: &str, outcome: Result<(), Error>| {
        let why = outcome.expect_err(what).to_string();
        assert!(why.contains("ValidatingAdmissionPolicy 'volmedic-agent'"), "{what}: {why}");
    };
    refuse("junk", relays(&agent).create(&post, &object(relay(&own, "junk-1", "d"))).await.map(drop));
    refuse(
        "a relay elsewhere",
        relays(&agent).create(&post, &object(relay(&other, &mine, "e"))).await.map(drop),
    );
    until("the policy on drivers is in force", || async {
        let invented = relay(&own, &format!("{mine}-f"), "f");
        let outcome = relays(&agent).create(&post, &object(invented)).await;
        let why = outcome.map_or_else(|error| error.to_string(), |_| "it is accepted".to_owned());
        if why.contains("which the CSINode of that node does not have") { Ok(true) } else { Err(why) }
    })
    .await;
    let mut taken = relays(&agent).get(&theirs).await.expect("it may be read");
    taken.data["spec"]["driver"]["endpoint"] = "pod://p.default:1".into();
    refuse("another's relay", relays(&agent).replace(&theirs, &post, &taken).await.map(drop));
    refuse("its deletion", relays(&agent).delete(&theirs, &delete).await.map(drop));
    let second = format!("{mine}-e");
    relays(&agent).create(&post, &object(relay(&own, &second, "e"))).await.expect("a second driver");
    let mut found = relays(&agent).get(&mine).await.expect("its own");
    found.data["spec"]["driver"]["endpoint"] = "pod://p.default:2".into();
    relays(&agent).replace(&mine, &post, &found).await.expect("its own may change");
    relays(&agent).delete(&second, &delete).await.expect("its own may be deleted");
    only_drivers_of_the_node(&stage, &relays(&agent), &own).await;

    let empty = stage.report(&[]);
    for (client, node) in [(&agent, &own), (&of_other, &other)] {
        apply_report(client, node, &empty).await.expect("its own report");
        lease(client, &format!("volmedic-agent-{node}")).await.expect("its own lease");
    }
    let reports = Api::<volmedic_api::resource::NodeVolumeHealth>::all(agent.clone());
    refuse("another's report", reports.delete(&other, &delete).await.map(drop));
    let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(agent.clone(), HOME);
    refuse("another's lease", leases.delete(&format!("volmedic-agent-{other}"), &delete).await.map(drop));
    leases.delete(&format!("volmedic-agent-{own}"), &delete).await.expect("its own lease");
    // The hub deletes what is left of nodes that are gone.
    let hub = stage.plane.client_for(HOME, "volmedic-hub").await.expect("the hub");
    let reports = Api::<volmedic_api::resource::NodeVolumeHealth>::all(hub);
    reports.delete(&other, &delete).await.expect("the hub deletes reports");

    // Events that others wrote, made to be on a pod of the own node.
    let events = Api::<Event>::namespaced(agent.clone(), &stage.namespace);
    let admin = Api::<Event>::namespaced(stage.client.clone(), &stage.namespace);
    for (name, host, label) in
        [("of-other", Some(&other), true), ("of-kubelet", Some(&own), false), ("of-controller", None, false)]
    {
        let mut event = event("Pod", &stage.namespace, host.map_or("", |host| host));
        event.metadata = kube::api::ObjectMeta {
            name: Some(name.to_owned()),
            labels: label.then(|| event.metadata.labels.clone()).flatten(),
            ..Default::default()
        };
        admin.create(&post, &event).await.expect("an event of somebody else");
        let outcome = patch_event(&agent, &stage.namespace, name, &own).await;
        refuse(name, outcome);
        refuse(name, events.delete(name, &delete).await.map(drop));
    }
    let mut its_own = event("Pod", &stage.namespace, &own);
    its_own.metadata.name = Some("its-own".to_owned());
    events.create(&post, &its_own).await.expect("its own event");
    patch_event(&agent, &stage.namespace, "its-own", &own).await.expect("its own event may change");
}
