//! How are signatures of handshakes checked? By what the provider of TLS knows, whoever's certificate it is.

/// The methods of a verifier of certificates that have to do with signatures, for one that has its provider in the
/// field that is named.
macro_rules! check_signatures {
    ($provider:tt) => {
        check_signatures! { $provider verify_tls12_signature }
        check_signatures! { $provider verify_tls13_signature }

        fn supported_verify_schemes(&self) -> Vec<tokio_rustls::rustls::SignatureScheme> {
            self.$provider.signature_verification_algorithms.supported_schemes()
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
            tokio_rustls::rustls::crypto::$verify(message, certificate, signed, algorithms)
        }
    };
}

pub(crate) use check_signatures;
