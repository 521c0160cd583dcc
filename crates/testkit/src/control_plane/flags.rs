//! Certificates, arguments and kubeconfigs of the control plane's programs.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use super::Options;
use crate::cache;
use crate::home::Home;
use crate::network::Network;
use crate::part::Part;
use crate::pki::Pki;

const ISSUER: &str = "https://kubernetes.default.svc";

pub(super) fn certify(pki: &Pki, network: Network) -> Result<()> {
    let (service, node) = (network.api_service().to_string(), network.node().to_string());
    let hosts =
        ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", &service];
    pki.server("apiserver", &hosts)?;
    pki.server("etcd", &["127.0.0.1", "localhost"])?;
    pki.client("etcd-client", "kube-apiserver", None)?;
    pki.client("kubelet-client", "kube-apiserver-kubelet-client", Some("system:masters"))?;
    pki.client("admin", "volmedic-admin", Some("system:masters"))?;
    // The rest is for whole clusters. A certificate costs a millisecond.
    pki.server("local", &["127.0.0.1", "localhost"])?;
    pki.server("kubelet", &[&node])?;
    pki.client("node", &format!("system:node:{}", crate::NODE), Some("system:nodes"))?;
    for part in [Part::ControllerManager, Part::Scheduler] {
        pki.client(part.name(), &format!("system:{part}"), None)?;
    }
    Ok(())
}

pub(super) fn etcd(home: &Home, clients: u16, peers: u16) -> Vec<String> {
    let file = |name: &str| home.pki().join(name).display().to_string();
    let (client, peer) = (format!("https://127.0.0.1:{clients}"), format!("https://127.0.0.1:{peers}"));
    vec![
        "--name=only".into(),
        format!("--data-dir={}", home.path().join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=only={peer}"),
        format!("--trusted-ca-file={}", file("ca.crt")),
        format!("--cert-file={}", file("etcd.crt")),
        format!("--key-file={}", file("etcd.key")),
        "--client-cert-auth".into(),
        format!("--peer-trusted-ca-file={}", file("ca.crt")),
        format!("--peer-cert-file={}", file("etcd.crt")),
        format!("--peer-key-file={}", file("etcd.key")),
        "--peer-client-cert-auth".into(),
        // Nothing in here has to survive a power cut, and a disk that is slow to sync would slow every write.
        "--unsafe-no-fsync".into(),
        format!("--quota-backend-bytes={}", 4_u64 << 30),
        "--log-level=warn".into(),
    ]
}

pub(super) fn apiserver(home: &Home, options: &Options, etcd: u16, port: u16) -> Vec<String> {
    let file = |name: &str| home.pki().join(name).display().to_string();
    let gates: Vec<String> = options.gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
    let mut arguments = vec![
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        // The addresses of pods' own view of the API server are fixed; nobody needs to publish them.
        "--endpoint-reconciler-type=none".into(),
        format!("--advertise-address={}", options.network.node()),
        format!("--service-cluster-ip-range={}", options.network.services()),
        format!("--etcd-servers=https://127.0.0.1:{etcd}"),
        format!("--etcd-cafile={}", file("ca.crt")),
        format!("--etcd-certfile={}", file("etcd-client.crt")),
        format!("--etcd-keyfile={}", file("etcd-client.key")),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".into(),
        format!("--service-account-issuer={ISSUER}"),
        format!("--service-account-signing-key-file={}", file("tokens.key")),
        format!("--service-account-key-file={}", file("tokens.pub")),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged=true".into(),
        "--profiling=false".into(),
    ];
    if !gates.is_empty() {
        arguments.push(format!("--feature-gates={}", gates.join(",")));
    }
    arguments.extend(options.apiserver_arguments.iter().cloned());
    arguments
}

/// Writes a kubeconfig for the holder of the certificate `name`. It is JSON, which is YAML too.
pub(crate) fn write_kubeconfig(path: &Path, pki: &Path, name: &str, port: u16) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "volmedic", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": pki.join("ca.crt"),
        }}],
        "users": [{"name": name, "user": {
            "client-certificate": pki.join(format!("{name}.crt")),
            "client-key": pki.join(format!("{name}.key")),
        }}],
        "contexts": [{"name": "volmedic", "context": {"cluster": "volmedic", "user": name}}],
        "current-context": "volmedic",
    });
    let text = serde_json::to_vec_pretty(&config).context("cannot write a kubeconfig")?;
    cache::write_whole(path, &text)
}
