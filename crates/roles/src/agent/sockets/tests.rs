use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};

use super::registration::{InfoRequest, PluginInfo};
use super::*;

/// A plugin's registration socket that answers this.
#[derive(Clone)]
struct Plugin(PluginInfo);

impl NamedService for Plugin {
    const NAME: &'static str = "pluginregistration.Registration";
}

impl UnaryService<InfoRequest> for Plugin {
    type Response = PluginInfo;
    type Future = Ready<Result<Response<PluginInfo>, Status>>;

    fn call(&mut self, _: Request<InfoRequest>) -> Self::Future {
        ready(Ok(Response::new(self.0.clone())))
    }
}

impl Service<http::Request<Body>> for Plugin {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let plugin = self.clone();
        Box::pin(async move {
            let codec = tonic_prost::ProstCodec::<PluginInfo, InfoRequest>::default();
            Ok(Grpc::new(codec).unary(plugin, request).await)
        })
    }
}

fn plugin(
    directory: &Path,
    file: &str,
    kind: &str,
    name: &str,
    endpoint: &str,
) -> tokio::task::JoinHandle<()> {
    let socket = directory.join(file);
    let _ = std::fs::remove_file(&socket);
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
    let answer = PluginInfo {
        kind: kind.into(),
        name: name.into(),
        endpoint: endpoint.into(),
        supported_versions: vec!["1.0.0".into()],
    };
    tokio::spawn(async move {
        let served =
            tonic::transport::Server::builder().add_service(Plugin(answer)).serve_with_incoming(incoming);
        let _ = served.await;
    })
}

async fn names(drivers: &mut watch::Receiver<Drivers>, expected: &[&str]) {
    let wanted = |drivers: &Drivers| drivers.keys().map(|name| &**name).eq(expected.iter().copied());
    let waited = tokio::time::timeout(Duration::from_mins(1), drivers.wait_for(wanted)).await.is_ok();
    assert!(waited, "the drivers are {:?}", drivers.borrow().keys().collect::<Vec<_>>());
}

#[tokio::test]
async fn registered_drivers_are_found_and_whatever_else_lies_there_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path();
    let _disk = plugin(here, "disk-reg.sock", "CSIPlugin", "disk.example.net", "/plugins/disk/csi.sock");
    let _gpu = plugin(here, "gpu.sock", "DevicePlugin", "gpu.example.net", "/x");
    std::fs::write(here.join("not-a-socket"), "").unwrap();
    std::os::unix::fs::symlink("disk-reg.sock", here.join("link.sock")).unwrap();
    // One that accepts and never answers.
    let _mute = tokio::net::UnixListener::bind(here.join("mute.sock")).unwrap();
    let mut registry = prometheus_client::registry::Registry::default();
    let sockets = Sockets::new(Duration::from_secs(2), Metrics::register(&mut registry));
    let mut drivers = sockets.watch();
    let finding = tokio::spawn(sockets.found_in(here.to_owned()));
    names(&mut drivers, &["disk.example.net"]).await;
    // Another one comes later; the first one goes, and stays known: it may only be restarting.
    let _late = plugin(here, "late-reg.sock", "CSIPlugin", "late.example.net", "");
    std::fs::remove_file(here.join("disk-reg.sock")).unwrap();
    names(&mut drivers, &["disk.example.net", "late.example.net"]).await;
    finding.abort();
}

#[test]
fn of_too_many_sockets_always_the_same_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..MOST + 10 {
        drop(std::os::unix::net::UnixListener::bind(dir.path().join(format!("{number:04}.sock"))).unwrap());
    }
    let found = sockets_in(dir.path()).unwrap();
    assert_eq!(found.len(), MOST);
    assert!(found.iter().all(|(path, _)| !path.ends_with(format!("{MOST:04}.sock"))));
    assert!(sockets_in(&dir.path().join("nowhere")).is_err());
}
