//! Every way in which a token can be bad, as the real API server judges it.

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use volmedic_testkit::objects;

use crate::caller::{AUDIENCE, Desk, call, failing, report, report_in, send, token, token_in};
use crate::stage::{kubectl, until};

#[tokio::test]
async fn who_may_not_report_is_refused_counted_and_nothing_is_stored() {
    let desk = Desk::open(&[]).await;
    let (stage, to, good) = (&desk.stage, desk.to, &desk.good);
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };

    // Bound to a pod that was deleted.
    let node = stage.make_node("m").await;
    let pod = objects::pod_as(&stage.client, &stage.namespace, "short", &node, &[], "detector").await;
    let orphaned = token(stage, "detector", AUDIENCE, Some(&pod.expect("a pod"))).await;
    let pods = Api::<Pod>::namespaced(stage.client.clone(), &stage.namespace);
    pods.delete("short", &now).await.expect("the pod is deleted");
    until("the pod is gone", || async { pods.get_opt("short").await.map(|pod| pod.is_none()) }).await;

    // Of an account that was deleted; and of one that was re-created under the same name, which is another one.
    let accounts = Api::<ServiceAccount>::namespaced(stage.client.clone(), &stage.namespace);
    let gone = token(stage, "gone", AUDIENCE, None).await;
    let former = token(stage, "former", AUDIENCE, None).await;
    for account in ["gone", "former"] {
        accounts.delete(account, &now).await.expect("the account is deleted");
        until("the account is gone", || async {
            accounts.get_opt(account).await.map(|account| account.is_none())
        })
        .await;
    }
    token(stage, "former", AUDIENCE, None).await;

    // Really signed by the API server's key, and over.
    let resigned = stage.plane.resign(good, |_| {}).expect("a token");
    assert_eq!(send(to, &resigned, &report(stage, "data", 600, &json!([]))).status, 200, "signing works");
    let expired = stage.plane.resign(good, |claims| {
        for (name, ago) in [("iat", 7200), ("nbf", 7200), ("exp", 3600)] {
            claims[name] = json!(seconds_now() - ago);
        }
    });
    let early = stage.plane.resign(good, |claims| claims["nbf"] = json!(seconds_now() + 3600));
    let renamed = stage.plane.resign(good, |claims| {
        claims["kubernetes.io"]["serviceaccount"]["name"] = json!("former");
    });
    let (expired, early, renamed) =
        (expired.expect("a token"), early.expect("a token"), renamed.expect("a token"));

    // Changed on the way.
    let mut cut = good.clone();
    cut.truncate(good.len() - 4);
    let unsigned = format!("{}.", good.rsplit_once('.').expect("three parts").0);
    let elsewhere = token(stage, "detector", "https://kubernetes.default.svc", None).await;

    let sick = report(stage, "data", 600, &failing());
    let before = desk.counts().await;
    let bad = [
        ("malformed", "nonsense"),
        ("malformed, but with dots", "a.b.c"),
        ("cut", &cut),
        ("unsigned", &unsigned),
        ("for another audience", &elsewhere),
        ("of a deleted pod", &orphaned),
        ("of a deleted account", &gone),
        ("of an earlier account of that name", &former),
        ("expired", &expired),
        ("not valid yet", &early),
        ("of another account, which the signature does not help", &renamed),
        ("endless", &"x".repeat(20_000)),
    ];
    for (what, token) in bad {
        let answer = send(to, token, &sick);
        assert_eq!(answer.status, 401, "{what}: {}", answer.body);
        answer.is_problem(401, "not valid, has expired, or was not issued for the audience volmedic-hub");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{what}");
    }
    let body = sick.to_string();
    let json_type = ("Content-Type", "application/json");
    let none: [&[(&str, &str)]; 4] = [
        &[json_type],
        &[json_type, ("Authorization", "Bearer ")],
        &[json_type, ("Authorization", "Basic ZGV0ZWN0b3I6c2VjcmV0")],
        &[json_type, ("Authorization", good)],
    ];
    for headers in none {
        let answer = call(to, "POST", "/v1/reports", headers, body.as_bytes());
        answer.is_problem(401, "Authorization: Bearer");
    }
    let after = desk.counts().await;
    let more = |result: &str| {
        after.get(result).copied().unwrap_or_default() - before.get(result).copied().unwrap_or_default()
    };
    assert_eq!((more("bad_token"), more("no_token")), (12, 4), "{after:?}");

    // Who is known, and may not.
    let nobody = token(stage, "nobody", AUDIENCE, None).await;
    send(to, &nobody, &sick).is_problem(403, "may not report on claim");
    let named = token(stage, "named", AUDIENCE, None).await;
    let namespace = stage.namespace.as_str();
    let role = ["--verb=report", "--resource=volumehealths.volmedic.dev", "--resource-name=other"];
    kubectl(&stage.plane, &[&["create", "role", "named", "-n", namespace], &role[..]].concat());
    let subject = format!("--serviceaccount={namespace}:named");
    kubectl(&stage.plane, &["create", "rolebinding", "named", "-n", namespace, "--role=named", &subject]);
    until("the right is known", || async {
        Ok::<_, String>(send(to, &named, &report(stage, "other", 600, &json!([]))).status == 200)
    })
    .await;
    send(to, &named, &sick).is_problem(403, "may not report on claim");
    let abroad = stage.plane.namespace("abroad").await.expect("a namespace");
    let foreigner = token_in(stage, &abroad, "detector", AUDIENCE, None).await;
    kubectl(
        &stage.plane,
        &["create", "role", "all", "-n", &abroad, "--verb=report", "--resource=volumehealths.volmedic.dev"],
    );
    let subject = format!("--serviceaccount={abroad}:detector");
    kubectl(&stage.plane, &["create", "rolebinding", "all", "-n", &abroad, "--role=all", &subject]);
    until("the right there is known", || async {
        Ok::<_, String>(send(to, &foreigner, &report_in(&abroad, "data", 600, &failing())).status == 404)
    })
    .await;
    send(to, &foreigner, &sick).is_problem(403, "may not report on claim");
    // Who may not learns nothing about what there is.
    send(to, &nobody, &report(stage, "absent", 600, &failing())).is_problem(403, "may not report on claim");
    let volume = json!({
        "volume": {"driver": crate::stage::DRIVER, "volumeHandle": stage.handle("data")}, "source": "array",
        "ttlSeconds": 10, "conditions": failing(),
    });
    send(to, &nobody, &volume).is_problem(404, "no claim is bound to such a volume");
    let refused = desk.counts().await["not_allowed"] - after.get("not_allowed").copied().unwrap_or_default();
    assert!(refused >= 4, "each is counted: {refused}");
    desk.nothing_is_stored().await;
    let log = desk.hub.log();
    assert!(
        ![good, &orphaned, &gone, &expired].iter().any(|token| log.contains(token.as_str())),
        "no token is logged"
    );
}

/// Seconds since 1970.
fn seconds_now() -> i64 {
    Timestamp::now().as_second()
}
