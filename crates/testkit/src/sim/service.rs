//! The services of the simulated driver.

use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tonic::{Request, Response, Status};
use volmedic_proto::csi::controller_server::Controller;
use volmedic_proto::csi::identity_server::Identity;
use volmedic_proto::csi::volume_health::VolumeHealthEntry;
use volmedic_proto::csi::{self, controller_get_volume_response, list_volumes_response};

use super::{Adverse, Behaviour};

/// Volumes, each with what is wrong with it, and the token of the next page.
type Page = (Vec<(String, Vec<Adverse>)>, String);

#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) behaviour: Arc<Mutex<Behaviour>>,
}

impl Service {
    fn with<T>(&self, act: impl FnOnce(&mut Behaviour) -> T) -> T {
        act(&mut self.behaviour.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts the call and behaves as the driver is set to.
    async fn enter(&self, call: &'static str, volume: Option<&str>) -> Result<(), Status> {
        let (delay, failing, hung) = self.with(|behaviour| {
            *behaviour.calls.entry(call).or_default() += 1;
            let hung = volume.is_some_and(|volume| behaviour.hung.iter().any(|hung| hung == volume));
            (behaviour.delay, behaviour.failing.clone(), hung)
        });
        if hung {
            std::future::pending::<()>().await;
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        failing.map_or(Ok(()), |(code, message)| Err(Status::new(code, message)))
    }

    /// One page of ids and what is wrong with them, and the token of the next.
    fn page(&self, max: i32, token: &str, only_adverse: bool) -> Result<Page, Status> {
        let asked = Instant::now();
        let max = usize::try_from(max).map_err(|_| Status::invalid_argument("max_entries is negative"))?;
        self.with(|behaviour| {
            let after = match (token, token.strip_prefix("after:")) {
                ("", _) => Bound::Unbounded,
                (_, Some(id)) => Bound::Excluded(id),
                (other, None) => return Err(Status::aborted(format!("no such token: {other}"))),
            };
            let rest = behaviour.volumes.range::<str, _>((after, Bound::Unbounded));
            let mut wanted = rest.filter(|(_, adverse)| !only_adverse || !adverse.is_empty());
            let limit = if max == 0 { usize::MAX } else { max };
            let page: Vec<_> =
                wanted.by_ref().take(limit).map(|(id, adverse)| (id.clone(), adverse.clone())).collect();
            let more = wanted.next().is_some();
            let next = page.last().filter(|_| more).map(|(id, _)| format!("after:{id}")).unwrap_or_default();
            behaviour.walked(token.is_empty(), next.is_empty(), asked);
            Ok((page, next))
        })
    }

    fn find(&self, id: &str) -> Result<Vec<Adverse>, Status> {
        self.with(|behaviour| behaviour.volumes.get(id).cloned())
            .ok_or_else(|| Status::not_found(format!("there is no volume {id}")))
    }

    fn reports_conditions(&self) -> bool {
        self.with(|behaviour| behaviour.capabilities.contains(&super::capability::VOLUME_CONDITION))
    }
}

fn health(id: String, adverse: Vec<Adverse>) -> csi::VolumeHealth {
    let entry = |Adverse { status, reason, message }| VolumeHealthEntry { status, reason, message };
    csi::VolumeHealth { volume_id: id, health_statuses: adverse.into_iter().map(entry).collect() }
}

fn condition(adverse: &[Adverse]) -> csi::VolumeCondition {
    let messages: Vec<&str> = adverse.iter().map(|adverse| adverse.message.as_str()).collect();
    csi::VolumeCondition { abnormal: !adverse.is_empty(), message: messages.join("; ") }
}

fn volume(id: String) -> csi::Volume {
    csi::Volume { capacity_bytes: 1 << 30, volume_id: id, ..csi::Volume::default() }
}

#[tonic::async_trait]
impl Identity for Service {
    async fn get_plugin_info(
        &self,
        _: Request<csi::GetPluginInfoRequest>,
    ) -> Result<Response<csi::GetPluginInfoResponse>, Status> {
        self.enter("GetPluginInfo", None).await?;
        let (name, vendor_version) = (self.name.clone(), "sim".into());
        Ok(Response::new(csi::GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        use csi::plugin_capability::{Service as Offer, Type, service};
        self.enter("GetPluginCapabilities", None).await?;
        let controller = Type::Service(Offer { r#type: service::Type::ControllerService.into() });
        let capabilities = vec![csi::PluginCapability { r#type: Some(controller) }];
        Ok(Response::new(csi::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<csi::ProbeRequest>) -> Result<Response<csi::ProbeResponse>, Status> {
        self.enter("Probe", None).await?;
        Ok(Response::new(csi::ProbeResponse { ready: Some(true) }))
    }
}

#[tonic::async_trait]
impl Controller for Service {
    async fn controller_get_capabilities(
        &self,
        _: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<csi::ControllerGetCapabilitiesResponse>, Status> {
        use csi::controller_service_capability::{Rpc, Type};
        self.enter("ControllerGetCapabilities", None).await?;
        let capability =
            |number| csi::ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: number })) };
        let capabilities =
            self.with(|behaviour| behaviour.capabilities.iter().copied().map(capability).collect());
        Ok(Response::new(csi::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn list_volumes(
        &self,
        request: Request<csi::ListVolumesRequest>,
    ) -> Result<Response<csi::ListVolumesResponse>, Status> {
        self.enter("ListVolumes", None).await?;
        let request = request.into_inner();
        let reported = self.reports_conditions();
        let (page, next_token) = self.page(request.max_entries, &request.starting_token, false)?;
        let entry = |(id, adverse): (String, Vec<Adverse>)| list_volumes_response::Entry {
            volume: Some(volume(id)),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids: Vec::new(),
                volume_condition: reported.then(|| condition(&adverse)),
            }),
        };
        let entries = page.into_iter().map(entry).collect();
        Ok(Response::new(csi::ListVolumesResponse { entries, next_token }))
    }

    async fn controller_get_volume(
        &self,
        request: Request<csi::ControllerGetVolumeRequest>,
    ) -> Result<Response<csi::ControllerGetVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        self.enter("ControllerGetVolume", Some(&id)).await?;
        let adverse = self.find(&id)?;
        let status = controller_get_volume_response::VolumeStatus {
            published_node_ids: Vec::new(),
            volume_condition: self.reports_conditions().then(|| condition(&adverse)),
        };
        let (volume, status) = (Some(volume(id)), Some(status));
        Ok(Response::new(csi::ControllerGetVolumeResponse { volume, status }))
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<csi::ControllerListVolumeHealthRequest>,
    ) -> Result<Response<csi::ControllerListVolumeHealthResponse>, Status> {
        self.enter("ControllerListVolumeHealth", None).await?;
        let request = request.into_inner();
        let (page, next_token) = self.page(request.max_entries, &request.starting_token, true)?;
        let entries = page.into_iter().map(|(id, adverse)| health(id, adverse)).collect();
        Ok(Response::new(csi::ControllerListVolumeHealthResponse { entries, next_token }))
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<csi::ControllerGetVolumeHealthRequest>,
    ) -> Result<Response<csi::ControllerGetVolumeHealthResponse>, Status> {
        let id = request.into_inner().volume_id;
        self.enter("ControllerGetVolumeHealth", Some(&id)).await?;
        let volume_health = Some(health(id.clone(), self.find(&id)?));
        Ok(Response::new(csi::ControllerGetVolumeHealthResponse { volume_health }))
    }
}
