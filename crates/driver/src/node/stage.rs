//! Staging: the device attached, the file system made if there is none, and mounted once for the whole node.

use std::thread::sleep;
use std::time::Duration;

use super::{Node, expected_at_staging, lets_go, occupied};
use crate::error::{Error, Result};
use crate::filesystem::{Content, Filesystem, content};
use crate::loops::LoopDevice;
use crate::mount::{Expected, mount_disk, table, unmount_all};
use crate::mounter;
use crate::paths::{Place, There};
use crate::record::{Access, Kind, NodeRecord, Staged, VolumeRecord};
use crate::request::Capability;

/// How often a file system is made while the tool finds the device in use.
const FORMAT_TRIES: u32 = 5;
const FORMAT_PAUSE: Duration = Duration::from_millis(50);

impl Node {
    pub(crate) fn stage(&self, id: &str, place: &Place, wanted: &Capability, readonly: bool) -> Result<()> {
        let (_lock, volume, mut record) = self.take(id)?;
        check_fits(&volume, wanted)?;
        self.check_apart("staging_target_path", place)?;
        let readonly = readonly || wanted.reads_only();
        let plan = Staged {
            path: place.path().to_owned(),
            access: wanted.access.clone(),
            readonly,
            mode: wanted.mode,
            done: false,
        };
        if let Some(before) = &record.staged {
            let path = before.path.display();
            if before.path != plan.path {
                return Err(Error::precondition(
                    id,
                    format_args!("it is staged at {path}; unstage it there first"),
                ));
            }
            if (Staged { done: false, ..before.clone() }) != plan {
                let why = "it is staged with another capability; unstage it first".to_owned();
                return Err(Error::Conflict { what: format!("the staging of {id} at {path}"), why });
            }
        }
        if record.staged.is_none() && table()?.at(place.path()).is_none() {
            // An impossible place is refused before anything is planned for it.
            place.check_free_for(There::Directory)?;
        }
        if record.staged.as_ref() != Some(&plan) {
            record.staged = Some(plan);
            self.write(id, &record)?;
        }
        match volume.kind {
            Kind::Fuse => drop(self.mounters.ensure(&volume, place, readonly, false)?),
            Kind::Loop => self.stage_loop(&volume, &mut record, place)?,
        }
        if let Some(staged) = &mut record.staged {
            staged.done = true;
        }
        self.write(id, &record)
    }

    fn stage_loop(&self, volume: &VolumeRecord, record: &mut NodeRecord, place: &Place) -> Result<()> {
        let device = self.attach(volume, record)?;
        let Some(Staged { access, readonly, .. }) = record.staged.clone() else { return Ok(()) };
        let Access::Mount { options } = access else {
            return device.set_readonly(readonly);
        };
        match table()?.at(place.path()) {
            Some(found) if Expected::Disk(device).is(found) => return Ok(()),
            Some(found) => return Err(occupied(&volume.id, place.path(), found)),
            None => {}
        }
        self.format_if_blank(volume, record, device)?;
        let opened = place.open_directory()?;
        mount_disk(device, &opened, volume.filesystem, &options, readonly)?;
        drop(opened);
        if volume.grown_from_source && !readonly {
            volume.filesystem.grow(&volume.id, &device.path(), place.path())?;
        }
        Ok(())
    }

    /// The loop device of the volume, attached if it is not yet.
    fn attach(&self, volume: &VolumeRecord, record: &mut NodeRecord) -> Result<LoopDevice> {
        let image = self.store.state.volume(&volume.id).image();
        if let Some(before) = record.loop_device {
            if before.is_live() && before.is_of(&image) {
                return Ok(before.device());
            }
            before.detach()?;
        }
        let attached = LoopDevice::attach(&image, false)?;
        record.loop_device = Some(attached);
        self.write(&volume.id, record).inspect_err(|_| {
            if let Err(error) = attached.detach() {
                tracing::warn!(volume = volume.id, %error, "a loop device stays attached until the next start");
            }
        })?;
        Ok(attached.device())
    }

    fn format_if_blank(
        &self,
        volume: &VolumeRecord,
        record: &mut NodeRecord,
        device: LoopDevice,
    ) -> Result<()> {
        let id = &volume.id;
        let wanted = volume.filesystem;
        if !record.formatting {
            match content(&self.store.state.volume(id).image())? {
                Content::Blank => {}
                Content::Known(found) if found == wanted => return Ok(()),
                Content::Known(found) => return Err(wrong_content(id, wanted, found.name())),
                Content::Other => {
                    return Err(wrong_content(id, wanted, "data that is no file system we know"));
                }
            }
            record.formatting = true;
            self.write(id, record)?;
        }
        make_filesystem(wanted, device)?;
        record.formatting = false;
        self.write(id, record)
    }

    pub(crate) fn unstage(&self, id: &str, place: &Place) -> Result<()> {
        let (_lock, volume, mut record) = self.take(id)?;
        if record.staged.as_ref().is_some_and(|staged| staged.path != place.path()) {
            // Staged elsewhere; nothing of ours is here.
            return Ok(());
        }
        if let Some(target) = record.published.keys().next() {
            let why =
                format_args!("it is still published at {}; unpublish it first", target.display()).to_string();
            return Err(Error::precondition(id, why));
        }
        if record.staged.is_none() && record.loop_device.is_none() {
            return Ok(());
        }
        // From here on it may be half there, which is nothing to raise an alarm about.
        if let Some(staged) = &mut record.staged
            && staged.done
        {
            staged.done = false;
            self.write(id, &record)?;
        }
        Self::unmount_staging(&volume, &record, place)?;
        match volume.kind {
            Kind::Fuse => {
                self.mounters.let_go(id);
                mounter::stop(&self.store.state.volume(id))?;
            }
            Kind::Loop => {
                if let Some(attached) = record.loop_device.take() {
                    // A number that is not ours any more may be mounted as another volume.
                    let (disk, live) = (Expected::Disk(attached.device()), attached.is_live());
                    if let Some(found) = table()?.iter().find(|m| live && disk.is(*m)) {
                        let path = found.target().display();
                        return Err(Error::precondition(
                            id,
                            format_args!("it is still mounted at {path}; unmount it"),
                        ));
                    }
                    attached.detach()?;
                }
            }
        }
        record.staged = None;
        self.write(id, &record)
    }

    fn unmount_staging(volume: &VolumeRecord, record: &NodeRecord, place: &Place) -> Result<()> {
        let Some(expected) = expected_at_staging(volume, record) else { return Ok(()) };
        let table = table()?;
        match table.at(place.path()) {
            Some(found) if expected.is(found) => unmount_all(place, lets_go(volume)),
            Some(found) if table.stacked(place.path()).any(|below| expected.is(below)) => {
                Err(occupied(&volume.id, place.path(), found))
            }
            // Nothing, or another volume's with nothing of this one under it.
            _ => Ok(()),
        }
    }
}

fn check_fits(volume: &VolumeRecord, wanted: &Capability) -> Result<()> {
    const FIELD: &str = "volume_capability";
    match (volume.kind, wanted.block(), wanted.filesystem) {
        (Kind::Fuse, true, _) => Err(Error::invalid(FIELD, "a volume of kind fuse cannot be a block device")),
        (Kind::Fuse, false, Some(other)) => {
            Err(Error::invalid(FIELD, format_args!("a volume of kind fuse is not {}", other.name())))
        }
        (Kind::Loop, false, Some(other)) if other != volume.filesystem => {
            let (made, other) = (volume.filesystem.name(), other.name());
            Err(Error::invalid(FIELD, format_args!("the volume was made for {made}, not for {other}")))
        }
        _ => Ok(()),
    }
}

fn wrong_content(volume: &str, wanted: Filesystem, found: &str) -> Error {
    let wanted = wanted.name();
    Error::precondition(
        volume,
        format_args!("{wanted} is wanted but it holds {found}; data is never formatted over"),
    )
}

/// A process that wanted the same free number, and lost, has the device claimed for a moment. A tool that finds it so refuses.
fn make_filesystem(wanted: Filesystem, device: LoopDevice) -> Result<()> {
    let mut tries = FORMAT_TRIES;
    loop {
        device.wait_until_free()?;
        tries -= 1;
        match wanted.make(&device.path()) {
            Err(error) if tries > 0 && says_in_use(&error) => sleep(FORMAT_PAUSE),
            made => return made,
        }
    }
}

fn says_in_use(error: &Error) -> bool {
    let words = error.to_string().to_lowercase();
    words.contains("in use") || words.contains("busy")
}
