//! What a stolen token can do: every account that the chart grants rights to, every object and verb that it can reach, for
//! its own node or driver and for another one, tried on a real API server. docs/security.md shows the table.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use volmedic_testkit::{ControlPlane, objects};

use crate::chart;
use crate::rendered::mine;
use crate::root;

const HOME: &str = "volmedic";
const SHOP: &str = "shop";
/// Writes the table into the page instead of comparing it: `VOLMEDIC_WRITE=1 cargo test -p volmedic --test chart matrix`.
const WRITE: &str = "VOLMEDIC_WRITE";
const BEGIN: &str = "<!-- begin: what a stolen token can do -->\n";
const END: &str = "<!-- end: what a stolen token can do -->\n";

/// What belongs to an account, or to another one of its kind.
struct Side {
    node: &'static str,
    driver: &'static str,
    /// A claim of that driver, used by a pod of the same name on that node.
    claim: &'static str,
    lease_namespace: &'static str,
}

const OWN: Side =
    Side { node: "n1", driver: "csi.example.com", claim: "mine", lease_namespace: "kube-system" };
const FOREIGN: Side =
    Side { node: "n2", driver: "other.example.com", claim: "other", lease_namespace: "other" };

struct Try {
    method: Method,
    path: String,
    body: Value,
}

struct Row {
    resource: &'static str,
    verb: &'static str,
    /// What exactly, where the verb does not say it.
    detail: &'static str,
    attempt: fn(&Side) -> Try,
}

fn read(path: String) -> Try {
    Try { method: Method::GET, path, body: Value::Null }
}

fn create(path: String, body: Value) -> Try {
    Try { method: Method::POST, path, body }
}

fn patch(path: String, body: Value) -> Try {
    Try { method: Method::PATCH, path, body }
}

fn delete(path: String) -> Try {
    Try { method: Method::DELETE, path, body: Value::Null }
}

fn marked() -> Value {
    json!({"metadata": {"annotations": {"stolen": "yes"}}})
}

fn core(rest: &str) -> String {
    format!("/api/v1/{rest}")
}

fn shop(rest: &str) -> String {
    format!("/api/v1/namespaces/{SHOP}/{rest}")
}

fn health(rest: &str) -> String {
    format!("/apis/volmedic.dev/v1alpha1/{rest}")
}

fn health_of(claim: &str, rest: &str) -> String {
    health(&format!("namespaces/{SHOP}/volumehealths/{claim}{rest}"))
}

fn relays(rest: &str) -> String {
    format!("/apis/csiaddons.openshift.io/v1alpha1/namespaces/{HOME}/csiaddonsnodes{rest}")
}

fn relay_name(node: &str) -> String {
    format!("{node}-{HOME}-daemonset-volmedic-agent")
}

fn relay(node: &str, name: &str, driver: &str) -> Value {
    json!({"apiVersion": "csiaddons.openshift.io/v1alpha1", "kind": "CSIAddonsNode",
        "metadata": {"name": name, "namespace": HOME},
        "spec": {"driver": {"name": driver, "endpoint": "pod://p.volmedic:9070", "nodeID": node}}})
}

/// With another certificate than the relay's own.
fn showing(mut relay: Value) -> Value {
    relay["metadata"]["annotations"] =
        json!({"volmedic.dev/relay-certificates": format!("sha256:{}", "a".repeat(64))});
    relay
}

fn leases(rest: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases{rest}")
}

fn lease(name: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}})
}

fn storage(rest: &str) -> String {
    format!("/apis/storage.k8s.io/v1/{rest}")
}

fn admission(rest: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{rest}")
}

fn token(spec: &Value) -> Try {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    create(format!("/api/v1/namespaces/{HOME}/serviceaccounts/volmedic-hub/token"), body)
}

fn event(name: &str, side: &Side) -> Value {
    json!({"apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": SHOP, "labels": {"volmedic.dev/reported-by": "agent"}},
        "involvedObject": {"kind": "Pod", "namespace": SHOP, "name": side.claim},
        "reason": "VolumeConditionAbnormal", "type": "Warning", "message": "x",
        "source": {"component": "volmedic-agent", "host": side.node}})
}

fn event_of_hub(side: &Side) -> Value {
    let mut event = event("of-hub", side);
    event["involvedObject"]["kind"] = json!("PersistentVolumeClaim");
    event["source"] = json!({"component": "volmedic-hub"});
    event
}

fn vantage() -> Value {
    json!({"name": "pushed/x", "kind": "Pushed", "source": "x", "health": "HealthFailure",
        "since": "2026-08-21T10:00:00Z"})
}

fn heal() -> Value {
    json!({"time": "2026-08-21T10:00:00Z", "outcome": "Started", "remedy": "NodeHealer", "node": "n"})
}

fn report(side: &Side) -> Value {
    json!({"driver": side.driver, "since": "2026-08-21T10:00:00Z",
        "lease": {"namespace": side.lease_namespace, "name": "volmedic-controller-x"},
        "healthConditions": [{"type": "HealthFailure", "status": "True", "errorCode": "DataLoss", "reason": "Lie",
            "lastTransitionTime": "2026-08-21T10:00:00Z"}]})
}

const fn row(
    resource: &'static str,
    verb: &'static str,
    detail: &'static str,
    attempt: fn(&Side) -> Try,
) -> Row {
    Row { resource, verb, detail, attempt }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("pods", "list", "", |_| read(core("pods"))),
    row("pods", "get", "", |side| read(shop(&format!("pods/{}", side.claim)))),
    row("pods", "patch", "", |side| patch(shop(&format!("pods/{}", side.claim)), marked())),
    row("pods/eviction", "create", "with `heal.recreatePods.enabled`", |side| create(shop(&format!("pods/{}/eviction", side.claim)),
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": side.claim, "namespace": SHOP}}))),
    row("pods", "delete", "", |side| delete(shop(&format!("pods/{}", side.claim)))),
    row("nodes", "list", "", |_| read(core("nodes"))),
    row("nodes", "patch", "", |side| patch(core(&format!("nodes/{}", side.node)), marked())),
    row("secrets", "get", "a node-stage secret", |_| read("/api/v1/namespaces/rook-ceph/secrets/rook-csi-rbd-node".to_owned())),
    row("secrets", "list", "", |_| read(core("secrets"))),
    row("persistentvolumes", "list", "", |_| read(core("persistentvolumes"))),
    row("persistentvolumes", "get", "", |side| read(core(&format!("persistentvolumes/pv-{SHOP}-{}", side.claim)))),
    row("persistentvolumes", "patch", "", |side| patch(core(&format!("persistentvolumes/pv-{SHOP}-{}", side.claim)), marked())),
    row("persistentvolumes", "delete", "", |side| delete(core(&format!("persistentvolumes/pv-{SHOP}-{}", side.claim)))),
    row("persistentvolumeclaims", "list", "", |_| read(core("persistentvolumeclaims"))),
    row("persistentvolumeclaims", "get", "", |side| read(shop(&format!("persistentvolumeclaims/{}", side.claim)))),
    row("persistentvolumeclaims", "patch", "", |side| patch(shop(&format!("persistentvolumeclaims/{}", side.claim)), marked())),
    row("persistentvolumeclaims/status", "patch", "`healthStatus`", |side| patch(shop(&format!("persistentvolumeclaims/{}/status", side.claim)),
        json!({"status": {"healthStatus": {"lastTransitionTime": "2026-08-21T10:00:00Z", "healthConditions": [{"status": "DataLoss", "reason": "Lie"}]}}}))),
    row("persistentvolumeclaims/status", "patch", "another field", |side| patch(shop(&format!("persistentvolumeclaims/{}/status", side.claim)),
        json!({"status": {"capacity": {"storage": "2Gi"}}}))),
    row("events", "list", "", |_| read(core("events"))),
    row("events", "get", "", |side| read(shop(&format!("events/of-{}", side.node)))),
    row("events", "create", "on a pod, as an agent", |side| create(shop("events"), event("new", side))),
    row("events", "create", "on a claim, as the hub", |side| create(shop("events"), event_of_hub(side))),
    row("events", "patch", "written by an agent", |side| patch(shop(&format!("events/of-{}", side.node)), json!({"message": "y"}))),
    row("events", "patch", "written by the kubelet", |_| patch(shop("events/of-kubelet"), json!({"message": "y"}))),
    row("events", "delete", "", |side| delete(shop(&format!("events/of-{}", side.node)))),
    row("leases", "list", "", |_| read(leases(""))),
    row("leases", "get", "an agent's", |side| read(leases(&format!("/volmedic-agent-{}", side.node)))),
    row("leases", "create", "an agent's", |side| create(leases(""), lease(&format!("volmedic-agent-{}", if side.node == "n1" { "n1" } else { "n3" })))),
    row("leases", "update", "an agent's", |side| Try { method: Method::PUT, path: leases(&format!("/volmedic-agent-{}", side.node)), body: lease(&format!("volmedic-agent-{}", side.node)) }),
    row("leases", "update", "the hub's", |_| Try { method: Method::PUT, path: leases("/volmedic-hub"), body: lease("volmedic-hub") }),
    row("leases", "delete", "an agent's", |side| delete(leases(&format!("/volmedic-agent-{}", side.node)))),
    row("nodevolumehealths", "list", "", |_| read(health("nodevolumehealths"))),
    row("nodevolumehealths", "get", "", |side| read(health(&format!("nodevolumehealths/{}", side.node)))),
    row("nodevolumehealths", "create", "", |side| create(health("nodevolumehealths"), json!({"apiVersion": "volmedic.dev/v1alpha1",
        "kind": "NodeVolumeHealth", "metadata": {"name": side.node}, "spec": {"nodeName": side.node, "report": {}}}))),
    row("nodevolumehealths", "patch", "", |side| patch(health(&format!("nodevolumehealths/{}", side.node)), marked())),
    row("nodevolumehealths", "delete", "", |side| delete(health(&format!("nodevolumehealths/{}", side.node)))),
    row("volumehealths", "list", "", |_| read(health("volumehealths"))),
    row("volumehealths", "get", "", |side| read(health_of(side.claim, ""))),
    row("volumehealths", "create", "", |side| create(health(&format!("namespaces/{SHOP}/volumehealths")), json!({"apiVersion": "volmedic.dev/v1alpha1",
        "kind": "VolumeHealth", "metadata": {"name": format!("{}-2", side.claim), "ownerReferences": [{"apiVersion": "v1",
            "kind": "PersistentVolumeClaim", "name": format!("{}-2", side.claim), "uid": "u"}]},
        "spec": {"persistentVolumeClaimName": format!("{}-2", side.claim)}}))),
    row("volumehealths", "patch", "", |side| patch(health_of(side.claim, ""), marked())),
    row("volumehealths", "delete", "", |side| delete(health_of(side.claim, ""))),
    row("volumehealths/status", "patch", "`controllerReport`", |side| patch(health_of(side.claim, "/status"), json!({"status": {"controllerReport": report(side)}}))),
    row("volumehealths/status", "patch", "`heals`", |side| patch(health_of(side.claim, "/status"), json!({"status": {"heals": [heal()]}}))),
    row("volumehealths/status", "patch", "`vantages`", |side| patch(health_of(side.claim, "/status"), json!({"status": {"vantages": [vantage()]}}))),
    row("csiaddonsnodes", "list", "", |_| read(relays(""))),
    row("csiaddonsnodes", "get", "", |side| read(relays(&format!("/{}", relay_name(side.node))))),
    row("csiaddonsnodes", "create", "for a driver of that node", |side| create(relays(""), relay(side.node, &format!("{}-new", relay_name(side.node)), "new"))),
    row("csiaddonsnodes", "create", "for an invented driver", |side| create(relays(""), relay(side.node, &format!("{}-invented", relay_name(side.node)), "invented"))),
    row("csiaddonsnodes", "update", "", |side| Try { method: Method::PUT, path: relays(&format!("/{}", relay_name(side.node))),
        body: relay(side.node, &relay_name(side.node), side.driver) }),
    row("csiaddonsnodes", "update", "the certificate of its relay", |side| Try { method: Method::PUT, path: relays(&format!("/{}", relay_name(side.node))),
        body: showing(relay(side.node, &relay_name(side.node), side.driver)) }),
    row("csiaddonsnodes", "delete", "", |side| delete(relays(&format!("/{}", relay_name(side.node))))),
    row("volumeattachments", "list", "", |_| read(storage("volumeattachments"))),
    row("csinodes", "list", "", |_| read(storage("csinodes"))),
    row("csinodes", "get", "", |side| read(storage(&format!("csinodes/{}", side.node)))),
    row("csidrivers", "get", "", |side| read(storage(&format!("csidrivers/{}", side.driver)))),
    row("tokenreviews", "create", "", |_| create("/apis/authentication.k8s.io/v1/tokenreviews".to_owned(), json!({"apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview", "spec": {"token": "x"}}))),
    row("subjectaccessreviews", "create", "", |_| create("/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned(), json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "x", "nonResourceAttributes": {"path": "/", "verb": "get"}}}))),
    row("replicasets", "get", "", |_| read(format!("/apis/apps/v1/namespaces/{HOME}/replicasets/any"))),
    row("serviceaccounts/token", "create", "the hub's, for the API server", |_| token(&json!({}))),
    row("serviceaccounts/token", "create", "the hub's, for all relays", |_| token(&json!({"audiences": ["volmedic-relay"], "expirationSeconds": 600}))),
    row("serviceaccounts/token", "create", "the hub's, for a node's relays, for an hour", |side| token(&json!({"audiences": [format!("volmedic-relay/{}", side.node)], "expirationSeconds": 3600}))),
    row("serviceaccounts/token", "create", "the hub's, for a node's relays", |side| token(&json!({"audiences": [format!("volmedic-relay/{}", side.node)], "expirationSeconds": 600}))),
    row("validatingadmissionpolicies", "get", "", |_| read(admission("validatingadmissionpolicies/volmedic-agent"))),
    row("validatingadmissionpolicies", "patch", "", |_| patch(admission("validatingadmissionpolicies/volmedic-agent"), marked())),
    row("validatingadmissionpolicybindings", "get", "", |_| read(admission("validatingadmissionpolicybindings/volmedic-agent"))),
    row("validatingadmissionpolicybindings", "delete", "", |_| delete(admission("validatingadmissionpolicybindings/volmedic-agent"))),
];

/// Names that only policies and relays check, as RBAC has them.
const VIRTUAL: [(&str, &str); 3] =
    [("volumehealths", "merge"), ("drivers", "report"), ("csiaddonsnodes", "heal")];

async fn request(client: &Client, attempt: Try) -> Result<String, kube::Error> {
    let Try { method, path, body } = attempt;
    let path = if method == Method::GET { path } else { format!("{path}?dryRun=All") };
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", kind).body(body);
    client.request_text(request.unwrap()).await
}

/// Whether it is allowed. Any other answer than yes or a refusal is a defect of the test.
async fn allowed(admin: &Client, client: &Client, row: &Row, side: &Side) -> bool {
    let mut attempt = (row.attempt)(side);
    if attempt.method == Method::PUT {
        // An update without the current version is refused before any policy is asked.
        let current = request(admin, read(attempt.path.clone())).await.unwrap();
        let current: Value = serde_json::from_str(&current).unwrap();
        attempt.body["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
    }
    match request(client, attempt).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 403 => false,
        // Creating what is there is refused later than creating what may not be.
        Err(kube::Error::Api(status)) if status.code == 409 && row.verb == "create" => true,
        Err(kube::Error::Api(status)) if status.code == 404 && row.verb == "get" => true,
        Err(error) => panic!("{} {} {}: {error}", row.verb, row.resource, row.detail),
    }
}

async fn make(client: &Client, path: &str, body: Value) {
    let request = http::Request::post(path).header("Content-Type", "application/json");
    let request = request.body(body.to_string().into_bytes()).unwrap();
    client.request_text(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// All objects that the attempts are about.
async fn furnish(plane: &ControlPlane, client: &Client) -> Pod {
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    for name in [SHOP, "other"] {
        make(client, "/api/v1/namespaces", namespace(name)).await;
    }
    // No controller runs that would create it.
    let default = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    make(client, &shop("serviceaccounts"), default).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rook-csi-rbd-node"}});
    make(client, "/api/v1/namespaces/rook-ceph/secrets", secret).await;
    make(client, &leases(""), lease("volmedic-hub")).await;
    let mut of_kubelet = event("of-kubelet", &OWN);
    of_kubelet["metadata"]["labels"] = Value::Null;
    of_kubelet["source"] = json!({"component": "kubelet", "host": OWN.node});
    make(client, &shop("events"), of_kubelet).await;
    let mut pods = Vec::new();
    for side in [OWN, FOREIGN] {
        let Side { node, driver, claim, .. } = side;
        objects::node(client, node).await.unwrap();
        objects::bound_claim(client, SHOP, claim, driver, claim).await.unwrap();
        let annotation =
            json!({"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": driver}}});
        let path = shop(&format!("persistentvolumeclaims/{claim}"));
        let attempt = http::Request::patch(path).header("Content-Type", "application/merge-patch+json");
        client.request_text(attempt.body(annotation.to_string().into_bytes()).unwrap()).await.unwrap();
        objects::pod(client, SHOP, claim, node, &[claim]).await.unwrap();
        make(
            client,
            &storage("csinodes"),
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": {"name": node}, "spec": {"drivers": [
                {"name": driver, "nodeID": node}, {"name": "new", "nodeID": node}]}}),
        )
        .await;
        make(
            client,
            &storage("csidrivers"),
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": driver}, "spec": {}}),
        )
        .await;
        make(client, &shop("events"), event(&format!("of-{node}"), &side)).await;
        make(client, &leases(""), lease(&format!("volmedic-agent-{node}"))).await;
        make(client, &relays(""), relay(node, &relay_name(node), driver)).await;
        // Nobody else may write a node's report, not even an administrator.
        let pod = objects::pod_as(client, HOME, &format!("agent-{node}"), node, &[], "volmedic-agent")
            .await
            .unwrap();
        let agent = account(plane, HOME, "volmedic-agent", Some(&pod)).await;
        pods.push(pod);
        make(&agent, &health("nodevolumehealths"), json!({"apiVersion": "volmedic.dev/v1alpha1",
            "kind": "NodeVolumeHealth", "metadata": {"name": node}, "spec": {"nodeName": node, "report": {}}})).await;
        make(client, &health(&format!("namespaces/{SHOP}/volumehealths")), json!({"apiVersion": "volmedic.dev/v1alpha1",
            "kind": "VolumeHealth", "metadata": {"name": claim}, "spec": {"persistentVolumeClaimName": claim}})).await;
    }
    pods.swap_remove(0)
}

/// Everything that RBAC grants to the account: resource and verb.
async fn granted(client: &Client) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for namespace in [HOME, SHOP, "kube-system", "rook-ceph"] {
        let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) };
        let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
        let reviews = Api::<SelfSubjectRulesReview>::all(client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
        for rule in answer.status.unwrap().resource_rules {
            for resource in rule.resources.iter().flatten() {
                // A watch gives what a list gives.
                let verbs =
                    rule.verbs.iter().map(|verb| if verb == "watch" { "list" } else { verb.as_str() });
                all.extend(verbs.map(|verb| (resource.clone(), verb.to_owned())));
            }
        }
    }
    all
}

/// All of it must be among the attempts.
fn is_complete(who: &str, granted: &BTreeSet<(String, String)>, to_everybody: &BTreeSet<(String, String)>) {
    let known: BTreeSet<(&str, &str)> =
        ROWS.iter().map(|row| (row.resource, row.verb)).chain(VIRTUAL).collect();
    for (resource, verb) in granted.difference(to_everybody) {
        let is_known = known.contains(&(resource.as_str(), verb.as_str()));
        assert!(is_known, "{who} may {verb} {resource}, and the table has no row for it");
    }
    assert!(granted.len() > to_everybody.len(), "{who} has no rights");
}

async fn account(plane: &ControlPlane, namespace: &str, name: &str, pod: Option<&Pod>) -> Client {
    match pod {
        Some(pod) => plane.client_for_pod(namespace, name, pod).await.unwrap(),
        None => plane.client_for(namespace, name).await.unwrap(),
    }
}

#[tokio::test]
async fn a_stolen_token_can_do_what_the_page_says_and_nothing_else() {
    let plane = ControlPlane::options().gate("CSIVolumeHealth", true).start().unwrap();
    let client = plane.client().await.unwrap();
    crate::kind::define(&client).await;
    let names = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rook-ceph"}});
    make(&client, "/api/v1/namespaces", names).await;
    let mut other = mine();
    other["driver"] = json!("other");
    other["csiDriver"] = json!(FOREIGN.driver);
    other["serviceAccount"] = json!("other-sa");
    let values = json!({
        "push": {"enabled": true}, "hub": {"markVolumes": true}, "controller": {"nodeWatcher": true},
        "heal": {"enabled": true, "addonsSockets": ["/a/b.sock"], "recreatePods": {"enabled": true},
            "stageSecrets": [{"namespace": "rook-ceph", "names": ["rook-csi-rbd-node"]}]},
        "controllers": [mine(), other],
    });
    let kubeconfig = plane.kubeconfig().to_owned();
    tokio::task::spawn_blocking(move || chart().install(&kubeconfig, HOME, &values).unwrap()).await.unwrap();
    let pod = furnish(&plane, &client).await;
    let hub = account(&plane, HOME, "volmedic-hub", None).await;
    let agent = account(&plane, HOME, "volmedic-agent", Some(&pod)).await;
    let controller = account(&plane, "kube-system", "my-csi-controller-sa", None).await;
    let to_everybody = granted(&account(&plane, SHOP, "nobody", None).await).await;
    for (who, client) in [("the hub", &hub), ("an agent", &agent), ("a controller", &controller)] {
        is_complete(who, &granted(client).await, &to_everybody);
    }

    let path = root().join("docs/security.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (present, after) = rest.split_once(END).expect("the table has an end");
    let is_written = std::env::var_os(WRITE).is_some();
    // The API server needs a moment to take policies and rights in.
    let deadline = Instant::now() + Duration::from_mins(3);
    let (mut last, mut same) = (String::new(), 0);
    loop {
        let table = table(&client, &hub, &agent, &controller).await;
        if !is_written && present == table {
            return;
        }
        same = if table == last { same + 1 } else { 0 };
        if is_written && same >= 10 {
            std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
            return;
        }
        assert!(
            Instant::now() < deadline,
            "docs/security.md has another table; run with {WRITE}=1 to write it:\n{table}"
        );
        last = table;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn table(admin: &Client, hub: &Client, agent: &Client, controller: &Client) -> String {
    let mut text = "\n| object | verb | hub | agent: its node | agent: another node | controller: its driver | controller: \
                    another driver |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in ROWS {
        let mut cells = Vec::new();
        for (client, side) in
            [(hub, &OWN), (agent, &OWN), (agent, &FOREIGN), (controller, &OWN), (controller, &FOREIGN)]
        {
            cells.push(if allowed(admin, client, row, side).await { "yes" } else { "no" });
        }
        let what =
            if row.detail.is_empty() { row.verb.to_owned() } else { format!("{}: {}", row.verb, row.detail) };
        let cells = cells.join(" | ");
        writeln!(text, "| {} | {what} | {cells} |", row.resource).unwrap();
    }
    text.push('\n');
    text
}
