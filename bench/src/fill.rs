//! Fills an API server with bound volumes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::say;

const WRITERS: usize = 48;
const REPORT_EVERY: Duration = Duration::from_secs(15);
/// A busy server may refuse a write or lose a connection. So often it is tried again.
const TRIES: u32 = 5;

/// The handle of the driver's volume with this number.
pub(crate) fn handle(index: usize) -> String {
    format!("csi-vol-8d4a5fba-5c3f-11ef-a2c5-{index:012}")
}

/// The name of the claim with this number.
pub(crate) fn claim(index: usize) -> String {
    format!("data-database-{index:06}")
}

/// Makes the pairs with the numbers in `range`, spread over the namespaces. The driver does not know them.
pub(crate) async fn fill(
    client: &Client,
    namespaces: &[String],
    driver: &str,
    range: std::ops::Range<usize>,
) -> Result<()> {
    let (start, count, first) = (Instant::now(), range.len(), range.start);
    say::line(&format!("filling the API server: {count} pairs of volume and claim beside {first}"));
    let mut reported = Instant::now();
    let made = stream::iter(range)
        .map(|index| pair(client, &namespaces[index % namespaces.len()], driver, index))
        .buffer_unordered(WRITERS);
    let mut made = std::pin::pin!(made);
    let mut done: u32 = 0;
    while made.try_next().await?.is_some() {
        done += 1;
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            let left = start.elapsed() / done * u32::try_from(count).unwrap_or(u32::MAX).saturating_sub(done);
            say::line(&format!(
                "  {done} of {count} after {} s, about {} s to go",
                start.elapsed().as_secs(),
                left.as_secs()
            ));
        }
    }
    say::line(&format!("  {count} pairs in {} s", start.elapsed().as_secs()));
    Ok(())
}

/// A claim and the volume that was made for it, as a provisioner and the volume controller leave them. Only the claim's
/// `volumeName` is missing, which takes one more write and is read by nobody here.
async fn pair(client: &Client, namespace: &str, driver: &str, index: usize) -> Result<()> {
    let (post, patch) = (PostParams::default(), PatchParams::default());
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let name = claim(index);
    let modes = json!(["ReadWriteOnce"]);
    let claim = json!({
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "database", "app.kubernetes.io/instance": format!("db-{index}")},
            "annotations": {"volume.kubernetes.io/storage-provisioner": driver},
        },
        "spec": {"accessModes": modes, "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "bench"},
    });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).context("this is no claim")?;
    let made = again(|| claims.create(&post, &claim)).await;
    let uid = match made {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            claims.get(&name).await.map(|claim| claim.metadata.uid)
        }
        made => made.map(|claim| claim.metadata.uid),
    };
    let uid = uid.with_context(|| format!("cannot make the claim {name}"))?.context("a claim without uid")?;

    let volume_name = format!("pvc-{uid}");
    let volume = json!({
        "metadata": {
            "name": volume_name,
            "annotations": {"pv.kubernetes.io/provisioned-by": driver},
            "finalizers": ["kubernetes.io/pv-protection"],
        },
        "spec": {
            "accessModes": modes,
            "capacity": {"storage": "1Gi"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": uid},
            "csi": {
                "driver": driver,
                "volumeHandle": handle(index),
                "fsType": "ext4",
                "volumeAttributes": {"pool": "replicated", "storage.kubernetes.io/csiProvisionerIdentity": "1731628800000-8081-bench"},
            },
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "bench",
            "volumeMode": "Filesystem",
        },
    });
    let volume: PersistentVolume = serde_json::from_value(volume).context("this is no volume")?;
    match again(|| volumes.create(&post, &volume)).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        made => drop(made.with_context(|| format!("cannot make the volume {volume_name}"))?),
    }
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    again(|| volumes.patch_status(&volume_name, &patch, &bound)).await.context("cannot bind a volume")?;
    let bound = Patch::Merge(
        json!({"status": {"phase": "Bound", "accessModes": modes, "capacity": {"storage": "1Gi"}}}),
    );
    again(|| claims.patch_status(&name, &patch, &bound)).await.context("cannot bind a claim")?;
    Ok(())
}

/// Tries a request a few times. One that the server understood and refused is not tried again.
async fn again<T, F: Future<Output = kube::Result<T>>>(request: impl Fn() -> F) -> kube::Result<T> {
    let mut tries = 1;
    loop {
        match request().await {
            Err(kube::Error::Api(status)) if status.code != 429 && status.code < 500 => {
                return Err(kube::Error::Api(status));
            }
            Err(_) if tries < TRIES => {
                tokio::time::sleep(Duration::from_millis(200) * tries).await;
                tries += 1;
            }
            answer => return answer,
        }
    }
}
