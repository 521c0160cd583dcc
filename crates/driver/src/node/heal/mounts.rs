//! The mounter, and the mounts at staging and targets.

use std::path::Path;

use rustix::mount::MountFlags;
use volmedic_host::mounts::Mount;

use super::Notes;
use crate::error::{Error, Result};
use crate::filesystem::{Content, content};
use crate::mount::{Expected, bind, make_writable, mount_disk, remount_writable, table, unmount_all};
use crate::mounter::Revived;
use crate::node::publish::put_at_target;
use crate::node::{Node, expected_at_staging, expected_at_target, occupied};
use crate::record::{Access, Kind, NodeRecord, Published, Staged, VolumeRecord};

impl Node {
    pub(super) fn heal_mounter(
        &self,
        volume: &VolumeRecord,
        record: &NodeRecord,
        staged: &Staged,
        stuck: bool,
        notes: &mut Notes,
    ) {
        match self.revive(volume, staged, stuck) {
            Ok(Revived::NotNeeded) => {}
            Ok(Revived::HandedOver) => notes.done(
                "a new mounter goes on with the session of the old one: every mount and open file works as before",
            ),
            Ok(Revived::NewSession) => {
                notes.done(
                    "a new mounter was started and mounted at the staging path; its session is new, so pods that used \
                     the volume before must be restarted",
                );
                self.take_off_old_session(volume, record, staged, notes);
            }
            Err(error) => notes.failed(error),
        }
    }

    fn revive(&self, volume: &VolumeRecord, staged: &Staged, stuck: bool) -> Result<Revived> {
        if table()?.at(&staged.path).is_none() && !stuck && self.mounters.has(&volume.id)? {
            // The mounter lives and serves the targets; only its staging mount is gone, which is repaired later.
            return Ok(Revived::NotNeeded);
        }
        self.mounters.ensure(volume, &self.place(&staged.path)?, staged.readonly, stuck)
    }

    /// Targets that still show the session of a dead mounter. They are bound again with whatever else is missing.
    fn take_off_old_session(
        &self,
        volume: &VolumeRecord,
        record: &NodeRecord,
        staged: &Staged,
        notes: &mut Notes,
    ) {
        for target in record.published.keys() {
            let taken_off = self.place(target).and_then(|place| {
                let table = table()?;
                let new = table.at(&staged.path).map(Mount::device);
                let old = table.at(target).filter(|found| Expected::Fuse(&volume.id).is(*found));
                match old {
                    Some(old) if Some(old.device()) != new => unmount_all(&place, true),
                    _ => Ok(()),
                }
            });
            if let Err(error) = taken_off {
                notes.failed(error);
            }
        }
    }

    /// Mounts again what is not mounted. A mount of another program is not ours to take off.
    pub(super) fn heal_mounts(
        &self,
        volume: &VolumeRecord,
        record: &NodeRecord,
        staged: &Staged,
        notes: &mut Notes,
    ) {
        match self.heal_staging(volume, record, staged) {
            Ok(false) => {}
            Ok(true) => notes.done(format!("the staging path {} was mounted again", staged.path.display())),
            Err(error) => notes.failed(error),
        }
        for (target, published) in record.published.iter().filter(|(_, published)| published.done) {
            match self.heal_target(volume, record, staged, target, published) {
                Ok(false) => {}
                Ok(true) => notes.done(format!("the target {} was mounted again", target.display())),
                Err(error) => notes.failed(error),
            }
        }
    }

    fn heal_staging(&self, volume: &VolumeRecord, record: &NodeRecord, staged: &Staged) -> Result<bool> {
        let Access::Mount { options } = &staged.access else { return Ok(false) };
        let expected = expected_at_staging(volume, record)
            .ok_or_else(|| Error::precondition(&volume.id, "its device is not attached"))?;
        let table = table()?;
        match table.at(&staged.path) {
            Some(found) if expected.is(found) => return Ok(false),
            Some(found) => return Err(occupied(&volume.id, &staged.path, found)),
            None => {}
        }
        let place = self.place(&staged.path)?;
        // From a target, where there is one: the same mount, and nothing of the disk has to be read for it.
        let shown = |target: &&std::path::PathBuf| table.at(target).is_some_and(|found| expected.is(found));
        if let Some(target) = record.published.keys().find(shown) {
            let from = self.place(target)?.open_directory()?;
            bind(&from, &place.open_directory()?, staged.readonly)?;
            return Ok(true);
        }
        let Some(attached) = record.loop_device.filter(|_| volume.kind == Kind::Loop) else {
            return Err(Error::precondition(&volume.id, "it has no mount left to mount again from"));
        };
        // Staging would format what is blank. Here it held data once, so blank is damage and stays as it is.
        match content(&self.store.state.volume(&volume.id).image())? {
            Content::Known(found) if found == volume.filesystem => {}
            _ => {
                let wanted = volume.filesystem.name();
                let why =
                    format!("no {wanted} is found on it any more, so it is not touched; restore the image");
                return Err(Error::precondition(&volume.id, why));
            }
        }
        mount_disk(attached.device(), &place.open_directory()?, volume.filesystem, options, staged.readonly)?;
        Ok(true)
    }

    fn heal_target(
        &self,
        volume: &VolumeRecord,
        record: &NodeRecord,
        staged: &Staged,
        target: &Path,
        published: &Published,
    ) -> Result<bool> {
        let expected = expected_at_target(volume, record);
        match table()?.at(target) {
            Some(found) if expected.is_some_and(|expected| expected.is(found)) => return Ok(false),
            Some(found) => return Err(occupied(&volume.id, target, found)),
            None => {}
        }
        let (staging, place) = (self.place(&staged.path)?, self.place(target)?);
        put_at_target(volume, record, staged, &staging, &place, published)?;
        Ok(true)
    }

    /// Read-only where writing was asked for: an error of the storage, as a rule.
    pub(super) fn heal_read_only(
        &self,
        volume: &VolumeRecord,
        record: &NodeRecord,
        staged: &Staged,
        allowed: bool,
        notes: &mut Notes,
    ) {
        let (Access::Mount { options }, false) = (&staged.access, staged.readonly) else { return };
        let targets = record.published.iter().filter(|(_, published)| published.done && !published.readonly);
        for path in targets.map(|(path, _)| path).chain([&staged.path]) {
            match self.make_writable(volume, record, path, options, allowed) {
                Ok(false) => {}
                Ok(true) => notes.done(format!("{} was made writable again", path.display())),
                Err(error) => return notes.failed(error),
            }
        }
    }

    fn make_writable(
        &self,
        volume: &VolumeRecord,
        record: &NodeRecord,
        path: &Path,
        options: &[String],
        allowed: bool,
    ) -> Result<bool> {
        let table = table()?;
        let expected = expected_at_staging(volume, record);
        let found = table.at(path).filter(|found| expected.is_some_and(|expected| expected.is(*found)));
        // A file system that was shut down has to be unmounted first, which is not ours to decide.
        let Some(found) = found.filter(|found| found.is_read_only() && !found.is_shut_down()) else {
            return Ok(false);
        };
        if !allowed {
            let why =
                "it is read-only, and making it writable again is not switched on; see --heal-read-only";
            return Err(Error::precondition(&volume.id, why));
        }
        let opened = self.place(path)?.open_directory()?;
        if ["ro", "emergency_ro"].iter().any(|option| found.super_options().has(option)) {
            let own = match volume.kind {
                Kind::Fuse => MountFlags::NODEV | MountFlags::NOSUID,
                Kind::Loop => MountFlags::empty(),
            };
            remount_writable(&opened, options, own)?;
        }
        make_writable(&opened)?;
        Ok(true)
    }
}
