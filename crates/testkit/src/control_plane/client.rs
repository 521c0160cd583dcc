//! Clients: one with all rights, and one for any service account, with a token the API server itself issued.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};

use super::ControlPlane;

/// No request of a test takes this long unless the API server is gone.
const TIMEOUT: Duration = Duration::from_secs(30);

impl ControlPlane {
    /// A client with all rights. It belongs to the runtime it is made in: make one per test.
    pub async fn client(&self) -> Result<Client> {
        client_from(self.admin_config().await?)
    }

    /// The configuration of [`ControlPlane::client`], for those who want to change it.
    pub async fn admin_config(&self) -> Result<Config> {
        let path = self.kubeconfig();
        let kubeconfig =
            Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .with_context(|| format!("{} cannot be used", path.display()))?;
        config.connect_timeout = Some(TIMEOUT);
        config.write_timeout = Some(TIMEOUT);
        Ok(config)
    }

    /// A client that is the service account `name`, with no more rights than that has. The account is made if need be.
    pub async fn client_for(&self, namespace: &str, name: &str) -> Result<Client> {
        self.client_with(&self.token(namespace, name, None).await?).await
    }

    /// As [`ControlPlane::client_for`], with a token that is bound to `pod` as a mounted one is: it carries the pod's
    /// and its node's names, and dies with the pod. The pod must run under this account.
    pub async fn client_for_pod(&self, namespace: &str, name: &str, pod: &Pod) -> Result<Client> {
        self.client_with(&self.token(namespace, name, Some(pod)).await?).await
    }

    /// A client that shows `token` and nothing else.
    pub async fn client_with(&self, token: &str) -> Result<Client> {
        let mut config = self.admin_config().await?;
        config.auth_info =
            kube::config::AuthInfo { token: Some(token.to_owned().into()), ..Default::default() };
        client_from(config)
    }

    /// A token of the service account `name`, which is made if need be.
    pub async fn token(&self, namespace: &str, name: &str, pod: Option<&Pod>) -> Result<String> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client().await?, namespace);
        ensure_account(&accounts, name).await?;
        let bound = pod.map(|pod| BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        });
        let spec = TokenRequestSpec { bound_object_ref: bound, ..Default::default() };
        let request = TokenRequest { spec, ..Default::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let status = answer.with_context(|| format!("no token for {namespace}/{name}"))?.status;
        Ok(status
            .with_context(|| format!("the token request for {namespace}/{name} was not answered"))?
            .token)
    }

    /// A new namespace whose name begins with `prefix`, with the `default` service account that pods need.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let client = self.client().await?;
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..Default::default() };
        let namespace = Namespace { metadata, ..Default::default() };
        let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await;
        let name = made.with_context(|| format!("cannot make a namespace for {prefix}"))?.name_any();
        ensure_account(&Api::namespaced(client, &name), "default").await?;
        Ok(name)
    }
}

/// Without a controller manager nobody else makes them; with one, it may be faster.
async fn ensure_account(accounts: &Api<ServiceAccount>, name: &str) -> Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
    let account = ServiceAccount { metadata, ..Default::default() };
    match accounts.create(&PostParams::default(), &account).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot make the service account {name}")),
    }
}

fn client_from(config: Config) -> Result<Client> {
    Client::try_from(config).context("cannot make a client for the control plane")
}
