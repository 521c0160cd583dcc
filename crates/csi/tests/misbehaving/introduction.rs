//! How a driver becomes known: slow ones, changed ones, wrong ones.

use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;
use tonic::Code;
use volmedic_csi::dialect::{self, ControllerProbe};
use volmedic_csi::{HEALER_FIELD, Kind, Method, Protocol, Settings, State};
use volmedic_proto::{csi, identity};

use crate::fake::{Fake, NAME, Reply, SOON, Scene, fail, says, settings, unanswered, why_not};

#[tokio::test]
async fn introduces_itself() {
    let scene = Scene::new();
    let _fake = Fake::new().capabilities(&[3, 11, 11, -4, 4711], &[2, 99]).start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    assert_eq!((session.driver(), session.version(), session.generation()), (NAME, "v1", 1));
    let features = session.features();
    assert_eq!(features.controller.iter().collect::<Vec<_>>(), [-4, 3, 11, 4711]);
    assert_eq!(features.node.iter().collect::<Vec<_>>(), [2, 99]);
    assert_eq!(dialect::controller(features).probe, ControllerProbe::ListVolumes);
    scene.scraped(&format!("volmedic_csi_connections_total{{driver_name=\"{NAME}\"}} 1"));
    scene.scraped(
        r#"driver_name="unknown-driver",method_name="/csi.v1.Identity/Probe",grpc_status_code="OK"} 1"#,
    );
    scene.scraped(
        r#"driver_name="fake.example",method_name="/csi.v1.Node/NodeGetCapabilities",grpc_status_code="OK"} 1"#,
    );
}

#[tokio::test]
async fn a_slow_start_is_waited_for() {
    let scene = Scene::new();
    let driver = scene.driver(settings());
    let early = why_not(&driver).await;
    assert_eq!(early.kind(), Kind::Unreachable);
    says(
        &early,
        &["connecting to driver at ", "csi.sock failed", "there is no socket at", "not created it yet"],
    );

    drop(driver);

    // Not ready, then failing, then not responding, then ready without saying so.
    let (got, has_it) = unbounded_channel();
    let _fake = Fake::new()
        .on(Method::Probe, move |call| match call.nth {
            0 => csi::ProbeResponse { ready: Some(false) }.into(),
            1 => fail(Code::FailedPrecondition, "loading"),
            2 => fail(Code::Unavailable, "warming up"),
            3 => {
                got.send(()).unwrap();
                Reply::Never
            }
            _ => csi::ProbeResponse { ready: None }.into(),
        })
        .start(&scene.socket());
    let driver = scene.driver(settings());
    let mut kinds = Vec::new();
    let mut states = driver.watch();
    let waiting = async {
        while kinds.last() != Some(&Kind::Deadline) {
            states.changed().await.unwrap();
            let State::Waiting(why) = &*states.borrow_and_update() else { panic!("ready after {kinds:?}") };
            kinds.push(why.kind());
        }
    };
    unanswered(waiting, has_it).await;
    assert_eq!(kinds, [Kind::NotReady, Kind::NotReady, Kind::Unavailable, Kind::Deadline]);
    driver.ready_within(SOON).await.unwrap();
}

#[tokio::test]
async fn not_ready_is_named() {
    let scene = Scene::new();
    let _fake = Fake::new()
        .on(Method::Probe, |_| csi::ProbeResponse { ready: Some(false) }.into())
        .start(&scene.socket());
    let error = why_not(&scene.driver(settings())).await;
    says(
        error,
        &["Probe to driver at ", "the driver says that it is not ready", "ask again after a growing pause"],
    );
}

#[tokio::test]
async fn capabilities_are_read_again_after_a_restart() {
    let scene = Scene::new();
    let fake = Fake::new().capabilities(&[3, 11], &[]).start(&scene.socket());
    let driver = scene.driver(settings());
    let before = driver.ready_within(SOON).await.unwrap();
    assert_eq!(dialect::controller(before.features()).probe, ControllerProbe::ListVolumes);

    drop(fake);
    tokio::time::timeout(SOON, before.ended()).await.unwrap();
    let _fake = Fake::new().capabilities(&[16, 17], &[]).start(&scene.socket());
    let mut states = driver.watch();
    let is_new = |state: &State| matches!(state, State::Ready(session) if session.generation() == 2);
    tokio::time::timeout(SOON, states.wait_for(is_new)).await.unwrap().unwrap();
    let after = driver.session().unwrap();
    assert_eq!(dialect::controller(after.features()).probe, ControllerProbe::ListHealth);
    // The old session stays what it was, and is dead.
    assert_eq!(dialect::controller(before.features()).probe, ControllerProbe::ListVolumes);
    assert_eq!(before.volume("v").await.unwrap_err().kind(), Kind::Lost);
    scene.scraped(&format!("volmedic_csi_connections_total{{driver_name=\"{NAME}\"}} 2"));
}

#[tokio::test]
async fn another_name_after_a_restart_is_refused() {
    let scene = Scene::new();
    let fake = Fake::new().start(&scene.socket());
    let driver = scene.driver(settings());
    let first = driver.ready_within(SOON).await.unwrap();
    drop(fake);
    tokio::time::timeout(SOON, first.ended()).await.unwrap();

    let stranger = Fake::named("stranger.example").start(&scene.socket());
    let mut states = driver.watch();
    let refused = |state: &State| matches!(state, State::Waiting(why) if why.kind() == Kind::WrongDriver);
    tokio::time::timeout(SOON, states.wait_for(refused)).await.unwrap().unwrap();
    says(
        driver.session().unwrap_err(),
        &[
            "another driver has taken over the socket",
            "it calls itself stranger.example, but fake.example is expected here",
        ],
    );
    // The right one is taken back.
    drop(stranger);
    let _fake = Fake::new().start(&scene.socket());
    assert_eq!(driver.ready_within(SOON).await.unwrap().generation(), 2);
}

#[tokio::test]
async fn a_name_can_be_demanded() {
    let scene = Scene::new();
    let _fake = Fake::new().start(&scene.socket());
    let driver = scene.driver(Settings { expected_name: Some("other.example".into()), ..settings() });
    let error = why_not(&driver).await;
    says(error, &["it calls itself fake.example, but other.example is expected here"]);
}

#[tokio::test]
async fn bad_names_are_refused() {
    for name in ["", "a\nb", &"n".repeat(1000)] {
        let scene = Scene::new();
        let _fake = Fake::named(name).start(&scene.socket());
        let error = why_not(&scene.driver(settings())).await;
        assert_eq!(error.kind(), Kind::Unreadable);
        says(
            &error,
            &[
                "GetPluginInfo to driver at ",
                "is empty, too long or not printable",
                "report it to its author",
            ],
        );
        assert!(!error.to_string().contains('\n'));
    }
}

#[tokio::test]
async fn services_that_are_not_there_are_no_error() {
    let scene = Scene::new();
    let gone = |_| fail(Code::Unimplemented, "unknown service");
    let _fake = Fake::new()
        .on(Method::Probe, gone)
        .on(Method::ControllerGetCapabilities, gone)
        .on(Method::NodeGetCapabilities, gone)
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    assert_eq!(session.features().controller.iter().count(), 0);
    assert_eq!(session.features().node.iter().count(), 0);
}

#[tokio::test]
async fn only_the_services_that_matter_are_asked() {
    let scene = Scene::new();
    let _fake = Fake::new()
        .capabilities(&[3], &[2])
        .on(Method::NodeGetCapabilities, |_| fail(Code::Internal, "no node here"))
        .start(&scene.socket());
    let protocol = Protocol::Csi { controller: true, node: false };
    let session = scene.driver(Settings { protocol, ..settings() }).ready_within(SOON).await.unwrap();
    assert!(session.features().lists_volumes());
    let both = why_not(&scene.driver(settings())).await;
    says(both, &["NodeGetCapabilities to driver fake.example failed", "no node here"]);
}

#[tokio::test]
async fn addons_have_a_greeting_of_their_own() {
    use identity::capability::{Type, VolumeHealer, volume_healer};
    let scene = Scene::new();
    let healer = VolumeHealer { r#type: volume_healer::Type::VolumeHealer as i32 };
    let capability = identity::Capability { r#type: Some(Type::VolumeHealer(healer)) };
    let _fake = Fake::new()
        .on(Method::AddonsGetCapabilities, move |_| {
            identity::GetCapabilitiesResponse { capabilities: vec![capability] }.into()
        })
        .start(&scene.socket());
    let driver = scene.driver(Settings { protocol: Protocol::Addons, ..settings() });
    let session = driver.ready_within(SOON).await.unwrap();
    assert_eq!(session.driver(), NAME);
    assert!(session.features().addons.announces_healer(HEALER_FIELD));
    assert!(!session.features().addons.announces_healer(HEALER_FIELD + 1));
}

/// A driver that never comes: the wait ends at its deadline, with the reason. The clock is virtual.
#[tokio::test(start_paused = true)]
async fn the_wait_has_an_end() {
    let scene = Scene::new();
    let driver = scene.driver(Settings::default());
    let started = tokio::time::Instant::now();
    let error = driver.ready_within(Duration::from_hours(1)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable);
    assert_eq!(started.elapsed().as_secs(), 3600);
}

#[tokio::test]
async fn an_enormous_introduction_is_refused() {
    let scene = Scene::new();
    let _fake =
        Fake::new().on(Method::GetPluginInfo, |_| Reply::Message(vec![0; 1 << 20])).start(&scene.socket());
    let error = why_not(&scene.driver(settings())).await;
    assert_eq!(error.kind(), Kind::TooLarge);
    says(error, &["too large: more than the 256 KiB that are taken of a GetPluginInfo answer"]);
}
