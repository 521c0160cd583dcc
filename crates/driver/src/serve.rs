//! The socket, and the life of the process behind it.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::{Request, Status};
use volmedic_proto::csi::controller_server::ControllerServer;
use volmedic_proto::csi::identity_server::IdentityServer;
use volmedic_proto::csi::node_server::NodeServer;
use volmedic_proto::healer::healer_node_server::HealerNodeServer;
use volmedic_proto::identity::identity_server::IdentityServer as AddonsIdentityServer;

use crate::config::{Config, Services};
use crate::error::{Error, Result};
use crate::fault::hook::Misbehave;
use crate::register::{self, Registrar};
use crate::service::{AddonsService, Driver};

/// How long calls may go on after SIGTERM or SIGINT.
const FAREWELL: Duration = Duration::from_secs(10);
/// So often in a row, and so far apart, nothing must be at work: an answer needs a moment to be sent.
const IDLE_LOOKS: u32 = 5;
const IDLE_PAUSE: Duration = Duration::from_millis(50);
const SERVED_ATTEMPTS: u32 = 20;
const SERVED_PAUSE: Duration = Duration::from_millis(50);
/// Requests are small; a larger one is nothing CSI would send.
const LARGEST_REQUEST: usize = 1 << 20;

/// Serves until SIGTERM or SIGINT. Mounts, loop devices and mounters stay: they belong to the callers that asked for them.
pub async fn serve(config: Config) -> Result<()> {
    serve_registered(config, None).await
}

/// As [`serve`], and registers the driver with the kubelet.
pub async fn serve_registered(config: Config, registrar: Option<Registrar>) -> Result<()> {
    let socket = socket_path("endpoint", &config.endpoint)?;
    let addons = config.addons.clone().map(Arc::new);
    let addons_socket =
        addons.as_ref().map(|addons| socket_path("addons-endpoint", &addons.endpoint)).transpose()?;
    if addons_socket.as_ref() == Some(&socket) {
        return Err(Error::invalid("addons-endpoint", "it is the CSI endpoint too; choose another path"));
    }
    let registry =
        registrar.as_ref().map(|one| socket_path("registration-socket", &one.socket)).transpose()?;
    if registry.as_ref().is_some_and(|at| *at == socket || Some(at) == addons_socket.as_ref()) {
        return Err(Error::invalid("registration-socket", "it is another endpoint too; choose another path"));
    }
    // Before anything is created for a driver that could not be reached.
    check("endpoint", &socket)?;
    if let Some(socket) = &addons_socket {
        check("addons-endpoint", socket)?;
    }
    if let Some(socket) = &registry {
        check("registration-socket", socket)?;
    }
    // Before a socket exists: a caller that finds one may ask the driver to end at that moment.
    let ended = shutdown()?;
    let driver = Arc::new(Driver::open(config)?);
    let config = &driver.config;
    let listener = listen("endpoint", &socket, config.socket_mode)?;
    let addons_listener = addons_socket.as_ref().map(|at| listen("addons-endpoint", at, config.socket_mode));
    let addons_listener = addons_listener.transpose()?;
    tracing::info!(socket = %socket.display(), name = config.name, node = config.node_id, "serving");
    // Boxed, because each holds a whole server.
    let csi = Box::pin(csi(&driver, listener, end(ended.clone())));
    let healer = Box::pin(async {
        let Some((addons, listener)) = addons.zip(addons_listener) else { return Ok(()) };
        let service = AddonsService { driver: Arc::clone(&driver), addons };
        healer(service, listener, end(ended.clone())).await
    });
    // Last, because the kubelet calls the driver as soon as it finds this.
    let registration = registry.as_ref().map(|at| listen_in_place("registration-socket", at));
    let registration = registration.transpose()?;
    let registering = Box::pin(async {
        let Some((registrar, listener)) = registrar.as_ref().zip(registration) else { return Ok(()) };
        register::serve(config.name.clone(), registrar, listener, end(ended.clone())).await
    });
    let outcome = tokio::select! {
        outcome = async { tokio::try_join!(csi, healer, registering) } => outcome.map(drop),
        () = farewell(&driver, ended.clone()) => Ok(()),
    };
    for socket in registry.iter().chain(&addons_socket).chain([&socket]) {
        if let Err(error) = fs::remove_file(socket) {
            tracing::debug!(%error, "a socket stays behind");
        }
    }
    outcome
}

/// Becomes true at SIGTERM or SIGINT.
fn shutdown() -> Result<watch::Receiver<bool>> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::io("listen for SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::io("listen for SIGINT"))?;
    let (ending, ended) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        ending.send_replace(true);
    });
    Ok(ended)
}

async fn end(mut ended: watch::Receiver<bool>) {
    // The sender only goes away after it has sent, or together with the runtime.
    while !*ended.borrow_and_update() && ended.changed().await.is_ok() {}
}

/// Calls at work may end, but a caller that only keeps its connection open delays nothing.
async fn farewell(driver: &Driver, ended: watch::Receiver<bool>) {
    end(ended).await;
    let deadline = tokio::time::Instant::now() + FAREWELL;
    let mut idle = 0;
    while idle < IDLE_LOOKS {
        if tokio::time::Instant::now() >= deadline {
            tracing::warn!("calls were still running when the driver ended");
            return;
        }
        tokio::time::sleep(IDLE_PAUSE).await;
        idle = if driver.is_idle() { idle + 1 } else { 0 };
    }
}

async fn csi(driver: &Arc<Driver>, listener: UnixListener, end: impl Future<Output = ()>) -> Result<()> {
    let Services { controller, node } = driver.config.services;
    let identity = IdentityServer::from_arc(Arc::clone(driver)).max_decoding_message_size(LARGEST_REQUEST);
    let controller = InterceptedService::new(
        ControllerServer::from_arc(Arc::clone(driver)).max_decoding_message_size(LARGEST_REQUEST),
        if_served(controller, "the controller service"),
    );
    let node = InterceptedService::new(
        NodeServer::from_arc(Arc::clone(driver)).max_decoding_message_size(LARGEST_REQUEST),
        if_served(node, "the node service"),
    );
    Server::builder()
        .layer(Misbehave::new(&driver.config.state_dir))
        .add_service(identity)
        .add_service(controller)
        .add_service(node)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), end)
        .await
        .map_err(|error| Error::io("serve")(io::Error::other(error)))
}

async fn healer(service: AddonsService, listener: UnixListener, end: impl Future<Output = ()>) -> Result<()> {
    let misbehave = Misbehave::new(&service.driver.config.state_dir);
    Server::builder()
        .layer(misbehave)
        .add_service(AddonsIdentityServer::new(service.clone()).max_decoding_message_size(LARGEST_REQUEST))
        .add_service(HealerNodeServer::new(service).max_decoding_message_size(LARGEST_REQUEST))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), end)
        .await
        .map_err(|error| Error::io("serve the healer")(io::Error::other(error)))
}

/// Lets calls through, or answers that another process of the plugin serves them.
fn if_served(
    is_served: bool,
    what: &'static str,
) -> impl FnMut(Request<()>) -> std::result::Result<Request<()>, Status> + Clone {
    const WHY: &str = "this process was started without it; see --services";
    move |request| if is_served { Ok(request) } else { Err(Error::NotOffered { what, why: WHY }.into()) }
}

fn socket_path(field: &'static str, endpoint: &str) -> Result<PathBuf> {
    let path = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    if !path.is_absolute() || path.file_name().is_none() {
        return Err(Error::invalid(
            field,
            "it is not unix:// followed by an absolute path, such as unix:///run/csi.sock",
        ));
    }
    Ok(path.to_owned())
}

/// Whether a server answers, and keeps answering: a child that a killed driver was just starting holds its socket for
/// a moment longer.
fn is_served(socket: &Path) -> bool {
    for _ in 0..SERVED_ATTEMPTS {
        if UnixStream::connect(socket).is_err() {
            return false;
        }
        sleep(SERVED_PAUSE);
    }
    true
}

/// Whether a socket can be there, and no other process serves it.
fn check(field: &'static str, socket: &Path) -> Result<()> {
    let invalid = |why: String| Err(Error::invalid(field, why));
    let at = socket.display();
    match fs::symlink_metadata(socket) {
        Ok(found) if !found.file_type().is_socket() => {
            invalid(format!("{at} exists and is not a socket; choose another path"))
        }
        Ok(_) if is_served(socket) => {
            invalid(format!("another process serves {at}; stop it or choose another path"))
        }
        Ok(_) => Ok(()),
        Err(_) => match socket.parent() {
            Some(parent) if !parent.is_dir() => {
                invalid(format!("{} is not a directory; create it or choose another path", parent.display()))
            }
            _ => Ok(()),
        },
    }
}

/// Binds beside the final name and renames, so that no client sees the socket before it has its mode, and a stale one
/// is replaced in one step.
fn listen(field: &'static str, socket: &Path, mode: u32) -> Result<UnixListener> {
    let failed = |what: &str| format!("{what} the socket {}", socket.display());
    check(field, socket)?;
    let mut temporary = socket.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io(failed("clear a way for"))(error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&temporary).map_err(Error::io(failed("bind")))?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(mode))
        .map_err(Error::io(failed("set the mode of")))?;
    fs::rename(&temporary, socket).map_err(Error::io(failed("put in place")))?;
    Ok(listener)
}

/// Binds at the final name: the kubelet takes every socket in its directory for a plugin, so no other name may appear
/// there, and it does not follow one that is renamed. Only root may connect, which the kubelet is.
fn listen_in_place(field: &'static str, socket: &Path) -> Result<UnixListener> {
    let failed = |what: &str| format!("{what} the socket {}", socket.display());
    check(field, socket)?;
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io(failed("clear a way for"))(error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(Error::io(failed("bind")))?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))
        .map_err(Error::io(failed("set the mode of")))?;
    Ok(listener)
}
