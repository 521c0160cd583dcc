//! Beside a driver on a node: lets in who may ask, finds out what the driver needs to know, and hands the question on.
//!
//! The healer says which PersistentVolume; everything else (handle, paths, secrets, context) is looked up here, on the
//! node, so that no caller can point the driver anywhere. Secrets go from the API server to the driver and nowhere else.

mod door;
mod listen;
mod metrics;
mod names;
mod paths;
mod register;
mod service;
mod tls;
mod volume;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use volmedic_csi::Driver;
use volmedic_proto::identity::identity_server::IdentityServer;
use volmedic_proto::relay::relay_server::RelayServer;

use door::Door;
pub use metrics::{METRICS, Metrics, Refused};
pub use names::object_name;
pub use register::RegisterError;
use register::Registrar;
use service::Service;
use tls::Certificates;
pub(crate) use tls::{HOST, chain, fingerprint, provider};
pub use tls::{TlsError, Validity};

/// How long an API request may take.
const API: Duration = Duration::from_secs(15);
/// A peer that does not answer a ping for this time is gone; one ping is sent in each.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// How long the last call and the farewell may take when the relay stops.
const FAREWELL: Duration = Duration::from_secs(10);

/// The audience of the tokens that the healer sends to relays that prove nothing. No other server accepts them.
pub const CSI_ADDONS_AUDIENCE: &str = "volmedic-csi-addons";

/// The audience of the tokens that the relays on a node accept. Each node has its own, so that a relay cannot use the token
/// that it was sent at another node's relay.
pub fn audience_of(node: &str) -> String {
    format!("volmedic-relay/{node}")
}

/// Who may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Who shows a token that was made for this audience, and may `heal` this relay's CSIAddonsNode.
    Checked { audience: String },
    /// The scheme of csi-addons: a caller that shows any token that the API server accepts, or one for
    /// [`CSI_ADDONS_AUDIENCE`]. Only for living beside a manager of csi-addons that cannot do better.
    CsiAddons,
}

/// Where a relay stands and how it behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The node, by its name in Kubernetes.
    pub node: String,
    /// What the driver calls the node, as `CSINode` has it.
    pub node_id: String,
    /// The pod this process runs in.
    pub pod: String,
    pub namespace: String,
    /// Where to listen. Port 0 takes any free one.
    pub listen: SocketAddr,
    /// More than one driver is served on this node, so the object's name needs the driver's in it.
    pub several_drivers: bool,
    pub kubelet_root: PathBuf,
    pub certificates: Validity,
    pub access: Access,
    /// How long the driver may take to repair one volume.
    pub deadline: Duration,
}

/// Why a relay cannot start.
#[derive(Debug, Error)]
pub enum RelayError {
    #[error("the relay cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("the relay has no certificate to show")]
    Tls(#[from] TlsError),
}

/// A running relay. Dropping it ends it without a farewell; [`Relay::stop`] also takes its registration back.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    registrar: JoinHandle<()>,
}

impl Relay {
    /// Listens immediately; registers as soon as the driver has introduced itself and says that it can heal, and again
    /// whenever it was restarted. `driver` speaks csi-addons.
    pub async fn start(
        client: &Client,
        driver: Driver,
        options: Options,
        metrics: Metrics,
    ) -> Result<Self, RelayError> {
        let certificates = Certificates::make(options.certificates.clone())?;
        let refuse = |source| RelayError::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;

        let (stop, stopped) = watch::channel(false);
        let (place, registered) = watch::channel(None);
        let door = Door::new(client.clone(), options.access.clone(), registered, metrics.clone());
        let service = Arc::new(Service::new(client.clone(), driver.clone(), door, &options, metrics.clone()));
        let connections = listen::connections(listener, certificates.config()?, metrics);
        let mut end = stopped.clone();
        let router = tonic::transport::Server::builder()
            .max_concurrent_streams(32)
            .http2_max_header_list_size(32 * 1024)
            .http2_max_pending_accept_reset_streams(Some(16))
            .initial_stream_window_size(64 * 1024)
            .initial_connection_window_size(128 * 1024)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .add_service(RelayServer::from_arc(service.clone()).max_decoding_message_size(64 * 1024))
            .add_service(IdentityServer::from_arc(service).max_decoding_message_size(64 * 1024));
        let server = tokio::spawn(async move {
            let ended = async move { drop(end.wait_for(|stop| *stop).await) };
            if let Err(error) = router.serve_with_incoming_shutdown(connections, ended).await {
                tracing::error!(%error, "the relay stopped serving");
            }
        });
        let registrar = Registrar::new(client.clone(), driver, &options, address.port(), place);
        let registrar = tokio::spawn(registrar.run(certificates, stopped));
        Ok(Self { address, stop, server, registrar })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes the registration back, lets the calls under way end for a moment, and ends.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        // Past the farewell they are cut off by the drop.
        let _ = timeout(FAREWELL, async {
            let _ = (&mut self.registrar).await;
            let _ = (&mut self.server).await;
        })
        .await;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for task in [&self.server, &self.registrar] {
            task.abort();
        }
    }
}
