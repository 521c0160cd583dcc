//! What a killed driver left is finished or removed, once, at start.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::Services;
use crate::error::{Error, Result};
use crate::loops::attached_below;
use crate::mounter::{self, Mounters};
use crate::record::{Attached, Kind};
use crate::state_dir::VolumeDir;
use crate::store::{Store, remove_tree};

pub(crate) fn recover(store: &Store, services: Services, mounters: &Mounters) -> Result<()> {
    if services.node {
        find_loop_devices(store)?;
        find_mounters(store, mounters)?;
    }
    if services.controller {
        clear(&store.state.new_things())?;
        clear(&store.state.trash())?;
    }
    Ok(())
}

/// Every loop device on an image of ours is either known to its volume, or made known, or detached.
fn find_loop_devices(store: &Store) -> Result<()> {
    let found = attached_below(store.state.root()).map_err(Error::io("list the loop devices"))?;
    for (image, attached) in found {
        match owner(store, &image, attached)? {
            Owner::Known => {}
            Owner::Adopts(id) => {
                let mut record = store.nodes.get(&id)?;
                record.loop_device = Some(attached);
                store.nodes.put(&id, &record)?;
                tracing::info!(volume = id, device = attached.number, "a loop device was found again");
            }
            Owner::Nobody => {
                tracing::warn!(image = %image.display(), device = attached.number, "an orphaned loop device is detached");
                if let Err(error) = attached.detach() {
                    tracing::warn!(%error, "an orphaned loop device stays");
                }
            }
        }
    }
    Ok(())
}

enum Owner {
    Known,
    /// Attached by a driver that was killed before it could write that down.
    Adopts(String),
    Nobody,
}

fn owner(store: &Store, image: &Path, attached: Attached) -> Result<Owner> {
    let Ok(below) = image.strip_prefix(store.state.volumes()) else { return Ok(Owner::Nobody) };
    let Some(id) = below.iter().next().and_then(|id| id.to_str()) else { return Ok(Owner::Nobody) };
    if store.volumes.get(id)?.is_none() {
        return Ok(Owner::Nobody);
    }
    let Ok(record) = store.nodes.get(id) else { return Ok(Owner::Known) };
    Ok(match record.loop_device {
        Some(known) if known == attached => Owner::Known,
        // The one it knows is the one in use; this is a second.
        Some(known) if known.is_live() => Owner::Nobody,
        _ if record.staged.is_some() && attached.is_of(image) => Owner::Adopts(id.to_owned()),
        _ => Owner::Nobody,
    })
}

/// A mounter belongs to a staged volume of kind fuse, or it is a leftover.
fn find_mounters(store: &Store, mounters: &Mounters) -> Result<()> {
    for id in store.volumes.ids_on_disk()? {
        let directory = store.state.volume(&id);
        let Some(volume) = store.volumes.get(&id)? else { continue };
        // With a record that cannot be read nothing is known to be orphaned.
        let idle = store.nodes.get(&id).is_ok_and(|record| record.staged.is_none());
        if volume.kind != Kind::Fuse {
            continue;
        }
        if !idle {
            mounters.hold(&id);
        } else if let Err(error) = mounter::stop(&directory) {
            tracing::warn!(volume = id, %error, "an orphaned mounter stays");
        }
    }
    Ok(())
}

/// Removes half-made or half-deleted things. One that cannot be removed is logged and tried again next time.
fn clear(place: &Path) -> Result<()> {
    let entries = fs::read_dir(place).map_err(Error::io(format_args!("list {}", place.display())))?;
    let paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    for path in paths {
        let removed = mounter::stop(&VolumeDir::at(&path)).and_then(|()| remove_tree(&path));
        match removed {
            Ok(()) => tracing::info!(path = %path.display(), "a remainder was removed"),
            Err(error) => tracing::warn!(%error, "a remainder stays"),
        }
    }
    Ok(())
}
