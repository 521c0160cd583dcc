//! Who the driver says it is and what it says it can do.

use std::collections::HashSet;

use tonic::Code;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_service_capability::rpc::Type as Controller;
use volmedic_proto::csi::node_service_capability::rpc::Type as Node;

use super::{NOBODY, answered};
use crate::bench::Bench;
use crate::offers::{Offers, Service};
use crate::report::{Judged, broken, not_applicable};
use crate::text::line;

const NAME_LIMIT: usize = 63;

pub(super) async fn plugin_name(bench: &mut Bench) -> Judged {
    let mut client = bench.identity();
    let call = "GetPluginInfo";
    let answer = bench.ask(call, client.get_plugin_info(wire::GetPluginInfoRequest {})).await;
    let wire::GetPluginInfoResponse { name, vendor_version, .. } = answered(call, answer)?;
    let ends = |text: &str| text.starts_with(char_of_a_label) && text.ends_with(char_of_a_label);
    let plain = name.chars().all(|c| char_of_a_label(c) || c == '-' || c == '.');
    let shown = line(&name);
    if name.len() > NAME_LIMIT || !plain || !ends(&name) {
        return broken(format!("{call} gave the name {shown:?}"));
    }
    if vendor_version.is_empty() {
        return broken(format!("{call} of {shown} gave no version"));
    }
    Ok(format!("{call} gave {shown} {}", line(&vendor_version)))
}

fn char_of_a_label(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

pub(super) fn controller(offers: &Offers) -> Judged {
    let Some(service) = &offers.controller else {
        return not_applicable("the controller service is not served here");
    };
    known("ControllerGetCapabilities", service, |number| {
        Controller::try_from(number).is_ok_and(|known| known != Controller::Unknown)
    })
}

pub(super) fn node(offers: &Offers) -> Judged {
    let Some(service) = &offers.node else {
        return not_applicable("the node service is not served here");
    };
    known("NodeGetCapabilities", service, |number| {
        Node::try_from(number).is_ok_and(|known| known != Node::Unknown)
    })
}

fn known(call: &str, service: &Service, defined: impl Fn(i32) -> bool) -> Judged {
    let mut before = HashSet::new();
    for said in &service.said {
        match said {
            None => return broken(format!("{call} has an entry that names no call")),
            Some(number) if !defined(*number) => {
                return broken(format!("{call} has {number}, which CSI does not define"));
            }
            Some(number) if !before.insert(*number) => {
                return broken(format!("{call} has {number} twice"));
            }
            Some(_) => {}
        }
    }
    Ok(format!("{call} gave {} capabilities", service.said.len()))
}

pub(super) fn list_implies_get(offers: &Offers) -> Judged {
    offers.need_controller(Controller::ListVolumeHealth)?;
    if offers.controller(Controller::GetVolumeHealth) {
        Ok("both are offered".to_owned())
    } else {
        broken("LIST_VOLUME_HEALTH is offered without GET_VOLUME_HEALTH")
    }
}

pub(super) fn carrier(offers: &Offers) -> Judged {
    offers.need_controller(Controller::VolumeCondition)?;
    let carriers = [Controller::ListVolumes, Controller::GetVolume];
    let carriers: Vec<&str> =
        carriers.iter().filter(|what| offers.controller(**what)).map(Controller::as_str_name).collect();
    if carriers.is_empty() {
        return broken("VOLUME_CONDITION is offered without LIST_VOLUMES and without GET_VOLUME");
    }
    Ok(format!("VOLUME_CONDITION with {}", carriers.join(" and ")))
}

/// Asked about nobody, a call that is served says so.
pub(super) async fn served(bench: &mut Bench) -> Judged {
    let mut asked = Vec::new();
    macro_rules! ask {
        ($offered:expr, $call:literal, $answer:expr) => {
            if $offered {
                asked.push($call);
                if let Err(status) = $answer
                    && status.code() == Code::Unimplemented
                {
                    return broken(format!("{} is offered and answers UNIMPLEMENTED", $call));
                }
            }
        };
    }
    let offers = &bench.offers;
    let (list, get) = (offers.controller(Controller::ListVolumes), offers.controller(Controller::GetVolume));
    let get_health = offers.controller(Controller::GetVolumeHealth);
    let list_health = offers.controller(Controller::ListVolumeHealth);
    let stats = offers.node(Node::GetVolumeStats) || offers.node(Node::VolumeCondition);
    let (node, storage) = (offers.node(Node::GetVolumeHealth), offers.node(Node::GetStorageHealth));
    ask!(list, "ListVolumes", bench.list_volumes(1, "").await);
    ask!(get, "ControllerGetVolume", bench.get_volume(NOBODY).await);
    ask!(get_health, "ControllerGetVolumeHealth", bench.get_health(NOBODY).await);
    ask!(list_health, "ControllerListVolumeHealth", bench.list_health(1, "").await);
    ask!(stats, "NodeGetVolumeStats", bench.stats(NOBODY, "/nowhere", "").await);
    ask!(node, "NodeGetVolumeHealth", bench.node_health(NOBODY, "", "").await);
    ask!(storage, "NodeGetStorageHealth", bench.storage_health().await);
    if asked.is_empty() {
        return not_applicable("no call about health is offered");
    }
    Ok(format!("served: {}", asked.join(", ")))
}
