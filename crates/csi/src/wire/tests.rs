//! The reader held against the generated types, and against noise.

use prost::Message as _;
use volmedic_proto::csi;

use super::*;

fn condition(abnormal: bool, message: &str) -> csi::VolumeCondition {
    csi::VolumeCondition { abnormal, message: message.into() }
}

fn volume(id: &str) -> csi::Volume {
    csi::Volume {
        capacity_bytes: -5,
        volume_id: id.into(),
        volume_context: [("pool".to_owned(), "fast".to_owned())].into(),
        accessible_topology: vec![csi::Topology { segments: [("zone".to_owned(), "a".to_owned())].into() }],
        ..Default::default()
    }
}

#[test]
fn a_page_as_the_generated_types_write_it() {
    let entry = |id: &str, condition| csi::list_volumes_response::Entry {
        volume: Some(volume(id)),
        status: Some(csi::list_volumes_response::VolumeStatus {
            published_node_ids: vec!["n1".into()],
            volume_condition: condition,
        }),
    };
    let sent = csi::ListVolumesResponse {
        entries: vec![entry("a", None), entry("b", Some(condition(true, "bad")))],
        next_token: "t".into(),
    };
    let page = Page::read(sent.encode_to_vec().into()).unwrap();
    assert_eq!((page.entries, page.next_token.as_str()), (2, "t"));
    let read: Vec<_> = page.entries().map(|entry| Volume::read(entry).unwrap()).collect();
    let bad = Condition { abnormal: true, message: b"bad" };
    assert_eq!(
        read,
        [
            Volume { id: b"a", capacity_bytes: -5, condition: None },
            Volume { id: b"b", capacity_bytes: -5, condition: Some(bad) }
        ]
    );
}

#[test]
fn a_get_answer_as_the_generated_types_write_it() {
    let sent = csi::ControllerGetVolumeResponse {
        volume: Some(volume("a")),
        status: Some(csi::controller_get_volume_response::VolumeStatus {
            published_node_ids: vec![],
            volume_condition: Some(condition(false, "")),
        }),
    };
    let bytes = sent.encode_to_vec();
    let read = Volume::read(&bytes).unwrap();
    assert_eq!(read, Volume { id: b"a", capacity_bytes: -5, condition: Some(Condition::default()) });
}

#[test]
fn health_as_the_generated_types_write_it() {
    let sent = csi::volume_health::VolumeHealthEntry { status: -7, reason: "R".into(), message: "m".into() };
    let bytes = sent.encode_to_vec();
    let read = Report::read(&bytes).unwrap();
    assert_eq!(read, Report { status: -7, reason: b"R", message: b"m", capability: None });

    let capability = csi::VolumeCapability::default();
    let sent = csi::node_get_storage_health_response::StorageBackendHealth {
        status: 2,
        reason: "R".into(),
        message: "m".into(),
        volume_capability: Some(capability),
    };
    let bytes = sent.encode_to_vec();
    let read = Report::read(&bytes).unwrap();
    assert_eq!(read, Report { status: 2, reason: b"R", message: b"m", capability: Some(b"") });
}

#[test]
fn faults_are_named() {
    let fault = |bytes: &[u8]| Page::read(bytes.to_vec().into()).unwrap_err();
    assert_eq!(fault(&[0x0a, 5, 1]), Malformed::CutShort);
    assert_eq!(fault(&[0x0a]), Malformed::CutShort);
    assert_eq!(fault(&[0x80]), Malformed::CutShort);
    assert_eq!(fault(&[0xff; 11]), Malformed::LongNumber);
    assert_eq!(fault(&[0x02, 0]), Malformed::FieldZero);
    assert_eq!(fault(&[0x0b]), Malformed::WireType);
    assert_eq!(fault(&[0x08, 1]), Malformed::WrongForm);
    assert_eq!(fault(&[0x12, 1, 0xff]), Malformed::NotUtf8("next_token"));
}

#[test]
fn a_message_in_two_pieces_is_one() {
    let first = csi::ListVolumesResponse { entries: vec![], next_token: "old".into() };
    let second = csi::ListVolumesResponse { entries: vec![], next_token: "new".into() };
    let both = [first.encode_to_vec(), second.encode_to_vec()].concat();
    assert_eq!(Page::read(both.into()).unwrap().next_token, "new");

    let mut parts = None;
    let flag = condition(true, "").encode_to_vec();
    Condition::merge(&mut parts, &flag).unwrap();
    let text = condition(false, "late").encode_to_vec();
    Condition::merge(&mut parts, &text).unwrap();
    assert_eq!(parts, Some(Condition { abnormal: true, message: b"late" }));
}

proptest::proptest! {
    /// Noise never panics, and where the generated types can read it, both read the same.
    #[test]
    fn noise(bytes: Vec<u8>) {
        let ours = Page::read(bytes.clone().into());
        if let Ok(theirs) = csi::ListVolumesResponse::decode(&bytes[..]) {
            // Groups are the one thing the generated types still skip and we do not.
            if let Ok(ours) = ours {
                assert_eq!(ours.entries, theirs.entries.len());
                assert_eq!(ours.next_token, theirs.next_token);
            }
        }
        let _ = Volume::read(&bytes);
        let _ = Report::read(&bytes);
        let _ = Condition::read(&bytes);
    }
}

proptest::proptest! {
    /// Whatever an honest driver writes is read back whole.
    #[test]
    fn honest_pages(
        volumes: Vec<(String, i64, Option<(bool, String)>)>,
        next_token: String,
    ) {
        let entries = volumes.iter().map(|(id, capacity_bytes, health)| csi::list_volumes_response::Entry {
            volume: Some(csi::Volume { capacity_bytes: *capacity_bytes, ..volume(id) }),
            status: health.as_ref().map(|(abnormal, message)| csi::list_volumes_response::VolumeStatus {
                published_node_ids: vec!["n".into()],
                volume_condition: Some(condition(*abnormal, message)),
            }),
        });
        let sent = csi::ListVolumesResponse { entries: entries.collect(), next_token: next_token.clone() };
        let page = Page::read(sent.encode_to_vec().into()).unwrap();
        assert_eq!((page.entries, &page.next_token), (volumes.len(), &next_token));
        for (entry, (id, capacity_bytes, health)) in page.entries().zip(&volumes) {
            let condition =
                health.as_ref().map(|(abnormal, message)| Condition { abnormal: *abnormal, message: message.as_bytes() });
            assert_eq!(Volume::read(entry).unwrap(), Volume { id: id.as_bytes(), capacity_bytes: *capacity_bytes, condition });
        }
    }
}
