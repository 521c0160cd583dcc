//! What the node says: usage, condition, health, and the storage behind it.

use std::collections::HashSet;

use tonic::Code;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::node_service_capability::rpc::Type as Node;
use volmedic_proto::csi::volume_capability::access_mode::Mode;
use volmedic_proto::csi::volume_usage::Unit;

use super::condition::normal;
use super::health::reported;
use super::{NOBODY, answered, refused};
use crate::bench::Bench;
use crate::report::{Judged, Not, broken, not_applicable};
use crate::text::{line, said};
use crate::volume::Published;

const STATS: &str = "NodeGetVolumeStats";
const HEALTH: &str = "NodeGetVolumeHealth";
const STORAGE: &str = "NodeGetStorageHealth";
/// More than this Kubernetes does not keep.
const MOST_BACKENDS: usize = 16;

async fn stats(bench: &mut Bench) -> Result<wire::NodeGetVolumeStatsResponse, Not> {
    bench.offers.need_stats()?;
    let Published { id, staging, target } = bench.published().await?;
    let answer = bench.stats(&id, &target, &staging).await;
    answered(STATS, answer)
}

pub(super) async fn usage(bench: &mut Bench) -> Judged {
    bench.offers.need_node(Node::GetVolumeStats)?;
    let usage = stats(bench).await?.usage;
    if usage.is_empty() {
        return broken(format!("{STATS} of a published volume reported no usage"));
    }
    let mut units = HashSet::new();
    let mut shown = Vec::new();
    for one in &usage {
        let wire::VolumeUsage { available, total, used, unit } = *one;
        let name = match Unit::try_from(unit) {
            Ok(unit @ (Unit::Bytes | Unit::Inodes)) => unit.as_str_name(),
            _ => return broken(format!("{STATS} reported unit {unit}, which is neither BYTES nor INODES")),
        };
        let words = format!("{name} available={available} total={total} used={used}");
        if available < 0 || total < 0 || used < 0 {
            return broken(format!("{STATS} reported a negative value: {words}"));
        }
        if total > 0 && (used > total || available > total) {
            return broken(format!("{STATS} reported more than the whole: {words}"));
        }
        if !units.insert(unit) {
            return broken(format!("{STATS} reported {name} twice"));
        }
        shown.push(format!("{name} {used} of {total}"));
    }
    Ok(format!("{STATS}: {}", shown.join(", ")))
}

pub(super) async fn condition(bench: &mut Bench) -> Judged {
    bench.offers.need_node(Node::VolumeCondition)?;
    let answer = stats(bench).await?;
    normal(STATS, answer.volume_condition.as_ref())
}

pub(super) async fn staging_optional(bench: &mut Bench) -> Judged {
    bench.offers.need_stats()?;
    bench.offers.need_node(Node::StageUnstageVolume)?;
    let Published { id, staging, target } = bench.published().await?;
    let answer = bench.stats(&id, &target, &staging).await;
    answered(&format!("{STATS} with staging_target_path"), answer)?;
    let answer = bench.stats(&id, &target, "").await;
    answered(&format!("{STATS} without staging_target_path"), answer)?;
    Ok(format!("{STATS} answered with and without it"))
}

pub(super) async fn stats_no_id(bench: &mut Bench) -> Judged {
    bench.offers.need_stats()?;
    let answer = bench.stats("", "/volmedic-conformance", "").await;
    refused(&format!("{STATS} without volume_id"), answer, Code::InvalidArgument)
}

pub(super) async fn stats_no_path(bench: &mut Bench) -> Judged {
    bench.offers.need_stats()?;
    let answer = bench.stats(NOBODY, "", "").await;
    refused(&format!("{STATS} without volume_path"), answer, Code::InvalidArgument)
}

pub(super) async fn stats_unknown(bench: &mut Bench) -> Judged {
    bench.offers.need_stats()?;
    let path = bench.options.target_dir.join("volmedic-conformance").display().to_string();
    let answer = bench.stats(NOBODY, &path, "").await;
    refused(&format!("{STATS}({NOBODY})"), answer, Code::NotFound)
}

pub(super) async fn stats_wrong_path(bench: &mut Bench) -> Judged {
    bench.offers.need_stats()?;
    let Published { id, target, .. } = bench.published().await?;
    let wrong = format!("{target}-elsewhere");
    let answer = bench.stats(&id, &wrong, "").await;
    refused(&format!("{STATS} at {wrong}"), answer, Code::NotFound)
}

/// The health of a volume of this run, which is healthy.
async fn well(bench: &mut Bench, id: &str, target: &str, staging: &str, when: &str) -> Judged {
    match bench.node_health(id, target, staging).await {
        Ok(Some(health)) if health.health_statuses.is_empty() => {
            Ok(format!("{HEALTH} {when}: nothing adverse"))
        }
        Ok(Some(health)) => broken(format!("{HEALTH} {when} reported {}", reported(&health))),
        Ok(None) => broken(format!("{HEALTH} {when} answered without volume_health")),
        Err(status) => broken(format!("{HEALTH} {when} answered {}", said(&status))),
    }
}

pub(super) async fn before_mount(bench: &mut Bench) -> Judged {
    bench.offers.need_node(Node::GetVolumeHealth)?;
    let Some(id) = bench.ids().await?.pop() else { return not_applicable("no volume was made") };
    well(bench, &id, "", "", "of a volume that was never mounted").await
}

pub(super) async fn healthy(bench: &mut Bench) -> Judged {
    bench.offers.need_node(Node::GetVolumeHealth)?;
    let Published { id, staging, target } = bench.published().await?;
    well(bench, &id, &target, &staging, "of a published volume").await
}

pub(super) async fn echoes(bench: &mut Bench) -> Judged {
    bench.offers.need_node(Node::GetVolumeHealth)?;
    let id = bench.id().await?;
    let answer = bench.node_health(&id, "", "").await;
    let named = answered(HEALTH, answer)?.map(|health| health.volume_id).unwrap_or_default();
    if named == id {
        return Ok(format!("{HEALTH}({id}) named it"));
    }
    broken(format!("{HEALTH}({id}) named {:?}", line(&named)))
}

pub(super) async fn unknown(bench: &mut Bench) -> Judged {
    bench.offers.need_node(Node::GetVolumeHealth)?;
    let answer = bench.node_health(NOBODY, "", "").await;
    refused(&format!("{HEALTH}({NOBODY})"), answer, Code::NotFound)
}

pub(super) async fn no_id(bench: &mut Bench) -> Judged {
    bench.offers.need_node(Node::GetVolumeHealth)?;
    let answer = bench.node_health("", "", "").await;
    refused(&format!("{HEALTH} without volume_id"), answer, Code::InvalidArgument)
}

pub(super) async fn storage(bench: &mut Bench) -> Judged {
    bench.offers.need_node(Node::GetStorageHealth)?;
    let answer = bench.storage_health().await;
    let entries = answered(STORAGE, answer)?.backend_health;
    if entries.len() > MOST_BACKENDS {
        return broken(format!("{STORAGE} has {} entries, {MOST_BACKENDS} are kept", entries.len()));
    }
    let mut before = Vec::new();
    for entry in &entries {
        let known = matches!(
            wire::StorageHealthErrorType::try_from(entry.status),
            Ok(wire::StorageHealthErrorType::StorageDegraded
                | wire::StorageHealthErrorType::StorageUnreachable)
        );
        if !known {
            return broken(format!("{STORAGE} has status {}, which CSI does not define", entry.status));
        }
        let mode = entry.volume_capability.as_ref().and_then(|wanted| wanted.access_mode.as_ref());
        if let Some(mode) = mode
            && !Mode::try_from(mode.mode).is_ok_and(|mode| mode != Mode::Unknown)
        {
            return broken(format!("{STORAGE} has access mode {}, which CSI does not define", mode.mode));
        }
        let key = (entry.status, &entry.reason, &entry.volume_capability);
        if before.contains(&key) {
            return broken(format!("{STORAGE} has status {} {} twice", entry.status, line(&entry.reason)));
        }
        before.push(key);
    }
    Ok(format!("{STORAGE} has {} entries", entries.len()))
}
