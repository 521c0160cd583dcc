//! A driver that has introduced itself: its name, what it can do, and the one connection on which it said so.

use std::sync::Arc;
use std::time::Duration;

use prost::bytes::Bytes;
use volmedic_proto::{csi, identity};

use crate::driver::{Protocol, Settings};
use crate::error::{CallError, Kind};
use crate::features::{self, Addons, Features};
use crate::link::{About, Link};
use crate::method::{Method, Request};
use crate::secrets::Secrets;
use crate::text;
use crate::wire::Malformed;

/// The specification allows 63 characters; the name becomes a metric label and must be bounded.
const MAX_NAME: usize = 128;
const MAX_VERSION: usize = 256;

/// Calls on a session reach the driver that introduced itself, or fail. After a restart of the driver there is a new
/// session, with a new generation and with its capabilities read again. Cloning shares the connection.
#[derive(Clone, Debug)]
pub struct Session {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: Link,
    name: Arc<str>,
    version: String,
    features: Features,
    generation: u64,
    deadline: Duration,
}

impl Session {
    pub fn driver(&self) -> &str {
        &self.inner.name
    }

    /// As the driver's vendor writes it. May be empty.
    pub fn version(&self) -> &str {
        &self.inner.version
    }

    pub fn features(&self) -> &Features {
        &self.inner.features
    }

    /// Counts the connections to this driver, from 1.
    pub fn generation(&self) -> u64 {
        self.inner.generation
    }

    /// Returns when the connection has ended; then the driver restarts, or is gone.
    pub async fn ended(&self) {
        self.inner.link.ended().await;
    }

    pub(crate) fn link(&self) -> &Link {
        &self.inner.link
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.inner.name
    }

    /// The deadline of calls that have none of their own.
    pub(crate) fn deadline(&self) -> Duration {
        self.inner.deadline
    }
}

/// Asks the driver who it is and what it can do. Each question has its own deadline.
pub(crate) async fn introduce(
    link: Link,
    settings: &Settings,
    known_as: Option<&str>,
    generation: u64,
) -> Result<Session, CallError> {
    let ask = Introduction { link: &link, deadline: settings.deadline };
    let (name, version, features) = match settings.protocol {
        Protocol::Csi { controller, node } => ask.csi(known_as, controller, node).await?,
        Protocol::Addons => ask.addons(known_as).await?,
    };
    link.metrics.connected(&name);
    let inner = Inner { link, name, version, features, generation, deadline: settings.deadline };
    Ok(Session { inner: Arc::new(inner) })
}

struct Introduction<'a> {
    link: &'a Link,
    deadline: Duration,
}

impl Introduction<'_> {
    async fn csi(
        &self,
        known_as: Option<&str>,
        controller: bool,
        node: bool,
    ) -> Result<(Arc<str>, String, Features), CallError> {
        let ready: csi::ProbeResponse = self.probe(csi::ProbeRequest {}).await?;
        self.must_be_ready(Method::Probe, ready.ready)?;
        let info: csi::GetPluginInfoResponse = self.ask(csi::GetPluginInfoRequest {}).await?;
        let name = self.accept(Method::GetPluginInfo, &info.name, known_as)?;

        let plugin = self.ask(csi::GetPluginCapabilitiesRequest {}).await?;
        let mut features = Features { plugin: features::plugin_numbers(&plugin), ..Features::default() };
        if controller && features.has_controller_service() {
            let found = self.ask(csi::ControllerGetCapabilitiesRequest {}).await;
            features.controller = features::controller_numbers(&or_none(found)?);
        }
        if node {
            let found = self.ask(csi::NodeGetCapabilitiesRequest {}).await;
            features.node = features::node_numbers(&or_none(found)?);
        }
        Ok((name, version(&info.vendor_version), features))
    }

    async fn addons(&self, known_as: Option<&str>) -> Result<(Arc<str>, String, Features), CallError> {
        let ready: identity::ProbeResponse = self.probe(identity::ProbeRequest {}).await?;
        self.must_be_ready(Method::AddonsProbe, ready.ready)?;
        let info: identity::GetIdentityResponse = self.ask(identity::GetIdentityRequest {}).await?;
        let name = self.accept(Method::AddonsGetIdentity, &info.name, known_as)?;
        let about = About { volume: None, secrets: Secrets::none(), deadline: self.deadline };
        let read = |bytes: Bytes| Addons::read(&bytes);
        let addons = self.link.call(identity::GetCapabilitiesRequest {}, about, read).await?;
        Ok((name, version(&info.vendor_version), Features { addons, ..Features::default() }))
    }

    async fn ask<R: Request, A: prost::Message + Default>(&self, request: R) -> Result<A, CallError> {
        let about = About { volume: None, secrets: Secrets::none(), deadline: self.deadline };
        let read = |bytes: Bytes| A::decode(bytes).map_err(|_| Malformed::NotProtobuf);
        self.link.call(request, about, read).await
    }

    /// A driver without Probe breaks the specification, but it has just answered, so it is there.
    async fn probe<R: Request, A: prost::Message + Default>(&self, request: R) -> Result<A, CallError> {
        match self.ask(request).await {
            Err(error) if error.kind() == Kind::FailedPrecondition => {
                Err(self.link.error(R::METHOD, Kind::NotReady, error.detail()))
            }
            other => or_none(other),
        }
    }

    /// A driver that does not say whether it is ready is.
    fn must_be_ready(&self, method: Method, ready: Option<bool>) -> Result<(), CallError> {
        if ready == Some(false) {
            return Err(self.link.error(method, Kind::NotReady, ""));
        }
        Ok(())
    }

    fn accept(&self, method: Method, name: &str, known_as: Option<&str>) -> Result<Arc<str>, CallError> {
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            let detail =
                format!("its name \"{}\" is empty, too long or not printable", text::shorten(name, MAX_NAME));
            return Err(self.link.error(method, Kind::Unreadable, &detail));
        }
        if let Some(known) = known_as.filter(|known| *known != name) {
            let detail = format!("it calls itself {name}, but {known} is expected here");
            return Err(self.link.error(method, Kind::WrongDriver, &detail));
        }
        let name: Arc<str> = name.into();
        self.link.named(&name);
        Ok(name)
    }
}

/// A service that is not there has no capabilities.
fn or_none<A: Default>(answer: Result<A, CallError>) -> Result<A, CallError> {
    match answer {
        Err(error) if error.kind() == Kind::Unimplemented => Ok(A::default()),
        other => other,
    }
}

fn version(sent: &str) -> String {
    text::quote(&text::shorten(sent, MAX_VERSION))
}
