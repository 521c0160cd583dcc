//! Lists and single checks, with the health that goes with them.

use tonic::Response;
use volmedic_proto::csi as wire;

use super::{Answer, snapshot};
use crate::error::{Error, Result};
use crate::request::{page, required, token};
use crate::service::Driver;
use crate::store::{SNAPSHOT_PREFIX, VOLUME_PREFIX};

impl Driver {
    pub(super) async fn list(&self, request: wire::ListVolumesRequest) -> Answer<wire::ListVolumesResponse> {
        let page = page(VOLUME_PREFIX, request.max_entries, &request.starting_token)?;
        let (records, more) = self.store.volumes.page(page.after.as_deref(), page.max, |_| true);
        let next_token = next(more, records.last().map(|record| record.id.as_str()));
        let reports = self.reports(&records).await?;
        // One that has vanished from disk is left out: absence from this list is how that is reported.
        let present = records.iter().zip(reports).filter_map(|(record, report)| Some((record, report?)));
        let entries = present.map(|(record, report)| wire::list_volumes_response::Entry {
            volume: Some(self.volume(record)),
            status: Some(wire::list_volumes_response::VolumeStatus {
                published_node_ids: record.attachments.keys().cloned().collect(),
                volume_condition: self.condition(&report),
            }),
        });
        Ok(Response::new(wire::ListVolumesResponse { entries: entries.collect(), next_token }))
    }

    pub(super) async fn get(
        &self,
        request: wire::ControllerGetVolumeRequest,
    ) -> Answer<wire::ControllerGetVolumeResponse> {
        let record = self.store.volume(required("volume_id", &request.volume_id)?)?;
        let report = self.reports(std::slice::from_ref(&record)).await?.pop().flatten();
        let report = report.ok_or_else(|| Error::NoVolume(record.id.clone()))?;
        let status = wire::controller_get_volume_response::VolumeStatus {
            published_node_ids: record.attachments.keys().cloned().collect(),
            volume_condition: self.condition(&report),
        };
        Ok(Response::new(wire::ControllerGetVolumeResponse {
            volume: Some(self.volume(&record)),
            status: Some(status),
        }))
    }

    /// Only volumes with something to report are in the list. A page covers as many volumes as it may have entries, so
    /// that one call never checks more than a page would hold.
    pub(super) async fn list_health(
        &self,
        request: wire::ControllerListVolumeHealthRequest,
    ) -> Answer<wire::ControllerListVolumeHealthResponse> {
        self.health_dialect()?;
        let page = page(VOLUME_PREFIX, request.max_entries, &request.starting_token)?;
        let (records, more) = self.store.volumes.page(page.after.as_deref(), page.max, |_| true);
        let next_token = next(more, records.last().map(|record| record.id.as_str()));
        let mut entries = self.health_of(&records).await?;
        entries.retain(|health| !health.health_statuses.is_empty());
        self.pages.spoil(&mut entries);
        Ok(Response::new(wire::ControllerListVolumeHealthResponse { entries, next_token }))
    }

    pub(super) async fn get_health(
        &self,
        request: wire::ControllerGetVolumeHealthRequest,
    ) -> Answer<wire::ControllerGetVolumeHealthResponse> {
        self.health_dialect()?;
        let record = self.store.volume(required("volume_id", &request.volume_id)?)?;
        let volume_health = Some(self.health_of_one(record).await?);
        Ok(Response::new(wire::ControllerGetVolumeHealthResponse { volume_health }))
    }

    pub(super) fn list_snapshots(
        &self,
        request: &wire::ListSnapshotsRequest,
    ) -> Result<wire::ListSnapshotsResponse> {
        let entry = |record: &_| wire::list_snapshots_response::Entry { snapshot: Some(snapshot(record)) };
        let page = page(SNAPSHOT_PREFIX, request.max_entries, &request.starting_token)?;
        let volume = &request.source_volume_id;
        if !request.snapshot_id.is_empty() {
            let found = self.store.snapshots.get(&request.snapshot_id)?;
            let found = found.filter(|record| volume.is_empty() || record.source_volume == *volume);
            let entries = found.iter().map(|record| entry(record)).collect();
            return Ok(wire::ListSnapshotsResponse { entries, next_token: String::new() });
        }
        let (records, more) = self.store.snapshots.page(page.after.as_deref(), page.max, |record| {
            volume.is_empty() || record.source_volume == *volume
        });
        let next_token = next(more, records.last().map(|record| record.id.as_str()));
        let entries = records.iter().map(|record| entry(record)).collect();
        Ok(wire::ListSnapshotsResponse { entries, next_token })
    }
}

fn next(more: bool, last: Option<&str>) -> String {
    last.filter(|_| more).map(token).unwrap_or_default()
}
