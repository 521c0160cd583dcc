//! Each fault of a volume: injected, asked about with every call, cleared, asked again.

use std::time::{Duration, Instant};

use volmedic_driver::fault::{Fault, Kind};
use volmedic_health::Status;
use volmedic_proto::csi as wire;

use super::driver::{Driver, PATIENCE, Volume};
use super::table::{self, Row};

/// How the driver says that a loop device which it detached was taken by another process of this machine.
const TAKEN: &str = "belongs to another program by now";

pub(crate) fn every_fault_on(kind: Kind) {
    // Of a frozen mounter every call takes as long as a check may; answers that come too late are asked for again.
    let driver = Driver::start_with(&["--check-deadline=1"]);
    let volume = Volume::new(&driver, kind);
    settle(&driver, &volume, "before any fault", |row| *row == Row::healthy());
    for &fault in Fault::ALL.iter().filter(|fault| fault.kinds().contains(&kind)) {
        let faults = driver.faults();
        faults
            .inject(fault, Some(&volume.id))
            .unwrap_or_else(|error| panic!("{fault} on {}: {error}", kind.name()));
        assert_eq!(faults.active(Some(&volume.id)).unwrap(), [fault]);
        let seen = match table::expected(fault, kind) {
            Some(expected) => settle(&driver, &volume, fault.name(), |row| *row == expected),
            None => after_a_while(&driver, &volume),
        };
        assert_ne!(seen, Row::healthy(), "{fault} on {} goes unnoticed", kind.name());
        table::record(fault, kind, seen);

        let mut cleared = faults.clear(fault, Some(&volume.id));
        if cleared.as_ref().is_err_and(|error| error.to_string().contains(TAKEN)) {
            // As the error says what to do.
            volume.take_down().unwrap();
            volume.put_up();
            cleared = faults.clear(fault, Some(&volume.id));
        }
        cleared.unwrap_or_else(|error| panic!("clearing {fault} on {}: {error}", kind.name()));
        assert!(faults.active(Some(&volume.id)).unwrap().is_empty());
        if fault == Fault::MounterKilled {
            volume.put_up();
        }
        let what = format!("after {fault} was cleared");
        settle(&driver, &volume, &what, |row| *row == Row::healthy());
    }
}

/// Asks until the answers are as they should be.
pub(crate) fn settle(driver: &Driver, volume: &Volume, what: &str, is_right: impl Fn(&Row) -> bool) -> Row {
    let end = Instant::now() + PATIENCE;
    loop {
        let row = ask(driver, volume);
        if is_right(&row) {
            return row;
        }
        assert!(
            Instant::now() < end,
            "{} {what}: {row:#?}\n{}",
            volume.kind.name(),
            messages(driver, volume)
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// For a row that is not in the table yet: what is there once file system checks have had their time.
fn after_a_while(driver: &Driver, volume: &Volume) -> Row {
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        ask(driver, volume);
        std::thread::sleep(Duration::from_millis(100));
    }
    ask(driver, volume)
}

/// One round of every call that reports health. Calls that answer from the same checks must agree.
fn ask(driver: &Driver, volume: &Volume) -> Row {
    let id = || volume.id.clone();
    let get = wire::ControllerGetVolumeHealthRequest { volume_id: id(), ..Default::default() };
    let get = driver.answer(driver.controller().controller_get_volume_health(get)).unwrap();
    let listed = wire::ControllerListVolumeHealthRequest::default();
    let listed = driver.answer(driver.controller().controller_list_volume_health(listed)).unwrap();
    let on_node = wire::NodeGetVolumeHealthRequest { volume_id: id(), ..Default::default() };
    let on_node = driver.answer(driver.node().node_get_volume_health(on_node)).unwrap();
    let one = driver
        .answer(
            driver.controller().controller_get_volume(wire::ControllerGetVolumeRequest { volume_id: id() }),
        )
        .unwrap();
    let all = driver.answer(driver.controller().list_volumes(wire::ListVolumesRequest::default())).unwrap();
    let stats = wire::NodeGetVolumeStatsRequest {
        volume_id: id(),
        volume_path: volume.target.display().to_string(),
        staging_target_path: volume.staging.display().to_string(),
    };
    let stats = driver.answer(driver.node().node_get_volume_stats(stats));

    let listed = listed.entries.into_iter().find(|entry| entry.volume_id == volume.id);
    let in_list = all
        .entries
        .into_iter()
        .find(|entry| entry.volume.as_ref().is_some_and(|other| other.volume_id == volume.id));
    Row {
        controller_get_health: health(get.volume_health.as_ref()),
        controller_list_health: listed.as_ref().map_or_else(|| "-".to_owned(), |entry| health(Some(entry))),
        node_get_health: health(on_node.volume_health.as_ref()),
        controller_get: condition(one.status.and_then(|status| status.volume_condition)),
        list: in_list.map_or_else(
            || "absent".to_owned(),
            |entry| condition(entry.status.and_then(|status| status.volume_condition)),
        ),
        stats: match stats {
            Ok(stats) => {
                let usage = if stats.usage.is_empty() { "no usage" } else { "usage" };
                assert!(
                    stats
                        .usage
                        .iter()
                        .all(|usage| usage.total >= 0 && usage.used >= 0 && usage.available >= 0)
                );
                format!("{usage}, {}", condition(stats.volume_condition))
            }
            Err(status) => format!("{:?}", status.code()),
        },
    }
}

fn health(answer: Option<&wire::VolumeHealth>) -> String {
    let entries = &answer.expect("an answer without health").health_statuses;
    let texts: Vec<String> = entries
        .iter()
        .map(|entry| format!("{}/{}", Status::from_volume_number(entry.status), entry.reason))
        .collect();
    if texts.is_empty() { "-".to_owned() } else { texts.join(", ") }
}

fn condition(answer: Option<wire::VolumeCondition>) -> String {
    match answer {
        None => "no condition".to_owned(),
        Some(answer) => {
            assert!(!answer.message.is_empty(), "a condition needs a message");
            if answer.abnormal { "abnormal" } else { "normal" }.to_owned()
        }
    }
}

fn messages(driver: &Driver, volume: &Volume) -> String {
    let request = wire::ControllerGetVolumeRequest { volume_id: volume.id.clone() };
    let one = driver.answer(driver.controller().controller_get_volume(request)).unwrap();
    one.status.and_then(|status| status.volume_condition).map(|answer| answer.message).unwrap_or_default()
}
