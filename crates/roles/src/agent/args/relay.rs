//! The flags of the relays.

use std::net::SocketAddr;
use std::time::Duration;

use volmedic_csi::Address;
use volmedic_heal::relay::Access;

use volmedic_runtime::flags::{listen, positive};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Healing")]
#[allow(clippy::struct_field_names, reason = "the fields are the flags, and these begin alike")]
pub(super) struct RelayArgs {
    /// csi-addons socket of a driver: a path, or unix:///path. The driver is registered as one through which the healer in
    /// the hub can heal volumes on this node. May be given several times, once for each driver.
    #[arg(long, requires = "pod_name", value_name = "SOCKET")]
    addons_address: Vec<Address>,
    /// Name of the pod this agent runs in, by which the healer finds it.
    #[arg(long, env = "POD_NAME", value_parser = pod_name, value_name = "NAME")]
    pod_name: Option<String>,
    /// Address on which the healer reaches the first driver's relay; further drivers get the ports that follow.
    #[arg(long, default_value = ":9070", value_parser = listen, value_name = "ADDRESS")]
    relay_endpoint: SocketAddr,
    /// Audience of the tokens that are accepted; their owner must be allowed to `heal` the CSIAddonsNode. Default:
    /// volmedic-relay/NODE, so that a token for this node's relays is of no use at others.
    #[arg(long, value_parser = audience, value_name = "NAME")]
    relay_audience: Option<String>,
    /// Accept any token that the API server accepts, as csi-addons does. Only where a csi-addons manager must work with this
    /// relay.
    #[arg(long, conflicts_with = "relay_audience")]
    relay_csi_addons: bool,
    /// Deadline of a driver to heal one volume.
    #[arg(long, default_value = "2m", value_parser = positive, value_name = "DURATION")]
    relay_timeout: Duration,
}

/// What relays run with.
#[derive(Debug, Clone)]
pub(crate) struct Relaying {
    pub(crate) addresses: Vec<Address>,
    pub(crate) pod: String,
    pub(crate) listen: SocketAddr,
    /// As given; by default callers are checked, with the audience of the node.
    pub(crate) access: Option<Access>,
    pub(crate) deadline: Duration,
}

impl RelayArgs {
    /// `None` if nothing is to be relayed.
    pub(super) fn resolve(self) -> Option<Relaying> {
        let Self {
            mut addons_address,
            pod_name,
            relay_endpoint,
            relay_audience,
            relay_csi_addons,
            relay_timeout,
        } = self;
        let mut seen = Vec::new();
        addons_address.retain(|address| {
            let new = !seen.contains(address);
            seen.push(address.clone());
            new
        });
        let access = match (relay_csi_addons, relay_audience) {
            (true, _) => Some(Access::CsiAddons),
            (false, audience) => audience.map(|audience| Access::Checked { audience }),
        };
        (!addons_address.is_empty()).then(|| Relaying {
            addresses: addons_address,
            pod: pod_name.unwrap_or_default(),
            listen: relay_endpoint,
            access,
            deadline: relay_timeout,
        })
    }
}

fn audience(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("it must have a name".to_owned()) } else { Ok(text.to_owned()) }
}

/// It becomes part of an endpoint and of a path to the API server.
fn pod_name(text: &str) -> Result<String, String> {
    super::node_name(text).map_err(|_| "a pod's name has lower case letters, digits, - and . only".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: RelayArgs,
    }

    fn parse(line: &str) -> Result<Option<Relaying>, String> {
        let words = std::iter::once("agent").chain(line.split_whitespace());
        Only::try_parse_from(words).map(|only| only.args.resolve()).map_err(|error| error.to_string())
    }

    const CHECKED: &str = "--addons-address=/a.sock --pod-name=agent-x";

    #[test]
    fn nothing_is_relayed_unless_a_socket_is_given() {
        assert!(parse("").unwrap().is_none());
        assert!(parse("--pod-name=agent-x --relay-endpoint=:1").unwrap().is_none());
    }

    #[test]
    fn callers_are_checked_unless_it_is_said_otherwise_by_name() {
        let relaying = parse(CHECKED).unwrap().unwrap();
        assert_eq!(relaying.access, None, "the audience of the node");
        assert_eq!((relaying.listen.port(), relaying.pod.as_str()), (9070, "agent-x"));
        let other = parse(&format!("{CHECKED} --relay-audience=mine")).unwrap().unwrap();
        assert_eq!(other.access, Some(Access::Checked { audience: "mine".into() }));
        let open = parse("--addons-address=/a.sock --pod-name=p --relay-csi-addons").unwrap().unwrap();
        assert_eq!(open.access, Some(Access::CsiAddons));
    }

    #[test]
    fn the_same_socket_twice_is_one() {
        let line = format!("{CHECKED} --addons-address=unix:///a.sock --addons-address=/b.sock");
        assert_eq!(parse(&line).unwrap().unwrap().addresses.len(), 2);
    }

    #[test]
    fn bad_input_gets_a_sentence() {
        let check = |line: &str, expected: &str| {
            let error = parse(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        };
        check("--addons-address=/a.sock --relay-csi-addons", "--pod-name");
        check(&format!("{CHECKED} --relay-csi-addons --relay-audience=x"), "cannot be used with");
        check(&format!("{CHECKED} --relay-audience="), "it must have a name");
        check("--addons-address=tcp://10.0.0.1:1 --pod-name=p --relay-csi-addons", "tcp");
        check("--pod-name=A/b", "a pod's name has lower case letters");
    }
}
