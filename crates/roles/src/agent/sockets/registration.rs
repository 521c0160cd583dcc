//! What the kubelet asks a plugin's registration socket: who are you, and where do you listen?

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::timeout;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;

/// An answer has a name, a path and a few versions.
const LONGEST: usize = 64 << 10;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct InfoRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PluginInfo {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) supported_versions: Vec<String>,
}

/// A CSI driver that wants to be known to the kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Registered {
    pub(super) name: String,
    /// Where its node plugin listens.
    pub(super) endpoint: String,
}

/// Asks a registration socket. `None` if what is there is no CSI driver.
pub(super) async fn ask(socket: &Path, deadline: Duration) -> anyhow::Result<Option<Registered>> {
    let asked = timeout(deadline, info(socket)).await;
    let info =
        asked.with_context(|| format!("{} did not answer within {deadline:?}", socket.display()))??;
    if info.kind != "CSIPlugin" {
        return Ok(None);
    }
    if info.name.is_empty() || info.name.len() > 253 {
        bail!("{} belongs to a driver without a usable name: {:?}", socket.display(), info.name);
    }
    let endpoint = if info.endpoint.is_empty() { socket.display().to_string() } else { info.endpoint };
    Ok(Some(Registered { name: info.name, endpoint }))
}

async fn info(socket: &Path) -> anyhow::Result<PluginInfo> {
    let what = || format!("{} did not say which plugin it belongs to", socket.display());
    let uri = format!("unix:{}", socket.to_str().context("its path is no text").with_context(what)?);
    let channel = Endpoint::from_shared(uri).with_context(what)?.connect().await.with_context(what)?;
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(LONGEST);
    grpc.ready().await.with_context(what)?;
    let path = PathAndQuery::from_static("/pluginregistration.Registration/GetInfo");
    let codec = tonic_prost::ProstCodec::<InfoRequest, PluginInfo>::default();
    let answer = grpc.unary(tonic::Request::new(InfoRequest {}), path, codec).await.with_context(what)?;
    Ok(answer.into_inner())
}
