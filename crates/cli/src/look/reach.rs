//! How a person's command finds the API server, and what it says when it does not.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::timeout;

use super::list::innermost;
use volmedic_runtime::flags::positive;
use volmedic_runtime::proxy;
use volmedic_view::text::plain;

/// A server that is there at all lets us in sooner.
const CONNECT: Duration = Duration::from_secs(10);
/// Contexts that an error names.
const NAMED: usize = 10;

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "The cluster")]
pub(crate) struct ReachArgs {
    /// A kubeconfig file. Default: KUBECONFIG, else ~/.kube/config, else the pod's own service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig. Default: its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// User to impersonate, as kubectl does it. A service account is system:serviceaccount:NAMESPACE:NAME.
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// Group to impersonate; may be given more than once.
    #[arg(long = "as-group", requires = "user", value_name = "GROUP")]
    group: Vec<String>,
    /// The deadline of one request.
    #[arg(long, default_value = "30s", value_parser = positive, value_name = "DURATION")]
    request_timeout: Duration,
}

/// A cluster that answers.
pub(crate) struct Reach {
    pub(crate) client: Client,
    /// Where to look if nobody says where.
    pub(crate) namespace: String,
    /// How a person calls it.
    pub(crate) place: String,
    /// Major and minor, where the server says.
    pub(crate) version: Option<Version>,
    pub(crate) deadline: Duration,
}

/// The release of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) number: (u32, u32),
    /// As in `v1.37.1`.
    pub(crate) text: String,
}

/// A client, before anything was asked with it.
struct Found {
    client: Client,
    namespace: String,
    place: String,
    url: String,
}

impl ReachArgs {
    /// Finds the cluster and asks it for its version, so that every failure is reported here and once.
    pub(crate) async fn reach(&self) -> anyhow::Result<Reach> {
        let Found { client, namespace, place, url } = self.find().await?;
        let version = match timeout(self.request_timeout, client.apiserver_version()).await {
            Ok(Ok(info)) => Version::new(&info.major, &info.minor, &info.git_version),
            Ok(Err(error)) => refusal(&error, &place, &url)?,
            Err(_) => bail!(
                "{place} at {url} did not answer within {} s; check the network, or give it longer with --request-timeout",
                self.request_timeout.as_secs()
            ),
        };
        Ok(Reach { client, namespace, place, version, deadline: self.request_timeout })
    }

    /// Asks the cluster nothing yet.
    async fn find(&self) -> anyhow::Result<Found> {
        let (mut config, mut place) = self.config().await?;
        if let Some(user) = &self.user {
            // Not also the groups that the kubeconfig impersonates: they are those of another user.
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups = (!self.group.is_empty()).then(|| self.group.clone());
            (config.auth_info.impersonate_uid, config.auth_info.impersonate_user_extra) = (None, None);
            place = format!("{place} as {}", plain(user));
        }
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT.min(self.request_timeout));
        let (namespace, url) = (config.default_namespace.clone(), config.cluster_url.to_string());
        let mut url = url.trim_end_matches('/').to_owned();
        if let Some(proxy) = &config.proxy_url {
            url = format!("{url} (through the proxy {})", proxy::shown(proxy));
        }
        let client = Client::try_from(config).map_err(|error| {
            anyhow!(
                "cannot talk to {place} at {url}: {}; check its certificates and user in the kubeconfig",
                innermost(&error)
            )
        })?;
        Ok(Found { client, namespace, place, url })
    }

    async fn config(&self) -> anyhow::Result<(Config, String)> {
        let file = match &self.kubeconfig {
            Some(path) => {
                let what = format!("cannot use the kubeconfig {}", path.display());
                Kubeconfig::read_from(path)
                    .map_err(|error| anyhow!("{what}: {}; check the path and the file", innermost(&error)))?
            }
            None => match Kubeconfig::read() {
                Ok(file) => file,
                Err(_) if self.context.is_none() && in_a_pod() => {
                    let config = Config::incluster().context("this pod's service account cannot be used")?;
                    return Ok((config, "this pod's cluster".to_owned()));
                }
                Err(error) => bail!(
                    "found no cluster: there is no usable kubeconfig ({}) and this is no pod with a service \
                     account; give one with --kubeconfig or KUBECONFIG, or watch a driver without a cluster: \
                     `volmedic watch --csi-address ...`",
                    innermost(&error)
                ),
            },
        };
        let wanted = self.context.clone().or_else(|| file.current_context.clone()).unwrap_or_default();
        let names: Vec<String> = file.contexts.iter().map(|context| context.name.clone()).collect();
        if !names.contains(&wanted) {
            let known = match names.len() {
                0 => "it has none".to_owned(),
                1..=NAMED => format!("it has {}", names.join(", ")),
                more => format!("it has {} and {} more", names[..NAMED].join(", "), more - NAMED),
            };
            if wanted.is_empty() {
                bail!("the kubeconfig has no current context; {known}: name one with --context");
            }
            bail!("the kubeconfig has no context {wanted:?}; {known}: name one of these with --context");
        }
        let options = KubeConfigOptions { context: Some(wanted.clone()), ..KubeConfigOptions::default() };
        let mut config = Config::from_custom_kubeconfig(file.clone(), &options).await.map_err(|error| {
            anyhow!(
                "the context {wanted:?} of the kubeconfig cannot be used: {}; check its cluster and its user",
                innermost(&error)
            )
        })?;
        proxy::choose(&mut config, &file, &wanted)?;
        Ok((config, format!("context {wanted}")))
    }
}

/// For completion, where nothing is parsed and nothing is said of errors.
impl ReachArgs {
    pub(crate) fn of(
        kubeconfig: Option<PathBuf>,
        context: Option<String>,
        user: Option<String>,
        group: Vec<String>,
        request_timeout: Duration,
    ) -> Self {
        Self { kubeconfig, context, user, group, request_timeout }
    }

    /// With the namespace that is used if none is named.
    pub(crate) async fn client(&self) -> anyhow::Result<(Client, String)> {
        let Found { client, namespace, .. } = self.find().await?;
        Ok((client, namespace))
    }

    pub(crate) fn contexts(&self) -> Vec<String> {
        self.file()
            .map(|file| file.contexts.into_iter().map(|context| context.name).collect())
            .unwrap_or_default()
    }

    /// Those that the kubeconfig names.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        let contexts = self.file().map(|file| file.contexts).unwrap_or_default();
        contexts.into_iter().filter_map(|named| named.context?.namespace).collect()
    }

    fn file(&self) -> Option<Kubeconfig> {
        self.kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from).ok()
    }
}

fn in_a_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// A server that does not tell its version may still be one; all else ends here, with what to do.
fn refusal(error: &kube::Error, place: &str, url: &str) -> anyhow::Result<Option<Version>> {
    match error {
        kube::Error::Api(status) if status.code == 403 && status.message.contains("cannot impersonate") => {
            bail!(
                "you may not act as another user in {place} ({}); ask for the verb `impersonate` on users and groups, or leave \
             --as out",
                plain(&status.message)
            )
        }
        kube::Error::Api(status) if status.code == 403 => Ok(None),
        kube::Error::Api(status) if status.code == 401 => bail!(
            "the API server of {place} at {url} does not know who you are (401 {}); log in again or renew the token in \
             the kubeconfig",
            status.reason
        ),
        kube::Error::Api(_) | kube::Error::SerdeError(_) => bail!(
            "what answers at {url} ({place}) is not a Kubernetes API server; check the address in the kubeconfig"
        ),
        error => bail!(
            "the API server of {place} at {url} cannot be reached: {}; check that the cluster runs, that the address in \
             the kubeconfig is right, and that the network leads there",
            innermost(error)
        ),
    }
}

impl Version {
    fn new(major: &str, minor: &str, text: &str) -> Option<Self> {
        // Some vendors put a plus behind it.
        let number = |text: &str| text.trim_end_matches('+').parse().ok();
        Some(Self { number: (number(major)?, number(minor)?), text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_vendors_write_them() {
        let version = Version::new("1", "29+", "v1.29.6-eks-1552ad0").expect("a version");
        assert_eq!(version.number, (1, 29));
        assert_eq!(Version::new("", "", "v1.2"), None);
    }
}
