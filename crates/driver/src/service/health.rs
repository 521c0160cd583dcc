//! The health that goes into answers, in the dialects that are spoken.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::statvfs;
use volmedic_health::{Condition, Status as VolumeStatus, WellKnown};
use volmedic_host::usage::Space;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::node_get_storage_health_response::StorageBackendHealth;
use volmedic_proto::csi::volume_usage::Unit;

use super::{Driver, signed};
use crate::assess::seen;
use crate::error::{Error, Result};
use crate::health::{Measured, Report, to_volume_condition, to_volume_health};
use crate::record::VolumeRecord;

/// The state directory is reported as short of space when less than one part in `SCARCE` is left.
const SCARCE: u64 = 100;

impl Driver {
    pub(super) fn health_dialect(&self) -> Result<()> {
        if self.config.dialect.health() {
            return Ok(());
        }
        Err(Error::NotOffered {
            what: "the health call",
            why: "the driver speaks the legacy dialect; see --dialect",
        })
    }

    pub(super) async fn reports(&self, records: &[Arc<VolumeRecord>]) -> Result<Vec<Option<Report>>> {
        let (assessor, records) = (Arc::clone(&self.assessor), records.to_vec());
        self.workers.run("checking the volumes", move || assessor.look(&records)).await
    }

    /// The condition of the older dialect. `None` where it could not be seen, or is not asked for.
    pub(super) fn condition(&self, report: &Report) -> Option<wire::VolumeCondition> {
        let known = report.blind.is_none() || !report.findings.is_empty();
        (self.config.dialect.legacy() && known).then(|| to_volume_condition(&report.conditions()))
    }

    /// The health of each volume that still exists.
    pub(super) async fn health_of(&self, records: &[Arc<VolumeRecord>]) -> Result<Vec<wire::VolumeHealth>> {
        let reports = self.reports(records).await?;
        let mut healths = Vec::with_capacity(records.len());
        for (record, report) in records.iter().zip(reports) {
            match seen(record, report) {
                Ok(report) => healths.push(to_volume_health(&record.id, &report.conditions())),
                // Absent from a list of health means well, and this one is not: it is not there at all.
                Err(Error::NoVolume(id)) => {
                    let gone = wire::volume_health::VolumeHealthEntry {
                        status: wire::VolumeHealthErrorType::Inaccessible.into(),
                        reason: "VolumeNotFound".to_owned(),
                        message: "nothing of the volume is left in the state directory of the driver"
                            .to_owned(),
                    };
                    healths.push(wire::VolumeHealth { volume_id: id, health_statuses: vec![gone] });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(healths)
    }

    /// The health of one volume, which must exist.
    pub(super) async fn health_of_one(&self, record: Arc<VolumeRecord>) -> Result<wire::VolumeHealth> {
        let report = self.reports(std::slice::from_ref(&record)).await?.pop().flatten();
        Ok(to_volume_health(&record.id, &seen(&record, report)?.conditions()))
    }

    pub(super) async fn stats(
        &self,
        request: wire::NodeGetVolumeStatsRequest,
    ) -> Result<wire::NodeGetVolumeStatsResponse> {
        let record = self.store.volume(&request.volume_id)?;
        let here = || Error::NotAtPath { volume: record.id.clone(), path: request.volume_path.clone() };
        // A path we would not accept is one where no volume of ours is.
        let (node, path) = (Arc::clone(&self.node), request.volume_path.clone());
        let expected = request.staging_target_path.clone();
        let find = move || {
            let place = node.roots.place("volume_path", &path)?;
            // Written as the record has it, so that the two can be compared. Elsewhere, no volume of ours is staged.
            let full = node.roots.place("staging_target_path", &expected).ok();
            Ok((place, full.map_or_else(|| PathBuf::from(expected), |full| full.path().to_owned())))
        };
        let place = self.workers.run("finding the path", find).await;
        let (place, expected) =
            place.map_err(|error| if matches!(error, Error::Invalid { .. }) { here() } else { error })?;
        let node_record = self.store.nodes.get(&record.id)?;
        if !node_record.is_at(place.path()) {
            return Err(here());
        }
        let report = self.reports(std::slice::from_ref(&record)).await?.pop().flatten();
        let report = seen(&record, report)?;
        let usage = match report.measured {
            Some(Measured::FileSystem(usage)) => {
                // btrfs has no fixed number of inodes and says zero, which means nothing.
                let inodes = Some(usage.inodes).filter(|inodes| inodes.total > 0);
                let inodes = inodes.map(|inodes| space(inodes, Unit::Inodes));
                [Some(space(usage.bytes, Unit::Bytes)), inodes].into_iter().flatten().collect()
            }
            Some(Measured::Block { bytes }) => {
                vec![wire::VolumeUsage {
                    total: signed(bytes),
                    unit: Unit::Bytes.into(),
                    ..Default::default()
                }]
            }
            None => Vec::new(),
        };
        let staging = node_record.staged.as_ref().map(|staged| staged.path.as_path());
        let places: Vec<&Path> = [Some(place.path()), staging].into_iter().flatten().collect();
        let mut conditions = report.conditions_at(&places);
        conditions.extend(not_staged_at(&expected, staging));
        let volume_condition = self.config.dialect.legacy().then(|| to_volume_condition(&conditions));
        if usage.is_empty() && volume_condition.is_none() {
            let why: Vec<String> =
                report.conditions().iter().map(|found| found.message.to_string()).collect();
            return Err(Error::Unseen { volume: record.id.clone(), why: why.join("; ") });
        }
        Ok(wire::NodeGetVolumeStatsResponse { usage, volume_condition })
    }

    /// All volumes live in the state directory, so that is the one backend there is.
    pub(super) async fn storage_health(&self) -> Result<wire::NodeGetStorageHealthResponse> {
        use wire::StorageHealthErrorType::{StorageDegraded, StorageUnreachable};
        let root = self.store.state.root().to_owned();
        let space = self.workers.run("checking the storage", move || Ok(statvfs(&root))).await?;
        let problem = match space {
            Err(error) => Some((StorageUnreachable, "StateDirectoryUnreachable", error.to_string())),
            Ok(space) if space.f_bavail < space.f_blocks / SCARCE => {
                let left = space.f_bavail.saturating_mul(space.f_frsize);
                Some((StorageDegraded, "OutOfCapacity", format!("{left} bytes are left for all volumes")))
            }
            Ok(_) => None,
        };
        let backend_health = problem.map(|(status, reason, message)| StorageBackendHealth {
            status: status.into(),
            reason: reason.to_owned(),
            message,
            volume_capability: None,
        });
        Ok(wire::NodeGetStorageHealthResponse { backend_health: backend_health.into_iter().collect() })
    }
}

/// What is wrong if a caller expects the volume to be staged elsewhere: it would look for it there in vain. A caller need
/// not say.
fn not_staged_at(expected: &Path, staging: Option<&Path>) -> Option<Condition> {
    if expected.as_os_str().is_empty() || staging == Some(expected) {
        return None;
    }
    let expected = expected.display();
    let is = staging.map_or_else(|| "nowhere".to_owned(), |staging| format!("at {}", staging.display()));
    let message = format!("the volume is not staged at {expected}; it is staged {is}");
    Some(Condition::new(VolumeStatus::Inaccessible, WellKnown::VolumeUnmounted.into(), &message))
}

fn space(space: Space, unit: Unit) -> wire::VolumeUsage {
    wire::VolumeUsage {
        available: signed(space.available),
        total: signed(space.total),
        used: signed(space.used),
        unit: unit.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staging_path_is_optional_and_a_wrong_one_is_abnormal() {
        let check = |expected: &str, staging: Option<&str>| {
            not_staged_at(Path::new(expected), staging.map(Path::new)).map(|found| found.message.to_string())
        };
        assert_eq!(check("", Some("/s")), None);
        assert_eq!(check("", None), None);
        assert_eq!(check("/s", Some("/s")), None);
        assert_eq!(check("/s/", Some("/s")), None);
        assert_eq!(
            check("/other", Some("/s")).unwrap(),
            "the volume is not staged at /other; it is staged at /s"
        );
        assert_eq!(check("/s", None).unwrap(), "the volume is not staged at /s; it is staged nowhere");
    }
}
