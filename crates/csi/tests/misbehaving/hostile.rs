//! Answers that are broken, enormous or cut: none of them panics, none of them goes unnamed.

use std::time::Duration;

use prost::Message as _;
use prost::bytes::{BufMut as _, BytesMut};
use volmedic_csi::{Broken, Kind, Limits, Method, Oddity, Pager, Secrets};
use volmedic_proto::csi;

use crate::fake::{Call, Fake, Reply, SOON, Scene, says, settings};
use crate::paging::{entry, honest, limits, page, start, walk};

const MIB: usize = 1 << 20;

/// A length-delimited field, its content as it is.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    bytes.put_u8(number << 3 | 2);
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.put_slice(content);
    bytes.to_vec()
}

fn listed(id: &[u8]) -> Vec<u8> {
    field(1, &field(1, &field(2, id)))
}

#[tokio::test]
async fn an_id_that_is_not_utf8_spoils_only_its_entry() {
    let scene = Scene::new();
    let _fake = start(&scene, |_| Reply::Message([listed(b"a"), listed(b"\xff\xfe"), listed(b"b")].concat()));
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let (volumes, end) = walk(&session, &mut Pager::new(limits())).await;
    assert_eq!(volumes.iter().map(|v| v.volume_id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(end.counts.oddities.count(Oddity::UnreadableEntry), 1);
    says(
        end,
        &[
            "was incomplete",
            "1 × entry that cannot be read",
            "1 × an entry whose volume id is missing or cannot be read",
        ],
    );
}

#[tokio::test]
async fn an_entry_that_is_not_protobuf_spoils_only_itself() {
    let scene = Scene::new();
    let _fake =
        start(&scene, |_| Reply::Message([listed(b"a"), field(1, &[0x0a, 99]), listed(b"b")].concat()));
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let (volumes, end) = walk(&session, &mut Pager::new(limits())).await;
    assert_eq!(volumes.len(), 2);
    assert_eq!(end.counts.oddities.count(Oddity::UnreadableEntry), 1);
}

#[tokio::test]
async fn a_message_that_is_not_utf8_is_kept_as_far_as_it_can_be_read() {
    let scene = Scene::new();
    let report = [vec![0x08, 2], field(2, b"Disk\xffGone"), field(3, b"path \xff lost")].concat();
    let health = [field(1, b"a"), field(2, &report)].concat();
    let _fake = Fake::new()
        .capabilities(&[16, 17], &[])
        .on(Method::ControllerListVolumeHealth, move |_| Reply::Message(field(1, &health)))
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut texts = Vec::new();
    let mut pager = Pager::new(limits());
    let end = pager
        .list_health(
            &session,
            &Secrets::default(),
            |listed: volmedic_csi::Listed<volmedic_csi::VolumeHealth>| {
                texts.extend(listed.entry.conditions.into_iter().map(|c| (c.status, c.reason, c.message)));
            },
        )
        .await;
    assert_eq!(texts, [(2, "Disk\u{fffd}Gone".to_owned(), "path \u{fffd} lost".to_owned())]);
    assert!(end.complete());
    says(end, &["2 × text that is not valid UTF-8"]);
}

/// The token is the one text of a page that must be right: without it the rest of the list is out of reach.
#[tokio::test]
async fn a_token_that_is_not_utf8() {
    let scene = Scene::new();
    let _fake = start(&scene, |call| {
        if call.nth == 0 {
            page(&["a"], "1")
        } else {
            Reply::Message([listed(b"b"), field(2, b"\xff")].concat())
        }
    });
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let few = Limits { first_size: 8, ..limits() };
    let (volumes, end) = walk(&session, &mut Pager::new(few)).await;
    assert_eq!(volumes.len(), 1);
    // 8, 4, 2, 1: then there is nothing smaller to ask for.
    assert_eq!(end.counts.retries, 3);
    assert_eq!(end.counts.oddities.count(Oddity::UnreadablePage), 4);
    says(
        &end,
        &[
            "the driver's answer cannot be understood: its next_token is not valid UTF-8",
            "down to the one that cannot be read",
            "the rest of the list is out of reach, because the token for it is inside that page",
        ],
    );
}

/// Pages without the bad spot are still had, by asking for less.
#[tokio::test]
async fn a_bad_page_is_closed_in_on() {
    let scene = Scene::new();
    let _fake = start(&scene, |call| {
        let asked: csi::ListVolumesRequest = call.read();
        let from: i32 = asked.starting_token.parse().unwrap_or(0);
        // Whatever holds the tenth volume is noise.
        if (from..from + asked.max_entries).contains(&10) {
            Reply::Message(vec![0xff; 40])
        } else {
            honest(&call, 20)
        }
    });
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let (volumes, end) = walk(&session, &mut Pager::new(limits())).await;
    assert_eq!(volumes.len(), 10, "{end}");
    assert!(matches!(end.broken, Some(Broken::Unreadable(_))));
}

/// One listed volume whose message fills the page up to the size that is wanted.
fn filled(size: usize) -> Vec<u8> {
    let mut volume = entry("big");
    let condition = |length: usize| csi::VolumeCondition { abnormal: true, message: "m".repeat(length) };
    let mut length = size;
    loop {
        volume.status = Some(csi::list_volumes_response::VolumeStatus {
            published_node_ids: vec![],
            volume_condition: Some(condition(length)),
        });
        let response = csi::ListVolumesResponse { entries: vec![volume.clone()], next_token: String::new() };
        let over = response.encoded_len().saturating_sub(size);
        if over == 0 {
            return response.encode_to_vec();
        }
        length -= over;
    }
}

#[tokio::test]
async fn sixty_four_mebibytes_are_taken_and_more_are_refused_by_name() {
    let scene = Scene::new();
    let _fake = start(&scene, |call| Reply::Message(filled(if call.nth == 0 { 64 * MIB } else { 66 * MIB })));
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(Limits { first_size: 4, page_deadline: SOON, ..limits() });
    let (volumes, end) = walk(&session, &mut pager).await;
    assert!(end.complete(), "{end}");
    let message = &volumes[0].condition.as_ref().unwrap().message;
    assert_eq!(message.len(), 4096);
    assert_eq!(end.counts.oddities.count(Oddity::CutText), 1);

    let (volumes, end) = walk(&session, &mut pager).await;
    assert_eq!((volumes.len(), end.counts.retries), (0, 2));
    assert_eq!(end.counts.oddities.count(Oddity::TooLargePage), 3);
    says(
        end,
        &["the driver's answer is too large: more than the 65 MiB that are taken of a ListVolumes answer"],
    );
    scene.scraped(r#"method_name="/csi.v1.Controller/ListVolumes",grpc_status_code="ResourceExhausted"} 3"#);
}

/// As generated objects these thirty million entries would take gigabytes. Memory is counted for a whole process, so the
/// test runs itself in one of its own.
#[tokio::test]
async fn a_page_of_nothing_but_empty_entries() {
    const ALONE: &str = "VOLMEDIC_TEST_ALONE";
    const SELF: &str = "hostile::a_page_of_nothing_but_empty_entries";
    if std::env::var_os(ALONE).is_none() {
        let own = std::env::current_exe().unwrap();
        let run = std::process::Command::new(own).args(["--exact", SELF]).env(ALONE, "1").output().unwrap();
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let scene = Scene::new();
    let _fake = start(&scene, |_| Reply::Message([0x0a, 0].repeat(30 * MIB)));
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(Limits { page_deadline: SOON, max_entries: 1000, ..limits() });
    let (volumes, end) = walk(&session, &mut pager).await;
    assert!(volumes.is_empty());
    assert_eq!(end.counts.oddities.count(Oddity::EmptyId), 1000);
    says(end, &["the driver listed 1000 entries and went on"]);
    // 60 MiB: made and framed by the fake, on its way, and taken by us.
    let peak = resident();
    assert!(peak < 400 * MIB, "the process grew to {} MiB", peak / MIB);
}

/// The most this process ever had in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn a_connection_cut_in_the_middle_of_a_page() {
    let scene = Scene::new();
    let (started, mut half_sent) = tokio::sync::mpsc::unbounded_channel();
    let fake = start(&scene, move |call| {
        if call.nth == 0 {
            return page(&["a", "b"], "1");
        }
        started.send(()).unwrap();
        let entries = (0..1000).map(|i| entry(&format!("w{i}"))).collect();
        Reply::Half(csi::ListVolumesResponse { entries, next_token: String::new() }.encode_to_vec())
    });
    let driver = scene.driver(settings());
    let session = driver.ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(Limits { page_deadline: SOON, ..limits() });
    let walking = walk(&session, &mut pager);
    let killing = async {
        half_sent.recv().await;
        // Time for the half to arrive. If it does not, the call is cut all the same.
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(fake);
    };
    let ((volumes, end), ()) = tokio::join!(walking, killing);
    assert_eq!(volumes.len(), 2);
    assert!(matches!(&end.broken, Some(Broken::Call(error)) if error.kind() == Kind::Lost), "{end}");
    says(&end, &["the connection to the driver broke", "connected again as soon as the driver is back"]);
    scene.scraped(r#"method_name="/csi.v1.Controller/ListVolumes",grpc_status_code="Unavailable"} 1"#);
}

#[tokio::test]
async fn a_restart_in_the_middle_of_a_pass() {
    let scene = Scene::new();
    let (asked, mut second_page) = tokio::sync::mpsc::unbounded_channel();
    let fake = start(&scene, move |call: Call| {
        if call.nth == 0 {
            return honest(&call, 1000);
        }
        asked.send(()).unwrap();
        Reply::Never
    });
    let driver = scene.driver(settings());
    let session = driver.ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(Limits { page_deadline: SOON, ..limits() });
    let walking = walk(&session, &mut pager);
    let killing = async {
        second_page.recv().await;
        drop(fake);
    };
    let ((volumes, end), ()) = tokio::join!(walking, killing);
    assert_eq!(volumes.len(), 500, "what the first page said is kept");
    assert!(matches!(&end.broken, Some(Broken::Call(error)) if error.kind() == Kind::Lost), "{end}");

    // The driver comes back; the next pass, on a new session, is whole.
    let _fake = start(&scene, |call| honest(&call, 1000));
    let mut states = driver.watch();
    let is_new = |state: &volmedic_csi::State| matches!(state, volmedic_csi::State::Ready(new) if new.generation() == 2);
    tokio::time::timeout(SOON, states.wait_for(is_new)).await.unwrap().unwrap();
    let (volumes, end) = walk(&driver.session().unwrap(), &mut pager).await;
    assert_eq!((volumes.len(), end.complete()), (1000, true));
}

/// The gRPC library panics on status details that are not base64, if they reach it.
#[tokio::test]
async fn status_details_that_are_not_base64() {
    const DETAILS: (&str, &str) = ("grpc-status-details-bin", "!!! not base64 !!!");
    let scene = Scene::new();
    let _fake = Fake::new()
        .on(Method::ControllerGetVolume, |_| {
            Reply::Headers(vec![("grpc-status", "5"), ("grpc-message", "gone"), DETAILS])
        })
        .on(Method::NodeGetVolumeStats, |_| {
            Reply::Trailers(vec![], vec![("grpc-status", "13"), ("grpc-message", "bad"), DETAILS])
        })
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let error = session.volume("v").await.unwrap_err();
    assert_eq!((error.kind(), error.detail()), (Kind::NotFound, "gone"));
    let error = session.volume_stats("v", "/p", "").await.unwrap_err();
    assert_eq!((error.kind(), error.detail()), (Kind::Internal, "bad"));
}

#[tokio::test]
async fn headers_that_make_no_sense() {
    for (headers, kind) in [
        (vec![], Kind::Unreadable),
        (vec![("grpc-status", "0")], Kind::Unreadable),
        (vec![("grpc-status", "99")], Kind::Unknown),
        (vec![("grpc-status", "zero")], Kind::Unknown),
        (vec![("grpc-status", "2"), ("grpc-message", "%ff%fe")], Kind::Unknown),
        (vec![("grpc-status", "0"), ("grpc-encoding", "brotli")], Kind::Unimplemented),
    ] {
        let scene = Scene::new();
        let sent = headers.clone();
        let _fake = Fake::new()
            .on(Method::ControllerGetVolume, move |_| Reply::Headers(sent.clone()))
            .start(&scene.socket());
        let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
        let error = session.volume("v").await.unwrap_err();
        assert_eq!(error.kind(), kind, "{headers:?} gave {error}");
        says(error, &["ControllerGetVolume for volume v to driver fake.example failed: the driver"]);
    }
}
