//! Whom a client certificate names: a user, their uid, and any number of groups.
//!
//! `rcgen` keeps one attribute of a kind in a name, and a user may be in many groups. So the certificate that it
//! makes is taken apart, given the name that it should have, and signed again. In the same way it is given the key of
//! somebody who asks for a certificate.

use rcgen::{Error, SigningKey};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// 1.3.6.1.4.1.57683.2, Kubernetes' own.
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

/// What stands before the subject in what is signed: version, serial number, algorithm, issuer, validity.
const BEFORE_SUBJECT: usize = 5;

/// Whom a certificate names.
pub struct Subject<'a> {
    /// The user.
    pub user: &'a str,
    /// Their uid; may be empty.
    pub uid: &'a str,
    /// Their groups.
    pub groups: &'a [&'a str],
}

impl Subject<'_> {
    /// `certificate` with this subject, signed by `key`; both are DER.
    pub fn put_into(&self, certificate: &[u8], key: &impl SigningKey) -> Result<Vec<u8>, Error> {
        put_into(certificate, &self.encode(), None, key)
    }

    fn encode(&self) -> Vec<u8> {
        let user = [(COMMON_NAME, self.user)];
        let uid = (!self.uid.is_empty()).then_some((UID, self.uid));
        let groups = self.groups.iter().map(|group| (ORGANIZATION, *group));
        let attributes = user.into_iter().chain(uid).chain(groups);
        let names: Vec<Vec<u8>> = attributes.map(|(kind, text)| attribute(kind, text)).collect();
        wrap(SEQUENCE, &[&names.concat()])
    }
}

/// Whose a certificate is, as its request says it: both are DER.
pub struct Owner<'a> {
    /// Whom it names.
    pub subject: &'a [u8],
    /// Their public key, with its kind.
    pub key: &'a [u8],
}

impl Owner<'_> {
    /// `certificate` for this owner, signed by `key`.
    pub fn put_into(&self, certificate: &[u8], key: &impl SigningKey) -> Result<Vec<u8>, Error> {
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
    Ok(wrap(SEQUENCE, &[&signed, algorithm, &wrap(BIT_STRING, &[&signature])]))
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
    Ok(wrap(SEQUENCE, &[before, subject, public_key.unwrap_or(old_key), after]))
}

fn attribute(kind: &[u8], text: &str) -> Vec<u8> {
    let kind = wrap(OBJECT_IDENTIFIER, &[kind]);
    let text = wrap(UTF8_STRING, &[text.as_bytes()]);
    wrap(SET, &[&wrap(SEQUENCE, &[&kind, &text])])
}

/// An element of DER: tag, length, contents.
fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let contents = parts.concat();
    let bytes = contents.len().to_be_bytes();
    let significant = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let mut element = vec![tag];
    match contents.len() {
        short @ 0..0x80 => element.push(short as u8),
        _ => {
            element.push(0x80 | significant.len() as u8);
            element.extend(significant);
        }
    }
    element.extend(contents);
    element
}

/// The first element, and what follows it.
fn split(der: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let (head, length) = measure(der)?;
    der.split_at_checked(head + length).ok_or(Error::CouldNotParseCertificate)
}

/// What is inside the first element.
fn contents(der: &[u8]) -> Result<&[u8], Error> {
    let (head, _) = measure(der)?;
    let (element, _) = split(der)?;
    Ok(&element[head..])
}

/// How long an element's tag and length are, and how long its contents.
fn measure(der: &[u8]) -> Result<(usize, usize), Error> {
    let first = usize::from(*der.get(1).ok_or(Error::CouldNotParseCertificate)?);
    if first < 0x80 {
        return Ok((2, first));
    }
    let n_bytes = first & 0x7f;
    let bytes = der.get(2..2 + n_bytes).filter(|bytes| bytes.len() <= 4);
    let bytes = bytes.ok_or(Error::CouldNotParseCertificate)?;
    Ok((2 + n_bytes, bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_size_are_wrapped_and_split() {
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let inner = vec![7; length];
            let element = wrap(SEQUENCE, &[&inner]);
            let with_rest = [element.as_slice(), &[1, 2]].concat();
            assert_eq!(split(&with_rest).unwrap(), (element.as_slice(), [1, 2].as_slice()));
            assert_eq!(contents(&with_rest).unwrap(), inner);
        }
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        assert!(split(&[SEQUENCE, 5, 1]).is_err());
        assert!(split(&[SEQUENCE, 0x82, 1]).is_err());
        assert!(split(&[]).is_err());
    }
}
