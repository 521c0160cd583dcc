//! All checks, in their order.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use volmedic_health::fullness::Full;
use volmedic_health::{Condition, Status, WellKnown};
use volmedic_host::block::Sysfs;
use volmedic_host::helper::{Answer, Deadline, Helpers, Question};
use volmedic_host::mounts::Table;

use super::facts::{Backing, Place, VolumeFacts};
use super::flight::Flights;
use super::fsck::{self, Checked, Fsck, Job, Tool, Verdict};
use super::fullness;
use super::{Finding, Measured, Report, Thresholds, backing, kernel, mounted, readable};

/// How the checks are done.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// For one call to a volume.
    pub deadline: Duration,
    /// How many entries of the volume's directory are read.
    pub entries: u32,
    pub thresholds: Thresholds,
    pub fsck: fsck::Schedule,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(5),
            entries: 64,
            thresholds: Thresholds::default(),
            fsck: fsck::Schedule::default(),
        }
    }
}

/// How far a check goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Everything that can be known without touching the volume: cheap enough for every volume of a list.
    Shallow,
    /// Also asks the volume itself, through a helper.
    Deep,
}

/// The checks of one driver. Calls block, so from an async task they go through a blocking thread.
#[derive(Debug)]
pub struct Checks {
    settings: Settings,
    sysfs: Sysfs,
    helpers: Helpers,
    fsck: Fsck,
    flights: Flights<Report>,
    full: Mutex<HashMap<String, Full>>,
}

impl Checks {
    pub fn new(settings: Settings, helpers: Helpers) -> io::Result<Self> {
        Ok(Self {
            settings,
            sysfs: Sysfs::default(),
            helpers,
            fsck: Fsck::start(settings.fsck)?,
            flights: Flights::new(),
            full: Mutex::default(),
        })
    }

    pub fn helpers(&self) -> &Helpers {
        &self.helpers
    }

    /// Checks one volume. A caller that asks about the same volume meanwhile gets the same report, if its facts are not
    /// newer.
    ///
    /// `table` is read by the caller, once for a whole pass; `as_of` is a time before that and before `facts` was made.
    /// `reread` makes both again, for when an older check had to be waited for; its error is why it cannot.
    pub fn look(
        &self,
        facts: &VolumeFacts,
        table: &Table,
        as_of: Instant,
        depth: Depth,
        reread: impl FnOnce() -> Result<(VolumeFacts, Table), String>,
    ) -> Report {
        match depth {
            Depth::Shallow => self.examine(facts, table, depth),
            Depth::Deep => {
                // A check may wait for a free helper and then for its answer, and so may an older one before it.
                let patience = self.settings.deadline * 5 + Duration::from_secs(1);
                let look = |waited: bool| {
                    if !waited {
                        return self.examine(facts, table, depth);
                    }
                    match reread() {
                        Ok((facts, table)) => self.examine(&facts, &table, depth),
                        Err(why) => Report { blind: Some(why), ..Report::default() },
                    }
                };
                let shared = self.flights.share(&facts.id, as_of, patience, look);
                shared.unwrap_or_else(|| Report {
                    blind: Some(format!("another check of {} did not end in time; ask again", facts.id)),
                    ..Report::default()
                })
            }
        }
    }

    /// The volume was deleted or is not staged any more.
    pub fn forget(&self, volume: &str) {
        self.fsck.forget(volume);
        self.lock_full().remove(volume);
    }

    fn examine(&self, facts: &VolumeFacts, table: &Table, depth: Depth) -> Report {
        let mut report = Report::default();
        let anywhere = |found: Vec<Condition>| found.into_iter().map(Finding::anywhere).collect::<Vec<_>>();
        report.findings.extend(anywhere(facts.drive.conditions()));
        report.findings.extend(anywhere(backing::check(facts, &self.sysfs)));
        let mounted = mounted::check(facts, table);
        report.findings.extend(mounted.findings);
        // Sysfs failing to answer is not the volume's fault, and the other checks still count.
        report.findings.extend(anywhere(kernel::check(facts, &self.sysfs).unwrap_or_default()));
        let answers = !matches!(facts.backing, Backing::Folder { mounter_dead: true, .. });
        if let (Depth::Deep, true, Some(place)) = (depth, answers, &mounted.reachable) {
            self.ask(facts, place, &mut report);
        }
        report.checked = self.file_system_check(facts);
        report.findings.extend(anywhere(report.checked.iter().filter_map(corruption).collect()));
        let full = match report.measured {
            Some(Measured::FileSystem(usage)) => fullness::judge(
                self.lock_full().entry(facts.id.clone()).or_default(),
                self.settings.thresholds,
                usage,
            ),
            _ => Vec::new(),
        };
        report.findings.extend(anywhere(full));
        report
    }

    fn ask(&self, facts: &VolumeFacts, place: &Place, report: &mut Report) {
        let path = place.path.clone();
        let question = if place.block {
            Question::Device { path, read: true }
        } else {
            Question::Directory { path, most: self.settings.entries }
        };
        // Callers rarely wait longer than 10 s for a call. A volume that is only slow is reported before that.
        let call = self.settings.deadline;
        let deadline = Deadline { call, whole: call * 3 / 2 };
        match self.helpers.look(&facts.id, &question, deadline) {
            Ok(Answer::Directory(found)) => report.measured = Some(Measured::FileSystem(found.usage)),
            Ok(Answer::Device(found)) if found.bytes == 0 => {
                let message =
                    format!("the device at {} has no size: nothing is behind it", place.path.display());
                report.findings.push(Finding::anywhere(Condition::new(
                    Status::Inaccessible,
                    WellKnown::DiskRemoved.into(),
                    &message,
                )));
            }
            Ok(Answer::Device(found)) => report.measured = Some(Measured::Block { bytes: found.bytes }),
            Err(error) => match readable::condition(&error) {
                Some(condition) => report.findings.push(Finding::anywhere(condition)),
                None => report.blind = Some(error.to_string()),
            },
        }
    }

    /// Serves the last result, whatever its age, and asks for a new one when it is due. Only a staged volume is
    /// checked: before that its image may be blank, which is not corrupt.
    fn file_system_check(&self, facts: &VolumeFacts) -> Option<Checked> {
        let Backing::Image { file, fs_type: Some(fs_type), .. } = &facts.backing else { return None };
        facts.staging.as_ref()?;
        let tool = Tool::for_fs_type(fs_type)?;
        self.fsck.ask(&facts.id, Job { tool, on: file.clone(), mounted: true });
        self.fsck.last(&facts.id)
    }

    fn lock_full(&self) -> MutexGuard<'_, HashMap<String, Full>> {
        self.full.lock()
    }
}

fn corruption(checked: &Checked) -> Option<Condition> {
    let Verdict::Corrupt { evidence } = &checked.verdict else { return None };
    let minutes = checked.at.elapsed().as_secs() / 60;
    let message = format!("the file system is damaged: {evidence} (checked {minutes} min ago)");
    Some(Condition::new(Status::Degraded, WellKnown::FilesystemCorruption.into(), &message))
}
