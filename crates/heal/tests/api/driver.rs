//! A driver's csi-addons socket: introduces itself, and heals as the test sets.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};
use volmedic_csi::{Driver, Metrics, Protocol, Settings};
use volmedic_proto::healer::healer_node_server::{HealerNode, HealerNodeServer};
use volmedic_proto::healer::{NodeHealerRequest, NodeHealerResponse};
use volmedic_proto::identity::capability::{Service, Type, VolumeHealer};
use volmedic_proto::identity::identity_server::{Identity, IdentityServer};
use volmedic_proto::identity::{
    Capability, GetCapabilitiesRequest, GetCapabilitiesResponse, GetIdentityRequest, GetIdentityResponse,
    ProbeRequest, ProbeResponse,
};

type Heal = dyn Fn(&NodeHealerRequest) -> Result<NodeHealerResponse, Status> + Send + Sync;

/// What a fake driver is and does, and what it was asked.
#[derive(Clone)]
pub(crate) struct Fake {
    name: String,
    heals: bool,
    heal: Arc<Heal>,
    asked: Arc<Mutex<Vec<NodeHealerRequest>>>,
    socket: PathBuf,
}

impl Fake {
    /// Heals everything at the same time.
    pub(crate) fn new(name: &str, folder: &Path) -> Self {
        Self {
            name: name.to_owned(),
            heals: true,
            heal: Arc::new(|_| {
                Ok(NodeHealerResponse { abnormal: false, message: "mounter restarted".into() })
            }),
            asked: Arc::default(),
            socket: folder.join("addons.sock"),
        }
    }

    pub(crate) fn that(
        mut self,
        heal: impl Fn(&NodeHealerRequest) -> Result<NodeHealerResponse, Status> + Send + Sync + 'static,
    ) -> Self {
        self.heal = Arc::new(heal);
        self
    }

    pub(crate) fn cannot_heal(mut self) -> Self {
        self.heals = false;
        self
    }

    pub(crate) fn asked(&self) -> Vec<NodeHealerRequest> {
        self.asked.lock().unwrap().clone()
    }

    /// Serves until it is dropped. In a runtime of its own, so that its connections end with it, as with a process.
    pub(crate) fn serve(&self) -> Serving {
        let _ = std::fs::remove_file(&self.socket);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = tonic::transport::Server::builder()
            .add_service(IdentityServer::new(self.clone()))
            .add_service(HealerNodeServer::new(self.clone()));
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(&self.socket).unwrap()
        };
        runtime.spawn(async move {
            server.serve_with_incoming(UnixListenerStream::new(listener)).await.unwrap();
        });
        Serving(Some(runtime))
    }

    /// The other end, as the agent has it.
    pub(crate) fn connect(&self) -> Driver {
        let settings = Settings { protocol: Protocol::Addons, ..Settings::default() };
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        Driver::start(self.socket.to_str().unwrap().parse().unwrap(), settings, metrics)
    }
}

pub(crate) struct Serving(Option<Runtime>);

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[tonic::async_trait]
impl Identity for Fake {
    async fn get_identity(
        &self,
        _: Request<GetIdentityRequest>,
    ) -> Result<Response<GetIdentityResponse>, Status> {
        let (name, vendor_version) = (self.name.clone(), "v1".to_owned());
        Ok(Response::new(GetIdentityResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_capabilities(
        &self,
        _: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<GetCapabilitiesResponse>, Status> {
        let mut types = vec![Type::Service(Service { r#type: 2 })];
        if self.heals {
            types.push(Type::VolumeHealer(VolumeHealer { r#type: 1 }));
        }
        let capabilities = types.into_iter().map(|r#type| Capability { r#type: Some(r#type) }).collect();
        Ok(Response::new(GetCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: None }))
    }
}

#[tonic::async_trait]
impl HealerNode for Fake {
    async fn node_healer(
        &self,
        request: Request<NodeHealerRequest>,
    ) -> Result<Response<NodeHealerResponse>, Status> {
        let request = request.into_inner();
        self.asked.lock().unwrap().push(request.clone());
        let heal = self.heal.clone();
        let answer = tokio::task::spawn_blocking(move || heal(&request)).await.unwrap();
        answer.map(Response::new)
    }
}
