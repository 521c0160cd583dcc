//! What a heal does: to volumes, and to those who use them meanwhile.

pub(crate) mod answers;
pub(crate) mod disks;
pub(crate) mod harm;
pub(crate) mod sessions;
pub(crate) mod user;

use tonic::Status;
use volmedic_proto::healer::healer_node_client::HealerNodeClient;
use volmedic_proto::healer::{NodeHealerRequest, NodeHealerResponse};

use super::driver::{Driver, Volume, capability};
use super::of_the_driver::Test;

pub(crate) fn tests() -> impl Iterator<Item = &'static Test> {
    sessions::TESTS.iter().chain(disks::TESTS).chain(answers::TESTS)
}

pub(crate) fn request(volume: &Volume) -> NodeHealerRequest {
    NodeHealerRequest {
        volume_id: volume.id.clone(),
        volume_path: volume.target.display().to_string(),
        staging_target_path: volume.staging.display().to_string(),
        volume_capability: Some(capability(volume.kind)),
        ..Default::default()
    }
}

pub(crate) fn ask(driver: &Driver, request: NodeHealerRequest) -> Result<NodeHealerResponse, Status> {
    driver.answer(HealerNodeClient::new(driver.addons_channel()).node_healer(request))
}

/// The answer of a heal that must be answered.
pub(crate) fn heal(driver: &Driver, volume: &Volume) -> NodeHealerResponse {
    let answer = ask(driver, request(volume)).unwrap();
    assert!(!answer.message.is_empty());
    answer
}

/// Heals, and the volume is healthy afterwards.
pub(crate) fn heal_fully(driver: &Driver, volume: &Volume) -> String {
    let answer = heal(driver, volume);
    assert!(!answer.abnormal, "{}", answer.message);
    answer.message
}
