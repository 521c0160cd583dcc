//! The certificate of a listener, read again when its files change.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};

/// Certificate and key, read again when their files change.
pub struct Tls {
    /// None: made by this process.
    files: Option<(Box<Path>, Box<Path>)>,
    changed: Option<SystemTime>,
    acceptor: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    pub fn load(cert: &Path, key: &Path) -> anyhow::Result<Self> {
        let acceptor = read(cert, key)?;
        Ok(Self { files: Some((cert.into(), key.into())), changed: modified(cert), acceptor })
    }

    /// A certificate that nobody else signed, with a key that is in memory only. It hides what is sent from those who only
    /// listen.
    pub fn self_signed(host: &str) -> anyhow::Result<Self> {
        let made = rcgen::generate_simple_self_signed([host.to_owned()])
            .with_context(|| format!("cannot make a certificate for {host}"))?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = config(vec![made.cert.der().clone()], key.into())
            .with_context(|| format!("cannot use the certificate made for {host}"))?;
        Ok(Self { files: None, changed: None, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    pub(crate) fn current(&mut self) -> TlsAcceptor {
        let Some((cert, key)) = &self.files else { return self.acceptor.clone() };
        let changed = modified(cert);
        if changed != self.changed {
            match read(cert, key) {
                Ok(acceptor) => {
                    tracing::info!("the certificate was replaced");
                    (self.acceptor, self.changed) = (acceptor, changed);
                }
                Err(error) => tracing::warn!("the old certificate stays in use: {error:#}"),
            }
        }
        self.acceptor.clone()
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|data| data.modified()).ok()
}

fn read(cert: &Path, key: &Path) -> anyhow::Result<TlsAcceptor> {
    let certs = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read the certificate {}", cert.display()))?;
    let private = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read the key {}", key.display()))?;
    let config = config(certs, private)
        .with_context(|| format!("{} and {} do not fit together", cert.display(), key.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn config(certs: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<ServerConfig, Error> {
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certs, key)
}
