//! Which certificate of a relay is accepted: exactly those that its registration names. In the scheme of csi-addons any one
//! is, for relays that the operator named.

use std::sync::Arc;

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DEFAULT_VERSIONS, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use crate::relay::{fingerprint, provider};

/// In each case the peer must hold the certificate's key.
#[derive(Debug)]
struct Named {
    provider: Arc<CryptoProvider>,
    /// By their fingerprints; without any, every certificate is accepted.
    certificates: Option<Arc<[Box<str>]>>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(named) = &self.certificates else { return Ok(ServerCertVerified::assertion()) };
        let shown = fingerprint(certificate);
        if !named.iter().any(|named| **named == *shown) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        // It stands for itself, but not after its end.
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(roots.into(), self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_server_cert(certificate, &[], name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts these certificates, or any one. Relays of csi-addons may be older than TLS 1.3.
pub(super) fn config(certificates: Option<Arc<[Box<str>]>>) -> Result<ClientConfig, Error> {
    let versions = if certificates.is_some() { &[&TLS13][..] } else { DEFAULT_VERSIONS };
    let provider = provider();
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Named { provider, certificates }))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
