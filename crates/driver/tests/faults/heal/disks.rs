//! Volumes on loop devices, and mounts of every kind.

use std::fs;
use std::io::Write;
use std::process::Command;

use rustix::mount::{UnmountFlags, unmount};
use volmedic_driver::fault::{Fault, Kind};
use volmedic_driver::record::NodeRecord;
use volmedic_driver::{LoopDevice, StateDir};

use super::super::driver::{Driver, Volume};
use super::super::of_the_driver::Test;
use super::{heal, heal_fully};

pub(crate) const TESTS: &[Test] = &[
    ("what_is_unmounted_is_mounted_again", unmounted),
    ("a_device_that_was_told_to_detach_stays", deferred),
    ("a_detached_block_device_is_attached_to_the_same_number", detached),
    ("a_detached_block_device_whose_number_is_taken_gets_another", taken),
    ("a_file_system_is_made_writable_only_if_that_is_switched_on", read_only),
    ("a_volume_that_looks_blank_is_never_formatted", blank),
    ("what_others_mounted_stays", foreign),
];

const DISKS: [Kind; 3] = [Kind::Ext4, Kind::Xfs, Kind::Btrfs];

fn node(driver: &Driver, volume: &Volume) -> NodeRecord {
    let directory = StateDir::new(driver.folder().join("state")).volume(&volume.id);
    serde_json::from_slice(&fs::read(directory.node_record()).unwrap()).unwrap()
}

fn device(driver: &Driver, volume: &Volume) -> LoopDevice {
    node(driver, volume).loop_device.unwrap().device()
}

fn unmounted() {
    let driver = Driver::start_healing(&[]);
    for &kind in Kind::ALL {
        let volume = Volume::new(&driver, kind);
        let write = |text: &str| fs::write(volume.target.join("file"), text).unwrap();
        let faults: &[&[Fault]] = match kind {
            Kind::Block => &[&[Fault::TargetUnmounted]],
            // Without any mount the mounter of a fuse volume ends; that is another test.
            Kind::Fuse => &[&[Fault::TargetUnmounted], &[Fault::StagingUnmounted]],
            _ => &[
                &[Fault::TargetUnmounted],
                &[Fault::StagingUnmounted],
                &[Fault::StagingUnmounted, Fault::TargetUnmounted],
            ],
        };
        for faults in faults {
            if kind != Kind::Block {
                write("kept");
            }
            for &fault in *faults {
                driver.faults().inject(fault, Some(&volume.id)).unwrap();
            }
            let answer = heal_fully(&driver, &volume);
            assert_eq!(
                answer.matches("was mounted again").count(),
                faults.len(),
                "{}: {answer}",
                kind.name()
            );
            if kind != Kind::Block {
                assert_eq!(fs::read_to_string(volume.staging.join("file")).unwrap(), "kept");
                write("and written again");
            }
            for &fault in *faults {
                driver.faults().clear(fault, Some(&volume.id)).unwrap();
            }
        }
    }
}

fn deferred() {
    let driver = Driver::start_healing(&[]);
    for kind in DISKS {
        let volume = Volume::new(&driver, kind);
        let before = device(&driver, &volume);
        driver.faults().inject(Fault::DeviceDetached, Some(&volume.id)).unwrap();
        let answer = heal_fully(&driver, &volume);
        assert!(answer.contains("was called off"), "{answer}");
        assert_eq!(device(&driver, &volume), before);
        driver.faults().clear(Fault::DeviceDetached, Some(&volume.id)).unwrap();
    }
}

fn detached() {
    let driver = Driver::start_healing(&[]);
    let volume = Volume::new(&driver, Kind::Block);
    fs::File::options().write(true).open(&volume.target).unwrap().write_all(b"kept").unwrap();
    let before = device(&driver, &volume);
    driver.faults().inject(Fault::DeviceDetached, Some(&volume.id)).unwrap();
    assert!(!node(&driver, &volume).loop_device.unwrap().is_live());
    let answer = heal_fully(&driver, &volume);
    assert!(answer.contains("attached"), "{answer}");
    // Another process may have taken the number in between; then it is another, and the next test's case.
    if answer.contains(&format!("attached to {} again", before.path().display())) {
        assert_eq!(device(&driver, &volume), before);
    }
    assert_eq!(&fs::read(&volume.target).unwrap()[..4], b"kept");
    driver.faults().clear(Fault::DeviceDetached, Some(&volume.id)).unwrap();
}

fn taken() {
    let driver = Driver::start_healing(&[]);
    let volume = Volume::new(&driver, Kind::Block);
    fs::File::options().write(true).open(&volume.target).unwrap().write_all(b"kept").unwrap();
    let before = device(&driver, &volume);
    let other = driver.folder().join("other");
    fs::File::create(&other).unwrap().set_len(1 << 20).unwrap();
    driver.faults().inject(Fault::DeviceDetached, Some(&volume.id)).unwrap();
    // The number is taken: by us, or by a faster program.
    let status = Command::new("losetup").arg(before.path()).arg(&other).status().unwrap();
    let ours = status.success();
    let answer = heal_fully(&driver, &volume);
    assert_ne!(device(&driver, &volume), before, "{answer}");
    assert!(answer.contains("restart the pods"), "{answer}");
    assert_eq!(&fs::read(&volume.target).unwrap()[..4], b"kept");
    if ours {
        assert!(Command::new("losetup").arg("--detach").arg(before.path()).status().unwrap().success());
    }
    fs::remove_dir_all(StateDir::new(driver.folder().join("state")).volume(&volume.id).path().join("faults"))
        .unwrap();
}

fn read_only() {
    for (allowed, arguments) in [(false, &[][..]), (true, &["--heal-read-only"][..])] {
        let driver = Driver::start_healing(arguments);
        for kind in [Kind::Ext4, Kind::Xfs, Kind::Btrfs, Kind::Fuse] {
            let volume = Volume::new(&driver, kind);
            driver.faults().inject(Fault::ReadOnly, Some(&volume.id)).unwrap();
            let answer = heal(&driver, &volume);
            let written = fs::write(volume.target.join("file"), "x");
            assert_eq!(answer.abnormal, !allowed, "{}: {}", kind.name(), answer.message);
            assert_eq!(written.is_ok(), allowed, "{}: {written:?}", kind.name());
            let words = if allowed { "was made writable again" } else { "--heal-read-only" };
            assert!(answer.message.contains(words), "{}", answer.message);
            driver.faults().clear(Fault::ReadOnly, Some(&volume.id)).unwrap();
        }
    }
}

/// Everything unmounted, and zeros where the superblock was: staging would make a new file system of this.
fn blank() {
    let driver = Driver::start_healing(&["--heal-read-only"]);
    for kind in DISKS {
        let volume = Volume::new(&driver, kind);
        fs::write(volume.target.join("file"), "precious").unwrap();
        for place in [&volume.target, &volume.staging] {
            unmount(place, UnmountFlags::empty()).unwrap();
        }
        let image = StateDir::new(driver.folder().join("state")).volume(&volume.id).image();
        let whole = fs::read(&image).unwrap();
        let mut zeroed = whole.clone();
        zeroed[..1 << 20].fill(0);
        fs::write(&image, &zeroed).unwrap();
        let answer = heal(&driver, &volume);
        assert!(answer.abnormal && answer.message.contains("is not touched"), "{}", answer.message);
        assert!(fs::read(&image).unwrap() == zeroed, "a heal wrote to {}", kind.name());

        fs::write(&image, &whole).unwrap();
        heal_fully(&driver, &volume);
        assert_eq!(fs::read_to_string(volume.target.join("file")).unwrap(), "precious");
    }
}

fn foreign() {
    let driver = Driver::start_healing(&["--heal-read-only"]);
    for &kind in Kind::ALL {
        let volume = Volume::new(&driver, kind);
        driver.faults().inject(Fault::WrongMount, Some(&volume.id)).unwrap();
        let answer = heal(&driver, &volume);
        assert!(answer.abnormal && answer.message.contains("unmount it"), "{}", answer.message);
        driver.faults().clear(Fault::WrongMount, Some(&volume.id)).unwrap();
        assert_eq!(heal_fully(&driver, &volume), "the volume was checked and is healthy; nothing was done");
    }
}
