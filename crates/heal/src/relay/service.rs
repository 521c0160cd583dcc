//! The calls: who asks is checked first, then the volume is looked up, then the driver is asked.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tonic::{Code, Request, Response, Status};
use volmedic_csi::{CallError, Driver, Heal, Healed, Kind, Session};
use volmedic_listen::Peer;
use volmedic_panics::{blocking, caught};
use volmedic_proto::identity::capability::{self, Type};
use volmedic_proto::identity::identity_server::Identity;
use volmedic_proto::identity::{
    Capability, GetCapabilitiesRequest, GetCapabilitiesResponse, GetIdentityRequest, GetIdentityResponse,
    ProbeRequest, ProbeResponse,
};
use volmedic_proto::relay::heal_response::Outcome;
use volmedic_proto::relay::{Answer, Failure, HealRequest, HealResponse};

use super::door::Door;
use super::metrics::Metrics;
use super::paths::{self, PathError, Places, Wanted};
use super::volume::Volume;
use super::{API, Options};

/// Maximum number of volumes that are repaired at the same time on this node, for all callers together.
const MOST_TOGETHER: usize = 8;
const LONGEST_FIELD: usize = 4096;
/// In the capabilities of csi-addons.
const SERVICE_FIELD: u32 = 1;
const NODE_SERVICE: u64 = 2;

pub(super) struct Service {
    door: Door,
    mender: Arc<Mender>,
}

/// What a heal needs, on its own: it goes on when its caller is gone.
struct Mender {
    client: Client,
    driver: Driver,
    node: String,
    kubelet_root: PathBuf,
    deadline: Duration,
    metrics: Metrics,
    busy: Mutex<HashSet<String>>,
    slots: Arc<Semaphore>,
}

impl Service {
    pub(super) fn new(
        client: Client,
        driver: Driver,
        door: Door,
        options: &Options,
        metrics: Metrics,
    ) -> Self {
        let Options { node, kubelet_root, deadline, .. } = options;
        let mender = Mender {
            client,
            driver,
            node: node.clone(),
            kubelet_root: kubelet_root.clone(),
            deadline: *deadline,
            metrics,
            busy: Mutex::default(),
            slots: Arc::new(Semaphore::new(MOST_TOGETHER)),
        };
        Self { door, mender: Arc::new(mender) }
    }

    /// The driver as it is now; the call reached nobody if it is not there.
    fn session(&self) -> Result<Session, Status> {
        self.mender.driver.session().map_err(|error| Status::unavailable(error.to_string()))
    }
}

#[tonic::async_trait]
impl volmedic_proto::relay::relay_server::Relay for Service {
    async fn heal(&self, request: Request<HealRequest>) -> Result<Response<HealResponse>, Status> {
        let caller = self.door.admit(request.metadata(), request.extensions().get::<Peer>()).await?;
        let peer = request.extensions().get::<Peer>().map(|peer| peer.address.to_string());
        let request = request.into_inner();
        check(&request, &self.mender.node)?;
        let session = self.session()?;
        let slot = self.mender.slots.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{MOST_TOGETHER} volumes are being healed on this node already"
            ))
        })?;
        let mender = self.mender.clone();
        // A caller that goes away must not leave a volume half repaired: the heal belongs to the relay from here on.
        let task = tokio::spawn(async move {
            let _slot = slot;
            let began = Instant::now();
            let answer = caught(mender.heal(&session, &request)).await.unwrap_or_else(|panic| {
                tracing::error!(
                    volume = request.volume_handle,
                    panic,
                    "internal error (bug): a heal panicked"
                );
                Err(Status::unknown("the relay failed in the middle of the heal; see its log"))
            });
            tell(&request, &caller, peer.as_deref(), began.elapsed(), &answer);
            answer
        });
        let answer = task.await.map_err(|_| Status::unknown("the relay failed in the middle of the heal"))?;
        answer.map(|outcome| Response::new(HealResponse { outcome: Some(outcome) }))
    }
}

#[tonic::async_trait]
impl Identity for Service {
    async fn get_identity(
        &self,
        request: Request<GetIdentityRequest>,
    ) -> Result<Response<GetIdentityResponse>, Status> {
        self.door.admit(request.metadata(), request.extensions().get::<Peer>()).await?;
        let session = self.session()?;
        Ok(Response::new(GetIdentityResponse {
            name: session.driver().to_owned(),
            vendor_version: session.version().to_owned(),
            ..GetIdentityResponse::default()
        }))
    }

    async fn get_capabilities(
        &self,
        request: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<GetCapabilitiesResponse>, Status> {
        self.door.admit(request.metadata(), request.extensions().get::<Peer>()).await?;
        let session = self.session()?;
        let addons = &session.features().addons;
        let capabilities = addons.iter().filter_map(|(field, number)| capability(field, number)).collect();
        Ok(Response::new(GetCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        self.door.admit(request.metadata(), request.extensions().get::<Peer>()).await?;
        Ok(Response::new(ProbeResponse { ready: Some(self.mender.driver.session().is_ok()) }))
    }
}

impl Mender {
    async fn heal(&self, session: &Session, request: &HealRequest) -> Result<Outcome, Status> {
        let HealRequest { persistent_volume, volume_handle, refused_secret, .. } = request;
        let volume = Volume::look_up(&self.client, persistent_volume, session.driver()).await?;
        if !volume_handle.is_empty() && *volume_handle != volume.handle {
            return Err(Status::failed_precondition(format!(
                "the PersistentVolume {persistent_volume} is another volume by now than the one that was meant"
            )));
        }
        let _busy = self.occupy(&volume.handle)?;
        let places = self.places(session.driver(), persistent_volume, &volume).await?;
        let (secrets, version) = volume.secrets(&self.client).await?;
        if !version.is_empty() && version == *refused_secret {
            return Ok(Outcome::Failure(Failure {
                code: Code::Unauthenticated as i32,
                message: "the secret that the driver did not accept has not changed".to_owned(),
                secret: version,
                secret_unchanged: true,
            }));
        }
        let mut heal = Heal {
            volume_id: volume.handle,
            volume_path: String::new(),
            staging_target_path: places.staging.as_deref().map(text).transpose()?.unwrap_or_default(),
            capability: Some(volume.capability),
            secrets,
            volume_context: volume.context,
        };
        // The path is a required field; a volume that is only staged has no other.
        let mut targets = places.targets.iter().map(|path| text(path)).collect::<Result<Vec<_>, _>>()?;
        if targets.is_empty() {
            targets.push(heal.staging_target_path.clone());
        }
        let until = Instant::now() + self.deadline;
        let mut worst: Option<Healed> = None;
        let _under_way = self.metrics.heals();
        // One after the other: a driver takes one call for a volume at a time.
        for target in targets {
            heal.volume_path = target;
            let left = until.saturating_duration_since(Instant::now());
            match session.heal(heal.clone(), left).await {
                Ok(healed) => worst = Some(worse(worst, healed)),
                Err(error) => {
                    self.metrics.healed(error.kind().code_name());
                    return failure(&error, version);
                }
            }
        }
        let Healed { abnormal, message } =
            worst.ok_or_else(|| Status::failed_precondition("there was nothing to ask the driver about"))?;
        self.metrics.healed(if abnormal { "still_ill" } else { "well" });
        Ok(Outcome::Answer(Answer { abnormal, message }))
    }

    async fn places(&self, driver: &str, pv: &str, volume: &Volume) -> Result<Places, Status> {
        let (root, driver, pv) = (self.kubelet_root.clone(), driver.to_owned(), pv.to_owned());
        let (handle, block) = (volume.handle.clone(), volume.block);
        let find = caught(blocking(move || {
            paths::find(&root, Wanted { driver: &driver, handle: &handle, pv: &pv, block })
        }));
        match timeout(API, find).await {
            Ok(Ok(Ok(places))) => Ok(places),
            Ok(Ok(Err(error @ (PathError::Unreadable { .. } | PathError::Absent)))) => {
                Err(Status::failed_precondition(error.to_string()))
            }
            Ok(Ok(Err(error))) => {
                tracing::warn!("the relay refuses a path: {error}");
                Err(Status::invalid_argument(error.to_string()))
            }
            Ok(Err(_)) => Err(Status::internal("looking for the volume's paths failed")),
            Err(_) => Err(Status::unavailable("kubelet's folder did not answer in time; its disk may hang")),
        }
    }

    /// Keeps everybody else off the volume until it is dropped.
    fn occupy(&self, handle: &str) -> Result<Busy<'_>, Status> {
        if self.busy.lock().insert(handle.to_owned()) {
            return Ok(Busy { mender: self, handle: handle.to_owned() });
        }
        Err(Status::aborted("the volume is being healed right now; wait until that has ended"))
    }
}

struct Busy<'a> {
    mender: &'a Mender,
    handle: String,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.mender.busy.lock().remove(&self.handle);
    }
}

fn check(request: &HealRequest, here: &str) -> Result<(), Status> {
    let HealRequest { persistent_volume, volume_handle, node, attempt, refused_secret } = request;
    let fields = [persistent_volume, volume_handle, node, attempt, refused_secret];
    if fields.into_iter().any(|field| field.len() > LONGEST_FIELD) {
        return Err(Status::invalid_argument(format!("a field is longer than {LONGEST_FIELD} bytes")));
    }
    if persistent_volume.is_empty() {
        return Err(Status::invalid_argument("the name of the PersistentVolume is missing"));
    }
    if !node.is_empty() && node != here {
        let node: String = node.chars().take(64).flat_map(char::escape_debug).collect();
        return Err(Status::failed_precondition(format!("node {node} is meant, and this is {here}")));
    }
    Ok(())
}

/// Of the answers for several targets, the one that counts.
fn worse(so_far: Option<Healed>, next: Healed) -> Healed {
    match so_far {
        Some(so_far) if so_far.abnormal || !next.abnormal => so_far,
        _ => next,
    }
}

fn text(path: &std::path::Path) -> Result<String, Status> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Status::invalid_argument("a path below kubelet's folder is not text"))
}

/// The driver's error as its answer; what never reached it as our own.
fn failure(error: &CallError, secret: String) -> Result<Outcome, Status> {
    let code = match error.kind() {
        Kind::Unreachable | Kind::NotReady | Kind::Crowded | Kind::WrongDriver => {
            return Err(Status::unavailable(error.to_string()));
        }
        Kind::Cancelled | Kind::Lost => Code::Cancelled,
        Kind::Unknown => Code::Unknown,
        Kind::InvalidArgument => Code::InvalidArgument,
        Kind::Deadline => Code::DeadlineExceeded,
        Kind::NotFound => Code::NotFound,
        Kind::AlreadyExists => Code::AlreadyExists,
        Kind::PermissionDenied => Code::PermissionDenied,
        Kind::ResourceExhausted => Code::ResourceExhausted,
        Kind::FailedPrecondition => Code::FailedPrecondition,
        Kind::Aborted => Code::Aborted,
        Kind::OutOfRange => Code::OutOfRange,
        Kind::Unimplemented => Code::Unimplemented,
        Kind::Unavailable => Code::Unavailable,
        Kind::DataLoss => Code::DataLoss,
        Kind::Unauthenticated => Code::Unauthenticated,
        Kind::Internal | Kind::TooLarge | Kind::Unreadable | Kind::NoAnswer | Kind::WrongVolume => {
            Code::Internal
        }
    };
    Ok(Outcome::Failure(Failure {
        code: code as i32,
        message: error.to_string(),
        secret,
        secret_unchanged: false,
    }))
}

fn tell(
    request: &HealRequest,
    caller: &str,
    peer: Option<&str>,
    took: Duration,
    answer: &Result<Outcome, Status>,
) {
    let HealRequest { persistent_volume, attempt, .. } = request;
    let took = took.as_secs_f64();
    let (result, message) = match answer {
        Ok(Outcome::Answer(Answer { abnormal: false, message })) => ("well", message.as_str()),
        Ok(Outcome::Answer(Answer { abnormal: true, message })) => ("still unhealthy", message.as_str()),
        Ok(Outcome::Failure(failure)) => ("failed", failure.message.as_str()),
        Err(status) => ("not asked", status.message()),
    };
    tracing::info!(persistent_volume, attempt, caller, peer, took, result, "a heal was relayed: {message}");
}

/// Of what the driver can do, what can be asked for here. A manager of csi-addons that gets more would ask for it.
fn capability(field: u32, number: u64) -> Option<Capability> {
    let r#type = i32::try_from(number).ok()?;
    let member = match (field, number) {
        (SERVICE_FIELD, NODE_SERVICE) => Type::Service(capability::Service { r#type }),
        (volmedic_csi::HEALER_FIELD, _) => Type::VolumeHealer(capability::VolumeHealer { r#type }),
        _ => return None,
    };
    Some(Capability { r#type: Some(member) })
}
