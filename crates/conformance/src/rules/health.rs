//! What the controller says of the health of one volume, and of all.

use tonic::Code;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_service_capability::rpc::Type as Controller;

use super::{NOBODY, answered, refused};
use crate::bench::Bench;
use crate::listing::Listing;
use crate::report::{Judged, Not, broken};
use crate::text::line;

const GET: &str = "ControllerGetVolumeHealth";
const LIST: &str = "ControllerListVolumeHealth";

/// The health of the volume of this run, as the controller sees it.
async fn look(bench: &mut Bench) -> Result<(String, Option<wire::VolumeHealth>), Not> {
    bench.offers.need_controller(Controller::GetVolumeHealth)?;
    let id = bench.id().await?;
    let answer = bench.get_health(&id).await;
    Ok((id, answered(GET, answer)?))
}

/// In words, what is wrong with a volume that should be well.
pub(super) fn reported(health: &wire::VolumeHealth) -> String {
    let words =
        health.health_statuses.iter().take(3).map(|entry| {
            format!("status {} {} {:?}", entry.status, line(&entry.reason), line(&entry.message))
        });
    words.collect::<Vec<_>>().join(", ")
}

pub(super) async fn healthy(bench: &mut Bench) -> Judged {
    match look(bench).await?.1 {
        Some(health) if health.health_statuses.is_empty() => {
            Ok(format!("{GET} of a new volume: nothing adverse"))
        }
        Some(health) => broken(format!("{GET} of a new volume reported {}", reported(&health))),
        None => broken(format!("{GET} answered without volume_health")),
    }
}

pub(super) async fn echoes(bench: &mut Bench) -> Judged {
    let (id, health) = look(bench).await?;
    let named = health.map(|health| health.volume_id).unwrap_or_default();
    if named == id {
        return Ok(format!("{GET}({id}) named it"));
    }
    broken(format!("{GET}({id}) named {:?}", line(&named)))
}

pub(super) async fn unknown(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::GetVolumeHealth)?;
    let answer = bench.get_health(NOBODY).await;
    refused(&format!("{GET}({NOBODY})"), answer, Code::NotFound)
}

pub(super) async fn deleted(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::GetVolumeHealth)?;
    let id = bench.gone().await?;
    let answer = bench.get_health(&id).await;
    refused(&format!("{GET} of a deleted volume"), answer, Code::NotFound)
}

pub(super) async fn no_id(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::GetVolumeHealth)?;
    let answer = bench.get_health("").await;
    refused(&format!("{GET} without volume_id"), answer, Code::InvalidArgument)
}

pub(super) async fn repeats(bench: &mut Bench) -> Judged {
    let (_, first) = look(bench).await?;
    let (_, second) = look(bench).await?;
    // Messages may carry figures that move.
    let shape = |health: &Option<wire::VolumeHealth>| {
        health.as_ref().map(|health| {
            let mut found: Vec<(i32, String)> =
                health.health_statuses.iter().map(|entry| (entry.status, entry.reason.clone())).collect();
            found.sort();
            found
        })
    };
    if shape(&first) == shape(&second) {
        return Ok(format!("{GET} twice gave the same"));
    }
    let words = |health: &Option<wire::VolumeHealth>| health.as_ref().map(reported).unwrap_or_default();
    broken(format!("{GET} gave [{}] and then [{}]", words(&first), words(&second)))
}

pub(super) async fn list_ids(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::ListVolumeHealth)?;
    let walk = bench.walk(Listing::Health, 0).await?;
    if walk.ids.iter().any(String::is_empty) {
        return broken(format!("{LIST} has an entry without volume_id"));
    }
    Ok(format!("{LIST} has {} entries, each with an id", walk.ids.len()))
}

pub(super) async fn list_healthy(bench: &mut Bench) -> Judged {
    bench.offers.need_controller(Controller::ListVolumeHealth)?;
    let ids = bench.ids().await?;
    let mut named = 0;
    for health in bench.every_health().await?.iter().filter(|health| ids.contains(&health.volume_id)) {
        named += 1;
        if !health.health_statuses.is_empty() {
            return broken(format!("{LIST} reported on a new volume: {}", reported(health)));
        }
    }
    Ok(format!("{LIST} named {named} of {} healthy volumes, none as adverse", ids.len()))
}
