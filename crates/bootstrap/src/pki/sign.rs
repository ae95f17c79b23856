//! Signs certificate signing requests: the subject and key of the request, with the allowed usages and validity.

use std::net::IpAddr;

use mizzen_apiserver::clock::SystemRandom;
use mizzen_controllers::{CertificateSigner, SigningRequest};
use mizzen_value::clock::Random as _;
use rcgen::{
    CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{Authority, der_to_pem, subject};

/// The length of a serial number in bytes.
const SERIAL: usize = 16;
const EMPTY_SEQUENCE: [u8; 2] = [0x30, 0];

impl CertificateSigner for Authority {
    fn sign(&self, order: &SigningRequest) -> Result<String, String> {
        let (_, request) = X509CertificationRequest::from_der(order.request)
            .map_err(|error| format!("unable to parse certificate request: {error}"))?;
        request
            .verify_signature()
            .map_err(|error| format!("unable to verify certificate request signature: {error}"))?;
        let params = self.params(order, &request)?;
        let failed = |error: rcgen::Error| format!("failed to sign certificate: {error}");
        // The key is replaced by that of the request in DER, so that any algorithm is supported.
        let certificate = params
            .signed_by(self.issuer.key(), &self.issuer)
            .map_err(failed)?;
        let info = &request.certification_request_info;
        let subject = subject::RequestSubject {
            subject: info.subject.as_raw(),
            key: info.subject_pki.raw,
        };
        Ok(der_to_pem(
            &subject
                .sign_into(certificate.der(), self.issuer.key())
                .map_err(failed)?,
        ))
    }
}

impl Authority {
    fn params(
        &self,
        order: &SigningRequest,
        request: &X509CertificationRequest,
    ) -> Result<CertificateParams, String> {
        let end = self.not_after()?;
        if order.not_before >= end {
            return Err(format!("the signer has expired: NotAfter={end}"));
        }
        let moment = |seconds| {
            OffsetDateTime::from_unix_timestamp(seconds).map_err(|error| error.to_string())
        };
        let mut params = CertificateParams::default();
        params.not_before = moment(order.not_before)?;
        params.not_after = moment(order.not_after.min(end))?;
        let mut serial = [0; SERIAL];
        SystemRandom.fill(&mut serial);
        // A serial number is positive.
        serial[0] &= 0x7f;
        params.serial_number = Some(serial.to_vec().into());
        // `rcgen` would add the key identifier of the wrong key to its own basic constraints.
        let mut no_ca = CustomExtension::from_oid_content(&[2, 5, 29, 19], EMPTY_SEQUENCE.to_vec());
        no_ca.set_criticality(true);
        params.custom_extensions = vec![no_ca];
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names = alternative_names(request)?;
        for usage in &order.usages {
            match key_usage(usage)
                .ok_or_else(|| format!("unrecognized usage values: [{usage:?}]"))?
            {
                CertificateUsage::Key(purpose) if !params.key_usages.contains(&purpose) => {
                    params.key_usages.push(purpose)
                }
                CertificateUsage::Extended(purpose)
                    if !params.extended_key_usages.contains(&purpose) =>
                {
                    params.extended_key_usages.push(purpose);
                }
                _ => (),
            }
        }
        Ok(params)
    }

    fn not_after(&self) -> Result<i64, String> {
        let (_, own) = X509Certificate::from_der(&self.der).map_err(|error| error.to_string())?;
        Ok(own.validity().not_after.timestamp())
    }
}

/// The subject alternative names of a request; unsupported types are left out.
fn alternative_names(request: &X509CertificationRequest) -> Result<Vec<SanType>, String> {
    let text = |text: &str| {
        text.try_into()
            .map_err(|error: rcgen::Error| error.to_string())
    };
    let mut names = Vec::new();
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(given) = extension else {
            continue;
        };
        for name in &given.general_names {
            names.extend(match name {
                GeneralName::DNSName(name) => Some(SanType::DnsName(text(name)?)),
                GeneralName::RFC822Name(name) => Some(SanType::Rfc822Name(text(name)?)),
                GeneralName::URI(uri) => Some(SanType::URI(text(uri)?)),
                GeneralName::IPAddress(bytes) => {
                    let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                    let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
                    v4.or(v6).ok().map(SanType::IpAddress)
                }
                _ => None,
            });
        }
    }
    Ok(names)
}

/// A key usage or extended key usage.
enum CertificateUsage {
    Key(KeyUsagePurpose),
    Extended(ExtendedKeyUsagePurpose),
}

/// The usage of a `KeyUsage` string of certificates.k8s.io.
fn key_usage(usage: &str) -> Option<CertificateUsage> {
    use ExtendedKeyUsagePurpose::{
        Any, ClientAuth, CodeSigning, EmailProtection, OcspSigning, Other, ServerAuth, TimeStamping,
    };
    use KeyUsagePurpose::{
        ContentCommitment, CrlSign, DataEncipherment, DecipherOnly, DigitalSignature, EncipherOnly,
        KeyAgreement, KeyCertSign, KeyEncipherment,
    };
    let key = match usage {
        "signing" | "digital signature" => DigitalSignature,
        "content commitment" => ContentCommitment,
        "key encipherment" => KeyEncipherment,
        "key agreement" => KeyAgreement,
        "data encipherment" => DataEncipherment,
        "cert sign" => KeyCertSign,
        "crl sign" => CrlSign,
        "encipher only" => EncipherOnly,
        "decipher only" => DecipherOnly,
        _ => {
            let extended = match usage {
                "any" => Any,
                "server auth" => ServerAuth,
                "client auth" => ClientAuth,
                "code signing" => CodeSigning,
                "email protection" | "s/mime" => EmailProtection,
                "timestamping" => TimeStamping,
                "ocsp signing" => OcspSigning,
                "ipsec end system" => Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 5]),
                "ipsec tunnel" => Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 6]),
                "ipsec user" => Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 7]),
                "microsoft sgc" => Other(vec![1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
                "netscape sgc" => Other(vec![2, 16, 840, 1, 113_730, 4, 1]),
                _ => return None,
            };
            return Some(CertificateUsage::Extended(extended));
        }
    };
    Some(CertificateUsage::Key(key))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateSigningRequest, DnType, IsCa, KeyPair};
    use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_KEY_IDENTIFIER;

    use super::super::pem_to_der;
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn request(
        algorithm: &'static rcgen::SignatureAlgorithm,
    ) -> (CertificateSigningRequest, KeyPair) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "system:node:n1");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:nodes");
        params.is_ca = IsCa::ExplicitNoCa;
        params.subject_alt_names = vec![
            SanType::DnsName("n1".try_into().unwrap()),
            SanType::IpAddress([10, 1, 2, 3].into()),
        ];
        (params.serialize_request(&key).unwrap(), key)
    }

    fn order<'a>(request: &'a CertificateSigningRequest, usages: &[&'a str]) -> SigningRequest<'a> {
        let usages = usages.to_vec();
        let signer = "kubernetes.io/kubelet-serving";
        SigningRequest {
            signer,
            request: request.der(),
            usages,
            not_before: NOW - 300,
            not_after: NOW + 3600,
        }
    }

    #[test]
    fn a_certificate_has_the_subject_and_key_of_its_request() {
        let authority = Authority::in_memory().unwrap();
        for algorithm in [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_ED25519,
        ] {
            let (request, key) = request(algorithm);
            let order = order(
                &request,
                &["digital signature", "key encipherment", "server auth"],
            );
            let der = pem_to_der(&CertificateSigner::sign(&authority, &order).unwrap());
            let (_, certificate) = X509Certificate::from_der(&der).unwrap();
            let (_, own) = X509Certificate::from_der(&authority.der).unwrap();
            certificate
                .verify_signature(Some(own.public_key()))
                .unwrap();
            assert_eq!(
                certificate.public_key().raw,
                rcgen::PublicKeyData::subject_public_key_info(&key)
            );
            let subject = certificate.subject().to_string();
            assert!(
                subject.contains("system:node:n1") && subject.contains("O=system:nodes"),
                "{subject}"
            );
            let validity = certificate.validity();
            assert_eq!(validity.not_before.timestamp(), NOW - 300);
            assert_eq!(validity.not_after.timestamp(), NOW + 3600);
            assert_eq!(
                certificate
                    .subject_alternative_name()
                    .unwrap()
                    .unwrap()
                    .value
                    .general_names
                    .len(),
                2
            );
            let extended = certificate.extended_key_usage().unwrap().unwrap().value;
            assert!(extended.server_auth && !extended.client_auth);
            let usage = certificate.key_usage().unwrap().unwrap().value;
            assert!(
                usage.digital_signature() && usage.key_encipherment() && !usage.key_cert_sign()
            );
            assert!(
                !certificate.is_ca() && certificate.basic_constraints().unwrap().unwrap().critical
            );
            assert!(
                !certificate
                    .iter_extensions()
                    .any(|one| one.oid == OID_X509_EXT_SUBJECT_KEY_IDENTIFIER)
            );
        }
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let authority = Authority::in_memory().unwrap();
        let (request, _) = request(&rcgen::PKCS_ECDSA_P256_SHA256);
        let end = authority.not_after().unwrap();
        let late = SigningRequest {
            not_after: end + 1,
            ..order(&request, &["client auth"])
        };
        let der = pem_to_der(&CertificateSigner::sign(&authority, &late).unwrap());
        assert_eq!(
            X509Certificate::from_der(&der)
                .unwrap()
                .1
                .validity()
                .not_after
                .timestamp(),
            end
        );
        let too_late = SigningRequest {
            not_before: end,
            not_after: end + 1,
            ..order(&request, &["client auth"])
        };
        assert!(
            CertificateSigner::sign(&authority, &too_late)
                .unwrap_err()
                .starts_with("the signer has expired")
        );
    }

    #[test]
    fn serial_numbers_differ() {
        let authority = Authority::in_memory().unwrap();
        let (request, _) = request(&rcgen::PKCS_ECDSA_P256_SHA256);
        let serial = || {
            let der = pem_to_der(
                &CertificateSigner::sign(&authority, &order(&request, &["client auth"])).unwrap(),
            );
            X509Certificate::from_der(&der)
                .unwrap()
                .1
                .raw_serial()
                .to_vec()
        };
        assert_ne!(serial(), serial());
    }

    #[test]
    fn a_request_with_an_invalid_signature_is_rejected() {
        let authority = Authority::in_memory().unwrap();
        let (request, _) = request(&rcgen::PKCS_ECDSA_P256_SHA256);
        let mut forged = request.der().to_vec();
        let at = forged.windows(2).position(|bytes| bytes == b"n1").unwrap();
        forged[at] = b'm';
        let order = SigningRequest {
            request: &forged,
            ..order(&request, &["client auth"])
        };
        assert!(
            CertificateSigner::sign(&authority, &order)
                .unwrap_err()
                .starts_with("unable to verify")
        );
    }

    #[test]
    fn an_unknown_usage_is_rejected() {
        let authority = Authority::in_memory().unwrap();
        let (request, _) = request(&rcgen::PKCS_ECDSA_P256_SHA256);
        let error = CertificateSigner::sign(&authority, &order(&request, &["world domination"]))
            .unwrap_err();
        assert_eq!(error, "unrecognized usage values: [\"world domination\"]");
    }
}
