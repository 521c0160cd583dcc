//! Each fault on a volume of its own: done, reported, undone, reported to be over. Many at the same time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use volmedic_driver::fault::{Fault, Kind};

use crate::page::{self, Seen};
use crate::reported::Tale;
use crate::role::Manner;
use crate::rows::{Eyes, NODE_GET_VOLUME_HEALTH, Row};
use crate::stage::{FREE_DEVICES, Stage, TAKEN, Usage, Volume};

/// Number of rows at the same time; more would only wait for the machine.
const TOGETHER: usize = 10;
/// How often a row is begun again if somebody else takes its device.
const TURNS: u32 = 10;

/// All that can be seen from there without a check of the file system.
pub(crate) async fn every_row(eyes: Eyes) {
    let wanted = |row: &Row| !row.only_a_check_finds_it() && row.expected(eyes).is_some();
    run(eyes, Row::all().filter(wanted).collect()).await;
}

/// What only a check of the file system finds.
pub(crate) async fn damage(eyes: Eyes) {
    run(eyes, Row::all().filter(|row| row.only_a_check_finds_it()).collect()).await;
}

async fn run(eyes: Eyes, rows: Vec<Row>) {
    let checks_file_systems = rows.iter().all(|row| row.only_a_check_finds_it());
    let manner = Manner { checks_file_systems, ..Manner::new(eyes.dialect()) };
    let stage = Arc::new(Stage::new(manner).await.watched(eyes != Eyes::Host).await);
    let turns = Arc::new(Semaphore::new(TOGETHER));
    let mut running = JoinSet::new();
    for row in rows {
        let (stage, turns) = (stage.clone(), turns.clone());
        running.spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            let outcome = one(&stage, row, eyes).await;
            (row, outcome)
        });
    }
    let mut failures = Vec::new();
    while let Some(done) = running.join_next().await {
        match done.unwrap() {
            (row, Ok(seen)) => page::record(row, eyes, seen),
            (row, Err(why)) => failures.push(format!("{}: {why}", row.name())),
        }
    }
    assert!(
        failures.is_empty(),
        "{} rows failed\n{}\n--- the agent's log ---\n{}",
        failures.len(),
        failures.join("\n"),
        stage.agents_log()
    );
}

async fn one(stage: &Stage, row: Row, eyes: Eyes) -> Result<Seen, String> {
    let mut turn = 0;
    loop {
        let name = format!("{}-{turn}", row.name());
        let volume = stage.volume(&name, row.kind).await;
        let uid = stage.pod(&name, &volume, Usage::default()).await;
        let seen = harm_and_repair(stage, row, eyes, &volume, &uid).await;
        turn += 1;
        let is_taken = match &seen {
            Ok(_) => {
                stage.take_down(&name, &uid, &volume).await?;
                false
            }
            Err(why) if why.contains(TAKEN) => true,
            // It may be there still, and would keep the rest from being taken away.
            Err(_) => stage.repair(row.fault, Some(&volume)).await.is_err_and(|why| why.contains(TAKEN)),
        };
        // The detached device became that of somebody else on this machine, and the pod's is another one now.
        if is_taken && turn < TURNS {
            stage.take_down(&name, &uid, &volume).await?;
            continue;
        }
        return seen;
    }
}

async fn harm_and_repair(
    stage: &Stage,
    row: Row,
    eyes: Eyes,
    volume: &Volume,
    uid: &str,
) -> Result<Seen, String> {
    let (name, vantage) = (volume.claim.clone(), eyes.vantage());
    let expected = row.expected(eyes).ok_or("nothing is expected")?;
    stage.checked(volume).await?;
    if let Some(tale) = stage.reported.all().into_iter().find(|tale| tale.on == name) {
        return Err(format!("told before anything happened: {tale:?}"));
    }
    let detached = row.fault == Fault::DeviceDetached && row.kind == Kind::Block;
    let alone = if detached { Some(FREE_DEVICES.write().await) } else { None };
    stage.harm(row.fault, Some(volume)).await?;
    let harmed = Instant::now();
    let reported = stage.reported.reported(&name, vantage, &expected).await?;
    let reasons = reasons(&stage.reported.on(&name, vantage));
    stage.repair(row.fault, Some(volume)).await?;
    drop(alone);
    if row.fault == Fault::MounterKilled {
        stage.stage(volume).await;
        stage.publish(uid, volume, false).await;
    }
    // Clearing some faults takes its time: the file system is repaired, or the volume mounted again.
    let repaired = Instant::now();
    let over = match stage.reported.over(&name, vantage).await {
        Ok(over) => over,
        Err(why) => {
            let metrics = stage.metrics().await;
            let of_it = metrics.lines().filter(|line| line.contains(&name) || line.contains("helpers"));
            let of_it = of_it.collect::<Vec<_>>().join("\n");
            return Err(format!("{why}\n{}\n{of_it}", loop_devices()));
        }
    };
    let tales = stage.reported.on(&name, vantage);
    check_tales(row, eyes, &expected, &tales)?;
    if row.only_the_driver_knows()
        && let Some(tale) = stage.reported.on(&name, "host").first()
    {
        return Err(format!("the host cannot know, and tells {tale:?}"));
    }
    Ok(Seen { reported: reasons, after: since(harmed, reported), over: since(repaired, over) })
}

/// Loop devices belong to the whole machine: who has which may explain what is seen.
fn loop_devices() -> String {
    let listed = std::process::Command::new("losetup")
        .args(["--list", "--output", "NAME,AUTOCLEAR,BACK-FILE"])
        .output();
    listed
        .map_or_else(|error| error.to_string(), |listed| String::from_utf8_lossy(&listed.stdout).into_owned())
}

/// Something may be reported while the fault is still being done.
fn since(begin: Instant, end: Instant) -> Duration {
    end.saturating_duration_since(begin)
}

/// Each condition once, the first that was reported first.
fn reasons(tales: &[Tale]) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for tale in tales.iter().filter(|tale| tale.open) {
        if !reasons.contains(&tale.what) {
            reasons.push(tale.what.clone());
        }
    }
    reasons
}

/// Every event is what it should be, and nothing is reported that is not so.
fn check_tales(row: Row, eyes: Eyes, expected: &str, tales: &[Tale]) -> Result<(), String> {
    for tale in tales {
        let reason = if tale.open { "VolumeConditionAbnormal" } else { "VolumeConditionNormal" };
        if tale.reason != reason {
            return Err(format!("not {reason}: {tale:?}"));
        }
        if !tale.message.contains(&row.name()) {
            return Err(format!("the claim is not named: {tale:?}"));
        }
        // Besides, reads may fail that need what is gone; and the driver may know more.
        let more = eyes == Eyes::Health && row.answer(NODE_GET_VOLUME_HEALTH).contains(&tale.what);
        // A volume that is mounted again is not there for a while.
        let meanwhile = row.is_mounted_again() && tale.what == "Inaccessible/VolumeUnmounted";
        // A btrfs that writes while its device is gone stops being writable, and says so in the kernel's log.
        let stopped = row.fault == Fault::DeviceLost
            && row.kind == Kind::Btrfs
            && tale.what == "Inaccessible/ReadOnlyFilesystem"
            && tale.message.contains("the kernel said: BTRFS");
        let follows = tale.what == "Inaccessible/RWIOError" || stopped || meanwhile;
        if tale.what != expected && !follows && !more {
            return Err(format!("something else is reported than {expected}: {tale:?}"));
        }
    }
    Ok(())
}
