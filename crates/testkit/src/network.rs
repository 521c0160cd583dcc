//! The addresses of one cluster. Pods and the kubelet need some that are not 127.x: they are put on `lo`, so they
//! lead nowhere but here.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::{self, Finished};

const TOOL_LIMIT: Duration = Duration::from_secs(20);

/// Four neighbouring /24 blocks: services, the node, pods, and one to spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    second: u8,
    third: u8,
}

impl Network {
    /// For a control plane without a node: nobody ever uses an address of it.
    pub(crate) const UNUSED: Self = Self { second: 96, third: 0 };

    pub(crate) fn services(self) -> String {
        format!("{}/24", self.address(0, 0))
    }

    /// Where pods find the API server: the first address of the services.
    pub(crate) fn api_service(self) -> Ipv4Addr {
        self.address(0, 1)
    }

    pub(crate) fn node(self) -> Ipv4Addr {
        self.address(1, 1)
    }

    pub(crate) fn pods(self) -> String {
        format!("{}/24", self.address(2, 0))
    }

    fn address(self, block: u8, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.second, self.third | block, host)
    }

    /// Takes addresses that nobody on this machine has, under a label that says whose they are.
    pub(crate) fn claim(home: &Path) -> Result<Self> {
        let taken = taken()?;
        let candidates =
            (200..=250).flat_map(|second| (0..=252).step_by(4).map(move |third| Self { second, third }));
        for network in candidates.filter(|network| !taken.iter().any(|range| network.overlaps(*range))) {
            // Adding is atomic: of two clusters that start together one gets the error that it is there already.
            if add(network.api_service(), home)? {
                if !add(network.node(), home)? {
                    bail!("{} is taken although nothing showed it; try again", network.node());
                }
                return Ok(network);
            }
        }
        bail!("no free addresses between 10.200.0.0 and 10.250.255.255; this machine's routes cover them all")
    }

    fn overlaps(self, (start, length): (Ipv4Addr, u8)) -> bool {
        let shift = 32 - u32::from(length.min(22));
        let block = |address: Ipv4Addr| address.to_bits().checked_shr(shift).unwrap_or(0);
        block(start) == block(self.address(0, 0))
    }
}

/// Puts an address on `lo`; `false` when it is there already.
fn add(address: Ipv4Addr, home: &Path) -> Result<bool> {
    let said = ip(&["addr", "add", &format!("{address}/32"), "dev", "lo", "label", &label(home)])?;
    if !said.success && said.stderr.contains("exists") {
        return Ok(false);
    }
    said.or_fail(&format!("adding {address} to lo (which takes root)"))?;
    Ok(true)
}

/// Removes whatever addresses carry the label of the cluster in `home`.
pub(crate) fn release(home: &Path) -> Result<()> {
    let label = label(home);
    // Without `ip` nothing was added either.
    let Ok(links) = addresses() else { return Ok(()) };
    for address in links.into_iter().flat_map(|link| link.addresses).filter(|one| one.label == label) {
        let what = format!("{}/{}", address.local, address.length);
        ip(&["addr", "del", &what, "dev", "lo"])?.or_fail(&format!("removing {what} from lo"))?;
    }
    Ok(())
}

/// An interface label has at most 15 letters and begins with the interface's name.
fn label(home: &Path) -> String {
    format!("lo:vm{}", crate::short_id(home))
}

#[derive(Deserialize)]
struct Link {
    #[serde(default, rename = "addr_info")]
    addresses: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    local: Ipv4Addr,
    #[serde(rename = "prefixlen")]
    length: u8,
    #[serde(default)]
    label: String,
}

fn addresses() -> Result<Vec<Link>> {
    let text = ip(&["-json", "-4", "addr"])?.or_fail("`ip addr`")?;
    serde_json::from_str(&text).context("`ip -json addr` said something unexpected")
}

/// Every range that has a route or an address. Wide ones do not count: ours win over them, being narrower.
fn taken() -> Result<Vec<(Ipv4Addr, u8)>> {
    #[derive(Deserialize)]
    struct Route {
        dst: String,
    }
    let text = ip(&["-json", "-4", "route", "show", "table", "all"])?.or_fail("`ip route`")?;
    let routes: Vec<Route> =
        serde_json::from_str(&text).context("`ip -json route` said something unexpected")?;
    let mut ranges: Vec<(Ipv4Addr, u8)> = routes.iter().filter_map(|route| range(&route.dst)).collect();
    ranges
        .extend(addresses()?.into_iter().flat_map(|link| link.addresses).map(|one| (one.local, one.length)));
    ranges.retain(|(_, length)| *length >= 14);
    Ok(ranges)
}

fn range(text: &str) -> Option<(Ipv4Addr, u8)> {
    match text.split_once('/') {
        Some((start, length)) => Some((start.parse().ok()?, length.parse().ok()?)),
        None => Some((text.parse().ok()?, 32)),
    }
}

fn ip(arguments: &[&str]) -> Result<Finished> {
    let mut command = Command::new("ip");
    command.args(arguments);
    process::run(command, TOOL_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_keeps_away_from_what_others_route() {
        let network = Network { second: 200, third: 8 };
        assert_eq!(network.services(), "10.200.8.0/24");
        assert_eq!(network.api_service().to_string(), "10.200.8.1");
        assert_eq!(network.node().to_string(), "10.200.9.1");
        assert_eq!(network.pods(), "10.200.10.0/24");
        for (text, overlaps) in [
            ("10.200.0.0/16", true),
            ("10.200.11.7", true),
            ("10.200.8.0/22", true),
            ("10.200.12.0/24", false),
            ("10.200.4.0/22", false),
            ("192.168.0.0/24", false),
        ] {
            assert_eq!(network.overlaps(range(text).unwrap()), overlaps, "{text}");
        }
        assert_eq!(range("default"), None);
    }

    #[test]
    fn a_label_fits_the_kernel() {
        assert!(label(Path::new("/some/where")).len() <= 15);
        assert_ne!(label(Path::new("/some/where")), label(Path::new("/else/where")));
    }
}
