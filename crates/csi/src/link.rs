//! One connection to a driver, from dialling to its end. It is never revived: a new connection is a new link,
//! so that no call is ever answered by a driver that has not introduced itself.

mod codec;
mod stream;
mod tidy;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prost::bytes::Bytes;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Status};

use self::codec::RawCodec;
use self::stream::Watched;
use self::tidy::Tidy;
use crate::address::Address;
use crate::error::{CallError, Kind};
use crate::method::{Method, Request};
use crate::metrics::Metrics;
use crate::secrets::Secrets;
use crate::wire::Malformed;

/// The deadline sent to the driver is a little later than ours, so that our own clock decides.
const GRACE: Duration = Duration::from_millis(50);
/// The header has room for eight digits; the library panics on more than they can say.
const LONGEST_SENT: Duration = Duration::from_hours(24);
/// How the gRPC library begins its complaint about an answer beyond the limit, without a message, or without an end.
/// Tests hold it to these words.
const TOO_LARGE: &str = "Error, decoded message length too large";
const NO_MESSAGE: &str = "Missing response message";
const PROTOCOL: &str = "protocol error: ";
/// An error's text travels in a header. Drivers put whole command outputs there; Go takes 16 MiB, the default is 16 KiB.
const MAX_HEADERS: u32 = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Link {
    grpc: tonic::client::Grpc<Tidy>,
    closed: watch::Receiver<bool>,
    /// "at" and the socket, for errors before the name is known.
    place: Arc<str>,
    name: OnceLock<Arc<str>>,
    pub(crate) metrics: Metrics,
    slots: Option<Arc<Semaphore>>,
}

/// What a call is about, beside its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) volume: Option<&'a str>,
    pub(crate) secrets: &'a Secrets,
    pub(crate) deadline: Duration,
}

impl Link {
    /// Connects, within the deadline. The error is a sentence.
    pub(crate) async fn dial(
        address: &Address,
        deadline: Duration,
        metrics: Metrics,
        slots: Option<Arc<Semaphore>>,
    ) -> Result<Self, CallError> {
        let place: Arc<str> = format!("at {address}").into();
        let unreachable = |why: &str| CallError::new(place.clone(), None, Kind::Unreachable, why);
        address.check().map_err(|error| unreachable(&error.to_string()))?;
        let connected = timeout(deadline, UnixStream::connect(address.path())).await;
        let stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(unreachable(&refused(&error))),
            Err(_) => return Err(unreachable("the driver did not accept the connection in time")),
        };

        let (ended, closed) = watch::channel(false);
        let once = Mutex::new(Some(Watched::new(stream, ended)));
        // The channel would dial again on its own; the second time it gets an error instead.
        let connector = tower::service_fn(move |_: Uri| {
            let stream = once.lock().take();
            async move {
                stream.map(TokioIo::new).ok_or_else(|| std::io::Error::other("the connection has ended"))
            }
        });
        // No keep-alive pings: a unix socket reports when its peer dies, and Go's server hangs up on pings.
        let endpoint = Endpoint::from_static("http://localhost").http2_max_header_list_size(MAX_HEADERS);
        let channel = endpoint.connect_with_connector_lazy(connector);
        let grpc = tonic::client::Grpc::new(Tidy::new(channel));
        Ok(Self { grpc, closed, place, name: OnceLock::new(), metrics, slots })
    }

    /// From now on errors and metrics carry the driver's name.
    pub(crate) fn named(&self, name: &Arc<str>) {
        // Only the introduction names the link, and once.
        let _ = self.name.set(name.clone());
    }

    /// Returns when the connection has ended.
    pub(crate) async fn ended(&self) {
        let mut closed = self.closed.clone();
        // An error means that the sender is gone, and with it the connection.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    fn has_ended(&self) -> bool {
        *self.closed.borrow() || self.closed.has_changed().is_err()
    }

    pub(crate) fn error(&self, method: Method, kind: Kind, detail: &str) -> CallError {
        let driver = self.name.get().unwrap_or(&self.place);
        CallError::new(driver.clone(), Some(method), kind, detail)
    }

    /// Sends the request and reads the answer, all of it within the deadline.
    pub(crate) async fn call<R: Request, T>(
        &self,
        request: R,
        about: About<'_>,
        read: impl FnOnce(Bytes) -> Result<T, Malformed>,
    ) -> Result<T, CallError> {
        let started = Instant::now();
        let fail = |kind, detail: &str| {
            self.error(R::METHOD, kind, detail).about(about.volume).after(started.elapsed())
        };
        let _slot = match &self.slots {
            None => None,
            Some(slots) => match timeout(about.deadline, slots.acquire()).await {
                Ok(Ok(slot)) => Some(slot),
                Ok(Err(_)) | Err(_) => return Err(fail(Kind::Crowded, "")),
            },
        };
        let left = about.deadline.saturating_sub(started.elapsed());
        let sent = Instant::now();
        let outcome = match timeout(left, self.unary(request, left)).await {
            Err(_) => Err(fail(Kind::Deadline, "")),
            Ok(Err(status)) => {
                let late = sent.elapsed() >= left;
                let (kind, detail) = self.classify(&status, late, R::METHOD);
                Err(fail(kind, &about.secrets.hide(&detail)))
            }
            Ok(Ok(bytes)) => read(bytes)
                .map_err(|why| fail(Kind::Unreadable, &format!("{why} ({} answer)", R::METHOD.name()))),
        };
        let code = outcome.as_ref().map_or_else(|error| error.kind().code_name(), |_| "OK");
        let name = self.name.get().map(|name| &**name);
        self.metrics.called(name, R::METHOD, code, sent.elapsed());
        outcome
    }

    async fn unary<R: Request>(&self, request: R, deadline: Duration) -> Result<Bytes, Status> {
        let mut grpc = self.grpc.clone().max_decoding_message_size(R::METHOD.limit());
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let mut request = tonic::Request::new(request);
        request.set_timeout(deadline.saturating_add(GRACE).min(LONGEST_SENT));
        let path = PathAndQuery::from_static(R::METHOD.path());
        grpc.unary(request, path, RawCodec::default()).await.map(tonic::Response::into_inner)
    }

    /// Distinguishes an error of the driver, of the connection and of our own deadline.
    fn classify(&self, status: &Status, late: bool, method: Method) -> (Kind, String) {
        let message = status.message();
        if late && status.code() == Code::Cancelled {
            return (Kind::Deadline, String::new());
        }
        if status.code() == Code::OutOfRange && message.starts_with(TOO_LARGE) {
            let kib = method.limit() / 1024;
            let limit = if kib < 1024 { format!("{kib} KiB") } else { format!("{} MiB", kib / 1024) };
            let detail = format!("more than the {limit} that are taken of a {} answer", method.name());
            return (Kind::TooLarge, detail);
        }
        // A status that came over the wire has no cause; one that the transport made has. The few that the library
        // makes of an answer cut short have none either, but then the connection has ended.
        let vague =
            matches!(status.code(), Code::Unknown | Code::Internal | Code::Cancelled | Code::Unavailable);
        if std::error::Error::source(status).is_some() || (vague && self.has_ended()) {
            return (Kind::Lost, deepest(status));
        }
        if [NO_MESSAGE, PROTOCOL].iter().any(|fault| message.starts_with(fault)) {
            return (Kind::Unreadable, message.to_owned());
        }
        (Kind::from_code(status.code()), message.to_owned())
    }
}

/// The last cause in the chain says most: "connection reset" rather than "transport error".
fn deepest(status: &Status) -> String {
    let mut cause: &dyn std::error::Error = status;
    while let Some(next) = cause.source() {
        cause = next;
    }
    if cause.is::<Status>() { status.message().to_owned() } else { cause.to_string() }
}

fn refused(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "the socket exists, but no process listens on it".to_owned(),
        std::io::ErrorKind::PermissionDenied => "this process may not use the socket".to_owned(),
        _ => error.to_string(),
    }
}
