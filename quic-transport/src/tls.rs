//! TLS 1.3 with certificates on both sides, one cipher suite, one ALPN.
//!
//! The chain is verified to the cluster's authority by webpki; host names mean nothing here, instead the certificate's
//! `weir://` name is checked: a client wants exactly the identity that it set out to reach, a server wants any
//! identity of its own cluster (what each role may do is the [`Router`](crate::Router)'s matter).

use crate::identity::Identity;
use crate::pki::{Credentials, PkiError};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;

/// The protocol's name in the handshake. A change that breaks the envelope gets another.
pub const ALPN: &[u8] = b"weir/1";

/// Certificates cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate or key cannot be read.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The TLS library refuses certificate, key or authority.
    #[error("certificates cannot be used: {0}")]
    Refused(String),
}

/// What both directions of an endpoint need, prepared once.
#[derive(Clone)]
pub(crate) struct Tls {
    credentials: Credentials,
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
}

impl Tls {
    pub(crate) fn new(credentials: Credentials) -> Result<Self, TlsError> {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
        let mut roots = RootCertStore::empty();
        for authority in credentials.authorities()? {
            roots.add(authority).map_err(|e| TlsError::Refused(e.to_string()))?;
        }
        Ok(Self { credentials, provider: Arc::new(provider), roots: Arc::new(roots) })
    }

    /// For accepting: any identity of our own cluster.
    pub(crate) fn server(&self) -> Result<QuicServerConfig, TlsError> {
        let refused = |e: &dyn std::fmt::Display| TlsError::Refused(e.to_string());
        let chain =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), Arc::clone(&self.provider))
                .build()
                .map_err(|e| refused(&e))?;
        let verifier = MemberVerifier { chain, cluster_id: self.credentials.identity().cluster_id().into() };
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| refused(&e))?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_single_cert(self.credentials.chain()?, self.credentials.key()?)
            .map_err(|e| refused(&e))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.max_early_data_size = 0;
        // Full handshakes only: a resumed one would skip the look at certificates.
        config.send_tls13_tickets = 0;
        QuicServerConfig::try_from(config).map_err(|e| refused(&e))
    }

    /// For connecting to `expected` and nobody else.
    pub(crate) fn client(&self, expected: Identity) -> Result<QuicClientConfig, TlsError> {
        let refused = |e: &dyn std::fmt::Display| TlsError::Refused(e.to_string());
        let verifier = ExactVerifier {
            roots: Arc::clone(&self.roots),
            algorithms: self.provider.signature_verification_algorithms,
            expected,
        };
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| refused(&e))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(self.credentials.chain()?, self.credentials.key()?)
            .map_err(|e| refused(&e))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.enable_early_data = false;
        config.enable_sni = false;
        config.resumption = rustls::client::Resumption::disabled();
        QuicClientConfig::try_from(config).map_err(|e| refused(&e))
    }
}

fn identity_of(certificate: &CertificateDer<'_>) -> Result<Identity, Error> {
    Identity::from_certificate(certificate).map_err(|e| Error::General(e.to_string()))
}

fn no_tls12() -> Error {
    Error::General("TLS 1.2 is not spoken here".to_owned())
}

/// A client's look at a server: chain, then exactly the expected name.
#[derive(Debug)]
struct ExactVerifier {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    expected: Identity,
}

impl ServerCertVerifier for ExactVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        let presented = identity_of(end_entity)?;
        if presented == self.expected {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::General(format!("the peer is {presented}, expected {}", self.expected)))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A server's look at a client: chain, then a well-formed name of the same cluster.
#[derive(Debug)]
struct MemberVerifier {
    chain: Arc<dyn ClientCertVerifier>,
    cluster_id: Arc<str>,
}

impl ClientCertVerifier for MemberVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        if identity_of(end_entity)?.cluster_id() == &*self.cluster_id {
            Ok(verified)
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
