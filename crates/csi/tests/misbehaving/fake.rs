//! A CSI driver with answers that a test chooses: right, wrong, late or never.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use prometheus_client::registry::Registry;
use prost::Message;
use prost::bytes::{BufMut as _, Bytes, BytesMut};
use tokio::net::UnixListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;
use tonic::transport::Server;
use volmedic_csi::{CallError, Driver, Method, Metrics, Settings, State};
use volmedic_proto::{csi, identity};

pub(crate) const NAME: &str = "fake.example";

/// What the fake does with one call.
pub(crate) enum Reply {
    Message(Vec<u8>),
    Fail(Code, String),
    /// Nothing, ever.
    Never,
    /// The beginning of an answer, and then nothing.
    Half(Vec<u8>),
    /// An answer of headers alone, sent as they are.
    Headers(Vec<(&'static str, &'static str)>),
    /// A message, and these behind it.
    Trailers(Vec<u8>, Vec<(&'static str, &'static str)>),
}

impl<M: Message> From<M> for Reply {
    fn from(message: M) -> Self {
        Self::Message(message.encode_to_vec())
    }
}

pub(crate) fn fail(code: Code, text: &str) -> Reply {
    Reply::Fail(code, text.to_owned())
}

/// One call as the fake sees it.
pub(crate) struct Call {
    pub(crate) body: Bytes,
    /// How many calls of this method came before.
    pub(crate) nth: usize,
    pub(crate) headers: HeaderMap,
}

impl Call {
    pub(crate) fn read<M: Message + Default>(&self) -> M {
        M::decode(self.body.clone()).expect("our own request")
    }
}

type Handler = Arc<dyn Fn(Call) -> Reply + Send + Sync>;

/// The settings of the fake driver before it starts.
#[derive(Clone)]
pub(crate) struct Fake {
    handlers: HashMap<&'static str, Handler>,
}

impl Fake {
    /// A driver that introduces itself and has no capability at all.
    pub(crate) fn new() -> Self {
        Self::named(NAME)
    }

    pub(crate) fn named(name: &str) -> Self {
        let name = name.to_owned();
        let addons_name = name.clone();
        Self { handlers: HashMap::new() }
            .on(Method::Probe, |_| csi::ProbeResponse { ready: Some(true) }.into())
            .on(Method::GetPluginInfo, move |_| {
                let vendor_version = "v1".to_owned();
                csi::GetPluginInfoResponse { name: name.clone(), vendor_version, ..Default::default() }.into()
            })
            .on(Method::AddonsProbe, |_| identity::ProbeResponse { ready: None }.into())
            .on(Method::AddonsGetIdentity, move |_| {
                let vendor_version = "v1".to_owned();
                identity::GetIdentityResponse {
                    name: addons_name.clone(),
                    vendor_version,
                    ..Default::default()
                }
                .into()
            })
            .capabilities(&[], &[])
    }

    /// Of the controller and of the node, as numbers.
    pub(crate) fn capabilities(self, controller: &[i32], node: &[i32]) -> Self {
        use csi::plugin_capability::{Service, Type, service};
        let service = Service { r#type: service::Type::ControllerService as i32 };
        let plugin = csi::PluginCapability { r#type: Some(Type::Service(service)) };
        let controller_capability = |number: i32| {
            use csi::controller_service_capability::{Rpc, Type};
            csi::ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: number })) }
        };
        let node_capability = |number: i32| {
            use csi::node_service_capability::{Rpc, Type};
            csi::NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: number })) }
        };
        let controller: Vec<_> = controller.iter().copied().map(controller_capability).collect();
        let node: Vec<_> = node.iter().copied().map(node_capability).collect();
        self.on(Method::GetPluginCapabilities, move |_| {
            csi::GetPluginCapabilitiesResponse { capabilities: vec![plugin] }.into()
        })
        .on(Method::ControllerGetCapabilities, move |_| {
            csi::ControllerGetCapabilitiesResponse { capabilities: controller.clone() }.into()
        })
        .on(Method::NodeGetCapabilities, move |_| {
            csi::NodeGetCapabilitiesResponse { capabilities: node.clone() }.into()
        })
    }

    pub(crate) fn on(
        mut self,
        method: Method,
        handler: impl Fn(Call) -> Reply + Send + Sync + 'static,
    ) -> Self {
        self.handlers.insert(method.path(), Arc::new(handler));
        self
    }

    /// Listens, in a thread and a runtime of its own, so that it can be killed like a process.
    pub(crate) fn start(self, socket: &Path) -> Running {
        let _ = std::fs::remove_file(socket);
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (kill, killed) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = UnixListener::from_std(listener).unwrap();
                tokio::select! {
                    () = serve(listener, self) => {}
                    _ = killed => {}
                }
            });
        });
        Running { kill: Some(kill), thread: Some(thread) }
    }
}

/// Serves until dropped.
pub(crate) async fn serve(listener: UnixListener, fake: Fake) {
    let seen = Arc::new(Mutex::new(HashMap::new()));
    let handlers = Arc::new(fake.handlers);
    let serve = Serve { handlers, seen };
    Server::builder()
        .add_service(Identity(serve.clone()))
        .add_service(Controller(serve.clone()))
        .add_service(Node(serve.clone()))
        .add_service(Addons(serve.clone()))
        .add_service(Healer(serve))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await
        .unwrap();
}

/// A started fake. Dropped, it is killed: its connections break, whatever was under way.
pub(crate) struct Running {
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.kill.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the fake driver panicked");
        }
    }
}

#[derive(Clone)]
struct Serve {
    handlers: Arc<HashMap<&'static str, Handler>>,
    seen: Arc<Mutex<HashMap<String, usize>>>,
}

impl Serve {
    async fn answer(self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let headers = request.headers().clone();
        let Ok(body) = request.into_body().collect().await else { return Response::new(Body::empty()) };
        // Five bytes of framing come before the message.
        let body = body.to_bytes().slice(5..);
        let nth = {
            let mut seen = self.seen.lock().unwrap();
            let nth = seen.entry(path.clone()).or_default();
            *nth += 1;
            *nth - 1
        };
        let reply = match self.handlers.get(path.as_str()) {
            Some(handler) => handler(Call { body, nth, headers }),
            None => fail(Code::Unimplemented, "not served here"),
        };
        send(reply).await
    }
}

async fn send(reply: Reply) -> Response<Body> {
    let body = match reply {
        Reply::Message(message) => whole(&message, &[("grpc-status", "0")]),
        Reply::Trailers(message, trailers) => whole(&message, &trailers),
        Reply::Half(message) => half(&message),
        Reply::Fail(code, text) => return tonic::Status::new(code, text).into_http(),
        Reply::Headers(headers) => {
            let mut response = Response::new(Body::empty());
            response.headers_mut().extend(header_map(&headers));
            response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            return response;
        }
        Reply::Never => std::future::pending().await,
    };
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

fn header_map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
    headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
}

fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}

fn whole(message: &[u8], trailers: &[(&'static str, &'static str)]) -> Body {
    let trailers = header_map(trailers);
    Body::new(Full::new(framed(message)).with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) }))
}

fn half(message: &[u8]) -> Body {
    let frame = framed(message);
    let first = frame.slice(..frame.len() / 2);
    // The trailers that never come keep the stream open.
    Body::new(Full::new(first).with_trailers(std::future::pending::<Option<Result<_, Infallible>>>()))
}

macro_rules! services {
    ($($service:ident = $name:literal,)*) => { $(
        #[derive(Clone)]
        struct $service(Serve);

        impl NamedService for $service {
            const NAME: &'static str = $name;
        }

        impl Service<Request<Body>> for $service {
            type Response = Response<Body>;
            type Error = Infallible;
            type Future = BoxFuture<Response<Body>, Infallible>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: Request<Body>) -> Self::Future {
                let answer = self.0.clone().answer(request);
                Box::pin(async move { Ok(answer.await) })
            }
        }
    )* };
}

services! {
    Identity = "csi.v1.Identity",
    Controller = "csi.v1.Controller",
    Node = "csi.v1.Node",
    Addons = "identity.Identity",
    Healer = "healer.HealerNode",
}

/// A place for a socket, and the metrics of the client that uses it.
pub(crate) struct Scene {
    room: tempfile::TempDir,
    registry: Registry,
    metrics: Metrics,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        Self { room: tempfile::tempdir().unwrap(), registry, metrics }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.room.path().join("csi.sock")
    }

    pub(crate) fn driver(&self, settings: Settings) -> Driver {
        let address = self.socket().to_str().unwrap().parse().unwrap();
        Driver::start(address, settings, self.metrics.clone())
    }

    /// Everything a scrape would show.
    pub(crate) fn scrape(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    #[track_caller]
    pub(crate) fn scraped(&self, line: &str) {
        let text = self.scrape();
        assert!(text.contains(line), "the metrics lack {line}:\n{text}");
    }
}

/// Short pauses, so that tests are quick; a deadline that only a hang exceeds, however busy the machine is.
pub(crate) fn settings() -> Settings {
    Settings {
        deadline: SOON,
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_millis(20),
        ..Settings::default()
    }
}

pub(crate) const SOON: Duration = Duration::from_mins(2);

/// Why the driver is not ready, as soon as it was tried once.
pub(crate) async fn why_not(driver: &Driver) -> CallError {
    let mut states = driver.watch();
    tokio::time::timeout(SOON, states.changed()).await.unwrap().unwrap();
    match &*states.borrow() {
        State::Waiting(why) => why.clone(),
        State::Ready(_) => panic!("it is ready"),
    }
}

/// Runs a call that is never answered: as soon as the driver has it, the clock stands still, so that only deadlines make time
/// pass. None of them can be reached before that. The driver sends on the channel when it has the call.
pub(crate) async fn unanswered<T>(call: impl Future<Output = T>, mut has_it: UnboundedReceiver<()>) -> T {
    let stop_the_clock = async {
        has_it.recv().await.unwrap();
        tokio::time::pause();
    };
    let (answer, ()) = tokio::join!(call, stop_the_clock);
    tokio::time::resume();
    answer
}

/// The sentence must hold all of the parts.
#[track_caller]
pub(crate) fn says(sentence: impl std::fmt::Display, parts: &[&str]) {
    let sentence = format!("{sentence}");
    for part in parts {
        assert!(sentence.contains(part), "{sentence:?} lacks {part:?}");
    }
}
