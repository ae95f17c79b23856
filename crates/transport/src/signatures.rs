//! Verification of handshake signatures with the TLS provider, for certificates of any issuer.

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{self, WebPkiSupportedAlgorithms};
use tokio_rustls::rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, Error};
use webpki::RawPublicKeyEntity;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

/// The methods of a verifier of certificates that have to do with signatures, for one that has its provider in the
/// field that is named.
#[macro_export]
macro_rules! check_signatures {
    ($provider:tt) => {
        $crate::check_signatures! { $provider verify_tls12_signature }
        $crate::check_signatures! { $provider verify_tls13_signature }

        fn supported_verify_schemes(&self) -> Vec<tokio_rustls::rustls::SignatureScheme> {
            self.$provider
                .signature_verification_algorithms
                .supported_schemes()
        }
    };
    ($provider:tt $verify:ident) => {
        fn $verify(
            &self,
            message: &[u8],
            certificate: &tokio_rustls::rustls::pki_types::CertificateDer<'_>,
            signed: &tokio_rustls::rustls::DigitallySignedStruct,
        ) -> Result<
            tokio_rustls::rustls::client::danger::HandshakeSignatureValid,
            tokio_rustls::rustls::Error,
        > {
            let algorithms = &self.$provider.signature_verification_algorithms;
            $crate::signatures::$verify(message, certificate, signed, algorithms)
        }
    };
}

/// Whether the key of a certificate signed a message of TLS 1.2.
pub fn verify_tls12_signature(
    message: &[u8],
    certificate: &CertificateDer,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let Some(key) = key_of_first_version(certificate) else {
        return crypto::verify_tls12_signature(message, certificate, signed, algorithms);
    };
    let key = RawPublicKeyEntity::try_from(&key).map_err(|_| CertificateError::BadEncoding)?;
    let fitting = algorithms
        .mapping
        .iter()
        .filter(|(scheme, _)| *scheme == signed.scheme);
    let is_good = fitting
        .flat_map(|(_, algorithms)| *algorithms)
        .any(|algorithm| {
            key.verify_signature(*algorithm, message, signed.signature())
                .is_ok()
        });
    if is_good {
        Ok(HandshakeSignatureValid::assertion())
    } else {
        Err(CertificateError::BadSignature.into())
    }
}

/// The same of TLS 1.3.
pub fn verify_tls13_signature(
    message: &[u8],
    certificate: &CertificateDer,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    match key_of_first_version(certificate) {
        Some(key) => crypto::verify_tls13_signature_with_raw_key(message, &key, signed, algorithms),
        None => crypto::verify_tls13_signature(message, certificate, signed, algorithms),
    }
}

/// The key of a certificate of version 1, which the library does not read, and which `openssl x509 -req` makes where
/// no extensions are requested.
fn key_of_first_version(certificate: &[u8]) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    (parsed.version() == X509Version::V1).then(|| parsed.public_key().raw.to_vec().into())
}
