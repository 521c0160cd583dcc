//! Snapshots: copies of images at rest.

use std::sync::Arc;

use jiff::Timestamp;

use super::Controller;
use super::volumes::discard;
use crate::copy::copy_image;
use crate::error::{Error, Result};
use crate::record::{SnapshotRecord, Source};
use crate::state_dir::VolumeDir;
use crate::store::{SNAPSHOT_PREFIX, new_id};

impl Controller {
    pub(crate) fn create_snapshot(&self, name: &str, volume: &str) -> Result<Arc<SnapshotRecord>> {
        let _name = self.locks.take(&format!("the snapshot {name}"))?;
        if let Some(before) = self.store.snapshots.by_name(name) {
            if before.source_volume == volume {
                return Ok(before);
            }
            let why = format!("it is of volume {}", before.source_volume);
            return Err(Error::Conflict { what: format!("a snapshot named {name}"), why });
        }
        self.store.volume(volume)?;
        let _source = self.locks.take_volume(volume, &self.store.state.volume(volume))?;
        let content = self.content(&Source::Volume(volume.to_owned()))?;
        let id = new_id(SNAPSHOT_PREFIX)?;
        let draft = self.store.snapshots.draft(&id)?;
        let record = SnapshotRecord {
            id,
            name: name.to_owned(),
            source_volume: volume.to_owned(),
            bytes: content.bytes,
            filesystem: content.filesystem,
            created: Timestamp::now(),
        };
        copy_image(&content.image, &VolumeDir::at(&draft).image(), content.bytes)
            .and_then(|()| self.store.snapshots.commit(&draft, record))
            .inspect_err(|_| discard(&draft))
    }

    /// Deleting what is not there is a success.
    pub(crate) fn delete_snapshot(&self, id: &str) -> Result<()> {
        if self.store.snapshots.get(id)?.is_none() {
            return Ok(());
        }
        let _lock = self.locks.take(id)?;
        match self.store.snapshots.get(id)? {
            Some(_) => self.store.snapshots.remove(id),
            None => Ok(()),
        }
    }
}
