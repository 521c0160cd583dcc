//! Mounters that die or freeze, and the mounts they leave.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use volmedic_driver::fault::{Fault, Kind};
use volmedic_driver::mounter;
use volmedic_driver::record::MounterRecord;
use volmedic_host::mounts::Table;
use volmedic_proto::csi as wire;

use super::super::driver::{Driver, PATIENCE, Volume};
use super::super::of_the_driver::Test;
use super::user::User;
use super::{heal, heal_fully};

pub(crate) const TESTS: &[Test] = &[
    ("who_uses_a_volume_goes_on_when_its_dead_mounter_is_healed", dead),
    ("who_uses_a_volume_goes_on_when_its_frozen_mounter_is_healed", frozen),
    ("a_session_survives_a_driver_that_was_restarted_before_its_mounter_died", restarted),
    ("many_users_go_on_however_often_the_mounter_dies_under_them", again_and_again),
    ("with_driver_and_mounter_dead_the_volume_is_mounted_again", lost),
    ("nobody_waits_for_a_heal_longer_than_the_grace", forsaken),
    ("without_a_healer_a_dead_mounter_is_an_error_at_once", no_healer),
    ("staging_again_hands_the_session_over_too", staged_again),
    ("a_volume_that_hangs_holds_up_a_fault_no_longer_than_its_deadline", hung_fault),
    ("a_killed_mounter_that_was_healed_stays_when_the_fault_is_cleared", cleared),
];

const HANDED_OVER: &str = "goes on with the session";

fn record(driver: &Driver, volume: &Volume) -> MounterRecord {
    let directory = volmedic_driver::StateDir::new(driver.folder().join("state")).volume(&volume.id);
    mounter::find(&directory).unwrap().expect("the volume has a mounter")
}

fn kill(driver: &Driver, volume: &Volume) -> MounterRecord {
    let mounter = record(driver, volume);
    kill_process(Pid::from_raw(mounter.pid).unwrap(), Signal::KILL).unwrap();
    let end = Instant::now() + PATIENCE;
    while mounter::is_alive(&mounter) {
        assert!(Instant::now() < end, "the mounter does not die");
        std::thread::sleep(Duration::from_millis(5));
    }
    mounter
}

fn reasons(driver: &Driver, volume: &Volume) -> Vec<String> {
    let request = wire::NodeGetVolumeHealthRequest { volume_id: volume.id.clone(), ..Default::default() };
    let answer = driver.answer(driver.node().node_get_volume_health(request)).unwrap().volume_health.unwrap();
    answer.health_statuses.into_iter().map(|answer| answer.reason).collect()
}

/// The numbers that the kernel gave to the mounts of this driver: others after they were mounted again.
fn mounts(driver: &Driver) -> Vec<String> {
    Table::read()
        .unwrap()
        .under(driver.root())
        .map(|mount| format!("{} {}", mount.device(), mount.target().display()))
        .collect()
}

fn dead() {
    let driver = Driver::start_healing(&[]);
    let volume = Volume::new(&driver, Kind::Fuse);
    let before = mounts(&driver);
    fs::create_dir_all(volume.target.join("a/b")).unwrap();
    fs::write(volume.target.join("a/b/old"), "old").unwrap();
    let mut user = User::of(&volume.target, "log");
    let killed = kill(&driver, &volume);
    assert_eq!(reasons(&driver, &volume), ["MounterDead"]);

    let answer = heal_fully(&driver, &volume);
    assert!(answer.contains(HANDED_OVER), "{answer}");
    user.goes_on();
    assert_ne!(record(&driver, &volume).pid, killed.pid);
    assert_eq!(mounts(&driver), before, "nothing was mounted again");
    assert_eq!(fs::read_to_string(volume.target.join("a/b/old")).unwrap(), "old");
    fs::rename(volume.target.join("a/b"), volume.target.join("c")).unwrap();
    assert_eq!(fs::read_to_string(volume.staging.join("c/old")).unwrap(), "old");
    user.end();
    assert_eq!(heal_fully(&driver, &volume), "the volume was checked and is healthy; nothing was done");
}

fn frozen() {
    let driver = Driver::start_healing(&[]);
    let volume = Volume::new(&driver, Kind::Fuse);
    let mut user = User::of(&volume.target, "log");
    driver.faults().inject(Fault::MounterFrozen, Some(&volume.id)).unwrap();
    assert_eq!(reasons(&driver, &volume), ["IOHung"]);
    let answer = heal_fully(&driver, &volume);
    assert!(answer.contains(HANDED_OVER), "{answer}");
    user.goes_on();
    user.end();
    driver.faults().clear(Fault::MounterFrozen, Some(&volume.id)).unwrap();
}

fn restarted() {
    let mut driver = Driver::start_healing(&[]);
    let id = {
        let volume = Volume::new(&driver, Kind::Fuse);
        let id = volume.id.clone();
        std::mem::forget(volume);
        id
    };
    let target = driver.root().join("fuse-target");
    let mut user = User::of(&target, "log");
    driver.kill();
    driver.restart();
    let volume = Volume::again(&driver, Kind::Fuse, id);
    user.goes_on();
    kill(&driver, &volume);
    let answer = heal_fully(&driver, &volume);
    assert!(answer.contains(HANDED_OVER), "{answer}");
    user.goes_on();
    user.end();
}

/// With requests of several users in flight at each death, some that were read are never answered by the dead.
fn again_and_again() {
    let driver = Driver::start_healing(&[]);
    let volume = Volume::new(&driver, Kind::Fuse);
    let mut users: Vec<User> =
        ["one", "two", "three", "four"].iter().map(|name| User::of(&volume.target, name)).collect();
    for round in 1..=8 {
        kill(&driver, &volume);
        let answer = heal_fully(&driver, &volume);
        assert!(answer.contains(HANDED_OVER), "{answer}");
        assert_eq!(record(&driver, &volume).generation, round);
        users.iter_mut().for_each(User::goes_on);
    }
    users.into_iter().for_each(User::end);
    let deleted = volmedic_driver::StateDir::new(driver.folder().join("state")).volume(&volume.id).deleted();
    let end = Instant::now() + PATIENCE;
    while fs::read_dir(&deleted).unwrap().next().is_some() {
        assert!(Instant::now() < end, "files that nobody has open any more keep their space");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn lost() {
    let mut driver = Driver::start_healing(&[]);
    let id = {
        let volume = Volume::new(&driver, Kind::Fuse);
        let id = volume.id.clone();
        fs::write(volume.target.join("kept"), "kept").unwrap();
        kill_process(Pid::from_raw(record(&driver, &volume).pid).unwrap(), Signal::STOP).unwrap();
        std::mem::forget(volume);
        id
    };
    let target = driver.root().join("fuse-target");
    driver.kill();
    let dead = Volume::again(&driver, Kind::Fuse, id.clone());
    kill(&driver, &dead);
    std::mem::forget(dead);
    // The session ends with the last thread that had it open, a moment after the process counts as dead.
    let end = Instant::now() + PATIENCE;
    while !is_dead(&target) {
        assert!(Instant::now() < end, "the session does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    driver.restart();
    let volume = Volume::again(&driver, Kind::Fuse, id);
    assert_eq!(reasons(&driver, &volume), ["MounterDead"]);
    let answer = heal_fully(&driver, &volume);
    assert!(answer.contains("must be restarted") && answer.contains("target"), "{answer}");
    for place in [&volume.staging, &volume.target] {
        assert_eq!(fs::read_to_string(place.join("kept")).unwrap(), "kept");
    }
    assert_eq!(mounts(&driver).len(), 2);
}

fn forsaken() {
    let driver = Driver::start_healing(&["--session-grace=2"]);
    let volume = Volume::new(&driver, Kind::Fuse);
    let user = User::of(&volume.target, "log");
    kill(&driver, &volume);
    user.fails();
    assert!(is_dead(&volume.target));
    let answer = heal_fully(&driver, &volume);
    assert!(answer.contains("must be restarted"), "{answer}");
    let mut user = User::of(&volume.target, "log-2");
    user.goes_on();
    user.end();
}

fn is_dead(place: &Path) -> bool {
    fs::read_dir(place).is_err_and(|error| error.kind() == ErrorKind::NotConnected)
}

fn no_healer() {
    let driver = Driver::start();
    let volume = Volume::new(&driver, Kind::Fuse);
    let user = User::of(&volume.target, "log");
    kill(&driver, &volume);
    user.fails();
    assert!(is_dead(&volume.target));
    assert_eq!(reasons(&driver, &volume), ["MounterDead"]);
}

fn staged_again() {
    let driver = Driver::start_healing(&[]);
    let volume = Volume::new(&driver, Kind::Fuse);
    let mut user = User::of(&volume.target, "log");
    kill(&driver, &volume);
    volume.put_up();
    user.goes_on();
    user.end();
    assert!(!heal(&driver, &volume).abnormal);
}

fn hung_fault() {
    let driver = Driver::start_healing(&[]);
    let volume = Volume::new(&driver, Kind::Fuse);
    let id = Some(volume.id.as_str());
    driver.faults().inject(Fault::MounterFrozen, id).unwrap();
    let impatient = driver.faults().with_deadline(Duration::from_secs(1));
    let answer = impatient.inject(Fault::Full, id).unwrap_err().to_string();
    assert!(answer.starts_with("injecting full took longer than 1 s: the volume hangs"), "{answer}");
    assert_eq!(driver.faults().active(id).unwrap(), [Fault::Full, Fault::MounterFrozen]);
    driver.faults().clear(Fault::MounterFrozen, id).unwrap();
    // What was held up comes to pass, and then it can be cleared.
    let end = Instant::now() + PATIENCE;
    while reasons(&driver, &volume) != ["OutOfCapacity"] {
        assert!(Instant::now() < end, "{:?}", reasons(&driver, &volume));
        std::thread::sleep(Duration::from_millis(50));
    }
    driver.faults().clear(Fault::Full, id).unwrap();
}

fn cleared() {
    let driver = Driver::start_healing(&[]);
    let volume = Volume::new(&driver, Kind::Fuse);
    let mut user = User::of(&volume.target, "log");
    driver.faults().inject(Fault::MounterKilled, Some(&volume.id)).unwrap();
    heal_fully(&driver, &volume);
    driver.faults().clear(Fault::MounterKilled, Some(&volume.id)).unwrap();
    user.goes_on();
    user.end();
}
