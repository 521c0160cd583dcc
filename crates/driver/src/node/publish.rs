//! Publishing: a bind mount of the staged volume, or of its device node, at each target.

use super::{Node, expected_at_staging, expected_at_target, lets_go, occupied};
use crate::error::{Error, Result};
use crate::mount::{Expected, bind, table, unmount_all};
use crate::paths::{Opened, Place, There};
use crate::record::{Access, Kind, NodeRecord, Published, Staged, VolumeRecord};
use crate::request::{Capability, is_one_writer};

impl Node {
    pub(crate) fn publish(
        &self,
        id: &str,
        staging: &Place,
        target: &Place,
        wanted: &Capability,
        readonly: bool,
    ) -> Result<()> {
        let (_lock, volume, mut record) = self.take(id)?;
        let staged = match &record.staged {
            Some(staged) if staged.done && staged.path == staging.path() => staged.clone(),
            _ => {
                let path = staging.path().display();
                return Err(Error::precondition(
                    id,
                    format_args!("it is not staged at {path}; stage it first"),
                ));
            }
        };
        if wanted.block() != (staged.access == Access::Block) {
            return Err(Error::invalid(
                "volume_capability",
                "the volume is staged for the other access type",
            ));
        }
        if staging.path() == target.path() {
            return Err(Error::invalid("target_path", "it is the staging path"));
        }
        self.check_apart("target_path", target)?;
        let readonly = readonly || staged.readonly || wanted.reads_only();
        let plan = Published { block: wanted.block(), readonly, mode: wanted.mode, done: false };
        check_others(&record, id, target, wanted, &plan)?;
        if !record.published.contains_key(target.path()) && table()?.at(target.path()).is_none() {
            // An impossible place is refused before anything is planned for it.
            target.check_free_for(if plan.block { There::File } else { There::Directory })?;
        }
        if record.published.get(target.path()) != Some(&plan) {
            record.published.insert(target.path().to_owned(), plan.clone());
            self.write(id, &record)?;
        }
        if volume.kind == Kind::Fuse {
            self.revive_for_publish(&volume, &record, &staged)?;
        }
        put_at_target(&volume, &record, &staged, staging, target, &plan)?;
        record.published.insert(target.path().to_owned(), Published { done: true, ..plan });
        self.write(id, &record)
    }

    /// A mounter that died is started again before its mount is published for one more pod: a new pod on the node would
    /// otherwise get the dead mount, because the kubelet does not stage a volume again that it has staged. Mounts of pods
    /// that used it before stay dead, unless the session goes on.
    fn revive_for_publish(&self, volume: &VolumeRecord, record: &NodeRecord, staged: &Staged) -> Result<()> {
        if self.mounters.has(&volume.id)? {
            return Ok(());
        }
        let place = self.roots.place("staging_target_path", staged.path.to_str().unwrap_or_default())?;
        let revived = self.mounters.ensure(volume, &place, staged.readonly, false)?;
        tracing::info!(
            volume = volume.id,
            ?revived,
            targets = record.published.len(),
            "its mounter had died and was started again"
        );
        Ok(())
    }

    pub(crate) fn unpublish(&self, id: &str, target: &Place) -> Result<()> {
        let (_lock, volume, mut record) = self.take(id)?;
        let Some(published) = record.published.get_mut(target.path()) else {
            // Never published here, or unpublished already: nothing at this path is ours.
            return Ok(());
        };
        if published.done {
            published.done = false;
            self.write(id, &record)?;
        }
        let table = table()?;
        let is_ours = |expected: Expected<'_>| table.stacked(target.path()).any(|found| expected.is(found));
        let somebody_elses = table.at(target.path()).is_some()
            && expected_at_target(&volume, &record).is_some_and(|e| !is_ours(e));
        // What another put there stays; this volume is not under it.
        if !somebody_elses {
            unmount_all(target, lets_go(&volume))?;
            target.remove()?;
        }
        record.published.remove(target.path());
        self.write(id, &record)
    }
}

/// Whether this publication goes together with those that are there.
fn check_others(
    record: &NodeRecord,
    id: &str,
    target: &Place,
    wanted: &Capability,
    plan: &Published,
) -> Result<()> {
    if let Some(before) = record.published.get(target.path())
        && (Published { done: false, ..before.clone() }) != *plan
    {
        let what = format!("the publication of {id} at {}", target.path().display());
        return Err(Error::Conflict {
            what,
            why: "it has another capability; unpublish it first".to_owned(),
        });
    }
    for (path, other) in record.published.iter().filter(|(path, _)| *path != target.path()) {
        let path = path.display();
        if wanted.one_writer() || is_one_writer(other.mode) {
            let why = format_args!("it is for a single writer and published at {path} already").to_string();
            return Err(Error::precondition(id, why));
        }
        // Read-only is a property of the device, not of one of its nodes.
        if plan.block && other.readonly != plan.readonly {
            let why =
                format_args!("its device is published at {path} with another read-only setting").to_string();
            return Err(Error::precondition(id, why));
        }
    }
    Ok(())
}

pub(super) fn put_at_target(
    volume: &VolumeRecord,
    record: &NodeRecord,
    staged: &Staged,
    staging: &Place,
    target: &Place,
    plan: &Published,
) -> Result<()> {
    let not_attached =
        || Error::precondition(&volume.id, "its device is no longer attached; unstage and stage it again");
    let expected = expected_at_target(volume, record).ok_or_else(not_attached)?;
    let table = table()?;
    match table.at(target.path()) {
        Some(found) if expected.is(found) => return Ok(()),
        Some(found) => return Err(occupied(&volume.id, target.path(), found)),
        None => {}
    }
    if plan.block {
        let attached = record.loop_device.filter(|attached| attached.is_live()).ok_or_else(not_attached)?;
        attached.device().set_readonly(plan.readonly)?;
        return bind(&Opened::device(&attached.device().path())?, &target.open_file()?, plan.readonly);
    }
    let at_staging = table
        .at(staging.path())
        .filter(|found| expected_at_staging(volume, record).is_some_and(|expected| expected.is(*found)));
    if at_staging.is_none() {
        let path = staged.path.display();
        let why =
            format_args!("it is no longer mounted at its staging path {path}; stage it again").to_string();
        return Err(Error::precondition(&volume.id, why));
    }
    bind(&staging.open_directory()?, &target.open_directory()?, plan.readonly)
}
