//! The way to a relay: TLS to the one that its registration describes, then a token, which no other server gets to see.

mod verify;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, CertificateError};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status};
use volmedic_api::Readable;
use volmedic_csi::{HEALER_FIELD, Kind};
use volmedic_proto::identity::capability::{Type, volume_healer};
use volmedic_proto::identity::identity_client::IdentityClient;
use volmedic_proto::identity::{Capability, GetCapabilitiesRequest, GetIdentityRequest};
use volmedic_proto::relay::relay_client::RelayClient;
use volmedic_proto::relay::{Answer, Failure, HealRequest, heal_response};

use super::ports::Surgeon;
use super::trust::{self, Distrust, Relayed};
use crate::relay::{CSI_ADDONS_AUDIENCE, HOST, chain};
use crate::table::Outcome;
use crate::tokens;
use crate::triage::Ticket;

/// For the connection and for short questions.
const SHORT: Duration = Duration::from_secs(15);
/// An answer is a sentence or two.
const LARGEST: usize = 256 * 1024;
const LONGEST_TOKEN: u64 = 16 * 1024;
/// Relays that are kept connected. One more than that costs a handshake.
const MOST_KEPT: usize = 1024;

/// Which tokens relays get. That a relay is one, its certificate proves.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// This process's token for all relays, as a file, read again for every call. It must be made for their audience. Without
    /// one, each call gets a token that was made for that node's relays.
    pub token: Option<PathBuf>,
    /// Relays that are asked the way of csi-addons.
    pub unverified: Option<Unverified>,
}

/// Relays of whom no proof is asked, because they live beside a manager of csi-addons: anyone who answers is believed. They
/// get another token than all others, since anyone who answers may keep it.
#[derive(Debug, Clone)]
pub struct Unverified {
    /// The drivers whose relays these are, by name.
    pub drivers: BTreeSet<String>,
    /// A token for [`CSI_ADDONS_AUDIENCE`], as a file, read again for every call. It must be of no use at the API server.
    pub token: PathBuf,
}

impl Trust {
    /// Whether the tokens may be sent to relays, asked before anything is started. A file that cannot be read yet is read
    /// again, and checked, before it is used.
    pub async fn check(&self, client: &Client) -> Result<(), DialError> {
        let unverified = self.unverified.as_ref().map(|unverified| &unverified.token);
        for path in [self.token.as_ref(), unverified].into_iter().flatten() {
            let Ok(text) = read_token(path) else { continue };
            harmless(client, path, &text).await?;
        }
        Ok(())
    }

    fn of_csi_addons(&self, relay: &Relayed) -> Option<&Unverified> {
        self.unverified.as_ref().filter(|unverified| unverified.drivers.contains(&*relay.driver))
    }
}

/// Why a relay cannot be asked.
#[derive(Debug, Error)]
pub enum DialError {
    #[error("the token for relays, {path}, cannot be used: {why}")]
    Token { path: PathBuf, why: String },
    #[error(
        "the token in {path} is accepted by the API server itself, so a server that gets it could act as its account; give \
         a token that was made for relays only, with the audience volmedic-relay or, for relays of csi-addons, {}",
        CSI_ADDONS_AUDIENCE
    )]
    Dangerous { path: PathBuf },
    #[error("the API server cannot be asked whether the token in {path} may be sent to relays: {why}")]
    Unreviewed { path: PathBuf, why: String },
    #[error("the API server made no token for the relay on node {node}: {why}")]
    NoToken { node: String, why: String },
    #[error("nothing was sent to {address}: {why}")]
    Moved { address: SocketAddr, why: String },
    #[error(
        "the registration of the relay at {address} names no certificate, so nothing was sent there; upgrade the agent on node \
         {node}"
    )]
    NoCertificate { address: SocketAddr, node: String },
    #[error("the relay at {address} cannot be reached")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("nobody answered at {address} in time")]
    Silent { address: SocketAddr },
    #[error(
        "the certificate of the relay at {address} has run out; the agent there renews it every day, so its log says why not"
    )]
    Expired { address: SocketAddr },
    #[error("the server at {address} does not prove to be the relay on node {node}: {why}")]
    Untrusted { address: SocketAddr, node: String, why: String },
    #[error("who answers at {address} does not speak TLS properly: {why}")]
    Tls { address: SocketAddr, why: String },
}

impl DialError {
    /// A label for metrics; a closed list.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Token { .. } => "token",
            Self::Dangerous { .. } => "dangerous_token",
            Self::Unreviewed { .. } => "unreviewed_token",
            Self::NoToken { .. } => "no_token",
            Self::Moved { .. } => "moved",
            Self::NoCertificate { .. } => "no_certificate",
            Self::Connect { .. } => "connect",
            Self::Silent { .. } => "silent",
            Self::Expired { .. } => "expired_certificate",
            Self::Untrusted { .. } => "untrusted_certificate",
            Self::Tls { .. } => "tls",
        }
    }
}

/// Dials relays and keeps the connections. Cloning shares them.
#[derive(Clone)]
pub struct Dialer {
    client: Client,
    trust: Arc<Trust>,
    kept: Arc<Mutex<HashMap<Key, Channel>>>,
    /// Of each token file, the hash of the token that was found to be harmless.
    harmless: Arc<Mutex<HashMap<PathBuf, Vec<u8>>>>,
    per_node: Arc<tokens::PerNode>,
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").field("trust", &self.trust).finish_non_exhaustive()
    }
}

/// A relay that has restarted, or changes its certificate, is connected again.
type Key = (SocketAddr, Box<str>, Arc<[Box<str>]>);

impl Dialer {
    pub fn new(client: Client, trust: Trust) -> Self {
        let per_node = Arc::new(tokens::PerNode::new(client.clone()));
        Self { client, trust: Arc::new(trust), kept: Arc::default(), harmless: Arc::default(), per_node }
    }

    /// Asks who it is and what it can do. It must be the driver that it was registered for.
    pub async fn introduce(&self, relay: &Relayed) -> Result<(), Distrust> {
        let peer = |why: String| Distrust::Peer(why);
        let channel = self.channel(relay).await.map_err(|error| peer(chain(&error)))?;
        let asked = async {
            let mut client = IdentityClient::new(channel).max_decoding_message_size(LARGEST);
            let name = client.get_identity(self.call(relay, GetIdentityRequest {}, SHORT).await?).await?;
            let name = name.into_inner().name;
            let can = self.call(relay, GetCapabilitiesRequest {}, SHORT).await?;
            let can = client.get_capabilities(can).await?;
            Ok::<_, Status>((name, can.into_inner().capabilities))
        };
        let (name, capabilities) = match timeout(SHORT * 2, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(status)) => {
                self.forget(relay);
                return Err(peer(status.message().chars().take(512).collect()));
            }
            Err(_) => {
                self.forget(relay);
                return Err(peer("it did not answer in time".to_owned()));
            }
        };
        if name != *relay.driver {
            let name: String = name.chars().take(64).flat_map(char::escape_debug).collect();
            return Err(peer(format!("it speaks for {name} and was registered for {}", relay.driver)));
        }
        if capabilities.into_iter().any(is_healer) { Ok(()) } else { Err(Distrust::CannotHeal) }
    }

    async fn channel(&self, relay: &Relayed) -> Result<Channel, DialError> {
        let key = (relay.address, relay.generation.clone(), relay.certificates.clone());
        if let Some(channel) = self.kept.lock().get(&key) {
            return Ok(channel.clone());
        }
        let stream = self.dial(relay).await?;
        let once = Mutex::new(Some(stream));
        // The channel would dial again on its own, without checking the pod again; it gets an error instead.
        let connector = tower::service_fn(move |_: Uri| {
            let stream = once.lock().take();
            async move { stream.map(TokioIo::new).ok_or_else(|| io::Error::other("the connection has ended")) }
        });
        let endpoint = Endpoint::from_static("http://relay")
            .http2_keep_alive_interval(SHORT)
            .keep_alive_timeout(SHORT)
            .keep_alive_while_idle(false);
        let channel = endpoint.connect_with_connector_lazy(connector);
        let mut kept = self.kept.lock();
        // What the relay was before is of no use any more.
        kept.retain(|kept, _| kept.0 != relay.address || *kept == key);
        if kept.len() < MOST_KEPT {
            kept.insert(key, channel.clone());
        }
        Ok(channel)
    }

    fn forget(&self, relay: &Relayed) {
        let mut kept = self.kept.lock();
        kept.retain(|(address, ..), _| *address != relay.address);
    }

    async fn dial(&self, relay: &Relayed) -> Result<TlsStream<TcpStream>, DialError> {
        let address = relay.address;
        self.pod_is_still_there(relay).await?;
        let named = match self.trust.of_csi_addons(relay) {
            Some(_) => None,
            None if relay.certificates.is_empty() => {
                return Err(DialError::NoCertificate { address, node: relay.node.to_string() });
            }
            None => Some(relay.certificates.clone()),
        };
        let tls = |error: &dyn std::error::Error| DialError::Tls { address, why: chain(error) };
        let config = verify::config(named).map_err(|error| tls(&error))?;
        let host = ServerName::try_from(HOST).map_err(|error| tls(&error))?;
        let connect = async {
            let stream =
                TcpStream::connect(address).await.map_err(|source| DialError::Connect { address, source })?;
            // Answers are waited for one by one.
            let _ = stream.set_nodelay(true);
            let connector = TlsConnector::from(Arc::new(config));
            connector.connect(host, stream).await.map_err(|error| refused(relay, &error))
        };
        timeout(SHORT, connect).await.unwrap_or(Err(DialError::Silent { address }))
    }

    /// What was true when the registration was checked may be over: the address may be that of another pod by now.
    async fn pod_is_still_there(&self, relay: &Relayed) -> Result<(), DialError> {
        let moved = |why: String| DialError::Moved { address: relay.address, why };
        let pods = Api::<Readable<Pod>>::namespaced(self.client.clone(), &relay.namespace);
        match timeout(SHORT, pods.get_opt(&relay.pod)).await {
            Ok(Ok(pod)) => trust::has_still(relay, pod.map(|pod| pod.0).as_ref()).map_err(moved),
            Ok(Err(error)) => Err(moved(format!("the relay's pod cannot be read: {error}"))),
            Err(_) => {
                Err(moved("the relay's pod cannot be read: the API server did not answer in time".to_owned()))
            }
        }
    }

    /// With the token as it is now.
    async fn call<T>(&self, relay: &Relayed, message: T, deadline: Duration) -> Result<Request<T>, Status> {
        let unverified = self.trust.of_csi_addons(relay).map(|unverified| &unverified.token);
        let token = match unverified.or(self.trust.token.as_ref()) {
            Some(file) => self.token(file).await,
            None => self.token_for(&relay.node).await,
        };
        let token = token.map_err(|error| Status::unauthenticated(error.to_string()))?;
        let mut request = Request::new(message);
        request.set_timeout(deadline);
        request.metadata_mut().insert("authorization", token);
        Ok(request)
    }

    async fn token_for(&self, node: &str) -> Result<MetadataValue<tonic::metadata::Ascii>, DialError> {
        let no_token = |why: String| DialError::NoToken { node: node.to_owned(), why };
        let token = self.per_node.token(node).await.map_err(no_token)?;
        bearer(Path::new("of the API server"), &token)
    }

    /// A token that may be sent. Each new one is checked once.
    async fn token(&self, path: &Path) -> Result<MetadataValue<tonic::metadata::Ascii>, DialError> {
        let text = read_token(path)?;
        let value = bearer(path, &text)?;
        let hash = digest(&SHA256, text.as_bytes()).as_ref().to_vec();
        let known = self.harmless.lock().get(path) == Some(&hash);
        if !known {
            harmless(&self.client, path, &text).await?;
            self.harmless.lock().insert(path.to_owned(), hash);
        }
        Ok(value)
    }
}

/// Without a dialer no relay is known, so nothing is ever asked.
impl Surgeon for Option<Dialer> {
    async fn heal(&self, relay: &Relayed, pv: &str, ticket: &Ticket, deadline: Duration) -> Outcome {
        match self {
            Some(dialer) => dialer.heal(relay, pv, ticket, deadline).await,
            None => Outcome::NotReached { why: "the healer runs without relays".to_owned() },
        }
    }
}

impl Surgeon for Dialer {
    async fn heal(&self, relay: &Relayed, pv: &str, ticket: &Ticket, deadline: Duration) -> Outcome {
        let message = HealRequest {
            persistent_volume: pv.to_owned(),
            volume_handle: ticket.place.handle.to_string(),
            node: ticket.place.node.to_string(),
            attempt: ticket.nth.to_string(),
            refused_secret: ticket.refused_secret.as_deref().unwrap_or_default().to_owned(),
        };
        self.ask(relay, message, deadline).await
    }
}

impl Dialer {
    /// Has a relay ask its driver about one volume.
    pub async fn ask(&self, relay: &Relayed, message: HealRequest, deadline: Duration) -> Outcome {
        let began = Instant::now();
        let channel = match self.channel(relay).await {
            Ok(channel) => channel,
            Err(error) => return Outcome::NotReached { why: chain(&error) },
        };
        let deadline = deadline.saturating_sub(began.elapsed());
        let request = match self.call(relay, message, deadline).await {
            Ok(request) => request,
            Err(status) => return Outcome::NotReached { why: status.message().to_owned() },
        };
        let mut client = RelayClient::new(channel).max_decoding_message_size(LARGEST);
        match timeout(deadline, client.heal(request)).await {
            Ok(Ok(answer)) => outcome(answer.into_inner().outcome),
            Ok(Err(status)) => {
                if std::error::Error::source(&status).is_some() {
                    self.forget(relay);
                }
                not_healed(&status)
            }
            Err(_) => {
                self.forget(relay);
                Outcome::Lost { why: format!("no answer came within {} s", deadline.as_secs()) }
            }
        }
    }
}

/// The driver's answer.
fn outcome(outcome: Option<heal_response::Outcome>) -> Outcome {
    match outcome {
        Some(heal_response::Outcome::Answer(Answer { abnormal: false, message })) => {
            Outcome::Well { message }
        }
        Some(heal_response::Outcome::Answer(Answer { abnormal: true, message })) => {
            Outcome::StillUnhealthy { message }
        }
        Some(heal_response::Outcome::Failure(Failure { secret_unchanged: true, .. })) => {
            Outcome::SecretUnchanged
        }
        Some(heal_response::Outcome::Failure(Failure { code, message, secret, .. })) => Outcome::Failed {
            kind: Kind::from_code(Code::from_i32(code)),
            message,
            secret: (!secret.is_empty()).then(|| secret.into()),
        },
        None => Outcome::Lost { why: "the relay's answer says nothing".to_owned() },
    }
}

/// What it means that the relay itself failed: mostly that the driver was not asked.
fn not_healed(status: &Status) -> Outcome {
    let why = status.message().to_owned();
    if std::error::Error::source(status).is_some() {
        return Outcome::Lost { why: chain(status) };
    }
    match status.code() {
        // Something is under way there for this volume.
        Code::Aborted => Outcome::Failed { kind: Kind::Aborted, message: why, secret: None },
        // Whatever it is, it does not heal.
        Code::Unimplemented => Outcome::Failed { kind: Kind::Unimplemented, message: why, secret: None },
        Code::Unknown | Code::Cancelled | Code::DeadlineExceeded | Code::Internal => Outcome::Lost { why },
        _ => Outcome::NotReached { why },
    }
}

fn is_healer(capability: Capability) -> bool {
    // The generated type knows the member by the number that this constant holds.
    const _: () = assert!(HEALER_FIELD == 7);
    matches!(capability.r#type, Some(Type::VolumeHealer(healer)) if healer.r#type == volume_healer::Type::VolumeHealer as i32)
}

fn refused(relay: &Relayed, error: &io::Error) -> DialError {
    let address = relay.address;
    let untrusted = |why: String| DialError::Untrusted { address, node: relay.node.to_string(), why };
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => DialError::Expired { address },
        Some(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
            untrusted("it shows a certificate that the registration of that relay does not name".to_owned())
        }
        Some(rustls::Error::InvalidCertificate(why)) => untrusted(why.to_string()),
        _ => DialError::Tls { address, why: error.to_string() },
    }
}

/// Refuses a token that the API server accepts.
async fn harmless(client: &Client, path: &Path, token: &str) -> Result<(), DialError> {
    let path = path.to_owned();
    match tokens::is_accepted_by_the_api_server(client, token).await {
        Ok(false) => Ok(()),
        Ok(true) => Err(DialError::Dangerous { path }),
        Err(why) => Err(DialError::Unreviewed { path, why }),
    }
}

fn read_token(path: &Path) -> Result<String, DialError> {
    let unusable = |why: &str| DialError::Token { path: path.to_owned(), why: why.to_owned() };
    let found = std::fs::metadata(path).map_err(|error| unusable(&error.to_string()))?;
    if found.len() > LONGEST_TOKEN {
        return Err(unusable("it is longer than any token"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&error.to_string()))?;
    if text.trim().is_empty() {
        return Err(unusable("it is empty"));
    }
    Ok(text.trim().to_owned())
}

fn bearer(path: &Path, token: &str) -> Result<MetadataValue<tonic::metadata::Ascii>, DialError> {
    let value = format!("Bearer {token}").parse();
    let mut value: MetadataValue<_> =
        value.map_err(|_| DialError::Token { path: path.to_owned(), why: "it is no token".to_owned() })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_relay_refuses_never_reached_the_driver() {
        for code in [
            Code::Unauthenticated,
            Code::PermissionDenied,
            Code::Unavailable,
            Code::FailedPrecondition,
            Code::NotFound,
            Code::InvalidArgument,
            Code::ResourceExhausted,
        ] {
            assert_eq!(not_healed(&Status::new(code, "no")).label(), "not_reached", "{code}");
        }
        assert_eq!(not_healed(&Status::aborted("busy")).label(), "Aborted");
        assert_eq!(not_healed(&Status::unimplemented("?")).label(), "Unimplemented");
        assert_eq!(not_healed(&Status::unknown("?")).label(), "lost");
    }

    #[test]
    fn a_token_file_that_is_none_is_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for content in ["", " \n", "a\nb-secret", &"x".repeat(20_000)] {
            std::fs::write(&path, content).unwrap();
            let read = read_token(&path).and_then(|text| bearer(&path, &text));
            let error = read.unwrap_err().to_string();
            assert!(error.contains("the token for relays") && !error.contains("secret"), "{error}");
        }
        std::fs::write(&path, "abc\n").unwrap();
        assert_eq!(format!("{:?}", bearer(&path, &read_token(&path).unwrap()).unwrap()), "Sensitive");
    }
}
