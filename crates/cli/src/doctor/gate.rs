//! Whether the API server stores what drivers report in claims, as far as it lets us know.

use std::time::Duration;

use kube::Client;
use kube::client::Body;
use tokio::time::timeout;

use crate::look::Version;

/// The gate that `pvc.status.healthStatus` and its like are behind.
pub(super) const GATE: &str = "CSIVolumeHealth";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    On,
    Off,
    /// The release has no such field.
    Absent,
    /// The server's metrics cannot be read.
    Hidden,
}

/// The first release with the field. Earlier ones have a gate of that name too, which is about the kubelet only.
const SINCE: (u32, u32) = (1, 37);

/// Reads the server's own metrics, which have every gate.
pub(super) async fn look(client: &Client, version: Option<&Version>, deadline: Duration) -> Gate {
    if version.is_some_and(|version| version.number < SINCE) {
        return Gate::Absent;
    }
    let Ok(request) = http::Request::get("/metrics").body(Body::empty()) else { return Gate::Hidden };
    let text = timeout(deadline, async {
        let answer = client.send(request).await.ok()?;
        let answered = answer.status().is_success();
        let bytes = answer.into_body().collect_bytes().await.ok()?;
        answered.then(|| String::from_utf8_lossy(&bytes).into_owned())
    });
    match text.await {
        Ok(Some(text)) => read(&text),
        _ => Gate::Hidden,
    }
}

fn read(metrics: &str) -> Gate {
    let mut gates = metrics.lines().filter(|line| line.starts_with("kubernetes_feature_enabled{")).peekable();
    if gates.peek().is_none() {
        return Gate::Hidden;
    }
    let name = format!("name=\"{GATE}\"");
    match gates.find(|line| line.contains(&name)) {
        Some(line) if line.trim_end().ends_with(" 1") => Gate::On,
        Some(_) => Gate::Off,
        None => Gate::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_as_the_server_reports_them() {
        let of = |text: &str| read(text);
        assert_eq!(of("kubernetes_feature_enabled{name=\"CSIVolumeHealth\",stage=\"ALPHA\"} 1\n"), Gate::On);
        assert_eq!(of("kubernetes_feature_enabled{name=\"CSIVolumeHealth\",stage=\"ALPHA\"} 0\n"), Gate::Off);
        assert_eq!(of("kubernetes_feature_enabled{name=\"Other\",stage=\"\"} 1\n"), Gate::Absent);
        assert_eq!(of("up 1\n"), Gate::Hidden);
    }
}
