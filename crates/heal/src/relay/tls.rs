//! The certificate that the relay shows. It makes one itself, in memory, and its registration names the SHA-256 of it. No
//! authority and no Secret is involved, so what is taken from one node proves nothing about another one.
//!
//! A new certificate has a new key. It is named in the registration for some time before it is shown, so that a healer that
//! follows registrations knows it by then.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use thiserror::Error;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ServerConfig};

use super::names::sha256_hex;

/// The name in every relay's certificate. It distinguishes nothing.
pub(crate) const HOST: &str = "volmedic-relay";
/// A healer whose clock is this much behind accepts a new certificate.
const SKEW: Duration = Duration::from_hours(24);
/// Before making a certificate is tried again.
const PAUSE: Duration = Duration::from_mins(10);

/// How long a certificate is used.
#[derive(Debug, Clone)]
pub struct Validity {
    /// For how long the healer accepts it.
    pub lifetime: Duration,
    /// Its age at which the next one is made.
    pub renewal: Duration,
    /// For how long the next one is named in the registration before it is shown.
    pub notice: Duration,
}

impl Default for Validity {
    /// For six days the API server may be unreachable, or refuse the registration, before the healer refuses the relay.
    fn default() -> Self {
        Self {
            lifetime: Duration::from_hours(7 * 24),
            renewal: Duration::from_hours(24),
            notice: Duration::from_mins(1),
        }
    }
}

/// Why there is no certificate.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("a certificate could not be made")]
    Make(#[from] rcgen::Error),
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
}

/// A certificate with its key.
#[derive(Debug, Clone)]
struct Made {
    key: Arc<CertifiedKey>,
    fingerprint: String,
}

/// The certificates of one relay.
#[derive(Debug)]
pub(super) struct Certificates {
    validity: Validity,
    shown: Shown,
    current: Made,
    /// To be shown after the current one.
    next: Option<Made>,
    /// Of the next step; `None` while the next certificate is not named in the registration yet.
    due: Option<Instant>,
}

impl Certificates {
    pub(super) fn make(validity: Validity) -> Result<Self, TlsError> {
        let current = Made::new(validity.lifetime)?;
        let shown = Shown(Arc::new(RwLock::new(current.key.clone())));
        let due = Some(Instant::now() + validity.renewal);
        Ok(Self { validity, shown, current, next: None, due })
    }

    pub(super) fn config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.shown.clone()));
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    /// What the registration names: the certificate that is shown, and the one that will be.
    pub(super) fn fingerprints(&self) -> String {
        let named = [Some(&self.current), self.next.as_ref()];
        named.into_iter().flatten().map(|made| made.fingerprint.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Returns when [`Self::step`] is due.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Makes the next certificate, or shows it. Without a registration no healer has to learn of it first.
    pub(super) fn step(&mut self, registered: bool) {
        if let Some(next) = self.next.take() {
            return self.show(next);
        }
        match Made::new(self.validity.lifetime) {
            Ok(next) if registered => (self.next, self.due) = (Some(next), None),
            Ok(next) => self.show(next),
            Err(error) => {
                tracing::warn!("the relay keeps its old certificate for now: {}", chain(&error));
                self.due = Some(Instant::now() + PAUSE);
            }
        }
    }

    /// The registration names what [`Self::fingerprints`] says.
    pub(super) fn named(&mut self) {
        if self.next.is_some() && self.due.is_none() {
            self.due = Some(Instant::now() + self.validity.notice);
        }
    }

    fn show(&mut self, made: Made) {
        tracing::info!(certificate = made.fingerprint, "the relay shows a new certificate");
        *self.shown.0.write() = made.key.clone();
        self.current = made;
        self.due = Some(Instant::now() + self.validity.renewal);
    }
}

/// The certificate of the moment. Cloning shares it.
#[derive(Debug, Clone)]
struct Shown(Arc<RwLock<Arc<CertifiedKey>>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

impl Made {
    fn new(lifetime: Duration) -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([HOST.to_owned()])?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(SKEW);
        params.not_after = date_time_ymd(1970, 1, 1) + now + lifetime;
        let certificate = params.self_signed(&key)?.der().clone();
        let fingerprint = fingerprint(&certificate);
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|why| rustls::Error::General(why.to_owned()))?;
        let key = Arc::new(CertifiedKey::from_der(vec![certificate], key, &provider())?);
        Ok(Self { key, fingerprint })
    }
}

/// What a registration names of a certificate.
pub(crate) fn fingerprint(certificate: &[u8]) -> String {
    format!("sha256:{}", sha256_hex(certificate))
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_next_certificate_is_named_for_a_while_before_it_is_shown() {
        let mut certificates = Certificates::make(Validity::default()).unwrap();
        let shown = |certificates: &Certificates| fingerprint(&certificates.shown.0.read().cert[0]);
        let first = certificates.fingerprints();
        assert_eq!(shown(&certificates), first);
        let begin = Instant::now();
        certificates.due().await;
        assert_eq!(begin.elapsed().as_secs(), 24 * 60 * 60);
        certificates.step(true);
        let both = certificates.fingerprints();
        let second = both.strip_prefix(&format!("{first},")).unwrap().to_owned();
        // However long it takes until the registration has both, the first one is shown.
        assert!(tokio::time::timeout(Duration::from_hours(48), certificates.due()).await.is_err());
        assert_eq!(shown(&certificates), first);
        let named = Instant::now();
        certificates.named();
        certificates.named();
        certificates.due().await;
        assert_eq!(named.elapsed().as_secs(), 60);
        certificates.step(true);
        assert_eq!((certificates.fingerprints(), shown(&certificates)), (second.clone(), second.clone()));
        // Without a registration there is no healer that knows the old one.
        certificates.due().await;
        certificates.step(false);
        assert_eq!(certificates.fingerprints(), shown(&certificates));
        assert_ne!(shown(&certificates), second);
    }
}
