//! The socket and what is behind it: not a socket, no server, a server that hangs up, another protocol.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::unbounded_channel;
use tonic::Code;
use volmedic_csi::{Heal, Kind, Method, Settings};

use crate::fake::{Fake, Reply, SOON, Scene, fail, says, settings, unanswered, why_not};

#[tokio::test]
async fn a_path_that_is_no_socket() {
    let scene = Scene::new();
    std::fs::write(scene.socket(), "").unwrap();
    let error = why_not(&scene.driver(settings())).await;
    assert_eq!(error.kind(), Kind::Unreachable);
    says(
        &error,
        &[
            "the driver cannot be reached",
            "csi.sock is a regular file, not a socket",
            "check that the driver runs",
        ],
    );
}

#[tokio::test]
async fn a_socket_that_nobody_listens_on() {
    let scene = Scene::new();
    drop(std::os::unix::net::UnixListener::bind(scene.socket()).unwrap());
    let error = why_not(&scene.driver(settings())).await;
    says(error, &["the driver cannot be reached", "the socket exists, but no process listens on it"]);
}

/// Accepts, and does something with each connection.
fn listen(scene: &Scene, mut with: impl FnMut(std::os::unix::net::UnixStream) + Send + 'static) {
    let listener = std::os::unix::net::UnixListener::bind(scene.socket()).unwrap();
    std::thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(&mut with));
}

#[tokio::test]
async fn one_that_hangs_up_is_not_hammered() {
    let scene = Scene::new();
    let (tried, mut tries) = unbounded_channel();
    listen(&scene, move |stream| {
        drop(stream);
        let _ = tried.send(());
    });
    let slow = Settings {
        first_pause: Duration::from_millis(40),
        longest_pause: Duration::from_millis(160),
        ..settings()
    };
    let started = Instant::now();
    let driver = scene.driver(slow);
    let error = why_not(&driver).await;
    assert_eq!(error.kind(), Kind::Lost);
    says(error, &["Probe to driver at ", "the connection to the driver broke"]);
    for _ in 0..5 {
        tokio::time::timeout(SOON, tries.recv()).await.unwrap().unwrap();
    }
    // Half of each pause is certain.
    let pauses = Duration::from_millis(20 + 40 + 80 + 80);
    assert!(started.elapsed() >= pauses, "five connections in {:?}", started.elapsed());
}

#[tokio::test]
async fn one_that_speaks_http_1() {
    let scene = Scene::new();
    listen(&scene, |mut stream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    });
    let error = why_not(&scene.driver(settings())).await;
    assert_eq!(error.kind(), Kind::Lost);
    says(error, &["Probe to driver at ", "the connection to the driver broke"]);
}

#[tokio::test]
async fn one_that_never_answers() {
    let scene = Scene::new();
    let (keep, kept) = std::sync::mpsc::channel();
    listen(&scene, move |stream| keep.send(stream).unwrap());
    let hasty = Settings { deadline: Duration::from_millis(100), ..settings() };
    let error = why_not(&scene.driver(hasty)).await;
    assert_eq!(error.kind(), Kind::Deadline);
    says(error, &["Probe to driver at ", "no answer came in time (", "ask again"]);
    drop(kept);
}

/// Our deadline is a deadline, in the error and in the metric, and it is sent to the driver.
#[tokio::test]
async fn a_deadline_is_not_a_cancellation() {
    let scene = Scene::new();
    let (send, headers) = std::sync::mpsc::channel();
    let (got, has_it) = unbounded_channel();
    let _fake = Fake::new()
        .on(Method::ControllerGetVolume, move |call| {
            send.send(call.headers.get("grpc-timeout").cloned()).unwrap();
            got.send(()).unwrap();
            Reply::Never
        })
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let error = unanswered(session.volume("vol-1"), has_it).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Deadline);
    says(
        error,
        &["ControllerGetVolume for volume vol-1 to driver fake.example failed: no answer came in time"],
    );
    scene.scraped(
        r#"method_name="/csi.v1.Controller/ControllerGetVolume",grpc_status_code="DeadlineExceeded"} 1"#,
    );
    assert!(headers.recv().unwrap().is_some(), "the driver should know how long we wait");
}

/// A hung call does not keep others from being answered.
#[tokio::test]
async fn one_hung_call_delays_no_other() {
    let scene = Scene::new();
    let _fake = Fake::new()
        .on(Method::ControllerGetVolume, |call| {
            let asked: volmedic_proto::csi::ControllerGetVolumeRequest = call.read();
            if asked.volume_id == "hung" { Reply::Never } else { Reply::Message(vec![]) }
        })
        .start(&scene.socket());
    let driver = scene.driver(settings());
    let session = driver.ready_within(SOON).await.unwrap();
    let hung = tokio::spawn({
        let session = session.clone();
        async move { session.volume("hung").await }
    });
    tokio::task::yield_now().await;
    for _ in 0..50 {
        tokio::time::timeout(SOON, session.volume("fine")).await.unwrap().unwrap();
    }
    assert!(!hung.is_finished());
    hung.abort();
}

#[tokio::test]
async fn calls_in_flight_can_be_limited() {
    let scene = Scene::new();
    let _fake = Fake::new().on(Method::ControllerGetVolume, |_| Reply::Never).start(&scene.socket());
    let settings = Settings { max_in_flight: Some(2), ..settings() };
    let session = scene.driver(settings).ready_within(SOON).await.unwrap();
    let ask = |volume: &'static str| {
        let session = session.clone();
        tokio::spawn(async move { session.volume(volume).await.unwrap_err() })
    };
    let (a, b) = (ask("a"), ask("b"));
    tokio::task::yield_now().await;
    // The third gives up while the first two still hold their slots: now only deadlines make time pass.
    tokio::time::pause();
    let third = Heal { volume_id: "c".into(), ..Heal::default() };
    let crowded = session.heal(third, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(crowded.kind(), Kind::Crowded);
    says(
        crowded,
        &["NodeHealer for volume c", "too many calls to the driver were under way, this one was not sent"],
    );
    assert_eq!(a.await.unwrap().kind(), Kind::Deadline);
    assert_eq!(b.await.unwrap().kind(), Kind::Deadline);
    tokio::time::resume();
    // The slots are free again.
    let fourth = Heal { volume_id: "d".into(), ..Heal::default() };
    assert_eq!(session.heal(fourth, SOON).await.unwrap_err().kind(), Kind::Unimplemented);
}

/// An error is a sign of life, silence and a broken connection are not.
#[tokio::test]
async fn signs_of_life() {
    let scene = Scene::new();
    let (got, has_it) = unbounded_channel();
    let fake = Fake::new()
        .on(Method::Probe, move |call| match call.nth {
            0 => Reply::Message(vec![]),
            1 => fail(Code::Internal, "unhealthy"),
            2 => fail(Code::Unimplemented, "no"),
            _ => {
                got.send(()).unwrap();
                Reply::Never
            }
        })
        .start(&scene.socket());
    let driver = scene.driver(settings());
    let session = driver.ready_within(SOON).await.unwrap();
    assert!(session.is_alive().await);
    assert!(session.is_alive().await);
    assert!(!unanswered(session.is_alive(), has_it).await);
    drop(fake);
    tokio::time::timeout(SOON, session.ended()).await.unwrap();
    assert!(!session.is_alive().await);
}
