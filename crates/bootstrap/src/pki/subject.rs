//! The subject of a client certificate: a user, its UID, and any number of groups.
//!
//! `rcgen` supports one attribute of a type per name, and a user may be in many groups. So the certificate that it signs is
//! parsed, gets its subject, and is signed again. In the same way it gets the public key of a certificate signing request.

use rcgen::{Error, SigningKey};

use super::der::{
    BIT_STRING, OBJECT_IDENTIFIER, SEQUENCE, SET, UTF8_STRING, contents, split, wrap,
};

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// 1.3.6.1.4.1.57683.2, Kubernetes' own.
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

/// The number of elements before the subject: version, serial number, algorithm, issuer, validity.
const N_BEFORE_SUBJECT: usize = 5;

/// The subject of a client certificate.
pub(super) struct ClientSubject<'a> {
    /// The user.
    pub user: &'a str,
    /// The UID; may be empty.
    pub uid: &'a str,
    /// The groups.
    pub groups: &'a [&'a str],
}

impl ClientSubject<'_> {
    /// `certificate` with this subject, signed by `key`; both are DER.
    pub(super) fn sign_into(
        &self,
        certificate: &[u8],
        key: &impl SigningKey,
    ) -> Result<Vec<u8>, Error> {
        sign_into(certificate, &self.encode(), None, key)
    }

    fn encode(&self) -> Vec<u8> {
        let user = [(COMMON_NAME, self.user)];
        let uid = (!self.uid.is_empty()).then_some((UID, self.uid));
        let groups = self.groups.iter().map(|group| (ORGANIZATION, *group));
        let attributes = user.into_iter().chain(uid).chain(groups);
        let names: Vec<Vec<u8>> = attributes
            .map(|(oid, text)| {
                let oid = wrap(OBJECT_IDENTIFIER, &[oid]);
                let text = wrap(UTF8_STRING, &[text.as_bytes()]);
                wrap(SET, &[&wrap(SEQUENCE, &[&oid, &text])])
            })
            .collect();
        wrap(SEQUENCE, &[&names.concat()])
    }
}

/// The subject and the public key of a certificate signing request, in DER.
pub(super) struct RequestSubject<'a> {
    /// The subject.
    pub subject: &'a [u8],
    /// The public key, with its algorithm.
    pub key: &'a [u8],
}

impl RequestSubject<'_> {
    /// `certificate` with this subject and public key, signed by `key`.
    pub(super) fn sign_into(
        &self,
        certificate: &[u8],
        key: &impl SigningKey,
    ) -> Result<Vec<u8>, Error> {
        sign_into(certificate, self.subject, Some(self.key), key)
    }
}

/// Replaces the subject and, if given, the public key of a certificate, and signs it again.
fn sign_into(
    certificate: &[u8],
    subject: &[u8],
    public_key: Option<&[u8]>,
    key: &impl SigningKey,
) -> Result<Vec<u8>, Error> {
    let (signed, rest) = split(contents(certificate)?)?;
    let (algorithm, _) = split(rest)?;
    let signed = contents(signed)?;
    let mut at_subject = signed;
    for _ in 0..N_BEFORE_SUBJECT {
        at_subject = split(at_subject)?.1;
    }
    let (_, at_key) = split(at_subject)?;
    let (old_key, after) = split(at_key)?;
    let before = &signed[..signed.len() - at_subject.len()];
    let signed = wrap(
        SEQUENCE,
        &[before, subject, public_key.unwrap_or(old_key), after],
    );
    let signature = [&[0], key.sign(&signed)?.as_slice()].concat();
    Ok(wrap(
        SEQUENCE,
        &[&signed, algorithm, &wrap(BIT_STRING, &[&signature])],
    ))
}
