//! The certificate the relay shows, and its renewal while connections stay.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use thiserror::Error;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};

use super::Certificate;

/// Why there is no certificate.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("the file {path} cannot be read; mount the relay's certificate there")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the file {path} holds no {what} in PEM form")]
    Parse { path: PathBuf, what: &'static str, source: pem::Error },
    #[error("the file {path} holds no certificate in PEM form")]
    Empty { path: PathBuf },
    #[error("the certificate {path} does not fit its key or cannot be used")]
    Unusable { path: PathBuf, source: rustls::Error },
    #[error("a certificate could not be made")]
    Make(#[from] rcgen::Error),
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
}

/// The certificate of the moment. Cloning shares it.
#[derive(Debug, Clone)]
pub(super) struct Certificates {
    current: Arc<RwLock<Arc<CertifiedKey>>>,
}

impl Certificates {
    pub(super) fn load(from: &Certificate) -> Result<Self, TlsError> {
        let key = match from {
            Certificate::Files { certificate, key } => Pem::read(certificate, key)?.certified()?,
            Certificate::SelfSigned => self_signed()?,
        };
        Ok(Self { current: Arc::new(RwLock::new(Arc::new(key))) })
    }

    pub(super) fn config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    /// Looks at the files now and then, for ever. What cannot be used leaves the old one in place.
    pub(super) async fn keep_fresh(self, from: Certificate, every: Duration) {
        let Certificate::Files { certificate, key } = from else { return };
        let mut seen = Pem::read(&certificate, &key).ok();
        let mut told = String::new();
        loop {
            tokio::time::sleep(every.max(Duration::from_millis(10))).await;
            let read = Pem::read(&certificate, &key);
            if read.as_ref().ok() == seen.as_ref() && read.is_ok() {
                continue;
            }
            let fresh = read.and_then(|pem| Ok((pem.certified()?, pem)));
            match fresh {
                Ok((fresh, pem)) => {
                    *self.current.write() = Arc::new(fresh);
                    seen = Some(pem);
                    told.clear();
                    tracing::info!(file = %certificate.display(), "the relay shows a renewed certificate");
                }
                // A half-written pair mends itself at the next look; one that stays broken is told once.
                Err(error) => {
                    let error = chain(&error);
                    if error != told {
                        tracing::warn!("the relay keeps its old certificate: {error}");
                        told = error;
                    }
                }
            }
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What the files hold. Never printed: one of them is a private key.
#[derive(PartialEq, Eq)]
struct Pem {
    path: PathBuf,
    key_path: PathBuf,
    certificates: Vec<u8>,
    key: Vec<u8>,
}

impl Pem {
    fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
        };
        Ok(Self {
            path: certificate.to_owned(),
            key_path: key.to_owned(),
            certificates: read(certificate)?,
            key: read(key)?,
        })
    }

    fn certified(&self) -> Result<CertifiedKey, TlsError> {
        let Self { path, key_path, certificates, key } = self;
        let no_certificate = |source| TlsError::Parse { path: path.clone(), what: "certificate", source };
        let chain = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<Vec<_>, _>>()
            .map_err(no_certificate)?;
        if chain.is_empty() {
            return Err(TlsError::Empty { path: path.clone() });
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| TlsError::Parse {
            path: key_path.clone(),
            what: "private key",
            source,
        })?;
        CertifiedKey::from_der(chain, key, &provider())
            .map_err(|source| TlsError::Unusable { path: path.clone(), source })
    }
}

fn self_signed() -> Result<CertifiedKey, TlsError> {
    let made = rcgen::generate_simple_self_signed(["volmedic-relay".to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
        .map_err(|why| rustls::Error::General(why.to_owned()))?;
    Ok(CertifiedKey::from_der(vec![made.cert.der().clone()], key, &provider())?)
}

/// An error with its causes, as one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
