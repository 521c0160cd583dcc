//! How values on the command line are read, alike in every role.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use kube::core::Duration as GoDuration;

pub fn duration(text: &str) -> Result<Duration, String> {
    let hint = "use Go's way, as in 90s, 1m30s or 2h";
    let parsed: GoDuration = text.parse().map_err(|error| format!("{error}; {hint}"))?;
    if parsed.is_negative() { Err(format!("{text} is negative; {hint}")) } else { Ok(parsed.into()) }
}

pub fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        none if none.is_zero() => Err("it must be greater than zero".to_owned()),
        some => Ok(some),
    }
}

pub fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("it must be a number above 0".to_owned()),
    }
}

/// Go's way of naming where to listen: the host may be left out.
pub fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port));
    }
    let local = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address = local.as_deref().unwrap_or(text);
    address.parse().map_err(|_| format!("{text:?} is no address; use :8080 or 127.0.0.1:8080"))
}

pub fn http_path(text: &str) -> Result<String, String> {
    if text.starts_with('/') && !text.contains(['{', '}', '*', ' ']) {
        Ok(text.to_owned())
    } else {
        Err("it must be a plain path that begins with /".to_owned())
    }
}
