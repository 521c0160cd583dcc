//! What cannot work is refused at the start, with a sentence that says what and why.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use volmedic_testkit::objects;
use volmedic_testkit::sim::{Sim, capability as can};

use crate::process::{Controller, PATIENCE, program};
use crate::server;
use crate::stage::Stage;

/// A command line that is wrong, and surroundings that are.
const WRONG_LINE: i32 = 2;
const WRONG_PLACE: i32 = 1;

/// Runs `volmedic controller` with these arguments and expects it to end with this code and all these words.
async fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let mut controller = Controller::spawn(Command::new(program()).arg("controller").args(arguments));
    assert_eq!(controller.ended(PATIENCE), Some(code), "{arguments:?}: {}", controller.log());
    for word in words {
        // What was written before the end may still be on its way here.
        controller.wait_log(word).await;
    }
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

#[tokio::test]
async fn command_lines() {
    refused(&["--monitor-interval=0s"], WRONG_LINE, &["--monitor-interval", "it must be greater than zero"])
        .await;
    refused(&["--list-volumes-interval=-5m"], WRONG_LINE, &["is negative"]).await;
    refused(&["--timeout=15"], WRONG_LINE, &["use Go's way, as in 90s"]).await;
    let both = ["--http-endpoint=:8080", "--metrics-address=:8081"];
    refused(&both, WRONG_LINE, &["'--http-endpoint <ADDRESS>' cannot be used with '--metrics-address"]).await;
    refused(&["--worker-threads=0"], WRONG_LINE, &["0 is not in 1..=10000"]).await;
    refused(&["--csi-address=tcp://10.0.0.1:10000"], WRONG_LINE, &["tcp"]).await;
    refused(&["--kube-api-qps=-1"], WRONG_LINE, &["it must be a number above 0"]).await;
    refused(&["--such-a-flag"], WRONG_LINE, &["unexpected argument '--such-a-flag'"]).await;
}

#[tokio::test]
async fn kubeconfigs() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = flag("csi-address", &dir.path().join("csi.sock"));
    let missing = dir.path().join("missing");
    let garbage = dir.path().join("garbage");
    std::fs::write(&garbage, "\u{1}: [no: yaml").expect("garbage can be written");
    let aimless = dir.path().join("aimless");
    std::fs::write(&aimless, r#"{"apiVersion": "v1", "kind": "Config", "current-context": "nowhere"}"#)
        .expect("a kubeconfig can be written");
    for (path, why) in [
        (missing.as_path(), "No such file"),
        (garbage.as_path(), "cannot use the kubeconfig"),
        (aimless.as_path(), "nowhere"),
        (dir.path(), "directory"),
    ] {
        let named = format!("volmedic: cannot use the kubeconfig {}", path.display());
        refused(&[&socket, &flag("kubeconfig", path)], WRONG_PLACE, &[&named, why]).await;
    }
}

#[tokio::test]
async fn sockets_and_drivers() {
    let dir = tempfile::tempdir().expect("a directory");
    let plane = server::shared();
    let kubeconfig = flag("kubeconfig", plane.kubeconfig());
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("a file can be written");
    let words = ["volmedic: cannot talk to the driver", "a regular file"];
    refused(&[&flag("csi-address", &file), &kubeconfig], WRONG_PLACE, &words).await;
    refused(&[&flag("csi-address", dir.path()), &kubeconfig], WRONG_PLACE, &["a directory"]).await;

    let sim = Sim::start(&dir.path().join("csi.sock"), "this.example.net", &[]).expect("a driver");
    let socket = flag("csi-address", sim.socket());
    let other = ["--driver-name does not fit", "this.example.net", "that.example.net"];
    refused(&[&socket, &kubeconfig, "--driver-name=that.example.net"], WRONG_PLACE, &other).await;
    let hasty = ["--leader-election", "--leader-election-renew-deadline=1h"];
    let words = ["volmedic: ", "renew deadline", "lease duration"];
    refused(&[&socket, &kubeconfig, hasty[0], hasty[1]], WRONG_PLACE, &words).await;
}

/// A driver that nobody registered, without a single volume, where others have theirs.
#[tokio::test]
async fn a_driver_that_is_not_the_one_whose_volumes_exist() {
    let stage = Stage::new(&[can::LIST_VOLUME_HEALTH]).await;
    stage.claims(&["data"]).await;
    let dir = tempfile::tempdir().expect("a directory");
    let sim = Sim::start(&dir.path().join("csi.sock"), "stranger.example.net", &[]).expect("a driver");
    let arguments = [flag("csi-address", sim.socket()), flag("kubeconfig", &stage.kubeconfig)];
    let arguments = arguments.each_ref().map(|argument| &**argument);
    let words = [
        "volmedic: the driver behind --csi-address is stranger.example.net",
        "there are volumes of",
        "--driver-name=stranger.example.net",
    ];
    refused(&arguments, WRONG_PLACE, &words).await;

    // A user who names it means it, and one that is registered was meant to be here.
    let named = Controller::spawn(
        Command::new(program()).arg("controller").args(arguments).arg("--driver-name=stranger.example.net"),
    );
    named.wait_log("there is no PersistentVolume of this driver").await;
    named.wait_log("watching").await;
    assert_eq!(named.terminate(), Some(0));
    objects::csi_driver(&stage.client, "stranger.example.net").await.expect("a CSIDriver");
    let registered = Controller::spawn(Command::new(program()).arg("controller").args(arguments));
    registered.wait_log("watching").await;
    assert_eq!(registered.terminate(), Some(0));
}

#[tokio::test]
async fn a_port_that_is_taken() {
    let dir = tempfile::tempdir().expect("a directory");
    let plane = server::shared();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let arguments = [
        flag("csi-address", &dir.path().join("csi.sock")),
        flag("kubeconfig", plane.kubeconfig()),
        format!("--http-endpoint={address}"),
    ];
    let words =
        [&*format!("cannot serve HTTP on {address}"), "choose another --http-endpoint or free the port"];
    refused(&arguments.each_ref().map(|argument| &**argument), WRONG_PLACE, &words).await;
}
