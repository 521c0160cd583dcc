//! The relays: one beside each driver that can heal, for the healer in the hub to ask.
//!
//! Whatever keeps a relay from starting is said once and tried again. It never ends the agent, which has eyes besides.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use volmedic_csi::{Address, Backoff, Driver, Protocol, Settings};
use volmedic_heal::Relay;
use volmedic_heal::relay::{Access, Metrics, Options, Validity, audience_of};

use super::args::Relaying;

/// A socket that is not there yet may be there any moment: looking for it costs nothing.
const LONGEST_LOOK: Duration = Duration::from_secs(5);
/// Between two starts of a relay that did not come up, such as because its port is taken.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Where they stand, and what they need of the agent.
pub(super) struct Surroundings<'a> {
    pub(super) client: &'a Client,
    pub(super) node: &'a str,
    pub(super) kubelet_root: &'a Path,
    pub(super) calls: volmedic_csi::Metrics,
    pub(super) metrics: Metrics,
}

/// All relays of this agent. Dropping them ends them without a farewell.
pub(super) struct Relays {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Relays {
    /// Starts one for each address, if any is to be.
    pub(super) fn start(relaying: Option<&Relaying>, around: &Surroundings<'_>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let Some(relaying) = relaying else { return Self { stop, tasks } };
        for (number, address) in relaying.addresses.iter().enumerate() {
            let settings =
                Settings { protocol: Protocol::Addons, longest_pause: LONGEST_LOOK, ..Settings::default() };
            let Surroundings { client, node, kubelet_root, calls, metrics } = around;
            let driver = Driver::start(address.clone(), settings, calls.clone());
            let options = Options {
                // What csi-addons takes for it, too; the healer believes it as much as the driver's own id.
                node_id: (*node).to_owned(),
                node: (*node).to_owned(),
                pod: relaying.pod.clone(),
                namespace: volmedic_lease::namespace(""),
                listen: behind(relaying.listen, number),
                several_drivers: relaying.addresses.len() > 1,
                kubelet_root: (*kubelet_root).to_owned(),
                certificates: Validity::default(),
                access: relaying
                    .access
                    .clone()
                    .unwrap_or_else(|| Access::Checked { audience: audience_of(node) }),
                deadline: relaying.deadline,
            };
            let client = (*client).clone();
            tasks.spawn(keep(client, address.clone(), driver, options, metrics.clone(), stopped.clone()));
        }
        Self { stop, tasks }
    }

    /// Takes the registrations back and ends them all. Each has a few seconds for its farewell.
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn keep(
    client: Client,
    address: Address,
    driver: Driver,
    options: Options,
    metrics: Metrics,
    mut stopped: watch::Receiver<bool>,
) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut reported = String::new();
    loop {
        let pause = match Relay::start(&client, driver.clone(), options.clone(), metrics.clone()).await {
            Ok(relay) => {
                tracing::info!("relaying heals on {} to the driver at {address}", relay.address());
                let _ = stopped.wait_for(|stop| *stop).await;
                return relay.stop().await;
            }
            Err(error) => {
                let text = format!("{:#}", anyhow::Error::new(error));
                if text != reported {
                    tracing::warn!("heals cannot be relayed to the driver at {address}: {text}; retrying");
                    reported = text;
                }
                backoff.failed()
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

/// The port at this distance from this one. Any free port stays that.
fn behind(first: SocketAddr, number: usize) -> SocketAddr {
    let number = u16::try_from(number).unwrap_or(u16::MAX);
    let port = if first.port() == 0 { 0 } else { first.port().saturating_add(number) };
    SocketAddr::new(first.ip(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_driver_has_a_port_of_its_own() {
        let first: SocketAddr = "127.0.0.1:9070".parse().unwrap();
        assert_eq!([0, 1, 2].map(|number| behind(first, number).port()), [9070, 9071, 9072]);
        let any: SocketAddr = "[::]:0".parse().unwrap();
        assert_eq!([0, 7].map(|number| behind(any, number)), [any, any]);
    }
}
