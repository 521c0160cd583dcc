//! Whether harm is reported, for drivers whose volumes can be hurt on purpose.

use std::sync::Arc;
use std::time::{Duration, Instant};

use volmedic_proto::csi::controller_service_capability::rpc::Type as Controller;
use volmedic_proto::csi::node_service_capability::rpc::Type as Node;

use super::answered;
use crate::Harm;
use crate::bench::Bench;
use crate::listing::Listing;
use crate::report::{Judged, Not, broken, not_applicable};
use crate::text::line;
use crate::volume::Published;

/// How long a driver is left alone before it is asked again.
const BETWEEN: Duration = Duration::from_millis(250);

fn harm(bench: &Bench) -> Result<Arc<dyn Harm>, Not> {
    match &bench.harm {
        Some(harm) => Ok(Arc::clone(harm)),
        None => not_applicable("there is no way to hurt volumes of this driver"),
    }
}

/// Hurting may wait for the kernel, so it is done where that delays nobody.
async fn apart(
    harm: &Arc<dyn Harm>,
    work: impl FnOnce(&dyn Harm) -> Result<(), String> + Send + 'static,
) -> Result<(), Not> {
    let harm = Arc::clone(harm);
    let done = tokio::task::spawn_blocking(move || work(&*harm)).await;
    done.map_err(|error| error.to_string()).and_then(|done| done).map_err(Not::Applicable)
}

/// Undoes the injury that is done now, if one is.
pub(crate) async fn heal(bench: &mut Bench) -> Result<(), Not> {
    let (Some(harm), Some((injury, id))) = (bench.harm.clone(), bench.hurt.take()) else { return Ok(()) };
    apart(&harm, move |harm| harm.heal(&injury, &id)).await
}

/// What each call about health says of the volume now: whether it is adverse, with the name of the call.
async fn views(bench: &mut Bench, at: &Published) -> Result<Vec<(&'static str, bool)>, Not> {
    let offers = &bench.offers;
    let legacy = offers.controller(Controller::VolumeCondition);
    let get = legacy && offers.controller(Controller::GetVolume);
    let list = legacy && offers.controller(Controller::ListVolumes);
    let get_health = offers.controller(Controller::GetVolumeHealth);
    let list_health = offers.controller(Controller::ListVolumeHealth);
    let (stats, node) = (offers.node(Node::VolumeCondition), offers.node(Node::GetVolumeHealth));
    let mut views = Vec::new();
    if get {
        let answer = bench.get_volume(&at.id).await;
        let status = answered("ControllerGetVolume", answer)?.status;
        let condition = status.and_then(|status| status.volume_condition);
        views.push(("ControllerGetVolume", condition.is_some_and(|condition| condition.abnormal)));
    }
    if list {
        let entries = bench.every_volume().await?;
        let adverse = entries.iter().any(|entry| {
            let ours = entry.volume.as_ref().is_some_and(|volume| volume.volume_id == at.id);
            let condition = entry.status.as_ref().and_then(|status| status.volume_condition.as_ref());
            ours && condition.is_some_and(|condition| condition.abnormal)
        });
        views.push(("ListVolumes", adverse));
    }
    if get_health {
        let answer = bench.get_health(&at.id).await;
        let health = answered("ControllerGetVolumeHealth", answer)?;
        let adverse = health.is_some_and(|health| !health.health_statuses.is_empty());
        views.push(("ControllerGetVolumeHealth", adverse));
    }
    if list_health {
        // In small pages, because that is how it is asked in earnest.
        let walk = bench.walk(Listing::Health, 1).await?;
        views.push(("ControllerListVolumeHealth", walk.adverse.contains(&at.id)));
    }
    if stats {
        let answer = bench.stats(&at.id, &at.target, &at.staging).await;
        let condition = answered("NodeGetVolumeStats", answer)?.volume_condition;
        views.push(("NodeGetVolumeStats", condition.is_some_and(|condition| condition.abnormal)));
    }
    if node {
        let answer = bench.node_health(&at.id, &at.target, &at.staging).await;
        let health = answered("NodeGetVolumeHealth", answer)?;
        let adverse = health.is_some_and(|health| !health.health_statuses.is_empty());
        views.push(("NodeGetVolumeHealth", adverse));
    }
    Ok(views)
}

/// Asks until every call says the same as wanted, or long enough. Returns the calls that do not.
async fn until(bench: &mut Bench, at: &Published, adverse: bool) -> Result<(usize, Vec<&'static str>), Not> {
    let until = Instant::now() + bench.options.notice;
    loop {
        let views = views(bench, at).await?;
        let asked = views.len();
        let others: Vec<_> =
            views.into_iter().filter(|(_, reported)| *reported != adverse).map(|(call, _)| call).collect();
        if others.is_empty() || Instant::now() >= until {
            return Ok((asked, others));
        }
        tokio::time::sleep(BETWEEN.min(bench.options.notice)).await;
    }
}

/// Injures, checks, heals and checks again. An error of the first check is returned after the healing.
async fn judge(bench: &mut Bench, adverse: bool) -> Judged {
    let harm = harm(bench)?;
    let at = bench.published().await?;
    let injuries = harm.injuries();
    let mut calls = 0;
    for injury in &injuries {
        // Written down first, so that a run that is stopped here still heals.
        bench.hurt = Some((injury.clone(), at.id.clone()));
        let (name, id) = (injury.clone(), at.id.clone());
        apart(&harm, move |harm| harm.hurt(&name, &id)).await?;
        let hurt = until(bench, &at, true).await;
        heal(bench).await?;
        let healed = until(bench, &at, false).await;
        let (asked, silent) = if adverse { hurt? } else { healed? };
        calls = asked;
        if !silent.is_empty() {
            let (injury, silent) = (line(injury), silent.join(", "));
            return broken(if adverse {
                format!("{injury} was not reported by {silent}")
            } else {
                format!("{injury} was over and still reported by {silent}")
            });
        }
    }
    if calls == 0 {
        return not_applicable("no call about health is offered");
    }
    let what = if adverse { "reported" } else { "reported as over" };
    Ok(format!("{} {what} by {calls} calls each", injuries.join(", ")))
}

pub(super) async fn reported(bench: &mut Bench) -> Judged {
    judge(bench, true).await
}

pub(super) async fn recovered(bench: &mut Bench) -> Judged {
    judge(bench, false).await
}
