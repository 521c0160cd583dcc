//! Growing: the device follows its image, the file system follows its device.

use super::Node;
use crate::error::{Error, Result};
use crate::paths::Place;
use crate::record::{Access, Kind};

impl Node {
    /// Returns the size the volume has now. `at_least` is what the caller wants, if it said so.
    pub(crate) fn expand(&self, id: &str, at: &Place, at_least: Option<u64>) -> Result<u64> {
        let (_lock, volume, record) = self.take(id)?;
        if !record.is_at(at.path()) {
            let path = at.path().display().to_string();
            return Err(Error::NotAtPath { volume: id.to_owned(), path });
        }
        if let Some(wanted) = at_least.filter(|&wanted| wanted > volume.bytes) {
            let why =
                format!("{wanted} bytes are wanted, but the controller grew it to {} only", volume.bytes);
            return Err(Error::OutOfRange { what: "capacity_range", why });
        }
        let Some(staged) = &record.staged else {
            return Err(Error::precondition(id, "it is not staged; stage it first"));
        };
        if staged.readonly {
            return Err(Error::precondition(id, "it is staged read-only, and growing writes to it"));
        }
        match volume.kind {
            Kind::Fuse => self.mounters.set_quota(&volume)?,
            Kind::Loop => {
                let attached = record.loop_device.filter(|attached| attached.is_live()).ok_or_else(|| {
                    Error::precondition(id, "its device is no longer attached; unstage and stage it again")
                })?;
                attached.device().grow()?;
                if matches!(staged.access, Access::Mount { .. }) {
                    volume.filesystem.grow(id, &attached.device().path(), &staged.path)?;
                }
            }
        }
        Ok(volume.bytes)
    }
}
