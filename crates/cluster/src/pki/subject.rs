//! Whom a client certificate names: a user, their uid, and any number of groups.
//!
//! `rcgen` keeps one attribute of a kind in a name, and a user may be in many groups. So the certificate that it
//! makes is taken apart, given the name that it should have, and signed again. In the same way it is given the key of
//! somebody who asks for a certificate.

use rcgen::{Error, SigningKey};

use super::der::{
    BIT_STRING, OBJECT_IDENTIFIER, SEQUENCE, SET, UTF8_STRING, contents, split, wrap,
};

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// 1.3.6.1.4.1.57683.2, Kubernetes' own.
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

/// What stands before the subject in what is signed: version, serial number, algorithm, issuer, validity.
const BEFORE_SUBJECT: usize = 5;

/// Whom a certificate names.
pub(super) struct Subject<'a> {
    /// The user.
    pub user: &'a str,
    /// Their uid; may be empty.
    pub uid: &'a str,
    /// Their groups.
    pub groups: &'a [&'a str],
}

impl Subject<'_> {
    /// `certificate` with this subject, signed by `key`; both are DER.
    pub(super) fn put_into(
        &self,
        certificate: &[u8],
        key: &impl SigningKey,
    ) -> Result<Vec<u8>, Error> {
        put_into(certificate, &self.encode(), None, key)
    }

    fn encode(&self) -> Vec<u8> {
        let user = [(COMMON_NAME, self.user)];
        let uid = (!self.uid.is_empty()).then_some((UID, self.uid));
        let groups = self.groups.iter().map(|group| (ORGANIZATION, *group));
        let attributes = user.into_iter().chain(uid).chain(groups);
        let names: Vec<Vec<u8>> = attributes
            .map(|(kind, text)| attribute(kind, text))
            .collect();
        wrap(SEQUENCE, &[&names.concat()])
    }
}

/// Whose a certificate is, as its request says it: both are DER.
pub(super) struct Owner<'a> {
    /// Whom it names.
    pub subject: &'a [u8],
    /// Their public key, with its kind.
    pub key: &'a [u8],
}

impl Owner<'_> {
    /// `certificate` for this owner, signed by `key`.
    pub(super) fn put_into(
        &self,
        certificate: &[u8],
        key: &impl SigningKey,
    ) -> Result<Vec<u8>, Error> {
        put_into(certificate, self.subject, Some(self.key), key)
    }
}

fn put_into(
    certificate: &[u8],
    subject: &[u8],
    public_key: Option<&[u8]>,
    key: &impl SigningKey,
) -> Result<Vec<u8>, Error> {
    let (signed, rest) = split(contents(certificate)?)?;
    let (algorithm, _) = split(rest)?;
    let signed = replace(contents(signed)?, subject, public_key)?;
    let signature = [&[0], key.sign(&signed)?.as_slice()].concat();
    Ok(wrap(
        SEQUENCE,
        &[&signed, algorithm, &wrap(BIT_STRING, &[&signature])],
    ))
}

/// What is signed, with another subject and, if one is given, another key.
fn replace(signed: &[u8], subject: &[u8], public_key: Option<&[u8]>) -> Result<Vec<u8>, Error> {
    let mut at_subject = signed;
    for _ in 0..BEFORE_SUBJECT {
        at_subject = split(at_subject)?.1;
    }
    let (_, at_key) = split(at_subject)?;
    let (old_key, after) = split(at_key)?;
    let before = &signed[..signed.len() - at_subject.len()];
    Ok(wrap(
        SEQUENCE,
        &[before, subject, public_key.unwrap_or(old_key), after],
    ))
}

fn attribute(kind: &[u8], text: &str) -> Vec<u8> {
    let kind = wrap(OBJECT_IDENTIFIER, &[kind]);
    let text = wrap(UTF8_STRING, &[text.as_bytes()]);
    wrap(SET, &[&wrap(SEQUENCE, &[&kind, &text])])
}
