//! What the tests against a real API server share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use volmedic_inventory::{Inventory, Metrics, Options};

pub(crate) fn start(client: &Client, driver: &str, node_watcher: bool) -> Inventory {
    Inventory::start(client, &Options { driver: driver.into(), node_watcher }, &Metrics::default())
}

/// Waits for a condition; a failure after the deadline names it.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(3);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn handles(inventory: &Inventory) -> Vec<String> {
    let mut handles = Vec::new();
    inventory.volumes().for_each(|handle| handles.push(handle.to_string()));
    handles.sort();
    handles
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// For good, whatever holds it back.
pub(crate) async fn delete_volume(client: &Client, name: &str) {
    let volumes = Api::<PersistentVolume>::all(client.clone());
    volumes.delete(name, &DeleteParams::default()).await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    match volumes.patch(name, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => drop(other.unwrap()),
    }
}

/// Lets a service account do these things with PersistentVolumes, and nothing else.
pub(crate) async fn grant(client: &Client, namespace: &str, account: &str, verbs: &[&str]) {
    let rules = json!([{"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": verbs}]);
    grant_rules(client, namespace, account, rules).await;
}

/// Lets a service account do what these rules allow, and nothing else.
pub(crate) async fn grant_rules(client: &Client, namespace: &str, account: &str, rules: Value) {
    let name = format!("{namespace}-{account}");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    });
    let params = PatchParams::apply("test").force();
    Api::<ClusterRole>::all(client.clone()).patch(&name, &params, &Patch::Apply(role)).await.unwrap();
    Api::<ClusterRoleBinding>::all(client.clone())
        .patch(&name, &params, &Patch::Apply(binding))
        .await
        .unwrap();
}

/// A wire to the API server that can be cut while everybody else still talks to it.
pub(crate) struct Proxy {
    port: u16,
    up: Arc<watch::Sender<bool>>,
}

impl Proxy {
    pub(crate) async fn start(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let up = Arc::new(watch::Sender::new(true));
        let (state, target) = (up.clone(), url.trim_start_matches("https://").to_owned());
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (mut state, target) = (state.subscribe(), target.clone());
                if !*state.borrow() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = state.wait_for(|up| !up) => {}
                    }
                });
            }
        });
        Self { port, up }
    }

    /// A client that comes this way.
    pub(crate) fn client(&self, mut config: Config) -> Client {
        config.cluster_url = format!("https://127.0.0.1:{}", self.port).parse().unwrap();
        Client::try_from(config).unwrap()
    }

    pub(crate) fn cut(&self) {
        self.up.send_replace(false);
    }

    pub(crate) fn repair(&self) {
        self.up.send_replace(true);
    }
}
