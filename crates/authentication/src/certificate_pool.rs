//! A pool of certificate authorities that verifies client certificates (Go's `x509.CertPool`).
//!
//! The library parses certificates of version 3. One of version 1 has no extensions, so that it is
//! valid for every usage but is no authority; it is accepted if an authority of the pool has signed
//! it.

use std::ops::Range;
use std::time::Duration;

use mizzen_transport::ClientPurpose;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, SubjectPublicKeyInfoDer, TrustAnchor, UnixTime,
};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, RawPublicKeyEntity, anchor_from_trusted_cert};
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

/// Certificate authorities.
#[derive(Default)]
pub(super) struct CertificatePool(Vec<CertificateAuthority>);

/// An authority and its validity, both ends inclusive, in Unix seconds.
struct CertificateAuthority {
    anchor: TrustAnchor<'static>,
    name: Vec<u8>,
    key: SubjectPublicKeyInfoDer<'static>,
    from: i64,
    until: i64,
}

impl CertificatePool {
    /// Reads PEM. Invalid certificates are skipped.
    pub(super) fn from_pem(pem: &str) -> CertificatePool {
        let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
        CertificatePool(
            certificates
                .filter_map(|certificate| CertificateAuthority::from_certificate(&certificate))
                .collect(),
        )
    }

    /// The subjects, each the content of its SEQUENCE.
    pub(super) fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|root| root.anchor.subject.as_ref())
    }

    /// Whether the first certificate of a chain is valid at `now`. The rest of the chain are
    /// intermediates.
    pub(super) fn verifies(&self, chain: &[CertificateDer], now: i64) -> bool {
        let Some((leaf, between)) = chain.split_first() else {
            return false;
        };
        let mut alive = self
            .0
            .iter()
            .filter(|root| (root.from..=root.until).contains(&now));
        let Ok(leaf) = EndEntityCert::try_from(leaf) else {
            return alive.any(|root| root.signed_version_1(leaf, now));
        };
        let anchors: Vec<TrustAnchor> = alive.map(|root| root.anchor.clone()).collect();
        let now =
            UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).unwrap_or_default()));
        leaf.verify_for_usage(
            ALL_VERIFICATION_ALGS,
            &anchors,
            between,
            now,
            ClientPurpose,
            None,
            None,
        )
        .is_ok()
    }
}

impl CertificatePool {
    pub(super) fn validities(&self) -> impl Iterator<Item = Range<i64>> {
        self.0.iter().map(|root| root.from..root.until + 1)
    }
}

/// The validity of a certificate, in Unix seconds; none if it cannot be parsed.
pub(super) fn validity(certificate: &[u8]) -> Option<Range<i64>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let validity = parsed.validity();
    Some(validity.not_before.timestamp()..validity.not_after.timestamp() + 1)
}

impl CertificateAuthority {
    fn from_certificate(certificate: &CertificateDer) -> Option<CertificateAuthority> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let (from, until) = (parsed.validity().not_before, parsed.validity().not_after);
        let anchor = anchor_from_trusted_cert(certificate).ok()?.to_owned();
        let (name, key) = (
            parsed.subject().as_raw().to_vec(),
            parsed.public_key().raw.to_vec().into(),
        );
        Some(CertificateAuthority {
            anchor,
            name,
            key,
            from: from.timestamp(),
            until: until.timestamp(),
        })
    }

    /// Whether it has signed a certificate of version 1 that is valid now.
    fn signed_version_1(&self, certificate: &[u8], now: i64) -> bool {
        let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
            return false;
        };
        let Ok(key) = RawPublicKeyEntity::try_from(&self.key) else {
            return false;
        };
        let (message, signature) = (
            parsed.tbs_certificate.as_ref(),
            &parsed.signature_value.data,
        );
        let (from, until) = (parsed.validity().not_before, parsed.validity().not_after);
        parsed.version() == X509Version::V1
            && (from.timestamp()..=until.timestamp()).contains(&now)
            && parsed.issuer().as_raw() == self.name
            && ALL_VERIFICATION_ALGS
                .iter()
                .any(|it| key.verify_signature(*it, message, signature).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use rcgen::ExtendedKeyUsagePurpose::{self, Any, ClientAuth, ServerAuth};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

    use super::*;

    /// 1 January 2030.
    const NOW: i64 = 1_893_456_000;

    fn params(from: i32, until: i32) -> CertificateParams {
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) =
            (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
        params
    }

    #[track_caller]
    fn check(
        authority: (i32, i32),
        own: (i32, i32),
        purposes: &[ExtendedKeyUsagePurpose],
        expected: bool,
    ) {
        let mut root = params(authority.0, authority.1);
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let roots = CertificatePool::from_pem(&root.self_signed(&key).unwrap().pem());
        let mut client = params(own.0, own.1);
        client.extended_key_usages = purposes.to_vec();
        let signed = client
            .signed_by(&KeyPair::generate().unwrap(), &Issuer::new(root, key))
            .unwrap();
        assert_eq!(roots.verifies(&[signed.der().clone()], NOW), expected);
        assert!(!CertificatePool::default().verifies(&[signed.der().clone()], NOW));
        assert!(!roots.verifies(&[], NOW));
    }

    #[test]
    fn a_certificate_is_for_clients_or_for_anything() {
        let good = |purposes: &[ExtendedKeyUsagePurpose], expected| {
            check((2020, 2040), (2029, 2031), purposes, expected);
        };
        good(&[], true);
        good(&[ClientAuth], true);
        good(&[ServerAuth, ClientAuth], true);
        good(&[Any], true);
        good(&[ServerAuth, Any], true);
        good(&[ServerAuth], false);
    }

    #[test]
    fn a_certificate_and_its_authority_have_validity_periods() {
        check((2020, 2040), (2020, 2029), &[], false);
        check((2020, 2040), (2031, 2040), &[], false);
        check((2020, 2029), (2020, 2031), &[], false);
        check((2031, 2040), (2020, 2031), &[], false);
        check((2020, 2040), (2020, 2031), &[], true);
    }
}
