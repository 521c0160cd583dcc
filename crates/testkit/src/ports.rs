//! Free ports on loopback.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::time::SystemTime;

use anyhow::{Result, bail};

/// Picks `N` different ports that nobody listens on.
///
/// Never from the range out of which the kernel gives ports to outgoing connections: a port has to be free again
/// when a stopped API server comes back to it a minute later. Somebody else may take one before it is used, so
/// the starter of a program on it tries again with others.
pub(crate) fn free<const N: usize>() -> Result<[u16; N]> {
    let range = outside(&fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default());
    let mut ports = [0; N];
    let mut found = 0;
    let offset = scatter() % range.len();
    for port in range.clone().skip(offset).chain(range.clone().take(offset)) {
        if found == N {
            break;
        }
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            ports[found] = port;
            found += 1;
        }
    }
    if found < N {
        bail!(
            "no free port on 127.0.0.1 between {} and {}; close some listeners",
            range.start,
            range.end - 1
        );
    }
    Ok(ports)
}

/// The larger of the two ranges below and above the kernel's own, without the privileged ports.
fn outside(kernel: &str) -> Range<u16> {
    const LOWEST: u16 = 10_000;
    let mut bounds = kernel.split_whitespace().filter_map(|word| word.parse::<u16>().ok());
    let (first, last) = (bounds.next().unwrap_or(32_768), bounds.next().unwrap_or(60_999));
    let (below, above) = (LOWEST..first, last.saturating_add(1)..u16::MAX);
    let wider = if below.len() >= above.len() { below } else { above };
    // A kernel that hands out everything leaves nothing better than everything.
    if wider.len() < 1_000 { LOWEST..u16::MAX } else { wider }
}

/// Where to begin, so that test programs that start together rarely pick the same.
fn scatter() -> usize {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mixed = u64::from(now.subsec_nanos()) ^ (u64::from(std::process::id()) << 20);
    usize::try_from(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_different_free_and_not_the_kernels() {
        // Others pick ports at the same time, and may have taken one in between.
        let hold = || {
            let ports = free::<4>().unwrap();
            let held = ports.map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
            held.iter().all(Result::is_ok).then_some((ports, held))
        };
        let (ports, _held) = (0..10).find_map(|_| hold()).expect("ten times a port was taken");
        assert!(free::<4>().unwrap().iter().all(|port| !ports.contains(port)), "a held port was given again");
    }

    #[test]
    fn the_wider_side_of_the_kernels_range_is_taken() {
        for (kernel, expected) in [
            ("32768\t60999\n", 10_000..32_768),
            ("15000 40000", 40_001..u16::MAX),
            ("1024 65535", 10_000..u16::MAX),
            ("", 10_000..32_768),
        ] {
            assert_eq!(outside(kernel), expected, "{kernel:?}");
        }
    }
}
