//! The loop device: detached, or about to be.

use super::Notes;
use crate::error::{Error, Result};
use crate::loops::LoopDevice;
use crate::mount::{Expected, table, unmount_all};
use crate::node::Node;
use crate::record::{Access, Attached, NodeRecord, Staged, VolumeRecord};

impl Node {
    pub(super) fn heal_device(
        &self,
        volume: &VolumeRecord,
        record: &mut NodeRecord,
        staged: &Staged,
        notes: &mut Notes,
    ) {
        let Some(before) = record.loop_device else { return };
        let device = before.device();
        if before.is_live() {
            match device.stay() {
                Ok(true) => {
                    notes.done(format!("the detaching of {} was called off", device.path().display()));
                }
                Ok(false) => {}
                Err(error) => notes.failed(error),
            }
            return;
        }
        match self.attach_again(volume, record, staged, before) {
            Ok(after) if after.number == before.number => {
                notes.done(format!("the image was attached to {} again", device.path().display()));
            }
            Ok(after) => {
                let (old, new) = (device.path(), after.device().path());
                let (old, new) = (old.display(), new.display());
                notes.done(format!("the image was attached to {new}, since {old} is in use by others"));
                if staged.access == Access::Block {
                    notes.failed(format_args!(
                        "processes that opened {old} before must open the device again: restart the pods that use it"
                    ));
                    self.take_off_old_node(record, before, notes);
                }
            }
            Err(error) => notes.failed(error),
        }
    }

    /// To the same number if it is free, so that nodes of it in containers stay right.
    fn attach_again(
        &self,
        volume: &VolumeRecord,
        record: &mut NodeRecord,
        staged: &Staged,
        before: Attached,
    ) -> Result<Attached> {
        let image = self.store.state.volume(&volume.id).image();
        if !before.is_of(&image) {
            let why = format_args!(
                "its device is detached, and {} is not the image that was behind it; restore the image first",
                image.display()
            )
            .to_string();
            return Err(Error::precondition(&volume.id, why));
        }
        // While the old device is mounted anywhere the kernel holds it; so this is only ever a device without users.
        let attached = match before.device().attach_again(&image, false)? {
            Some(attached) => attached,
            None => LoopDevice::attach(&image, false)?,
        };
        record.loop_device = Some(attached);
        self.write(&volume.id, record).inspect_err(|_| {
            if let Err(error) = attached.detach() {
                tracing::warn!(volume = volume.id, %error, "a loop device stays attached until the next start");
            }
        })?;
        if staged.access == Access::Block {
            let readonly = staged.readonly || record.published.values().any(|published| published.readonly);
            attached.device().set_readonly(readonly)?;
        }
        Ok(attached)
    }

    /// The node of a number that is no longer ours must not stay where a container expects the volume.
    fn take_off_old_node(&self, record: &NodeRecord, before: Attached, notes: &mut Notes) {
        for target in record.published.keys() {
            let taken_off = self.place(target).and_then(|place| {
                match table()?.at(target).filter(|found| Expected::Node(before.device()).is(*found)) {
                    Some(_) => unmount_all(&place, true),
                    None => Ok(()),
                }
            });
            if let Err(error) = taken_off {
                notes.failed(error);
            }
        }
    }
}
