//! The driver's registration with the kubelet, without a sidecar. The kubelet finds the socket in its `plugins_registry`
//! directory, asks what is behind it, and reports whether it accepted the driver.
//!
//! The two calls are answered here and not by the gRPC library. The kubelet sends the percent-encoded path of the socket as the
//! authority of its requests, and the library refuses every request with such an authority as malformed. What it takes
//! of HTTP/2 is little: the headers of a request need not be read, because of the two calls only `GetInfo` has an empty
//! message.

mod wire;

use std::path::PathBuf;
use std::time::Duration;

use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use volmedic_proto::registration::{PluginInfo, RegistrationStatus};

use crate::error::Result;

/// What the kubelet calls a CSI driver.
const KIND: &str = "CSIPlugin";
/// The version of CSI that the kubelet asks plugins for.
const VERSION: &str = "1.0.0";
/// The kubelet needs one connection at a time, for a moment.
const MOST_CONNECTIONS: usize = 8;
const LONGEST_CONNECTION: Duration = Duration::from_mins(1);
/// After a failure to accept, which may be a lack of descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// Where the kubelet finds a driver.
#[derive(Clone, Debug)]
pub struct Registrar {
    /// A unix socket in the kubelet's `plugins_registry`, as a path or as `unix://` followed by one.
    pub socket: String,
    /// The driver's endpoint as the kubelet sees it.
    pub endpoint: PathBuf,
}

/// Serves until `end`.
pub(crate) async fn serve(
    driver: String,
    registrar: &Registrar,
    listener: UnixListener,
    end: impl Future<Output = ()>,
) -> Result<()> {
    let endpoint = registrar.endpoint.display().to_string();
    let info = PluginInfo {
        r#type: KIND.to_owned(),
        name: driver,
        endpoint,
        supported_versions: vec![VERSION.to_owned()],
    };
    let mut connections = JoinSet::new();
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return Ok(()),
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, info.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "the kubelet could not be heard");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
}

async fn connection(stream: UnixStream, info: PluginInfo) {
    let served = timeout(LONGEST_CONNECTION, wire::serve(stream, |message| answer(&info, message)));
    if let Ok(Err(error)) = served.await {
        tracing::debug!(%error, "a connection for the registration ended");
    }
}

/// The message that answers one, or `None` if it makes no sense.
fn answer(info: &PluginInfo, message: &[u8]) -> Option<Vec<u8>> {
    if message.is_empty() {
        return Some(info.encode_to_vec());
    }
    let RegistrationStatus { plugin_registered, error } = RegistrationStatus::decode(message).ok()?;
    if plugin_registered {
        tracing::info!(driver = info.name, "registered with the kubelet");
    } else {
        // Not the end: the kubelet tries again.
        tracing::error!(
            driver = info.name,
            endpoint = info.endpoint,
            "the kubelet refused the driver: {error}; check that the endpoint is right as the kubelet sees it"
        );
    }
    // A RegistrationStatusResponse has no fields.
    Some(Vec::new())
}
