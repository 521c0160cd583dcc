//! What others would say of the same faults, by how they work: both ask the driver and check nothing themselves.

use volmedic_driver::fault::{Fault, Kind};

use crate::rows::{LIST_VOLUMES, NODE_GET_VOLUME_HEALTH, Row};

/// What the kubelet of a real cluster once had in the status of the pod. It is a record: this test starts no kubelet.
#[rustfmt::skip]
const RECORDED: &[(Fault, &[Kind], &str)] = &[
    (Fault::TargetUnmounted, &[Kind::Ext4, Kind::Xfs, Kind::Fuse, Kind::Block], "Inaccessible/VolumeUnmounted"),
    (Fault::StagingUnmounted, &[Kind::Ext4, Kind::Xfs, Kind::Fuse], "Inaccessible/VolumeUnmounted"),
    (Fault::WrongMount, &[Kind::Ext4, Kind::Xfs, Kind::Fuse, Kind::Block], "Inaccessible/WrongMount"),
    (Fault::ReadOnly, &[Kind::Ext4, Kind::Xfs, Kind::Fuse], "Inaccessible/ReadOnlyFilesystem"),
    (Fault::Full, &[Kind::Ext4, Kind::Xfs, Kind::Fuse], "Degraded/OutOfCapacity"),
    (Fault::NoInodes, &[Kind::Ext4], "Degraded/OutOfInodes"),
    (Fault::ImageDeleted, &[Kind::Ext4, Kind::Xfs, Kind::Block], "Degraded/VolumeNotFound"),
    (Fault::MounterKilled, &[Kind::Fuse], "Inaccessible/MounterDead"),
    (Fault::MounterEio, &[Kind::Fuse], "Inaccessible/RWIOError"),
    (Fault::MounterFrozen, &[Kind::Fuse], "Inaccessible/IOHung"),
    (Fault::DriveBad, &[Kind::Ext4, Kind::Xfs, Kind::Fuse, Kind::Block], "Inaccessible/DriveBad"),
    (Fault::DriveSuspect, &[Kind::Ext4, Kind::Xfs, Kind::Fuse, Kind::Block], "Degraded/DriveSuspect"),
    (Fault::DriveUnknown, &[Kind::Ext4, Kind::Xfs, Kind::Fuse, Kind::Block], "Degraded/HealthUnknown"),
    (Fault::DriveMissing, &[Kind::Ext4, Kind::Xfs, Kind::Fuse, Kind::Block], "Inaccessible/DriveMissing"),
    (Fault::VolumeFailed, &[Kind::Ext4, Kind::Xfs, Kind::Fuse, Kind::Block], "Inaccessible/VolumeFailed"),
    (Fault::ReleaseFailed, &[Kind::Ext4, Kind::Xfs, Kind::Fuse, Kind::Block], "Degraded/ReleaseFailed"),
];

/// The kubelet with its gate on asks NodeGetVolumeHealth and writes down what it is answered.
pub(crate) fn kubelet(row: Row) -> String {
    let recorded = RECORDED.iter().find(|(fault, kinds, _)| *fault == row.fault && kinds.contains(&row.kind));
    recorded.map_or_else(|| row.answer(NODE_GET_VOLUME_HEALTH), |(_, _, said)| format!("{said} (recorded)"))
}

/// external-health-monitor asks ListVolumes and knows one flag.
pub(crate) fn monitor(row: Row) -> &'static str {
    if row.answer(LIST_VOLUMES) == "abnormal" { "abnormal" } else { "nothing" }
}

/// What they do when the driver itself has a fault: the kubelet, and external-health-monitor.
pub(crate) fn of_the_driver(fault: Fault) -> [&'static str; 2] {
    match fault {
        Fault::DriverFrozen => [
            "nothing; each call holds up all others of the node for 2 min",
            "nothing; each pass ends at its deadline",
        ],
        Fault::DriverKilled => ["nothing", "nothing; it exits and is started again until the driver is back"],
        Fault::DriverSlow => [
            "what the driver says, 10 s later for each volume",
            "what the driver says, unless it starts then",
        ],
        Fault::DriverErrors => ["nothing", "nothing"],
        _ => ["what the driver says", "what the driver says; it does not use this list"],
    }
}
