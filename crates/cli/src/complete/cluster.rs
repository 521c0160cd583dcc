//! Words that only the kubeconfig and the cluster know.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use kube::api::ListParams;
use kube::core::ClusterResourceScope;
use kube::{Api, Client};
use serde::Deserialize;
use volmedic_api::{Arrived, Shape, slim};
use volmedic_health::WellKnown;
use volmedic_hub::{Claim, StoredHealth};
use volmedic_view::Grade;

use crate::look::{CsiDriver, ReachArgs};

/// A person waits for it, with a finger on the key.
const DEADLINE: Duration = Duration::from_secs(2);
/// Objects that are read.
const READ: u32 = 500;

#[derive(Debug, Clone, Default, Deserialize)]
struct Namespace {}

impl Shape for Namespace {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "Namespace";
    const PLURAL: &'static str = "namespaces";
}

/// All words of a kind, in no order; those that are there at the deadline.
pub(super) fn words(kind: &str, typed: &str, given: &BTreeMap<String, String>) -> Vec<String> {
    let flag = |name: &str| given.get(name).cloned();
    let reach = ReachArgs::of(
        flag("kubeconfig").map(Into::into),
        flag("context"),
        flag("as"),
        flag("as-group").into_iter().collect(),
        DEADLINE,
    );
    match kind {
        "health" => {
            Grade::ALL.iter().map(|grade| grade.name().to_owned()).chain(["notwell".to_owned()]).collect()
        }
        "context" => reach.contexts(),
        "namespace" | "node" | "driver" | "reason" | "claim" => {
            let mut words = match kind {
                "reason" => WellKnown::ALL.iter().map(|reason| reason.name().to_owned()).collect(),
                "namespace" => reach.namespaces(),
                _ => Vec::new(),
            };
            words.extend(asked(reach, kind, typed, flag("namespace")));
            words
        }
        _ => Vec::new(),
    }
}

/// On a thread that is left behind at the deadline: a program that fetches credentials may block it.
fn asked(reach: ReachArgs, kind: &str, typed: &str, namespace: Option<String>) -> Vec<String> {
    let (kind, typed) = (kind.to_owned(), typed.to_owned());
    let (sender, receiver) = mpsc::channel();
    let ask = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        let words = runtime
            .block_on(async { tokio::time::timeout(DEADLINE, read(&reach, &kind, &typed, namespace)).await });
        runtime.shutdown_background();
        // The reader may have given up.
        let _ = sender.send(words.ok().flatten().unwrap_or_default());
    };
    if thread::Builder::new().name("complete".to_owned()).spawn(ask).is_err() {
        return Vec::new();
    }
    receiver.recv_timeout(DEADLINE).unwrap_or_default()
}

/// Nothing where the cluster cannot be read: a completion has no place for errors.
async fn read(reach: &ReachArgs, kind: &str, typed: &str, namespace: Option<String>) -> Option<Vec<String>> {
    let (client, usual) = reach.client().await.ok()?;
    match kind {
        "namespace" => names::<Namespace>(Api::all(client)).await,
        "node" => names::<slim::Node>(Api::all(client)).await,
        "driver" => names::<CsiDriver>(Api::all(client)).await,
        "reason" => reasons(&client, namespace.as_deref()).await,
        // As in `shop/data-0`, where no namespace was named.
        _ => match typed.split_once('/').filter(|_| namespace.is_none()) {
            Some((namespace, _)) => {
                let names = names::<Claim>(Api::namespaced(client, namespace)).await?;
                Some(names.into_iter().map(|name| format!("{namespace}/{name}")).collect())
            }
            None => names::<Claim>(Api::namespaced(client, &namespace.unwrap_or(usual))).await,
        },
    }
}

fn page() -> ListParams {
    ListParams { limit: Some(READ), ..ListParams::default() }
}

async fn names<T: Shape>(api: Api<Arrived<T>>) -> Option<Vec<String>> {
    let list = api.list(&page()).await.ok()?;
    Some(list.items.iter().map(|object| object.name().to_owned()).collect())
}

async fn reasons(client: &Client, namespace: Option<&str>) -> Option<Vec<String>> {
    let api: Api<Arrived<StoredHealth>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let list = api.list(&page()).await.ok()?;
    let reason =
        |object: &Arrived<StoredHealth>| object.body.as_ref().ok()?.status.as_ref()?.headline.reason.clone();
    Some(list.items.iter().filter_map(reason).collect())
}
