//! How a role reaches the API server.

use std::path::PathBuf;

use anyhow::Context;
use kube::Client;

use crate::flags::rate;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The cluster")]
pub struct ClusterArgs {
    /// Kubeconfig file. Default: the pod's own service account, else the usual kubeconfig.
    #[arg(long, default_value = "", value_name = "FILE", hide_default_value = true)]
    kubeconfig: String,
    /// Reports per second to the API server, on average.
    #[arg(long, default_value_t = 50.0, value_parser = rate, value_name = "N")]
    pub kube_api_qps: f64,
    /// Maximum burst of reports to the API server.
    #[arg(long, default_value_t = 100.0, value_parser = rate, value_name = "N")]
    pub kube_api_burst: f64,
}

impl ClusterArgs {
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        Some(&self.kubeconfig).filter(|path| !path.is_empty()).map(PathBuf::from)
    }
}

/// A client that does not try again by itself: who uses it does, within its own limits.
pub async fn client(kubeconfig: Option<&PathBuf>) -> anyhow::Result<Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let what = || format!("cannot use the kubeconfig {}", path.display());
            let file = kube::config::Kubeconfig::read_from(path).with_context(what)?;
            let context = file.current_context.clone().unwrap_or_default();
            let options = kube::config::KubeConfigOptions::default();
            let mut config =
                kube::Config::from_custom_kubeconfig(file.clone(), &options).await.with_context(what)?;
            crate::proxy::choose(&mut config, &file, &context).with_context(what)?;
            config
        }
        None => kube::Config::infer().await.context(
            "found no cluster to talk to: this is not a pod with a service account, and there is no usable kubeconfig; \
             give one with --kubeconfig",
        )?,
    };
    config.default_retry = false;
    Client::try_from(config).context("cannot talk to the API server")
}
