//! The API server, and what it noted of who asked it for what.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use volmedic_testkit::{ControlPlane, Feature, Part, control_plane, server_has};

/// Every request, with who made it, without bodies. It goes where the server's log goes.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
    "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}"#;

/// The one that tests share unless they stop it or need another.
pub(crate) fn shared() -> Arc<ControlPlane> {
    static SHARED: OnceLock<Arc<ControlPlane>> = OnceLock::new();
    SHARED.get_or_init(|| storing(ControlPlane::options())).clone()
}

/// One of its own on which reports are stored: in the claims, or in VolumeHealths where this release has no place for them in
/// claims.
pub(crate) fn storing(options: control_plane::Options) -> Arc<ControlPlane> {
    let plane = own(options);
    if !server_has(Feature::ClaimHealth) {
        plane.install_definitions().expect("VolumeHealths are installed");
    }
    plane
}

/// One of its own for a test, with an audit log like the shared one's.
pub(crate) fn own(options: control_plane::Options) -> Arc<ControlPlane> {
    let policy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("audit-policy.json");
    // Tests start side by side: nobody may read half a file.
    let mine = policy.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::write(&mine, AUDIT_POLICY).expect("the audit policy can be written");
    std::fs::rename(&mine, &policy).expect("the audit policy can be put in its place");
    let options = options
        .apiserver_argument(&format!("--audit-policy-file={}", policy.display()))
        .apiserver_argument("--audit-log-path=-");
    Arc::new(options.start().expect("there is a control plane to test against"))
}

/// A request as the API server saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) verb: String,
    /// With the subresource, as in `persistentvolumeclaims/status`.
    pub(crate) resource: String,
    pub(crate) code: u64,
}

impl Request {
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    pub(crate) fn is(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource == resource
    }
}

/// All requests of one user so far, each once.
pub(crate) fn requests(plane: &ControlPlane, user: &str) -> Vec<Request> {
    let log: PathBuf = plane.log(Part::ApiServer);
    let text = std::fs::read(&log).expect("the API server's log");
    let mut seen = HashSet::new();
    let mut requests = Vec::new();
    for line in String::from_utf8_lossy(&text).lines().filter(|line| line.starts_with('{')) {
        // The last line may be half written.
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if event["user"]["username"] != user || !seen.insert(text(&event["auditID"])) {
            continue;
        }
        let (resource, subresource) =
            (text(&event["objectRef"]["resource"]), text(&event["objectRef"]["subresource"]));
        requests.push(Request {
            verb: text(&event["verb"]),
            resource: if subresource.is_empty() { resource } else { format!("{resource}/{subresource}") },
            code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        });
    }
    requests
}
