//! ControllerGetVolume and ListVolumes, and the condition of the older dialect in their answers.

use tonic::Code;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_service_capability::rpc::Type as Controller;

use super::{NOBODY, answered, refused};
use crate::bench::Bench;
use crate::listing::Listing;
use crate::report::{Judged, Not, broken, not_applicable};
use crate::text::line;

const GET: &str = "ControllerGetVolume";
const LIST: &str = "ListVolumes";

async fn look(bench: &mut Bench) -> Result<(String, wire::ControllerGetVolumeResponse), Not> {
    bench.offers.need_controller(Controller::GetVolume)?;
    let id = bench.id().await?;
    let answer = bench.get_volume(&id).await;
    Ok((id, answered(GET, answer)?))
}

/// The condition of a healthy volume.
pub(super) fn normal(call: &str, condition: Option<&wire::VolumeCondition>) -> Judged {
    match condition {
        None => broken(format!("{call} answered without a condition, which VOLUME_CONDITION promises")),
        Some(condition) if condition.abnormal => {
            broken(format!("{call} of a new volume: abnormal, {:?}", line(&condition.message)))
        }
        Some(condition) => Ok(format!("{call}: normal, {:?}", line(&condition.message))),
    }
}

pub(super) async fn get_echoes(bench: &mut Bench) -> Judged {
    let (id, answer) = look(bench).await?;
    let named = answer.volume.map(|volume| volume.volume_id).unwrap_or_default();
    if named == id {
        return Ok(format!("{GET}({id}) answered with it"));
    }
    broken(format!("{GET}({id}) answered with {:?}", line(&named)))
}

pub(super) async fn get_unknown(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::GetVolume)?;
    let answer = bench.get_volume(NOBODY).await;
    refused(&format!("{GET}({NOBODY})"), answer, Code::NotFound)
}

pub(super) async fn get_deleted(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::GetVolume)?;
    let id = bench.gone().await?;
    let answer = bench.get_volume(&id).await;
    refused(&format!("{GET} of a deleted volume"), answer, Code::NotFound)
}

pub(super) async fn get_no_id(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::GetVolume)?;
    let answer = bench.get_volume("").await;
    refused(&format!("{GET} without volume_id"), answer, Code::InvalidArgument)
}

pub(super) async fn get_condition(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::VolumeCondition)?;
    let (_, answer) = look(bench).await?;
    normal(GET, answer.status.as_ref().and_then(|status| status.volume_condition.as_ref()))
}

pub(super) async fn list_condition(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::VolumeCondition)?;
    bench.offers.need_controller(Controller::ListVolumes)?;
    let ids = bench.ids().await?;
    let entries = bench.every_volume().await?;
    for entry in &entries {
        let id = entry.volume.as_ref().map(|volume| volume.volume_id.as_str()).unwrap_or_default();
        let condition = entry.status.as_ref().and_then(|status| status.volume_condition.as_ref());
        if condition.is_none() {
            return broken(format!("{LIST} has {:?} without a condition", line(id)));
        }
        if ids.iter().any(|ours| ours == id) {
            normal(LIST, condition)?;
        }
    }
    Ok(format!("{LIST} has {} entries, each with a condition", entries.len()))
}

pub(super) async fn list_holds(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::ListVolumes)?;
    let ids = bench.ids().await?;
    let gone = bench.gone().await?;
    let walk = bench.walk(Listing::Volumes, 0).await?;
    if let Some(id) = ids.iter().find(|id| !walk.ids.contains(id)) {
        return broken(format!("{LIST} has no {}, which exists", line(id)));
    }
    if walk.ids.contains(&gone) {
        return broken(format!("{LIST} has {}, which was deleted", line(&gone)));
    }
    Ok(format!("{LIST} has all {} volumes of this run and not the deleted one", ids.len()))
}

pub(super) async fn published_nodes(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::GetVolume)?;
    bench.offers.need_controller(Controller::PublishUnpublishVolume)?;
    if bench.offers.node.is_none() {
        return not_applicable("the node service, which knows the node's id, is not served here");
    }
    let id = bench.ids().await?.swap_remove(1);
    let node = bench.node_id().await.map_err(Not::Kept)?;
    bench.attach(&id, &node).await.map_err(Not::Kept)?;
    for (call, published) in nodes(bench, &id).await? {
        if !published.contains(&node) {
            return broken(format!("published to {}, {call} reported {published:?}", line(&node)));
        }
    }
    let answer = bench.detach(&id, &node).await;
    answered("ControllerUnpublishVolume", answer)?;
    for (call, published) in nodes(bench, &id).await? {
        if published.contains(&node) {
            return broken(format!("unpublished from {}, {call} still reported it", line(&node)));
        }
    }
    Ok(format!("{GET} reported {} while published, and not after", line(&node)))
}

/// The nodes that a volume is published to, by each call that names them.
async fn nodes(bench: &mut Bench, id: &str) -> Result<Vec<(&'static str, Vec<String>)>, Not> {
    let answer = bench.get_volume(id).await;
    let status = answered(GET, answer)?.status;
    let mut reported = vec![(GET, status.map(|status| status.published_node_ids).unwrap_or_default())];
    let offers = &bench.offers;
    if offers.controller(Controller::ListVolumes) && offers.controller(Controller::ListVolumesPublishedNodes)
    {
        let ours = |entry: &wire::list_volumes_response::Entry| {
            entry.volume.as_ref().is_some_and(|volume| volume.volume_id == id)
        };
        let entry = bench.every_volume().await?.into_iter().find(ours);
        let status = entry.and_then(|entry| entry.status);
        reported.push((LIST, status.map(|status| status.published_node_ids).unwrap_or_default()));
    }
    Ok(reported)
}
