//! From our records to what the checks need to know. Every call that reports health gets it from here.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use volmedic_host::mounts::Table;
use volmedic_panics::caught_now;

use crate::error::{Error, Result};
use crate::health::{Backing, Checks, Depth, DriveState, LoopFacts, Place, Report, VolumeFacts};
use crate::mount::table;
use crate::mounter;
use crate::record::{Access, Kind, VolumeRecord};
use crate::store::{Store, Version, read_record};

/// Number of mounted volumes that are checked concurrently, so that a few that hang do not hold up a list.
const SIDE_BY_SIDE: usize = 16;
/// How often a volume is checked that is staged or unstaged, published or unpublished, during the check.
const LOOKS: usize = 3;

#[derive(Debug)]
pub(crate) struct Assessor {
    pub(crate) store: Arc<Store>,
    pub(crate) checks: Checks,
}

impl Assessor {
    /// How volumes are, in their order, by one reading of the mount table. `None` for one that has vanished.
    pub(crate) fn look(&self, volumes: &[Arc<VolumeRecord>]) -> Result<Vec<Option<Report>>> {
        let (as_of, table) = (Instant::now(), table()?);
        let mut reports = Vec::with_capacity(volumes.len());
        let mut mounted = Vec::new();
        for (at, volume) in volumes.iter().enumerate() {
            // Before the facts: a change in between then shows.
            let version = self.store.nodes.version(&volume.id);
            // What we cannot read about one volume must not hide the others.
            let facts = match self.facts(volume) {
                Ok(facts) => facts,
                Err(error) => {
                    reports.push(Some(blind(error.to_string())));
                    continue;
                }
            };
            match facts {
                // Only what is mounted has to be asked, and may keep us waiting.
                Some(facts) if facts.staging.is_some() || !facts.targets.is_empty() => {
                    mounted.push((at, Mounted { volume, facts, version }));
                    reports.push(None);
                }
                Some(facts) => {
                    let reread = || self.reread(volume);
                    reports.push(Some(self.checks.look(&facts, &table, as_of, Depth::Shallow, reread)));
                }
                None => reports.push(None),
            }
        }
        for (at, report) in self.look_deep(&mounted, &table, as_of) {
            reports[at] = report;
        }
        Ok(reports)
    }

    fn look_deep(
        &self,
        mounted: &[(usize, Mounted<'_>)],
        table: &Table,
        as_of: Instant,
    ) -> Vec<(usize, Option<Report>)> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some((at, mounted)) = mounted.get(next.fetch_add(1, Ordering::Relaxed)) {
                let looked = caught_now(|| self.look_settled(mounted, table, as_of));
                let report = looked.unwrap_or_else(|panic| {
                    let volume = &mounted.volume.id;
                    tracing::error!(volume, panic, "internal error (bug): the check of a volume panicked");
                    Some(blind(format!(
                        "internal error (bug): the check panicked: {panic}; please report it"
                    )))
                });
                done.push((*at, report));
            }
            done
        };
        match mounted.len().min(SIDE_BY_SIDE) {
            0 | 1 => work(),
            threads => thread::scope(|scope| {
                let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
            }),
        }
    }

    /// Trouble counts only if the volume is where it was when the check began. The kubelet may have unstaged it meanwhile, and
    /// then it is rightly not there.
    fn look_settled(&self, mounted: &Mounted<'_>, table: &Table, as_of: Instant) -> Option<Report> {
        let reread = || self.reread(mounted.volume);
        let mut report = self.checks.look(&mounted.facts, table, as_of, Depth::Deep, reread);
        let mut seen = mounted.version;
        for _ in 1..LOOKS {
            let (as_of, version) = (Instant::now(), self.store.nodes.version(&mounted.volume.id));
            if report.findings.is_empty() || version == seen {
                return Some(report);
            }
            seen = version;
            report = match self.facts_and_table(mounted.volume) {
                Ok(Some((facts, table))) => self.checks.look(&facts, &table, as_of, Depth::Deep, reread),
                Ok(None) => return None,
                Err(error) => return Some(blind(error.to_string())),
            };
        }
        if report.findings.is_empty() || self.store.nodes.version(&mounted.volume.id) == seen {
            return Some(report);
        }
        let why = format!("{} is being staged or unstaged, again and again; ask again", mounted.volume.id);
        Some(blind(why))
    }

    fn facts_and_table(&self, volume: &VolumeRecord) -> Result<Option<(VolumeFacts, Table)>> {
        let facts = self.facts(volume)?;
        facts.map(|facts| Ok((facts, table()?))).transpose()
    }

    /// As the checks want it, after an older check had to be waited for.
    fn reread(&self, volume: &VolumeRecord) -> Result<(VolumeFacts, Table), String> {
        let again = self.facts_and_table(volume).map_err(|error| error.to_string())?;
        again.ok_or_else(|| format!("{} vanished while it was checked; ask again", volume.id))
    }

    /// `None` when nothing of the volume is left on disk.
    fn facts(&self, volume: &VolumeRecord) -> Result<Option<VolumeFacts>> {
        let directory = self.store.state.volume(&volume.id);
        let drive = match read_record::<DriveState>(&directory.drive_state()) {
            Ok(Some(drive)) => drive,
            // One call for the usual case; a second only when there is no such file.
            Ok(None) if gone(directory.path()) => return Ok(None),
            Ok(None) => DriveState::default(),
            Err(error) => return Err(error),
        };
        let record = self.store.nodes.get(&volume.id)?;
        let staged = record.staged.as_ref().filter(|staged| staged.done);
        let mounted = staged.filter(|staged| matches!(staged.access, Access::Mount { .. }));
        let targets = record.published.iter().filter(|(_, published)| published.done);
        let backing = match volume.kind {
            Kind::Fuse => Backing::Folder {
                folder: directory.files(),
                source: Some(volume.id.clone()),
                mounter_dead: staged.is_some() && mounter::find(&directory)?.is_none(),
            },
            Kind::Loop => Backing::Image {
                file: directory.image(),
                device: staged.and(record.loop_device).map(|attached| LoopFacts { number: attached.number }),
                fs_type: mounted.map(|_| volume.filesystem.name()),
            },
        };
        Ok(Some(VolumeFacts {
            id: volume.id.clone(),
            drive,
            bytes: volume.bytes,
            backing,
            staging: mounted.map(|staged| Place {
                path: staged.path.clone(),
                read_only: staged.readonly,
                block: false,
            }),
            targets: targets
                .map(|(path, published)| Place {
                    path: path.clone(),
                    read_only: published.readonly,
                    block: published.block,
                })
                .collect(),
        }))
    }
}

/// What is reported of a volume that could not be seen.
fn blind(why: String) -> Report {
    Report { blind: Some(why), ..Report::default() }
}

/// A volume that is at a place, with the version of the record that says so.
struct Mounted<'v> {
    volume: &'v VolumeRecord,
    facts: VolumeFacts,
    version: Option<Version>,
}

fn gone(directory: &Path) -> bool {
    directory.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The report of a volume that must be there and must have been seen.
pub(crate) fn seen(volume: &VolumeRecord, report: Option<Report>) -> Result<Report> {
    match report {
        None => Err(Error::NoVolume(volume.id.clone())),
        Some(Report { blind: Some(why), findings, .. }) if findings.is_empty() => {
            Err(Error::Unseen { volume: volume.id.clone(), why })
        }
        Some(report) => Ok(report),
    }
}
