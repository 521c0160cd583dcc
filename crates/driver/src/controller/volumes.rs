//! Volumes made, deleted, attached and grown.

use std::fs;
use std::sync::Arc;

use jiff::Timestamp;
use volmedic_proto::csi::CapacityRange;

use super::Controller;
use crate::copy::{copy_image, grow_image, make_image};
use crate::error::{Error, Result};
use crate::record::{Attachment, Kind, Source, VolumeRecord};
use crate::request::{Capability, Wish, bounds, size};
use crate::state_dir::VolumeDir;
use crate::store::{VOLUME_PREFIX, new_id, remove_tree};

/// A request for a volume, checked.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) wish: Wish,
    pub(crate) range: Option<CapacityRange>,
    pub(crate) source: Option<Source>,
}

impl Controller {
    pub(crate) fn create(&self, order: Order) -> Result<Arc<VolumeRecord>> {
        let _name = self.locks.take(&format!("the making of {}", order.name))?;
        if let Some(before) = self.store.volumes.by_name(&order.name) {
            check_same(&before, &order)?;
            return Ok(before);
        }
        // Held while it is read from, so that it is neither staged nor deleted meanwhile.
        let _source = match &order.source {
            Some(Source::Volume(id)) => {
                self.store.volume(id)?;
                Some(self.locks.take_volume(id, &self.store.state.volume(id))?)
            }
            _ => None,
        };
        let _snapshot = match &order.source {
            Some(Source::Snapshot(id)) => Some(self.locks.take(id)?),
            _ => None,
        };
        let content = order.source.as_ref().map(|source| self.content(source)).transpose()?;
        let minimum = order.wish.minimum_bytes().max(content.as_ref().map_or(0, |content| content.bytes));
        let range = order.range.as_ref();
        let bytes = match (&content, range) {
            // A copy is as large as its original by default.
            (Some(content), None) => content.bytes.max(minimum),
            _ => size(range, minimum, self.config.max_volume_bytes)?,
        };
        self.check_total(bytes)?;
        if let Some(content) = &content
            && (order.wish.kind != Kind::Loop
                || content.filesystem != order.wish.filesystem && !order.wish.raw)
        {
            let why = format!("it holds {}, which the new volume is not made for", content.filesystem.name());
            return Err(Error::Invalid { field: "volume_content_source", why });
        }
        let id = new_id(VOLUME_PREFIX)?;
        let draft = self.store.volumes.draft(&id)?;
        let directory = VolumeDir::at(&draft);
        let made = match (&content, order.wish.kind) {
            (Some(content), _) => copy_image(&content.image, &directory.image(), bytes)
                .and_then(|()| content.filesystem.settle_copy(&directory.image(), content.bytes < bytes)),
            (None, Kind::Loop) => make_image(&directory.image(), bytes),
            (None, Kind::Fuse) => fs::create_dir(directory.files())
                .map_err(Error::io(format_args!("make {}", directory.files().display()))),
        };
        let record = VolumeRecord {
            id,
            name: order.name,
            bytes,
            kind: order.wish.kind,
            filesystem: order.wish.filesystem,
            created: Timestamp::now(),
            grown_from_source: content
                .is_some_and(|content| content.bytes < bytes && content.filesystem.grows_when_mounted()),
            source: order.source,
            attachments: std::collections::BTreeMap::new(),
        };
        made.and_then(|()| self.store.volumes.commit(&draft, record)).inspect_err(|_| discard(&draft))
    }

    /// Deleting what is not there is a success.
    pub(crate) fn delete(&self, id: &str) -> Result<()> {
        let Some(_) = self.store.volumes.get(id)? else { return Ok(()) };
        let _lock = match self.locks.take_volume(id, &self.store.state.volume(id)) {
            // Its directory is gone, and with it everything but our memory of it.
            Err(Error::NoVolume(_)) => return self.store.volumes.remove(id),
            other => other?,
        };
        let Some(volume) = self.store.volumes.get(id)? else { return Ok(()) };
        let record = self.store.nodes.get(id)?;
        if !record.is_idle() {
            let path = record.published.keys().next().or(record.staged.as_ref().map(|staged| &staged.path));
            let path = path.map_or_else(String::new, |path| format!(" at {}", path.display()));
            return Err(Error::precondition(
                id,
                format_args!("it is still in use on this node{path}; unstage it first"),
            ));
        }
        if let Some(node) = volume.attachments.keys().next() {
            return Err(Error::precondition(
                id,
                format_args!("it is still published to node {node}; unpublish it first"),
            ));
        }
        self.store.nodes.forget(id);
        self.store.volumes.remove(id)
    }

    pub(crate) fn attach(&self, id: &str, node: &str, wanted: &Capability, readonly: bool) -> Result<bool> {
        self.store.volume(id)?;
        if node != self.config.node_id {
            return Err(Error::NoNode { asked: node.to_owned(), here: self.config.node_id.clone() });
        }
        let _lock = self.locks.take_volume(id, &self.store.state.volume(id))?;
        let volume = self.store.volume(id)?;
        if volume.kind == Kind::Fuse && wanted.block() {
            return Err(Error::invalid(
                "volume_capability",
                "a volume of kind fuse cannot be a block device",
            ));
        }
        let plan = Attachment { readonly, mode: wanted.mode, block: wanted.block() };
        match volume.attachments.get(node) {
            Some(before) if *before == plan => Ok(readonly),
            Some(_) => Err(Error::Conflict {
                what: format!("the publication of {id} to node {node}"),
                why: "it has another capability or read-only setting; unpublish it first".to_owned(),
            }),
            None => {
                let mut changed = VolumeRecord::clone(&volume);
                changed.attachments.insert(node.to_owned(), plan);
                self.store.volumes.update(changed)?;
                Ok(readonly)
            }
        }
    }

    /// Without a node, from every node.
    pub(crate) fn detach(&self, id: &str, node: &str) -> Result<()> {
        self.store.volume(id)?;
        let _lock = self.locks.take_volume(id, &self.store.state.volume(id))?;
        let mut changed = VolumeRecord::clone(&*self.store.volume(id)?);
        let before = changed.attachments.len();
        changed.attachments.retain(|attached, _| !(node.is_empty() || attached == node));
        if changed.attachments.len() < before {
            self.store.volumes.update(changed)?;
        }
        Ok(())
    }

    /// Returns the size the volume has now. What it has on the node follows by a call there.
    pub(crate) fn expand(&self, id: &str, range: &CapacityRange) -> Result<u64> {
        self.store.volume(id)?;
        let (required, limit) = bounds(range)?;
        let _lock = self.locks.take_volume(id, &self.store.state.volume(id))?;
        let volume = self.store.volume(id)?;
        if required.is_none_or(|required| required <= volume.bytes) {
            return match limit {
                Some(limit) if limit < volume.bytes => {
                    let why = format!("the volume has {} bytes, and volumes do not shrink", volume.bytes);
                    Err(Error::OutOfRange { what: "capacity_range", why })
                }
                _ => Ok(volume.bytes),
            };
        }
        let bytes = size(Some(range), volume.bytes, self.config.max_volume_bytes)?;
        self.check_total(bytes - volume.bytes)?;
        // First the image: cut short here, it is merely larger than it says, and the call is repeated.
        if volume.kind == Kind::Loop {
            grow_image(&self.store.state.volume(id).image(), bytes)?;
        }
        self.store.volumes.update(VolumeRecord { bytes, ..VolumeRecord::clone(&volume) })?;
        Ok(bytes)
    }
}

/// Whether a volume of this name is what is asked for again.
fn check_same(before: &VolumeRecord, order: &Order) -> Result<()> {
    let conflict =
        |why: String| Err(Error::Conflict { what: format!("a volume named {}", before.name), why });
    if let Some(range) = &order.range {
        let (required, limit) = bounds(range)?;
        let has = before.bytes;
        if required.is_some_and(|required| required > has) || limit.is_some_and(|limit| limit < has) {
            return conflict(format!("it has {has} bytes, which the asked-for range does not allow"));
        }
    }
    if before.kind != order.wish.kind {
        return conflict("it is of another kind".to_owned());
    }
    if before.kind == Kind::Loop && !order.wish.raw && before.filesystem != order.wish.filesystem {
        return conflict(format!("it is made for {}", before.filesystem.name()));
    }
    if before.source != order.source {
        return conflict("it has another content source".to_owned());
    }
    Ok(())
}

/// What could not be finished is removed immediately; what is left of it, at the next start.
pub(super) fn discard(draft: &std::path::Path) {
    if let Err(error) = remove_tree(draft) {
        tracing::warn!(%error, "a half-made thing stays until the next start");
    }
}
