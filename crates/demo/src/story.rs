//! The story: one fault after the other, each followed until it was reported and is over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use volmedic_driver::fault::{Fault, Faults, Kind};
use volmedic_health::{Held, Remedy};
use volmedic_panics::{blocking, caught};

use super::source::Source;
use super::voice::Topic;
use super::volumes::{Volume, Volumes};
use volmedic_cli::fault;

/// Time for a fault to be reported. A fault of the driver itself takes longer: several checks must fail first.
const REPORTED: Duration = Duration::from_mins(1);
const REPORTED_OF_THE_DRIVER: Duration = Duration::from_secs(75);
/// Time for the healer to heal it.
const HEALED: Duration = Duration::from_secs(90);
/// Time for every vantage to see that it is over.
const OVER: Duration = Duration::from_mins(1);
/// What is not healed is left like this for as long as people need to read about it.
const LINGER: Duration = Duration::from_millis(2_500);
const LOOK: Duration = Duration::from_millis(50);

/// The story where every kind of volume is possible: each fault with the kinds that show it best.
const WHOLE: &[(Fault, &[Kind])] = &[
    (Fault::MounterKilled, &[Kind::Fuse]),
    (Fault::TargetUnmounted, &[Kind::Ext4, Kind::Fuse]),
    (Fault::Full, &[Kind::Ext4, Kind::Fuse]),
    (Fault::ReadOnly, &[Kind::Xfs, Kind::Btrfs, Kind::Ext4, Kind::Fuse]),
    (Fault::ImageTruncated, &[Kind::Ext4, Kind::Block]),
    (Fault::MounterFrozen, &[Kind::Fuse]),
    (Fault::DriveSuspect, &[Kind::Btrfs, Kind::Block, Kind::Ext4, Kind::Fuse]),
];

/// The story with volumes that are not mounted.
const DRIVES: &[(Fault, &[Kind])] = &[
    (Fault::DriveSuspect, Kind::ALL),
    (Fault::DriveBad, Kind::ALL),
    (Fault::DriveMissing, Kind::ALL),
    (Fault::VolumeFailed, Kind::ALL),
];

/// Faults that a volume can have without being mounted.
const UNMOUNTED: &[Fault] = &[
    Fault::DriveSuspect,
    Fault::DriveBad,
    Fault::DriveUnknown,
    Fault::DriveMissing,
    Fault::VolumeFailed,
    Fault::ReleaseFailed,
];

/// One fault, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Act {
    pub(super) fault: Fault,
    /// None for a fault of the driver itself.
    pub(super) volume: Option<Arc<str>>,
}

/// What somebody asked for: a fault, and maybe which volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) fault: Fault,
    pub(super) volume: Option<String>,
}

impl std::str::FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (fault, volume) = match text.split_once(':') {
            Some((fault, volume)) => (fault, Some(volume.to_owned())),
            None => (text, None),
        };
        Ok(Self { fault: fault::named(fault, "volmedic demo --fault list")?, volume })
    }
}

/// The acts that can be played with these volumes, each on another; and the faults that find none.
pub(super) fn plan(volumes: &Volumes, mounted: bool) -> (Vec<Act>, Vec<Fault>) {
    let mut taken = BTreeSet::new();
    let (mut acts, mut without) = (Vec::new(), Vec::new());
    for (fault, kinds) in if mounted { WHOLE } else { DRIVES } {
        let free = |volume: &&Volume| !taken.contains(&volume.name);
        let of_kind = |kind: &Kind| volumes.iter().filter(free).find(|volume| volume.kind == *kind);
        match kinds.iter().filter(|kind| fault.kinds().contains(kind)).find_map(of_kind) {
            Some(volume) => {
                taken.insert(volume.name.clone());
                acts.push(Act { fault: *fault, volume: Some(volume.name.clone()) });
            }
            None => without.push(*fault),
        }
    }
    (acts, without)
}

/// How one fault went.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) reported: bool,
    /// A problem that the healer acts on was reported.
    pub(super) healable: bool,
    pub(super) healed: bool,
    /// What was wanting, if anything was: a sentence.
    pub(super) missing: Option<String>,
}

/// Where acts are played.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) source: Arc<Source>,
    pub(super) faults: Faults,
    /// Work that injects or clears a fault has one, so that the end can wait for it.
    hands: Semaphore,
    busy: Mutex<BTreeSet<Arc<str>>>,
}

/// Maximum number of faults that are injected or cleared concurrently.
const HANDS: u32 = 8;

impl Stage {
    pub(super) fn new(source: Arc<Source>, faults: Faults) -> Self {
        Self { source, faults, hands: Semaphore::new(HANDS as usize), busy: Mutex::default() }
    }

    /// The volume to hurt: the one that was named, or one that is healthy, not taken, and not in work.
    pub(super) fn choose(&self, wish: &Wish, taken: &[Act]) -> Result<Act, String> {
        let Wish { fault, volume } = wish;
        let fits = |volume: &Volume| fault.kinds().contains(&volume.kind);
        if fault.is_of_the_driver() {
            return match volume {
                None => Ok(Act { fault: *fault, volume: None }),
                Some(_) => {
                    Err(format!("{fault} is for the driver, not for a volume; give it as --fault {fault}"))
                }
            };
        }
        let all = &self.source.volumes;
        if all.iter().all(|volume| volume.paths.is_none()) && !UNMOUNTED.contains(fault) {
            return Err(format!("{fault} needs a mounted volume, and there is none; run the demo as root"));
        }
        if let Some(name) = volume {
            let volume = all.get(name).ok_or_else(|| {
                let names: Vec<&str> = all.iter().map(|volume| &*volume.name).collect();
                format!("there is no volume {name}; the volumes are {}", names.join(", "))
            })?;
            return if fits(volume) {
                Ok(Act { fault: *fault, volume: Some(volume.name.clone()) })
            } else {
                Err(format!(
                    "{fault} fits {} volumes, but {name} is {}",
                    fault::kinds(*fault),
                    volume.kind.name()
                ))
            };
        }
        if !all.iter().any(fits) {
            return Err(format!("{fault} fits {} volumes, and there is none here", fault::kinds(*fault)));
        }
        let free = |volume: &&Volume| {
            let taken = taken.iter().any(|act| act.volume.as_ref() == Some(&volume.name));
            let busy = taken || self.busy().contains(&volume.name);
            fits(volume) && !busy && self.source.is_healthy(Some(&volume.name))
        };
        let preferred = WHOLE.iter().find(|(known, _)| known == fault).map_or(Kind::ALL, |(_, kinds)| *kinds);
        let chosen = preferred
            .iter()
            .chain(Kind::ALL)
            .find_map(|kind| all.iter().filter(|volume| volume.kind == *kind).find(free));
        match chosen {
            Some(volume) => Ok(Act { fault: *fault, volume: Some(volume.name.clone()) }),
            None => Err(format!(
                "every volume that {fault} fits has a fault right now; wait until one has recovered"
            )),
        }
    }

    /// Plays one act to its end. `by` is who wanted it.
    pub(super) async fn play(&self, act: Act, by: &'static str) -> Report {
        let name = act.volume.clone();
        if let Some(name) = &name
            && !self.busy().insert(name.clone())
        {
            let missing = Some(format!("{} was not injected: {name} has another fault right now", act.fault));
            return Report { reported: false, healable: false, healed: false, missing };
        }
        let report = self.follow(&act, by).await;
        if let Some(name) = &name {
            self.busy().remove(name);
        }
        let Report { reported, healable, healed, missing } = &report;
        let text = missing.clone().unwrap_or_else(|| format!("{} is over", words(&act)));
        let data = json!({
            "fault": act.fault.name(), "by": by, "told": reported, "healable": healable, "healed": healed,
            "missing": missing,
        });
        self.source.say(Topic::Act, act.volume.clone(), text, data);
        report
    }

    async fn follow(&self, act: &Act, by: &'static str) -> Report {
        let name = act.volume.as_ref();
        let mut report = Report { reported: false, healable: false, healed: false, missing: None };
        let begun = Instant::now();
        let place = name.map_or_else(String::new, |name| format!("{name}: "));
        let text = format!("{place}{} ({})", act.fault.what(), act.fault);
        self.source.say(
            Topic::Fault,
            act.volume.clone(),
            text,
            json!({ "fault": act.fault.name(), "by": by }),
        );
        if let Err(error) = self.work(act, Faults::inject).await {
            report.missing = Some(format!("{} could not be injected: {error}", words(act)));
            return report;
        }
        let patience = if name.is_none() { REPORTED_OF_THE_DRIVER } else { REPORTED };
        report.reported = until(patience, || self.source.warned_since(name, begun)).await;
        if report.reported {
            self.watch_healing(act, begun, &mut report).await;
        } else {
            report.missing = Some(format!("{} was not reported within {} s", words(act), patience.as_secs()));
        }
        if !report.healed {
            let text = format!("{place}{}", act.fault.undone());
            self.source.say(Topic::Undo, act.volume.clone(), text, json!({ "fault": act.fault.name() }));
        }
        // What was healed is noted as a fault all the same, until it is cleared.
        if let Err(error) = self.work(act, Faults::clear).await {
            report.missing.get_or_insert(format!("{} could not be undone: {error}", words(act)));
        } else if !until(OVER, || self.source.is_healthy(name)).await {
            let missing = format!("{} was not seen to recover within {} s", words(act), OVER.as_secs());
            report.missing.get_or_insert(missing);
        }
        report
    }

    /// Until it is healed; or, if nobody would heal it, until people have read about it.
    async fn watch_healing(&self, act: &Act, begun: Instant, report: &mut Report) {
        let Some(name) = &act.volume else {
            sleep(LINGER).await;
            return;
        };
        let automatic = |held: &Held| held.condition.reason.remedy() == Remedy::NodeHealer;
        let deadline = Instant::now() + HEALED;
        let mut quiet_since = Instant::now();
        loop {
            if self.source.healed_since(name, begun) {
                report.healable = true;
                report.healed = true;
                return;
            }
            if self.source.troubles(Some(name)).iter().any(automatic) {
                report.healable = true;
                quiet_since = Instant::now();
            }
            if Instant::now() >= deadline {
                report.missing = Some(format!("{} was not healed within {} s", words(act), HEALED.as_secs()));
                return;
            }
            if !report.healable && quiet_since.elapsed() >= LINGER {
                return;
            }
            sleep(LOOK).await;
        }
    }

    async fn work(
        &self,
        act: &Act,
        work: fn(&Faults, Fault, Option<&str>) -> volmedic_driver::Result<()>,
    ) -> Result<(), String> {
        let _hand = self.hands.acquire().await.map_err(|_| "the demo is ending".to_owned())?;
        let id = act
            .volume
            .as_ref()
            .and_then(|name| self.source.volumes.get(name))
            .map(|volume| volume.id.clone());
        let (faults, fault) = (self.faults.clone(), act.fault);
        let done = caught(blocking(move || work(&faults, fault, id.as_deref()))).await;
        done.map_err(|panic| format!("internal error (bug): {panic}"))?.map_err(|error| error.to_string())
    }

    /// Nobody is at work on a volume from now on; answers whether that came true in time.
    pub(super) async fn down_tools(&self, patience: Duration) -> bool {
        let idle = tokio::time::timeout(patience, self.hands.acquire_many(HANDS)).await;
        self.hands.close();
        idle.is_ok()
    }

    fn busy(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.busy.lock()
    }
}

/// As in `mounter-killed of wiki`.
pub(super) fn words(act: &Act) -> String {
    match &act.volume {
        Some(name) => format!("{} of {name}", act.fault),
        None => act.fault.to_string(),
    }
}

/// Whether it came to be so in time.
pub(super) async fn until(patience: Duration, so: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !so() {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(LOOK).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(volumes: &[(&str, Kind)], mounted: bool, expected: &str, without: &str) {
        let (acts, left) = plan(&Volumes::of(volumes), mounted);
        assert_eq!(acts.iter().map(words).collect::<Vec<_>>().join(", "), expected);
        assert_eq!(left.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), without);
    }

    #[test]
    fn every_act_has_a_volume_of_its_own_and_what_has_none_is_named() {
        let all = [
            ("a", Kind::Ext4),
            ("b", Kind::Ext4),
            ("c", Kind::Ext4),
            ("d", Kind::Xfs),
            ("e", Kind::Btrfs),
            ("f", Kind::Fuse),
            ("g", Kind::Fuse),
        ];
        check(
            &all,
            true,
            "mounter-killed of f, target-unmounted of a, full of b, read-only of d, image-truncated of c, \
             mounter-frozen of g, drive-suspect of e",
            "",
        );
        check(
            &all[..2],
            true,
            "target-unmounted of a, full of b",
            "mounter-killed read-only image-truncated mounter-frozen drive-suspect",
        );
        let fuse = [("a", Kind::Fuse), ("b", Kind::Fuse), ("c", Kind::Fuse), ("d", Kind::Fuse)];
        check(&fuse, false, "drive-suspect of a, drive-bad of b, drive-missing of c, volume-failed of d", "");
    }

    #[test]
    fn a_wish_names_a_fault_and_maybe_a_volume() {
        let wish: Wish = "full:orders".parse().unwrap();
        assert_eq!(wish, Wish { fault: Fault::Full, volume: Some("orders".to_owned()) });
        assert_eq!("full".parse::<Wish>().unwrap().volume, None);
        assert!("fool".parse::<Wish>().unwrap_err().contains("did you mean full?"));
    }
}
