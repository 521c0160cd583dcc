//! Objects for tests, made through the API server: volumes bound as the controllers would bind them, pods on nodes,
//! nodes with conditions. For control planes where nobody else writes these.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A volume and the claim that is bound to it.
#[derive(Debug, Clone)]
pub struct Bound {
    /// The volume, in phase `Bound`.
    pub volume: PersistentVolume,
    /// The claim, in phase `Bound`.
    pub claim: PersistentVolumeClaim,
}

/// A driver as it registers with the cluster.
pub async fn csi_driver(client: &Client, name: &str) -> Result<CSIDriver> {
    create(&Api::all(client.clone()), json!({"metadata": {"name": name}, "spec": {}})).await
}

/// Makes the claim `namespace/name` and a volume of `driver` with `handle`, bound to each other.
pub async fn bound_claim(
    client: &Client,
    namespace: &str,
    name: &str,
    driver: &str,
    handle: &str,
) -> Result<Bound> {
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let (volume_name, modes, size) =
        (format!("pv-{namespace}-{name}"), json!(["ReadWriteOnce"]), json!("1Gi"));
    let claim = json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": modes,
            "resources": {"requests": {"storage": size}},
            "storageClassName": "",
            "volumeName": volume_name,
        },
    });
    let claim: PersistentVolumeClaim = create(&claims, claim).await?;
    let volume = json!({
        "metadata": {"name": volume_name},
        "spec": {
            "accessModes": modes,
            "capacity": {"storage": size},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": name,
                "uid": claim.metadata.uid,
            },
            "csi": {"driver": driver, "volumeHandle": handle},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
        },
    });
    create(&volumes, volume).await?;
    let volume = set_status(&volumes, &volume_name, json!({"phase": "Bound"})).await?;
    let status = json!({"phase": "Bound", "accessModes": modes, "capacity": {"storage": size}});
    let claim = set_status(&claims, name, status).await?;
    Ok(Bound { volume, claim })
}

/// Makes a pod that is scheduled to `node` and mounts each of `claims` under its own name. It counts as running.
pub async fn pod(client: &Client, namespace: &str, name: &str, node: &str, claims: &[&str]) -> Result<Pod> {
    pod_as(client, namespace, name, node, claims, "default").await
}

/// As [`pod`], under a service account of choice, which must be there.
pub async fn pod_as(
    client: &Client,
    namespace: &str,
    name: &str,
    node: &str,
    claims: &[&str],
    account: &str,
) -> Result<Pod> {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let mount = |claim: &&str| json!({"name": claim, "mountPath": format!("/{claim}")});
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "serviceAccountName": account,
            "containers": [{
                "name": "main",
                "image": crate::IMAGE,
                "imagePullPolicy": "Never",
                "volumeMounts": claims.iter().map(mount).collect::<Vec<_>>(),
            }],
            "volumes": claims.iter().map(volume).collect::<Vec<_>>(),
        },
    });
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    create(&pods, pod).await?;
    set_status(&pods, name, json!({"phase": "Running"})).await
}

/// Makes a node whose condition `Ready` is `True`.
pub async fn node(client: &Client, name: &str) -> Result<Node> {
    let nodes = Api::<Node>::all(client.clone());
    create(&nodes, json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})).await?;
    set_node_ready(client, name, "True").await
}

/// Sets the condition `Ready` of a node to `True`, `False` or `Unknown`, as the kubelet or the node controller would.
pub async fn set_node_ready(client: &Client, name: &str, status: &str) -> Result<Node> {
    let reason = match status {
        "True" => "KubeletReady",
        "False" => "KubeletNotReady",
        _ => "NodeStatusUnknown",
    };
    let now = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": "set by a test",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    });
    set_status(&Api::<Node>::all(client.clone()), name, json!({"conditions": [condition]})).await
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let kind = K::kind(&());
    let object: K = serde_json::from_value(object).with_context(|| format!("this is no {kind}"))?;
    api.create(&PostParams::default(), &object).await.with_context(|| format!("cannot make a {kind}"))
}

async fn set_status<K>(api: &Api<K>, name: &str, status: Value) -> Result<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let patch = Patch::Merge(json!({"status": status}));
    let patched = api.patch_status(name, &PatchParams::default(), &patch).await;
    patched.with_context(|| format!("cannot set the status of the {} {name}", K::kind(&())))
}
