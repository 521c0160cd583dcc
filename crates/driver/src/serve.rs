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
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use volmedic_proto::csi::controller_server::ControllerServer;
use volmedic_proto::csi::identity_server::IdentityServer;
use volmedic_proto::csi::node_server::NodeServer;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::fault::hook::Misbehave;
use crate::service::Driver;

/// How long calls may go on after the process was told to end.
const FAREWELL: Duration = Duration::from_secs(10);
const SERVED_ATTEMPTS: u32 = 20;
const SERVED_PAUSE: Duration = Duration::from_millis(50);
/// Requests are small; a larger one is nothing CSI would send.
const LARGEST_REQUEST: usize = 1 << 20;

/// Serves until SIGTERM or SIGINT. Mounts, loop devices and mounters stay: they belong to whoever asked for them.
pub async fn serve(config: Config) -> Result<()> {
    let socket = socket_path(&config.endpoint)?;
    let driver = Arc::new(Driver::open(config)?);
    let config = &driver.config;
    let listener = listen(&socket, config.socket_mode)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::io("listen for SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::io("listen for SIGINT"))?;
    let (ending, mut ended) = tokio::sync::watch::channel(false);
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        ending.send_replace(true);
    };

    let identity = IdentityServer::from_arc(Arc::clone(&driver)).max_decoding_message_size(LARGEST_REQUEST);
    let controller = config
        .services
        .controller
        .then(|| ControllerServer::from_arc(Arc::clone(&driver)).max_decoding_message_size(LARGEST_REQUEST));
    let node = config
        .services
        .node
        .then(|| NodeServer::from_arc(Arc::clone(&driver)).max_decoding_message_size(LARGEST_REQUEST));
    tracing::info!(socket = %socket.display(), name = config.name, node = config.node_id, "serving");
    let server = Server::builder()
        .layer(Misbehave::new(&config.state_dir))
        .add_service(identity)
        .add_optional_service(controller)
        .add_optional_service(node)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop);
    let outcome = tokio::select! {
        outcome = server => outcome.map_err(|error| Error::io("serve")(io::Error::other(error))),
        () = async {
            // The sender only goes away together with the server.
            while !*ended.borrow_and_update() && ended.changed().await.is_ok() {}
            tokio::time::sleep(FAREWELL).await;
        } => {
            tracing::warn!("calls were still running when the driver ended");
            Ok(())
        }
    };
    if let Err(error) = fs::remove_file(&socket) {
        tracing::debug!(%error, "the socket stays behind");
    }
    outcome
}

fn socket_path(endpoint: &str) -> Result<PathBuf> {
    let path = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    if !path.is_absolute() || path.file_name().is_none() {
        return Err(Error::invalid(
            "endpoint",
            "it is not unix:// followed by an absolute path, such as unix:///run/csi.sock",
        ));
    }
    Ok(path.to_owned())
}

/// Whether somebody answers, and keeps answering: a child that a killed driver was just starting holds its socket for
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

/// Binds beside the final name and renames, so that nobody meets the socket before it has its mode, and a stale one
/// is replaced in one step.
fn listen(socket: &Path, mode: u32) -> Result<UnixListener> {
    let failed = |what: &str| format!("{what} the socket {}", socket.display());
    match fs::symlink_metadata(socket) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(Error::invalid(
                "endpoint",
                "something that is no socket is there; choose another path",
            ));
        }
        Ok(_) if is_served(socket) => {
            return Err(Error::invalid(
                "endpoint",
                "another process serves that socket; end it or choose another path",
            ));
        }
        _ => {}
    }
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
