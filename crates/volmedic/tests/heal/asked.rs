//! `volmedic heal`, as a person runs it.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use volmedic_proto::healer::NodeHealerResponse;
use volmedic_testkit::objects;

use crate::stage::{Clinic, Ward, create, eventually};

/// Waits until the healer knows the relay.
async fn known(clinic: &Clinic, ward: &Ward, claim: &str) {
    let namespace = ward.stage.namespace.clone();
    eventually("the relay is known", async || {
        clinic.heal(&[claim, "-n", &namespace, "--dry-run"]).await.0 == 0
    })
    .await;
}

#[tokio::test]
async fn a_person_hears_what_would_be_done_and_has_it_done() {
    let (clinic, _) = Clinic::shared().await;
    let ward = clinic.ward(|fake| fake).await;
    // Observing only, and nothing is known to be wrong: a person stands above both.
    ward.claim("data", None).await;
    known(&clinic, &ward, "data").await;
    assert!(ward.fake.asked().is_empty(), "a dry run asks nobody");
    let namespace = ward.stage.namespace.as_str();
    let place = format!("{} of disk.example.net on {}", ward.stage.handle("data"), ward.node);
    let (code, shown, log) = clinic.heal(&["data", "-n", namespace]).await;
    assert_eq!(
        (code, shown.as_str()),
        (0, &*format!("{place}: healthy, says the node plugin\n  - mounter restarted\n")),
        "{log}"
    );
    assert_eq!(ward.asked("data"), 1);
    let claim = ward.claims().get("data").await.unwrap();
    assert!(!claim.labels().contains_key("volmedic.dev/heal-now"), "the wish is taken away again");

    ward.annotate("data", "volmedic.dev/heal", "off").await;
    ward.patch_node(json!({"unschedulable": true})).await;
    let cordoned = "the node is cordoned, so somebody may be at work there";
    let expected =
        format!("{place}: not healed\n  - healing is off by the claim's annotation\n  - {cordoned}\n");
    eventually("each guard is shown", async || {
        clinic.heal(&["data", "-n", namespace, "--dry-run"]).await.1 == expected
    })
    .await;
    let (code, shown, _) = clinic.heal(&["data", "-n", namespace, "-o", "json"]).await;
    let reply: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, reply["places"][0]["outcome"].as_str()), (3, Some("refused")), "{shown}");
    assert_eq!(ward.asked("data"), 1, "nobody was asked");
    ward.end().await;
}

#[tokio::test]
async fn a_person_hears_when_it_did_not_help() {
    let (clinic, _) = Clinic::shared().await;
    let unhealthy = |_: &_| Ok(NodeHealerResponse { abnormal: true, message: "no luck".into() });
    let ward = clinic.ward(|fake| fake.that(unhealthy)).await;
    ward.claim("data", None).await;
    known(&clinic, &ward, "data").await;
    let (code, shown, _) = clinic.heal(&["data", "-n", &ward.stage.namespace]).await;
    assert_eq!(code, 1);
    assert!(shown.ends_with("still unhealthy, says the node plugin\n  - no luck\n"), "{shown}");
    ward.end().await;
}

#[tokio::test]
async fn each_thing_that_is_missing_is_named() {
    let (clinic, _) = Clinic::shared().await;
    let ward = clinic.ward(|fake| fake).await;
    let (client, namespace) = (&ward.stage.client, ward.stage.namespace.as_str());
    let check = async |arguments: &[&str], code: i32, text: &str| {
        let (found, shown, log) = clinic.heal(&[arguments, &["-n", namespace]].concat()).await;
        let said = shown + &log;
        assert!(found == code && said.contains(text), "{arguments:?}: {found}\n{said}");
    };
    check(&["nothing"], 1, &format!("the claim {namespace}/nothing does not exist")).await;
    let unbound = json!({"metadata": {"name": "unbound"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "x"}});
    create(&Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace), unbound).await;
    check(&["unbound"], 1, "is bound to no PersistentVolume (Pending)").await;
    ward.stage.claim("unused").await;
    check(&["unused"], 3, "no pod uses the claim").await;
    objects::bound_claim(client, namespace, "foreign", "other.example.net", "v").await.unwrap();
    ward.stage.pod("foreign", &ward.node, "foreign").await;
    check(&["foreign"], 3, "no trusted relay serves the driver on this node").await;
    check(&["data", "--kubeconfig=/nowhere"], 2, "cannot be used multiple times").await;
    ward.end().await;
}

#[tokio::test]
async fn without_a_healer_it_says_so_and_leaves_nothing_behind() {
    let clinic = Clinic::open().await;
    let ward = clinic.ward(|fake| fake).await;
    ward.claim("data", None).await;
    let (code, _, said) = clinic.heal(&["data", "-n", &ward.stage.namespace, "--timeout=2s"]).await;
    assert!(code == 1 && said.contains("no hub runs with --heal and leads"), "{code} {said}");
    assert!(!ward.claims().get("data").await.unwrap().labels().contains_key("volmedic.dev/heal-now"));
    ward.end().await;
}

/// Every account that may patch the claim can write such a time into it.
#[tokio::test]
async fn a_poisoned_claim_can_be_asked_about() {
    let (clinic, _) = Clinic::shared().await;
    let ward = clinic.ward(|fake| fake).await;
    ward.claim("data", None).await;
    known(&clinic, &ward, "data").await;
    let folder = format!("/api/v1/namespaces/{}/persistentvolumeclaims", ward.stage.namespace);
    crate::poison::poison(&ward.stage.client, &folder, "data").await;
    let (code, said, log) = clinic.heal(&["data", "-n", &ward.stage.namespace, "--dry-run"]).await;
    assert_eq!(code, 0, "{said} {log}");
    let (code, said, log) =
        clinic.heal(&["data", "-n", &ward.stage.namespace, "--approve", "--remedy=NodeHealer"]).await;
    assert_eq!(code, 0, "{said} {log}");
    ward.end().await;
}

/// Labels are copied from claim to claim, by templates and by people. Another tenant's claim that cannot be read is in the way
/// of nobody.
#[tokio::test]
async fn the_same_request_on_three_claims_is_answered_on_each() {
    let (clinic, _) = Clinic::shared().await;
    let ward = clinic.ward(|fake| fake).await;
    let claims = ["one", "two", "three"];
    for claim in claims {
        ward.claim(claim, None).await;
    }
    ward.stage.claim("poisoned").await;
    let folder = format!("/api/v1/namespaces/{}/persistentvolumeclaims", ward.stage.namespace);
    crate::poison::poison(&ward.stage.client, &folder, "poisoned").await;
    known(&clinic, &ward, "one").await;
    let wish = volmedic_heal::wish::Wish::new(jiff::Timestamp::now(), true).unwrap();
    for claim in ["poisoned", "one", "two", "three"] {
        let patch = kube::api::Patch::Merge(
            json!({"metadata": {"labels": {"volmedic.dev/heal-now": wish.to_string()}}}),
        );
        let request =
            kube::api::Request::new(&*folder).patch(claim, &kube::api::PatchParams::default(), &patch);
        ward.stage.client.request_text(request.unwrap()).await.unwrap();
    }
    let events = Api::<k8s_openapi::api::core::v1::Event>::namespaced(
        ward.stage.client.clone(),
        &ward.stage.namespace,
    );
    for claim in claims {
        eventually(claim, async || {
            let event = events.get_opt(&wish.event(claim)).await.unwrap();
            event.is_some_and(|event| event.annotations().contains_key("volmedic.dev/heal-answer"))
        })
        .await;
    }
    ward.end().await;
}
