//! The user of a client certificate: the common name is the user name, organizations are groups,
//! and an attribute of Kubernetes' own is the uid.

use mizzen_value::{Str, Value};
use sha2::{Digest as _, Sha256};
use x509_parser::asn1_rs::Tag;
use x509_parser::der_parser::oid::Oid;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use mizzen_object::{CREDENTIAL_ID, User};

/// The subject attribute of the uid.
pub(super) const UID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];

/// The subject of a certificate, whether or not the certificate is trusted.
pub(super) struct CertificateSubject {
    /// The common name, may be empty. Kubernetes: the last of several, as Go reads it
    /// (crypto/x509/pkix).
    pub name: Str,
    /// The user; none if the certificate has an invalid uid.
    pub user: Option<User>,
}

impl CertificateSubject {
    /// Parses a certificate in DER; none if that fails.
    pub(super) fn from_der(certificate: &[u8]) -> Option<CertificateSubject> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let subject = parsed.subject();
        let texts = |kind: &Oid| {
            subject
                .iter_by_oid(kind)
                .map(attribute_text)
                .collect::<Option<Vec<Str>>>()
        };
        let name = texts(&OID_X509_COMMON_NAME)?.pop().unwrap_or_default();
        let groups = texts(&OID_X509_ORGANIZATION_NAME)?;
        let uid = uid(&texts(&Oid::from(UID).ok()?)?);
        // The credential ID is the SHA-256 digest of the certificate.
        let digits: String = Sha256::digest(certificate)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let id = vec![Value::from(format!("X509SHA256={digits}"))];
        let mut extra = Value::object();
        extra.set(CREDENTIAL_ID, id);
        let user = uid.map(|uid| {
            User {
                name: name.clone(),
                groups,
                uid,
                extra,
            }
            .authenticated()
        });
        Some(CertificateSubject { name, user })
    }
}

/// The uid; empty if there is none. Kubernetes: several, or an empty one, make the certificate
/// invalid (request/x509/x509.go).
fn uid(named: &[Str]) -> Option<Str> {
    match named {
        [] => Some(Str::default()),
        [uid] => Some(uid.clone()).filter(|uid| !uid.is_empty()),
        _ => None,
    }
}

/// The text of an attribute, in the encodings that Go supports (crypto/x509/parser.go).
fn attribute_text(attribute: &AttributeTypeAndValue) -> Option<Str> {
    let bytes = attribute.as_slice();
    let plain = |is_good: fn(u8) -> bool| {
        let text = std::str::from_utf8(bytes).ok()?;
        text.bytes().all(is_good).then(|| text.into())
    };
    match attribute.attr_value().tag() {
        Tag::Utf8String => plain(|_| true),
        Tag::PrintableString => {
            plain(|byte| byte.is_ascii_alphanumeric() || b" '()*+,-./:=?&".contains(&byte))
        }
        Tag::Ia5String => plain(|byte| byte.is_ascii()),
        Tag::NumericString => plain(|byte| byte.is_ascii_digit() || byte == b' '),
        Tag::T61String => Some(
            bytes
                .iter()
                .copied()
                .map(char::from)
                .collect::<String>()
                .into(),
        ),
        Tag::BmpString => bmp_string(bytes),
        _ => None,
    }
}

/// Two bytes per character, no surrogates or noncharacters; a trailing zero is dropped.
fn bmp_string(bytes: &[u8]) -> Option<Str> {
    let (pairs, []) = bytes.as_chunks::<2>() else {
        return None;
    };
    let pairs = pairs.strip_suffix(&[[0, 0]]).unwrap_or(pairs);
    let read = |pair: &[u8; 2]| {
        let point = u32::from(u16::from_be_bytes(*pair));
        char::from_u32(point).filter(|_| !matches!(point, 0xfdd0..=0xfdef | 0xfffe | 0xffff))
    };
    pairs
        .iter()
        .map(read)
        .collect::<Option<String>>()
        .map(Into::into)
}

#[cfg(test)]
mod tests {
    use rcgen::string::{BmpString, Ia5String, PrintableString, TeletexString};
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    use super::*;

    /// A certificate whose subject has these attributes.
    fn certificate(attributes: Vec<(DnType, DnValue)>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = Default::default();
        for (kind, value) in attributes {
            params.distinguished_name.push(kind, value);
        }
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .to_vec()
    }

    #[track_caller]
    fn check(value: DnValue, expected: &str) {
        let attributes = vec![
            (DnType::CommonName, value.clone()),
            (DnType::OrganizationName, value),
        ];
        let user = CertificateSubject::from_der(&certificate(attributes))
            .unwrap()
            .user
            .unwrap();
        assert_eq!(user.name, expected);
        assert_eq!(user.groups, [expected, "system:authenticated"]);
    }

    #[test]
    fn a_name_is_read_in_every_alphabet_of_certificates() {
        check(DnValue::Utf8String("jürgen 😀".into()), "jürgen 😀");
        check(
            DnValue::PrintableString(PrintableString::try_from("jane").unwrap()),
            "jane",
        );
        check(
            DnValue::Ia5String(Ia5String::try_from("jane@example.com").unwrap()),
            "jane@example.com",
        );
        check(
            DnValue::TeletexString(TeletexString::try_from("jane").unwrap()),
            "jane",
        );
        check(
            DnValue::BmpString(BmpString::try_from("jürgen").unwrap()),
            "jürgen",
        );
    }

    #[test]
    fn the_last_common_name_and_all_organizations_are_used() {
        let text = |text: &str| DnValue::Utf8String(text.into());
        let (name, group) = (
            DnType::CustomDnType(vec![2, 5, 4, 3]),
            DnType::CustomDnType(vec![2, 5, 4, 10]),
        );
        let attributes = vec![
            (DnType::CommonName, text("first")),
            (DnType::OrganizationName, text("dev")),
            (name, text("last")),
            (group, text("ops")),
        ];
        let subject = CertificateSubject::from_der(&certificate(attributes)).unwrap();
        let user = subject.user.unwrap();
        assert_eq!(
            (subject.name.as_str(), user.name.as_str()),
            ("last", "last")
        );
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
    }

    #[track_caller]
    fn check_plane(bytes: &[u8], expected: Option<&str>) {
        assert_eq!(bmp_string(bytes).as_deref(), expected);
    }

    #[test]
    fn an_undecodable_name_is_rejected() {
        check_plane(&[0, b'a', 0, 0], Some("a"));
        check_plane(&[0, b'a', 0], None);
        check_plane(&[0xd8, 0x3d, 0xde, 0x00], None);
        check_plane(&[0xff, 0xff], None);
        check_plane(&[0xfd, 0xd0], None);
        check_plane(&[], Some(""));
    }

    #[track_caller]
    fn check_uid(named: &[&str], expected: Option<&str>) {
        let named: Vec<Str> = named.iter().map(|uid| Str::from(*uid)).collect();
        assert_eq!(uid(&named).as_deref(), expected);
    }

    #[test]
    fn a_uid_is_one_or_none() {
        check_uid(&[], Some(""));
        check_uid(&["7"], Some("7"));
        check_uid(&[""], None);
        check_uid(&["7", "8"], None);
    }

    #[test]
    fn every_certificate_has_a_credential_id() {
        let text = |text: &str| DnValue::Utf8String(text.into());
        let jane = || (DnType::CommonName, text("jane"));
        let uid = || (DnType::CustomDnType(UID.to_vec()), text("7"));
        for (attributes, expected) in [(vec![jane()], ""), (vec![jane(), uid()], "7")] {
            let user = CertificateSubject::from_der(&certificate(attributes))
                .unwrap()
                .user
                .unwrap();
            assert_eq!(user.uid, expected);
            let shown = user.extra["authentication.kubernetes.io/credential-id"].list()[0]
                .str()
                .to_owned();
            let digits = shown.strip_prefix("X509SHA256=").unwrap();
            assert!(
                digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{shown}"
            );
        }
        assert_ne!(
            CertificateSubject::from_der(b"rubbish").map(|subject| subject.name),
            Some("".into())
        );
    }

    #[test]
    fn a_certificate_of_the_anonymous_user_is_not_authenticated() {
        let name = DnValue::Utf8String("system:anonymous".into());
        let user = CertificateSubject::from_der(&certificate(vec![(DnType::CommonName, name)]))
            .unwrap()
            .user
            .unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups.len()),
            ("system:anonymous", 0)
        );
    }
}
