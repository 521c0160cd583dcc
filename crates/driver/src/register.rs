//! The driver's registration with the kubelet, without a sidecar. The kubelet finds the socket in its `plugins_registry`
//! directory, asks what is behind it, and reports whether it accepted the driver.

use std::path::PathBuf;

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use volmedic_proto::registration as wire;
use volmedic_proto::registration::registration_server::{Registration, RegistrationServer};

use crate::error::{Error, Result};

/// What the kubelet calls a CSI driver.
const KIND: &str = "CSIPlugin";
/// The version of CSI that the kubelet asks plugins for.
const VERSION: &str = "1.0.0";

/// Where the kubelet finds a driver.
#[derive(Clone, Debug)]
pub struct Registrar {
    /// A unix socket in the kubelet's `plugins_registry`, as a path or as `unix://` followed by one.
    pub socket: String,
    /// The driver's endpoint as the kubelet sees it.
    pub endpoint: PathBuf,
}

struct Service {
    driver: String,
    endpoint: String,
}

#[tonic::async_trait]
impl Registration for Service {
    async fn get_info(
        &self,
        _: Request<wire::InfoRequest>,
    ) -> std::result::Result<Response<wire::PluginInfo>, Status> {
        Ok(Response::new(wire::PluginInfo {
            r#type: KIND.to_owned(),
            name: self.driver.clone(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec![VERSION.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<wire::RegistrationStatus>,
    ) -> std::result::Result<Response<wire::RegistrationStatusResponse>, Status> {
        let wire::RegistrationStatus { plugin_registered, error } = request.into_inner();
        if plugin_registered {
            tracing::info!(driver = self.driver, "registered with the kubelet");
        } else {
            // Not the end: the kubelet tries again.
            tracing::error!(
                driver = self.driver,
                endpoint = self.endpoint,
                "the kubelet refused the driver: {error}; check that the endpoint is right as the kubelet sees it"
            );
        }
        Ok(Response::new(wire::RegistrationStatusResponse {}))
    }
}

/// Serves until `end`.
pub(crate) async fn serve(
    driver: String,
    registrar: &Registrar,
    listener: UnixListener,
    end: impl Future<Output = ()>,
) -> Result<()> {
    let endpoint = registrar.endpoint.display().to_string();
    Server::builder()
        .add_service(RegistrationServer::new(Service { driver, endpoint }))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), end)
        .await
        .map_err(|error| Error::io("serve the registration")(std::io::Error::other(error)))
}
