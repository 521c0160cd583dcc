//! Each fault of the reference driver, on each kind of volume, by the host's eyes alone.

use std::time::Duration;

use volmedic_driver::fault::{Fault, Kind};
use volmedic_probe::Usage;

use super::eyes::{expected, host, host_within, look, messages, settle, shown};
use super::stage::{Driver, Volume};

/// What the host sees. `None` where only the driver can know: the host has no way to see it until it shows.
fn reported(fault: Fault, kind: Kind) -> Option<&'static str> {
    use Fault as F;
    Some(match (fault, kind) {
        (F::DeviceDetached, Kind::Block) | (F::DeviceLost, _) => "Inaccessible/DiskRemoved",
        (F::ImageDeleted | F::DeviceDetached, _) => "Degraded/DiskRemoved",
        (F::ImageTruncated, _) => "DataLoss/DiskFailure",
        (F::TargetUnmounted, _) => "Inaccessible/VolumeUnmounted",
        (F::StagingUnmounted, _) => "Degraded/VolumeUnmounted",
        (F::WrongMount, _) => "Inaccessible/WrongMount",
        (F::ReadOnly, _) => "Inaccessible/ReadOnlyFilesystem",
        (F::KernelError, _) => "Degraded/FilesystemCorruption",
        (F::Shutdown, Kind::Ext4) => "Inaccessible/FilesystemShutdown",
        (F::Shutdown | F::MounterEio, _) => "Inaccessible/RWIOError",
        (F::Full, _) => "Degraded/OutOfCapacity",
        (F::NoInodes, _) => "Degraded/OutOfInodes",
        (F::MounterKilled, _) => "Inaccessible/MounterDead",
        (F::MounterFrozen, _) => "Inaccessible/IOHung",
        _ => return None,
    })
}

pub(crate) fn every_fault_on(kind: Kind) {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, kind);
    let (host, wanted) = (host(), expected(&volume, false));
    let hasty = host_within(Duration::from_secs(2));
    let first = look(&host, &wanted);
    assert_eq!(shown(&first.sight), "-", "before any fault");
    check_usage(kind, first.usage);
    let mut faults: Vec<Fault> =
        Fault::ALL.iter().copied().filter(|fault| fault.kinds().contains(&kind)).collect();
    // Last: a loop device never notices that its file has a name again.
    faults.sort_by_key(|fault| *fault == Fault::ImageDeleted);
    for fault in faults {
        let Some(reason) = reported(fault, kind) else { continue };
        driver.faults().inject(fault, Some(&volume.id)).unwrap();
        let is_reported = |seen: &str| seen.split(", ").any(|seen| seen == reason);
        let looking = if fault == Fault::MounterFrozen { &hasty } else { &host };
        let seen = settle(looking, &wanted, fault.name(), is_reported);
        // Besides, reads may fail that need what is gone.
        let others: Vec<String> = shown(&seen.sight)
            .split(", ")
            .filter(|seen| ![reason, "Inaccessible/RWIOError"].contains(seen))
            .map(str::to_owned)
            .collect();
        assert!(others.is_empty(), "{fault}: {others:?}\n{}", messages(&seen.sight));
        driver.faults().clear(fault, Some(&volume.id)).unwrap();
        if fault == Fault::MounterKilled {
            volume.put_up();
        }
        settle(&host, &wanted, &format!("after {fault} was cleared"), |seen| seen == "-");
    }
    for host in [&host, &hasty] {
        assert_eq!(host.helpers().counts().stuck, 0, "all helpers were collected");
    }
}

fn check_usage(kind: Kind, usage: Option<Usage>) {
    let bytes = usage.and_then(|usage| usage.bytes).expect("its size is known");
    assert!(bytes.total > 0);
    assert_eq!(bytes.used.is_some(), kind != Kind::Block, "a raw device has a size and nothing else");
}
