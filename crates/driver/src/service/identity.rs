//! Who we are and what we can do.

use tonic::{Request, Response, Status};
use volmedic_proto::csi::identity_server::Identity;
use volmedic_proto::csi::plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
use volmedic_proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};

use super::Driver;

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.config.name.clone(),
            vendor_version: self.config.version.clone(),
            manifest: std::collections::HashMap::new(),
        }))
    }

    /// Said of the plugin as a whole, whichever of its services this process serves.
    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service = |kind: service::Type| Type::Service(Service { r#type: kind.into() });
        let capabilities = [
            service(service::Type::ControllerService),
            service(service::Type::VolumeAccessibilityConstraints),
            Type::VolumeExpansion(VolumeExpansion { r#type: volume_expansion::Type::Online.into() }),
        ];
        let capabilities =
            capabilities.map(|capability| PluginCapability { r#type: Some(capability) }).to_vec();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
