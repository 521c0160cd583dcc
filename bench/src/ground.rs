//! What a role runs against: a real API server, a simulated driver, and an account of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;
use volmedic_testkit::ControlPlane;
use volmedic_testkit::sim::Sim;

use crate::audit::{self, Audit};
use crate::fill;

pub(crate) const DRIVER: &str = "bench.csi.example.net";
const NAMESPACES: usize = 10;
const HOME: &str = "kube-system";
const ACCOUNT: &str = "bench-controller";

pub(crate) struct Ground {
    pub(crate) sim: Sim,
    pub(crate) client: Client,
    pub(crate) audit: Audit,
    plane: ControlPlane,
    namespaces: Vec<String>,
    filled: usize,
    folder: TempDir,
}

impl Ground {
    pub(crate) async fn lay() -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (policy, log) = (folder.path().join("policy"), folder.path().join("audit"));
        let user = format!("system:serviceaccount:{HOME}:{ACCOUNT}");
        fs::write(&policy, audit::policy(&user).to_string()).context("cannot write the audit policy")?;
        let plane = ControlPlane::options()
            .apiserver_argument(&format!("--audit-policy-file={}", policy.display()))
            .apiserver_argument(&format!("--audit-log-path={}", log.display()))
            .start()?;
        let client = plane.client().await?;
        // The rights of an administrator, but not the group that is exempt from priority and fairness.
        let binding = json!({
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": HOME}],
        });
        let binding: ClusterRoleBinding = serde_json::from_value(binding).context("this is no binding")?;
        let bindings = Api::<ClusterRoleBinding>::all(client.clone());
        bindings.create(&PostParams::default(), &binding).await.context("cannot grant rights")?;
        let mut namespaces = Vec::new();
        for _ in 0..NAMESPACES {
            namespaces.push(plane.namespace("bench").await?);
        }
        let sim =
            Sim::start(&folder.path().join("csi.sock"), DRIVER, &[]).context("the driver cannot listen")?;
        Ok(Self { sim, client, audit: Audit::new(&log), plane, namespaces, filled: 0, folder })
    }

    /// Makes volumes until there are this many; there are never fewer than before.
    pub(crate) async fn fill(&mut self, volumes: usize) -> Result<()> {
        if volumes > self.filled {
            fill::fill(&self.client, &self.namespaces, DRIVER, self.filled..volumes).await?;
            self.sim.add_volumes((self.filled..volumes).map(fill::handle));
            self.filled = volumes;
        }
        Ok(())
    }

    /// Where the claims are, in turn.
    pub(crate) fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    /// `kubectl` with all rights.
    pub(crate) fn kubectl(&self) -> Command {
        self.plane.kubectl()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A kubeconfig of the controller's account, with a fresh token.
    pub(crate) async fn kubeconfig(&self) -> Result<PathBuf> {
        let admin = self.plane.kubeconfig();
        let admin = fs::read(admin).with_context(|| format!("cannot read {}", admin.display()))?;
        let mut config: Value = serde_json::from_slice(&admin).context("the kubeconfig is not JSON")?;
        let token = self.plane.token(HOME, ACCOUNT, None).await?;
        config["users"][0]["user"] = json!({"token": token});
        let path = self.folder.path().join("kubeconfig");
        fs::write(&path, config.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Removes all events, so that the next program finds none of them.
    pub(crate) async fn forget_events(&self) -> Result<()> {
        for namespace in &self.namespaces {
            let events = Api::<Event>::namespaced(self.client.clone(), namespace);
            events
                .delete_collection(&DeleteParams::default(), &ListParams::default())
                .await
                .with_context(|| format!("cannot remove the events in {namespace}"))?;
        }
        Ok(())
    }
}
