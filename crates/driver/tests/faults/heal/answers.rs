//! What the addons endpoint answers.

use std::collections::HashMap;
use std::fs;

use tonic::{Code, Status};
use volmedic_driver::fault::{Fault, Kind};
use volmedic_proto::csi as wire;
use volmedic_proto::healer::healer_node_client::HealerNodeClient;
use volmedic_proto::healer::{NodeHealerRequest, NodeHealerResponse};
use volmedic_proto::identity;
use volmedic_proto::identity::capability::Type;
use volmedic_proto::identity::identity_client::IdentityClient;

use super::super::driver::{Driver, Volume, capability};
use super::super::of_the_driver::Test;
use super::{ask, heal_fully, request};

pub(crate) const TESTS: &[Test] = &[
    ("the_addons_endpoint_says_who_it_is_and_that_it_heals", introduction),
    ("every_bad_request_to_heal_gets_its_code_and_a_sentence", bad_requests),
    ("one_heal_of_a_volume_at_a_time", one_at_a_time),
    ("only_who_knows_the_token_may_ask_for_a_heal", token),
    ("a_driver_without_the_node_service_heals_nothing", no_node),
];

#[track_caller]
fn refused(answer: Result<NodeHealerResponse, Status>, code: Code, words: &str) {
    let status = answer.expect_err("this must be refused");
    assert_eq!(status.code(), code, "{}", status.message());
    assert!(status.message().contains(words), "{:?} does not say {words:?}", status.message());
    assert!(status.details().is_empty());
}

fn capabilities(driver: &Driver) -> Vec<Type> {
    let mut client = IdentityClient::new(driver.addons_channel());
    let answer = driver.answer(client.get_capabilities(identity::GetCapabilitiesRequest {})).unwrap();
    answer.capabilities.into_iter().map(|can| can.r#type.unwrap()).collect()
}

fn introduction() {
    let driver = Driver::start_healing(&["--services=node"]);
    let mut client = IdentityClient::new(driver.addons_channel());
    let answer = driver.answer(client.get_identity(identity::GetIdentityRequest {})).unwrap();
    assert_eq!((answer.name.as_str(), answer.vendor_version.as_str()), ("faults.volmedic.dev", "0"));
    let answer = driver.answer(client.probe(identity::ProbeRequest {})).unwrap();
    assert_eq!(answer.ready, Some(true));
    let answer = capabilities(&driver);
    assert!(
        matches!(answer[..], [Type::Service(service), Type::VolumeHealer(healer)]
            if service.r#type == 2 && healer.r#type == 1),
        "{answer:?}"
    );
}

fn bad_requests() {
    let driver = Driver::start_healing(&[]);
    let volume = Volume::new(&driver, Kind::Fuse);
    let good = || request(&volume);
    let check =
        |request: NodeHealerRequest, code: Code, words: &str| refused(ask(&driver, request), code, words);
    let with_path = |path: &str| NodeHealerRequest { volume_path: path.to_owned(), ..good() };
    let id = |id: &str| NodeHealerRequest { volume_id: id.to_owned(), ..good() };
    check(id(""), Code::InvalidArgument, "volume_id is missing");
    check(with_path(""), Code::InvalidArgument, "volume_path is missing");
    check(with_path("relative"), Code::InvalidArgument, "not an absolute path");
    check(with_path(&format!("{}/../x", driver.root().display())), Code::InvalidArgument, "contains . or ..");
    check(with_path("/etc"), Code::InvalidArgument, "not below an allowed root");
    check(with_path(&format!("/{}", "x/".repeat(4096))), Code::InvalidArgument, "longer than 4095");
    check(
        NodeHealerRequest { staging_target_path: "relative".to_owned(), ..good() },
        Code::InvalidArgument,
        "staging_target_path",
    );
    check(
        NodeHealerRequest { volume_capability: Some(wire::VolumeCapability::default()), ..good() },
        Code::InvalidArgument,
        "",
    );
    check(
        NodeHealerRequest { volume_capability: Some(capability(Kind::Block)), ..good() },
        Code::InvalidArgument,
        "the other access type",
    );
    let context = HashMap::from([("kind".to_owned(), "loop".to_owned())]);
    check(NodeHealerRequest { volume_context: context, ..good() }, Code::InvalidArgument, "volume_context");
    check(id("vol-00000000000000000000000000000000"), Code::NotFound, "does not exist");
    check(id("../../etc"), Code::NotFound, "does not exist");
    let elsewhere = driver.root().join("elsewhere").display().to_string();
    check(with_path(&elsewhere), Code::NotFound, "neither staged nor published");
    check(
        NodeHealerRequest { staging_target_path: elsewhere, ..good() },
        Code::NotFound,
        "neither staged nor published",
    );
    // What is optional may be left out, and what Kubernetes adds to the context is not ours to judge.
    let context = HashMap::from([
        ("kind".to_owned(), "fuse".to_owned()),
        ("storage.kubernetes.io/csiProvisionerIdentity".to_owned(), "x".to_owned()),
    ]);
    let least = NodeHealerRequest {
        volume_id: volume.id.clone(),
        volume_path: volume.target.display().to_string(),
        volume_context: context,
        ..Default::default()
    };
    assert!(!ask(&driver, least).unwrap().abnormal);
}

fn one_at_a_time() {
    let driver = Driver::start_healing(&[]);
    let volume = Volume::new(&driver, Kind::Fuse);
    // A frozen mounter keeps the first caller waiting for as long as a check may take.
    driver.faults().inject(Fault::MounterFrozen, Some(&volume.id)).unwrap();
    let [mut first, mut second] = [(); 2].map(|()| HealerNodeClient::new(driver.addons_channel()));
    let (first, second) = driver.runtime.block_on(async {
        tokio::time::timeout(super::super::driver::PATIENCE, async {
            tokio::join!(first.node_healer(request(&volume)), second.node_healer(request(&volume)))
        })
        .await
        .expect("a call was not answered in time")
    });
    let (won, lost) = if first.is_ok() { (first, second) } else { (second, first) };
    assert!(!won.unwrap().into_inner().abnormal);
    refused(lost.map(tonic::Response::into_inner), Code::Aborted, "still running");
    driver.faults().clear(Fault::MounterFrozen, Some(&volume.id)).unwrap();
    heal_fully(&driver, &volume);
}

fn token() {
    let driver = Driver::start_healing(&["--heal-token-file=@/token"]);
    let volume = Volume::new(&driver, Kind::Fuse);
    let with = |token: &str| {
        let secrets = HashMap::from([("token".to_owned(), token.to_owned())]);
        ask(&driver, NodeHealerRequest { secrets, ..request(&volume) })
    };
    refused(with("sesame"), Code::Unknown, "token file");
    fs::write(driver.folder().join("token"), "sesame\n").unwrap();
    with("sesame").unwrap();
    refused(with("barley"), Code::Unauthenticated, "refresh it");
    refused(ask(&driver, request(&volume)), Code::Unauthenticated, "is missing");
    fs::write(driver.folder().join("token"), "barley\n").unwrap();
    with("barley").unwrap();
    refused(with("sesame"), Code::Unauthenticated, "refresh it");
}

fn no_node() {
    let driver = Driver::start_healing(&["--services=controller"]);
    assert!(matches!(capabilities(&driver)[..], [Type::Service(service)] if service.r#type == 1));
    let asked = NodeHealerRequest {
        volume_id: "vol-00000000000000000000000000000000".to_owned(),
        volume_path: "/x".to_owned(),
        ..Default::default()
    };
    refused(ask(&driver, asked), Code::Unimplemented, "serves no node");
    let status = driver.answer(driver.node().node_get_info(wire::NodeGetInfoRequest {})).unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("--services"), "{}", status.message());
}
