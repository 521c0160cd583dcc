use prost::Message as _;
use volmedic_proto::csi;
use volmedic_proto::csi::volume_health::VolumeHealthEntry;

use super::*;

fn entry(status: i32, reason: &str, message: &str) -> VolumeHealthEntry {
    VolumeHealthEntry { status, reason: reason.into(), message: message.into() }
}

/// Cleans one listed health entry: what is left of it, and what was odd.
fn check(id: &str, entries: Vec<VolumeHealthEntry>, expected: &str, odd: &str) {
    let none = Secrets::default();
    let mut cleaner = Cleaner::new(&none);
    let bytes = csi::VolumeHealth { volume_id: id.into(), health_statuses: entries }.encode_to_vec();
    let got = cleaner.listed_health(&bytes).map_or_else(
        |Nameless| "dropped".to_owned(),
        |health| {
            let conditions =
                health.conditions.iter().map(|c| format!(" {}/{}/{}", c.status, c.reason, c.message));
            let left_out = if health.left_out > 0 { format!(" +{}", health.left_out) } else { String::new() };
            format!("{}:{}{left_out}", health.volume_id, conditions.collect::<String>())
        },
    );
    let odds: Vec<_> = cleaner.oddities.iter().map(|(odd, n)| format!("{}={n}", odd.label())).collect();
    assert_eq!((got.as_str(), odds.join(" ").as_str()), (expected, odd));
}

#[test]
fn health_entries() {
    check("v", vec![], "v:", "");
    check("v", vec![entry(1, "A", "m")], "v: 1/A/m", "");
    check("", vec![entry(1, "A", "m")], "dropped", "empty_id=1");
    check("v", vec![entry(1, "A", "m"), entry(1, "A", "n")], "v: 1/A/m", "duplicate_condition=1");
    check("v", vec![entry(1, "A", ""), entry(2, "A", "")], "v: 1/A/ 2/A/", "");
    check("v", vec![entry(1, "", "m")], "v: 1//m", "empty_reason=1");
    check(
        "v",
        vec![entry(0, "A", ""), entry(77, "B", ""), entry(-1, "C", "")],
        "v: 0/A/ 77/B/ -1/C/",
        "unknown_status=3",
    );
    check(&"i".repeat(5000), vec![], "dropped", "unreadable_entry=1");
}

#[test]
fn the_worst_survive_a_flood() {
    let mut flood: Vec<_> = (0..1000).map(|i| entry(1, &format!("R{i}"), "")).collect();
    flood.push(entry(3, "Lost", ""));
    flood.push(entry(99, "Odd", ""));
    flood.push(entry(2, "Gone", ""));
    let kept: Vec<_> = (0..14).map(|i| format!("1/R{i}/")).collect();
    let kept = kept.join(" ");
    check("v", flood, &format!("v: {kept} 3/Lost/ 2/Gone/ +987"), "excess_condition=987 unknown_status=1");
}

#[test]
fn texts_are_bounded() {
    let long = "é".repeat(10_000);
    let none = Secrets::default();
    let mut cleaner = Cleaner::new(&none);
    let bytes = csi::VolumeHealth { volume_id: "v".into(), health_statuses: vec![entry(1, &long, &long)] }
        .encode_to_vec();
    let health = cleaner.listed_health(&bytes).unwrap();
    assert_eq!(health.conditions[0].message.len(), MAX_MESSAGE);
    assert_eq!(health.conditions[0].reason.len(), MAX_REASON);
    assert_eq!(cleaner.oddities.count(Oddity::CutText), 2);
}

#[test]
fn bad_utf8_in_a_text_keeps_the_condition() {
    let none = Secrets::default();
    let mut cleaner = Cleaner::new(&none);
    let mut bytes = csi::VolumeHealth { volume_id: "v".into(), health_statuses: vec![entry(2, "Gone", "X")] }
        .encode_to_vec();
    *bytes.last_mut().unwrap() = 0xff;
    let health = cleaner.listed_health(&bytes).unwrap();
    assert_eq!(health.conditions[0].message, "\u{fffd}");
    assert_eq!(cleaner.oddities.count(Oddity::NotUtf8), 1);
}

#[test]
fn secrets_do_not_come_back_in_messages() {
    let secrets = Secrets::new([("password".to_owned(), "hunter2".to_owned())].into());
    let padding = "x".repeat(MAX_SEARCHED - 3);
    for message in ["login as hunter2 failed".to_owned(), format!("{padding}hunter2")] {
        let mut cleaner = Cleaner::new(&secrets);
        let bytes =
            csi::VolumeHealth { volume_id: "v".into(), health_statuses: vec![entry(1, "A", &message)] }
                .encode_to_vec();
        let health = cleaner.listed_health(&bytes).unwrap();
        assert!(!health.conditions[0].message.contains("hun"), "{:?}", health.conditions[0].message);
    }
}

#[test]
fn an_answer_about_another_volume_is_no_answer() {
    let none = Secrets::default();
    let mut cleaner = Cleaner::new(&none);
    let health = |id: &str| Some(csi::VolumeHealth { volume_id: id.into(), health_statuses: vec![] });
    let answer =
        |id: &str| csi::ControllerGetVolumeHealthResponse { volume_health: health(id) }.encode_to_vec();
    let mine = VolumeHealth { volume_id: "mine".into(), conditions: vec![], left_out: 0 };
    assert_eq!(cleaner.got_health("mine", &answer("mine")), Ok(Got::Asked(mine.clone())));
    assert_eq!(cleaner.got_health("mine", &answer("")), Ok(Got::Asked(mine)));
    assert_eq!(cleaner.got_health("mine", &answer("yours")), Ok(Got::Other("yours".into())));
    assert_eq!(cleaner.got_health("mine", &[]), Ok(Got::Nothing));
    assert_eq!(cleaner.oddities.count(Oddity::WrongVolume), 1);
    assert_eq!(cleaner.oddities.count(Oddity::EmptyId), 1);
}

#[test]
fn usage_and_condition() {
    let none = Secrets::default();
    let mut cleaner = Cleaner::new(&none);
    let usage = |unit| csi::VolumeUsage { available: 1, total: 3, used: 2, unit };
    let mut sent =
        csi::NodeGetVolumeStatsResponse { usage: vec![usage(1), usage(9)], volume_condition: None };
    let expected = |unit| Usage { unit, total: 3, used: 2, available: 1 };
    let read = cleaner.stats(&sent.encode_to_vec()).unwrap();
    assert_eq!(read, Stats { usage: vec![expected(1), expected(9)], condition: None });
    sent.usage = vec![usage(1); 100];
    sent.volume_condition = Some(csi::VolumeCondition { abnormal: true, message: "bad".into() });
    let read = cleaner.stats(&sent.encode_to_vec()).unwrap();
    assert_eq!(read.usage.len(), MAX_USAGES);
    assert_eq!(read.condition, Some(OldCondition { abnormal: true, message: "bad".into() }));
}

#[test]
fn backends() {
    let none = Secrets::default();
    let mut cleaner = Cleaner::new(&none);
    let backend = |status, mode| csi::node_get_storage_health_response::StorageBackendHealth {
        status,
        reason: "PathLost".into(),
        message: "one of two".into(),
        volume_capability: Some(csi::VolumeCapability {
            access_type: None,
            access_mode: Some(csi::volume_capability::AccessMode { mode }),
        }),
    };
    let sent = csi::NodeGetStorageHealthResponse {
        backend_health: vec![backend(1, 1), backend(1, 5), backend(1, 1), backend(9, 1)],
    };
    let read = cleaner.backends(&sent.encode_to_vec()).unwrap();
    let modes: Vec<_> = read.iter().map(|b| (b.status, b.capability.as_ref().unwrap().access_mode)).collect();
    assert_eq!(modes, [(1, 1), (1, 5), (9, 1)]);
    assert_eq!(cleaner.oddities.count(Oddity::DuplicateCondition), 1);
    assert_eq!(cleaner.oddities.count(Oddity::UnknownStatus), 1);
}

proptest::proptest! {
    #[test]
    fn noise_never_panics(bytes: Vec<u8>) {
        let none = Secrets::default();
        let mut cleaner = Cleaner::new(&none);
        let _ = cleaner.listed_health(&bytes);
        let _ = cleaner.listed_volume(&bytes);
        let _ = cleaner.got_health("v", &bytes);
        let _ = cleaner.got_volume("v", &bytes);
        let _ = cleaner.backends(&bytes);
        let _ = cleaner.stats(&bytes);
        let _ = cleaner.healed(&bytes);
    }
}

/// One target for all answers: what one reader refuses, another may take.
#[test]
fn fuzz_csi_answers() {
    volmedic_testkit::fuzz("csi-answers", |bytes| {
        let none = Secrets::default();
        let mut cleaner = Cleaner::new(&none);
        let mut accepted = Vec::new();
        accepted.push(wire::Page::read(bytes.to_vec().into()).is_ok_and(|page| {
            assert_eq!(page.entries().count(), page.entries);
            page.entries > 0
        }));
        if let Ok(health) = cleaner.listed_health(bytes) {
            assert!(health.volume_id.len() <= MAX_ID);
            let bounded =
                |one: &Condition| one.message.len() <= MAX_MESSAGE && one.reason.len() <= MAX_REASON;
            assert!(health.conditions.iter().all(bounded), "{:?}", health.conditions);
            accepted.push(true);
        }
        accepted.push(cleaner.listed_volume(bytes).is_ok());
        accepted.push(cleaner.got_health("v", bytes).is_ok());
        accepted.push(cleaner.got_volume("v", bytes).is_ok());
        accepted.push(cleaner.backends(bytes).is_ok());
        accepted.push(cleaner.stats(bytes).is_ok());
        accepted.push(cleaner.healed(bytes).is_ok());
        accepted.contains(&true)
    });
}
