//! The side of csi-addons: who we are there, and healing on request.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;

use tonic::{Code, Request, Response, Status};
use volmedic_proto::healer::healer_node_server::HealerNode;
use volmedic_proto::healer::{NodeHealerRequest, NodeHealerResponse};
use volmedic_proto::identity as wire;
use volmedic_proto::identity::capability::{Service, Type, VolumeHealer, service, volume_healer};
use volmedic_proto::identity::identity_server::Identity;

use super::Driver;
use crate::config::Addons;
use crate::error::{Error, Result};
use crate::node::Patient;
use crate::request::{capability, required};

/// The name of the secret that a request must carry where one is wanted.
const TOKEN: &str = "token";
/// Secrets are short; a longer file is none.
const LONGEST_TOKEN: u64 = 4096;

/// The services of the addons endpoint.
#[derive(Clone, Debug)]
pub(crate) struct AddonsService {
    pub(crate) driver: Arc<Driver>,
    pub(crate) addons: Arc<Addons>,
}

#[tonic::async_trait]
impl Identity for AddonsService {
    async fn get_identity(
        &self,
        _: Request<wire::GetIdentityRequest>,
    ) -> Result<Response<wire::GetIdentityResponse>, Status> {
        Ok(Response::new(wire::GetIdentityResponse {
            name: self.driver.config.name.clone(),
            vendor_version: self.driver.config.version.clone(),
            manifest: HashMap::new(),
        }))
    }

    async fn get_capabilities(
        &self,
        _: Request<wire::GetCapabilitiesRequest>,
    ) -> Result<Response<wire::GetCapabilitiesResponse>, Status> {
        let services = self.driver.config.services;
        let service = |kind: service::Type| Type::Service(Service { r#type: kind.into() });
        let healer = VolumeHealer { r#type: volume_healer::Type::VolumeHealer.into() };
        let mut can = Vec::new();
        if services.controller {
            can.push(service(service::Type::ControllerService));
        }
        if services.node {
            can.extend([service(service::Type::NodeService), Type::VolumeHealer(healer)]);
        }
        let capabilities = can.into_iter().map(|can| wire::Capability { r#type: Some(can) }).collect();
        Ok(Response::new(wire::GetCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Result<Response<wire::ProbeResponse>, Status> {
        Ok(Response::new(wire::ProbeResponse { ready: Some(true) }))
    }
}

#[tonic::async_trait]
impl HealerNode for AddonsService {
    async fn node_healer(
        &self,
        request: Request<NodeHealerRequest>,
    ) -> Result<Response<NodeHealerResponse>, Status> {
        self.heal(request.into_inner()).await.map(Response::new).map_err(|error| status(&error))
    }
}

impl AddonsService {
    async fn heal(&self, request: NodeHealerRequest) -> Result<NodeHealerResponse> {
        if !self.driver.config.services.node {
            let why = "this process serves no node; ask the one that does, on the node of the volume";
            return Err(Error::NotOffered { what: "healing", why });
        }
        // Fully taken apart, so that a new field is thought about. Secrets go no further than here.
        let NodeHealerRequest {
            volume_id,
            volume_path,
            staging_target_path,
            volume_capability,
            secrets,
            volume_context,
        } = request;
        required("volume_id", &volume_id)?;
        required("volume_path", &volume_path)?;
        let capability = volume_capability.as_ref().map(|wanted| capability(Some(wanted))).transpose()?;
        let (driver, addons) = (Arc::clone(&self.driver), Arc::clone(&self.addons));
        let work = move || {
            let node = &driver.node;
            check_token(&addons, &secrets)?;
            let record = node.store.volume(&volume_id)?;
            check_context(&driver.volume(&record).volume_context, &volume_context)?;
            let staging = match staging_target_path.as_str() {
                "" => None,
                path => Some(node.roots.place("staging_target_path", path)?),
            };
            let path = node.roots.place("volume_path", &volume_path)?;
            let remount_writable = addons.remount_writable;
            let patient = Patient { id: volume_id, path, staging, capability, remount_writable };
            let healed = node.heal(&patient, &driver.assessor)?;
            let (abnormal, message) = (healed.abnormal, healed.message);
            tracing::info!(volume = patient.id, abnormal, message, "a volume was checked to be healed");
            Ok(NodeHealerResponse { abnormal, message })
        };
        self.driver.workers.run("healing the volume", work).await
    }
}

/// Compared in a time that does not depend on how much of it is right.
fn check_token(addons: &Addons, secrets: &HashMap<String, String>) -> Result<()> {
    let Some(path) = &addons.token_file else { return Ok(()) };
    let read = || match fs::metadata(path)?.len() {
        ..=LONGEST_TOKEN => fs::read(path),
        _ => Err(io::Error::other("it is too long for a token")),
    };
    let wanted = read().map_err(Error::io(format_args!("read the token file {}", path.display())))?;
    let wanted = wanted.trim_ascii();
    if wanted.is_empty() {
        return Err(Error::Refused { why: "no token is set on the node, so every caller is refused" });
    }
    let Some(given) = secrets.get(TOKEN) else {
        return Err(Error::Refused { why: "the secret `token` is missing; add it to the node-stage secret" });
    };
    let given = given.trim().as_bytes();
    let differences = wanted.iter().zip(given).fold(0, |all, (a, b)| all | (a ^ b));
    if wanted.len() == given.len() && differences == 0 {
        return Ok(());
    }
    Err(Error::Refused { why: "the secret `token` is not the one of this node; refresh it" })
}

/// What came from CreateVolume must come back unchanged. Others add keys of their own to it, which say nothing to us.
fn check_context(ours: &HashMap<String, String>, sent: &HashMap<String, String>) -> Result<()> {
    for (key, value) in ours {
        if sent.get(key).is_some_and(|sent| sent != value) {
            let why = format!("{key} is not what the volume was created with; send the context as it came");
            return Err(Error::invalid("volume_context", why));
        }
    }
    Ok(())
}

/// The table of errors that callers of a healer go by. It knows fewer codes than CSI: whatever has no row of its own
/// is UNKNOWN, and a heal that goes on after its caller's patience is an operation that is pending.
fn status(error: &Error) -> Status {
    let code = match error.code() {
        Code::DeadlineExceeded => Code::Aborted,
        Code::Internal | Code::FailedPrecondition | Code::ResourceExhausted => Code::Unknown,
        code => code,
    };
    Status::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn addons(token: Option<&str>) -> (tempfile::TempDir, Addons) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        if let Some(token) = token {
            fs::write(&file, token).unwrap();
        }
        let addons = Addons {
            endpoint: String::new(),
            session_grace: Duration::ZERO,
            remount_writable: false,
            token_file: Some(file),
        };
        (folder, addons)
    }

    #[test]
    fn only_who_knows_the_token_is_let_in_and_no_secret_is_repeated() {
        let check = |token: Option<&str>, given: Option<&str>| {
            let (_folder, addons) = addons(token);
            let secrets = given.map(|given| (TOKEN.to_owned(), given.to_owned())).into_iter().collect();
            check_token(&addons, &secrets).map_err(|error| status(&error))
        };
        check(Some("open sesame\n"), Some("open sesame")).unwrap();
        for (token, given) in [
            (Some("open sesame"), Some("open barley")),
            (Some("open sesame"), Some("open sesame and more")),
            (Some("open sesame"), Some("")),
            (Some("open sesame"), None),
            (Some("\n"), Some("")),
        ] {
            let refused = check(token, given).unwrap_err();
            assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
            assert!(!refused.message().contains("sesame") && !refused.message().contains("barley"));
        }
        assert_eq!(check(None, Some("x")).unwrap_err().code(), Code::Unknown);
    }

    #[test]
    fn a_context_may_be_larger_but_not_another() {
        let map = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let ours = map(&[("kind", "fuse")]);
        check_context(&ours, &map(&[])).unwrap();
        check_context(&ours, &map(&[("kind", "fuse"), ("storage.kubernetes.io/x", "y")])).unwrap();
        assert_eq!(
            check_context(&ours, &map(&[("kind", "loop")])).unwrap_err().code(),
            Code::InvalidArgument
        );
    }

    #[test]
    fn every_error_has_a_row_in_the_table_of_the_healer() {
        let volume = || "vol-1".to_owned();
        let rows = [
            (Error::Missing { field: "volume_id" }, Code::InvalidArgument),
            (Error::NoVolume(volume()), Code::NotFound),
            (Error::NotAtPath { volume: volume(), path: "/x".to_owned() }, Code::NotFound),
            (Error::Busy(volume()), Code::Aborted),
            (Error::Deadline { what: "healing", after: Duration::from_secs(1) }, Code::Aborted),
            (Error::NotOffered { what: "healing", why: "x" }, Code::Unimplemented),
            (Error::Refused { why: "x" }, Code::Unauthenticated),
            (Error::Bug("x".to_owned()), Code::Unknown),
            (Error::precondition("vol-1", "x"), Code::Unknown),
        ];
        for (error, expected) in rows {
            let status = status(&error);
            assert_eq!(status.code(), expected, "{status}");
        }
    }
}
