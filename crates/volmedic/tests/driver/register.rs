//! The driver registers with the kubelet by itself.

use std::fs;

use tonic::transport::Endpoint;
use volmedic_proto::registration::registration_client::RegistrationClient;
use volmedic_proto::registration::{InfoRequest, RegistrationStatus};

use crate::ground::{Ground, PROGRAM, SOON};

#[tokio::test]
async fn the_kubelet_finds_the_driver_and_says_whether_it_accepted_it() {
    let mut ground = Ground::new();
    let socket = ground.path().join("driver.volmedic.dev-reg.sock");
    let (at, seen) = (format!("unix://{}", socket.display()), "/var/lib/kubelet/plugins/x/csi.sock");
    ground.start(&["--registration-socket", &at, "--kubelet-registration-path", seen]);
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    // It comes right after the driver's own socket.
    let deadline = std::time::Instant::now() + SOON;
    let channel = loop {
        match endpoint.connect().await {
            Ok(channel) => break channel,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}\n{}", ground.log()),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    let mut kubelet = RegistrationClient::new(channel);
    let info = kubelet.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", "driver.volmedic.dev"));
    assert_eq!((info.endpoint.as_str(), info.supported_versions), (seen, vec!["1.0.0".to_owned()]));

    let status = RegistrationStatus { plugin_registered: false, error: "no such socket".to_owned() };
    kubelet.notify_registration_status(status).await.unwrap();
    let status = RegistrationStatus { plugin_registered: true, error: String::new() };
    kubelet.notify_registration_status(status).await.unwrap();
    let log = ground.log();
    assert!(log.contains("the kubelet refused the driver: no such socket; check that"), "{log}");
    assert!(log.contains("registered with the kubelet"), "{log}");
    drop(kubelet);
    ground.stop();
    assert!(fs::symlink_metadata(&socket).is_err(), "the kubelet would find a driver that is gone");
}

#[test]
fn only_a_driver_that_serves_the_node_can_register() {
    let ground = Ground::new();
    for (arguments, code, sentence) in [
        (
            &["--services", "controller", "--registration-socket", "/x/reg.sock"][..],
            1,
            "add node to --services",
        ),
        (&["--kubelet-registration-path", "/x/csi.sock"], 2, "--registration-socket"),
        (&["--registration-socket", "reg.sock"], 1, "followed by an absolute path"),
    ] {
        let output = ground.command(&ground.socket()).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{PROGRAM} {arguments:?}: {said}");
        assert!(said.contains(sentence), "{arguments:?}: {said}");
    }
}
