//! Single questions, and the errors a person reads.

use std::time::Duration;

use tonic::Code;
use volmedic_csi::{Access, Heal, Kind, Method, OldCondition, Secrets, Usage};
use volmedic_proto::{csi, healer};

use crate::fake::{Fake, Reply, SOON, Scene, fail, says, settings};

fn secrets() -> Secrets {
    Secrets::new([("password".to_owned(), "hunter2".to_owned())].into())
}

fn health(id: &str, statuses: &[(i32, &str)]) -> csi::VolumeHealth {
    let entry = |(status, reason): &(i32, &str)| csi::volume_health::VolumeHealthEntry {
        status: *status,
        reason: (*reason).into(),
        message: String::new(),
    };
    csi::VolumeHealth { volume_id: id.into(), health_statuses: statuses.iter().map(entry).collect() }
}

#[tokio::test]
async fn the_new_dialect() {
    let scene = Scene::new();
    let _fake = Fake::new()
        .on(Method::ControllerGetVolumeHealth, |call| {
            let asked: csi::ControllerGetVolumeHealthRequest = call.read();
            assert_eq!(asked.secrets["password"], "hunter2");
            let volume_health = match asked.volume_id.as_str() {
                "swapped" => Some(health("other", &[])),
                "unanswered" => None,
                id => Some(health(id, &[(3, "DiskFailure"), (77, "Odd")])),
            };
            csi::ControllerGetVolumeHealthResponse { volume_health }.into()
        })
        .on(Method::NodeGetVolumeHealth, |call| {
            let asked: csi::NodeGetVolumeHealthRequest = call.read();
            assert_eq!(
                (asked.volume_publish_path.as_str(), asked.staging_target_path.as_str()),
                ("/pub", "/stage")
            );
            csi::NodeGetVolumeHealthResponse { volume_health: Some(health("", &[])) }.into()
        })
        .on(Method::NodeGetStorageHealth, |_| {
            let capability = csi::VolumeCapability {
                access_type: Some(csi::volume_capability::AccessType::Block(
                    csi::volume_capability::BlockVolume {},
                )),
                access_mode: Some(csi::volume_capability::AccessMode { mode: 1 }),
            };
            let backend = csi::node_get_storage_health_response::StorageBackendHealth {
                status: 2,
                reason: "NetworkError".into(),
                message: "no path".into(),
                volume_capability: Some(capability),
            };
            csi::NodeGetStorageHealthResponse { backend_health: vec![backend] }.into()
        })
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();

    let unhealthy = session.volume_health("v", &secrets()).await.unwrap();
    let conditions: Vec<_> = unhealthy.conditions.iter().map(|c| (c.status, c.reason.as_str())).collect();
    assert_eq!(
        (unhealthy.volume_id.as_str(), conditions.as_slice()),
        ("v", [(3, "DiskFailure"), (77, "Odd")].as_slice())
    );
    scene.scraped(r#"oddity="unknown_status"} 1"#);

    let error = session.volume_health("swapped", &secrets()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::WrongVolume);
    says(
        error,
        &[
            "for volume swapped",
            "the driver answered about another volume: volume other",
            "fault of the driver",
        ],
    );
    scene.scraped(r#"oddity="wrong_volume"} 1"#);

    let error = session.volume_health("unanswered", &secrets()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoAnswer);
    says(error, &["for volume unanswered", "says nothing about what was asked"]);

    let healthy = session.node_volume_health("v", "/pub", "/stage").await.unwrap();
    assert_eq!((healthy.volume_id.as_str(), healthy.conditions.len()), ("v", 0));

    let backends = session.storage_health(&secrets()).await.unwrap();
    let capability = backends[0].capability.as_ref().unwrap();
    assert_eq!((backends[0].status, &capability.access, capability.access_mode), (2, &Access::Block, 1));
}

#[tokio::test]
async fn the_old_dialect() {
    let scene = Scene::new();
    let _fake = Fake::new()
        .on(Method::ControllerGetVolume, |call| {
            let asked: csi::ControllerGetVolumeRequest = call.read();
            let condition = csi::VolumeCondition { abnormal: true, message: "path gone".into() };
            let status = csi::controller_get_volume_response::VolumeStatus {
                published_node_ids: vec![],
                volume_condition: (asked.volume_id == "unhealthy").then_some(condition),
            };
            let volume = csi::Volume { volume_id: asked.volume_id, capacity_bytes: 7, ..Default::default() };
            csi::ControllerGetVolumeResponse { volume: Some(volume), status: Some(status) }.into()
        })
        .on(Method::NodeGetVolumeStats, |call| {
            let asked: csi::NodeGetVolumeStatsRequest = call.read();
            assert_eq!(asked.volume_path, "/path");
            let usage = csi::VolumeUsage { available: 1, total: 3, used: 2, unit: 1 };
            csi::NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition: None }.into()
        })
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let unhealthy = session.volume("unhealthy").await.unwrap();
    assert_eq!(unhealthy.condition, Some(OldCondition { abnormal: true, message: "path gone".into() }));
    assert_eq!(unhealthy.capacity_bytes, 7);
    assert_eq!(session.volume("untold").await.unwrap().condition, None);
    let stats = session.volume_stats("v", "/path", "").await.unwrap();
    assert_eq!(stats.usage, [Usage { unit: 1, total: 3, used: 2, available: 1 }]);
    assert_eq!(stats.condition, None);
}

#[tokio::test]
async fn healing() {
    let scene = Scene::new();
    let _fake = Fake::new()
        .on(Method::NodeHealer, |call| {
            let asked: healer::NodeHealerRequest = call.read();
            assert_eq!(asked.secrets["password"], "hunter2");
            match asked.volume_id.as_str() {
                "busy" => fail(Code::Aborted, "healing already"),
                "locked" => fail(Code::Unauthenticated, "wrong password hunter2"),
                "echo" => {
                    healer::NodeHealerResponse { abnormal: true, message: "logged in with hunter2".into() }
                        .into()
                }
                _ => healer::NodeHealerResponse { abnormal: false, message: "remounted".into() }.into(),
            }
        })
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let heal = |volume: &str| {
        let heal = Heal {
            volume_id: volume.into(),
            volume_path: "/p".into(),
            secrets: secrets(),
            ..Heal::default()
        };
        assert!(!format!("{heal:?}").contains("hunter2"));
        session.heal(heal, Duration::from_secs(5))
    };
    let healed = heal("v").await.unwrap();
    assert_eq!((healed.abnormal, healed.message.as_str()), (false, "remounted"));
    // No deadline is too long to be sent to the driver.
    let patient = Heal { volume_id: "v".into(), secrets: secrets(), ..Heal::default() };
    session.heal(patient, Duration::MAX).await.unwrap();
    says(heal("busy").await.unwrap_err(), &["NodeHealer for volume busy", "wait until that is done"]);
    let error = heal("locked").await.unwrap_err();
    says(&error, &["does not accept the secrets: wrong password [secret]", "correct or renew the secrets"]);
    assert!(!format!("{error:?}").contains("hunter2"));
    assert_eq!(heal("echo").await.unwrap().message, "logged in with [secret]");
}

/// Every code a driver can answer with, through the wire and into a sentence and a label.
#[tokio::test]
async fn every_code() {
    let scene = Scene::new();
    let _fake = Fake::new()
        .on(Method::ControllerGetVolume, |call| {
            let asked: csi::ControllerGetVolumeRequest = call.read();
            fail(Code::from_i32(asked.volume_id.parse().unwrap()), "driver's words")
        })
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    for number in 1..=16 {
        let error = session.volume(&number.to_string()).await.unwrap_err();
        let kind = Kind::from_code(Code::from_i32(number));
        assert_eq!(error.kind(), kind);
        says(
            &error,
            &[
                &format!("ControllerGetVolume for volume {number} to driver fake.example failed: "),
                ": driver's words; ",
                kind.duty().advice(),
            ],
        );
        let code = kind.code_name();
        scene.scraped(&format!(
            "method_name=\"/csi.v1.Controller/ControllerGetVolume\",grpc_status_code=\"{code}\"}} 1"
        ));
    }
}

#[tokio::test]
async fn a_drivers_words_are_tamed() {
    let scene = Scene::new();
    let _fake = Fake::new()
        .on(Method::ControllerGetVolume, |_| {
            fail(Code::Internal, &format!("\u{1b}[31mred\r\n{}", "é".repeat(3000)))
        })
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let error = session.volume("v\u{7}").await.unwrap_err().to_string();
    assert!(!error.chars().any(char::is_control), "{error:?}");
    assert!(error.len() < 1600, "{} bytes", error.len());
    says(error, &["for volume v\\u{7} ", "\\u{1b}[31mred\\r\\né", "bytes more)"]);
}

#[tokio::test]
async fn answers_that_are_too_large_or_noise() {
    let scene = Scene::new();
    let _fake = Fake::new()
        .on(Method::ControllerGetVolume, |_| Reply::Message(vec![0; 5 << 20]))
        .on(Method::NodeGetVolumeStats, |_| Reply::Message(vec![0xff; 100]))
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let error = session.volume("v").await.unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
    says(error, &["too large: more than the 4 MiB that are taken of a ControllerGetVolume answer"]);
    let error = session.volume_stats("v", "/p", "").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unreadable);
    says(error, &["cannot be understood: it holds a number of more than 64 bits", "report it to its author"]);
}
