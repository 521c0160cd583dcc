//! The controller service of the driver that does one thing wrong.

use std::collections::HashMap;
use std::ops::Bound;

use tonic::{Request, Response, Status};
use volmedic_proto::csi as wire;
use volmedic_proto::csi::controller_server::Controller;
use volmedic_proto::csi::controller_service_capability::rpc::Type as Can;
use volmedic_proto::csi::controller_service_capability::{Rpc, Type};
use volmedic_proto::csi::{controller_get_volume_response, list_volumes_response};

use crate::fake::{Answer, Fake, List, Volume, Wrong};

/// Ids, each with whether something is wrong with it, and the token of the next page.
type Page = (Vec<(String, bool)>, String);

impl Fake {
    fn page(&self, list: List, max: i32, token: &str) -> Result<Page, Status> {
        let paged = max > 0;
        if max < 0 && !self.is(Wrong::Negative(list)) {
            return Err(Status::invalid_argument("max_entries is negative"));
        }
        let max = usize::try_from(max).unwrap_or(0);
        let limit = if max == 0 || self.is(Wrong::MaxEntries(list)) { usize::MAX } else { max };
        let state = self.state();
        let mut all: Vec<(String, bool)> =
            state.volumes.iter().map(|(id, volume)| (id.clone(), volume.adverse)).collect();
        if list == List::Volumes {
            if self.is(Wrong::ListVolumesDeleted) {
                all.extend(state.deleted.iter().map(|id| (id.clone(), false)));
            }
            if self.is(Wrong::ListVolumesOmits) {
                all.pop();
            }
        } else {
            let all_of_them = self.is(Wrong::ListsTheHealthyToo) || self.is(Wrong::ListHealthHealthy);
            all.retain(|(_, adverse)| *adverse || all_of_them);
            if self.is(Wrong::ListHealthHealthy) {
                for (_, adverse) in &mut all {
                    *adverse = true;
                }
            }
            if self.is(Wrong::ListHealthNoId) {
                all.insert(0, (String::new(), true));
            }
        }
        if paged && self.is(Wrong::Skips(list)) {
            all.remove(1);
        }
        all.sort();
        let from = match token {
            "" => Bound::Unbounded,
            token => match token.split_once(':') {
                Some(("after" | "again", id)) => Bound::Excluded(id),
                _ if self.is(Wrong::BadToken(list)) => return Err(Status::invalid_argument("what token?")),
                _ => return Err(Status::aborted("what token?")),
            },
        };
        let first = all[0].0.clone();
        if self.is(Wrong::Doubles(list)) && token == format!("after:{first}") {
            return Ok((vec![all.swap_remove(0)], format!("again:{first}")));
        }
        let mut rest =
            all.into_iter().filter(|(id, _)| !matches!(from, Bound::Excluded(after) if id.as_str() <= after));
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let last = page.last().map(|(id, _)| id.clone()).unwrap_or_default();
        let next = match rest.next() {
            None => String::new(),
            Some(_) if self.is(Wrong::Token(list)) => format!("after:{first}"),
            Some(_) => format!("after:{last}"),
        };
        Ok((page, next))
    }

    fn wire_volume(id: &str) -> wire::Volume {
        wire::Volume { volume_id: id.to_owned(), capacity_bytes: 1 << 20, ..Default::default() }
    }
}

#[tonic::async_trait]
impl Controller for Fake {
    async fn controller_get_capabilities(
        &self,
        _: Request<wire::ControllerGetCapabilitiesRequest>,
    ) -> Answer<wire::ControllerGetCapabilitiesResponse> {
        let mut can: Vec<i32> = [
            Can::CreateDeleteVolume,
            Can::PublishUnpublishVolume,
            Can::ListVolumes,
            Can::ListVolumesPublishedNodes,
            Can::GetVolume,
            Can::VolumeCondition,
            Can::GetVolumeHealth,
            Can::ListVolumeHealth,
        ]
        .map(i32::from)
        .to_vec();
        match self.wrong {
            Wrong::ControllerCapability => can.push(99),
            Wrong::ControllerCapabilityTwice => can.push(can[0]),
            Wrong::ListHealthAlone => can.retain(|one| *one != Can::GetVolumeHealth as i32),
            Wrong::ConditionAlone => {
                can.retain(|one| *one != Can::ListVolumes as i32 && *one != Can::GetVolume as i32);
            }
            _ => {}
        }
        let capability =
            |number| wire::ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: number })) };
        let capabilities = can.into_iter().map(capability).collect();
        Ok(Response::new(wire::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume(
        &self,
        request: Request<wire::CreateVolumeRequest>,
    ) -> Answer<wire::CreateVolumeResponse> {
        let name = request.into_inner().name;
        let mut state = self.state();
        let before = state.volumes.iter().find(|(_, volume)| volume.name == name).map(|(id, _)| id.clone());
        let id = match before {
            Some(id) if !self.is(Wrong::AnotherVolumeEachTime) => id,
            _ => {
                state.made += 1;
                let number = if self.is(Wrong::SameIdForAll) { 1 } else { state.made };
                format!("ours-{number}")
            }
        };
        state.volumes.entry(id.clone()).or_insert_with(|| Volume { name, ..Volume::default() });
        Ok(Response::new(wire::CreateVolumeResponse { volume: Some(Self::wire_volume(&id)) }))
    }

    async fn delete_volume(
        &self,
        request: Request<wire::DeleteVolumeRequest>,
    ) -> Answer<wire::DeleteVolumeResponse> {
        let id = request.into_inner().volume_id;
        if self.is(Wrong::KeepsVolumes) {
            return Err(Status::internal("the volume is dear to us"));
        }
        let mut state = self.state();
        if state.volumes.get(&id).is_some_and(|volume| volume.target.is_some() || !volume.nodes.is_empty()) {
            return Err(Status::failed_precondition("it is in use"));
        }
        if state.volumes.remove(&id).is_none() && self.is(Wrong::DeleteTwice) {
            return Err(Status::not_found("it is gone already"));
        }
        state.deleted.insert(id);
        Ok(Response::new(wire::DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<wire::ControllerPublishVolumeRequest>,
    ) -> Answer<wire::ControllerPublishVolumeResponse> {
        let request = request.into_inner();
        let gone = self.no_volume(&request.volume_id, &request.secrets);
        self.state().volumes.get_mut(&request.volume_id).ok_or(gone)?.nodes.insert(request.node_id);
        Ok(Response::new(wire::ControllerPublishVolumeResponse { publish_context: HashMap::new() }))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<wire::ControllerUnpublishVolumeRequest>,
    ) -> Answer<wire::ControllerUnpublishVolumeResponse> {
        let request = request.into_inner();
        if let Some(volume) = self.state().volumes.get_mut(&request.volume_id) {
            volume.nodes.remove(&request.node_id);
        }
        Ok(Response::new(wire::ControllerUnpublishVolumeResponse {}))
    }

    async fn list_volumes(
        &self,
        request: Request<wire::ListVolumesRequest>,
    ) -> Answer<wire::ListVolumesResponse> {
        let request = request.into_inner();
        let (page, next_token) = self.page(List::Volumes, request.max_entries, &request.starting_token)?;
        let state = self.state();
        let nodes = |id: &str| {
            let volume = state.volumes.get(id).filter(|_| !self.is(Wrong::ListPublishedNodes));
            volume.map(|volume| volume.nodes.iter().cloned().collect()).unwrap_or_default()
        };
        let mute = |id: &str| self.is(Wrong::ListVolumesNoCondition) && id == "ours-3";
        let entry = |(id, adverse): (String, bool)| list_volumes_response::Entry {
            volume: Some(Self::wire_volume(&id)),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids: nodes(&id),
                volume_condition: (!mute(&id)).then(|| self.condition(adverse)),
            }),
        };
        let entries = page.into_iter().map(entry).collect();
        Ok(Response::new(wire::ListVolumesResponse { entries, next_token }))
    }

    async fn controller_get_volume(
        &self,
        request: Request<wire::ControllerGetVolumeRequest>,
    ) -> Answer<wire::ControllerGetVolumeResponse> {
        let id = request.into_inner().volume_id;
        if id.is_empty() && !self.is(Wrong::GetVolumeNoId) {
            return Err(Status::invalid_argument("volume_id is missing"));
        }
        let state = self.state();
        let known = state.volumes.get(&id);
        let lies = match self.wrong {
            Wrong::GetVolumeUnknown => !id.is_empty() && !state.deleted.contains(&id),
            Wrong::GetVolumeDeleted => state.deleted.contains(&id),
            _ => false,
        };
        if known.is_none() && !lies {
            return Err(self.no_volume(&id, &HashMap::new()));
        }
        let adverse = known.is_none_or(|volume| volume.adverse) && !self.is(Wrong::HarmUntold);
        let mut nodes: Vec<String> = known.iter().flat_map(|volume| volume.nodes.iter().cloned()).collect();
        match self.wrong {
            Wrong::PublishedNodes => nodes.clear(),
            Wrong::PublishedNodesForever => nodes = vec!["node".to_owned()],
            _ => {}
        }
        let named = if self.is(Wrong::GetVolumeOther) { "other" } else { &id };
        let condition = (!self.is(Wrong::GetVolumeNoCondition)).then(|| self.condition(adverse));
        Ok(Response::new(wire::ControllerGetVolumeResponse {
            volume: Some(Self::wire_volume(named)),
            status: Some(controller_get_volume_response::VolumeStatus {
                published_node_ids: nodes,
                volume_condition: condition,
            }),
        }))
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<wire::ControllerListVolumeHealthRequest>,
    ) -> Answer<wire::ControllerListVolumeHealthResponse> {
        let request = request.into_inner();
        let (page, next_token) = self.page(List::Health, request.max_entries, &request.starting_token)?;
        let entries = page.into_iter().map(|(id, adverse)| self.health(&id, adverse)).collect();
        Ok(Response::new(wire::ControllerListVolumeHealthResponse { entries, next_token }))
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<wire::ControllerGetVolumeHealthRequest>,
    ) -> Answer<wire::ControllerGetVolumeHealthResponse> {
        let request = request.into_inner();
        let id = request.volume_id;
        if id.is_empty() && !self.is(Wrong::GetHealthNoId) {
            return Err(Status::invalid_argument("volume_id is missing"));
        }
        let mut state = self.state();
        state.looks += 1;
        let known = state.volumes.get(&id);
        let lies = match self.wrong {
            Wrong::GetHealthUnknown => !id.is_empty() && !state.deleted.contains(&id),
            Wrong::GetHealthDeleted => state.deleted.contains(&id),
            _ => false,
        };
        if known.is_none() && !lies {
            return Err(self.no_volume(&id, &request.secrets));
        }
        let adverse = known.is_some_and(|volume| volume.adverse)
            || self.is(Wrong::GetHealthAdverse)
            || self.is(Wrong::GetHealthChanges) && state.looks % 2 == 1;
        let named = if self.is(Wrong::GetHealthOther) { "other" } else { &id };
        let health = (!self.is(Wrong::GetHealthAbsent)).then(|| self.health(named, adverse));
        Ok(Response::new(wire::ControllerGetVolumeHealthResponse { volume_health: health }))
    }
}
