//! PEM blocks and the DER structures that validation reads.
//!
//! Signatures and certificate contents are not verified; the signer and the users of the certificate do that.

pub(super) use mizzen_apiextensions::pem::decode;

/// The error of bytes that are no signed DER structure: a sequence of contents, algorithm, signature.
pub(super) fn signed_error(bytes: &[u8]) -> Option<&'static str> {
    match element(bytes) {
        None => Some("asn1: syntax error: data truncated"),
        Some((tag, _, _)) if tag != SEQUENCE => Some("asn1: structure error: tags don't match"),
        Some((_, _, [_, ..])) => Some("asn1: syntax error: trailing data"),
        Some((_, inside, [])) => (tags(inside)? != [SEQUENCE, SEQUENCE, BIT_STRING])
            .then_some("asn1: structure error: sequence tag mismatch"),
    }
}

/// The organisations in the subject of a request for a certificate in DER. What is no request has none.
pub(super) fn organizations(request: &[u8]) -> Vec<String> {
    let texts = |subject| texts(subject, ORGANIZATION).collect();
    subject(request).map(texts).unwrap_or_default()
}

/// The common name in the subject of a request; the last one if there are more, as Go reads it.
pub(super) fn common_name(request: &[u8]) -> Option<String> {
    texts(subject(request)?, COMMON_NAME).last()
}

/// How many names of each kind a request has besides its subject.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AlternativeNames {
    pub hosts: usize,
    pub addresses: usize,
    pub mails: usize,
    pub uris: usize,
}

/// The alternative names that a request asks for.
pub(super) fn alternative_names(request: &[u8]) -> AlternativeNames {
    let mut names = AlternativeNames::default();
    for (tag, _) in general_names(request).unwrap_or_default() {
        match tag & 0x1f {
            1 => names.mails += 1,
            2 => names.hosts += 1,
            6 => names.uris += 1,
            7 => names.addresses += 1,
            _ => {}
        }
    }
    names
}

/// Behind version, subject and key stand attributes; one of them has the extensions, one of which has the names.
fn general_names(request: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let (_, signed, _) = element(request)?;
    let (_, contents, _) = element(signed)?;
    let (_, attributes) = tagged(contents).find(|(tag, _)| *tag == ATTRIBUTES)?;
    let (_, extensions, _) = element(member(attributes, EXTENSION_REQUEST)?)?;
    let names = member(extensions, ALTERNATIVE_NAMES)?;
    let (_, names, _) = element(names)?;
    Some(tagged(names).collect())
}

/// What is in the last part of the first sequence that begins with this object id.
fn member<'a>(sequences: &'a [u8], id: &[u8]) -> Option<&'a [u8]> {
    let of_id = |inside: &&[u8]| {
        element(inside).is_some_and(|(tag, name, _)| tag == OBJECT_ID && name == id)
    };
    let (_, last) = tagged(elements(sequences).find(of_id)?).last()?;
    Some(last)
}

/// The attributes of a request's subject: outside is the signed thing, in it the contents, in them a version and
/// the subject, in it sets of attributes.
fn subject(request: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let (_, signed, _) = element(request)?;
    let (_, contents, _) = element(signed)?;
    let (_, _version, rest) = element(contents)?;
    let (_, subject, _) = element(rest)?;
    Some(elements(subject).flat_map(elements))
}

/// The texts of the attributes of one kind.
fn texts<'a>(
    attributes: impl Iterator<Item = &'a [u8]>,
    kind: &'static [u8],
) -> impl Iterator<Item = String> {
    attributes.filter_map(move |attribute| {
        let (tag, name, rest) = element(attribute)?;
        let (_, text, _) = element(rest)?;
        (tag == OBJECT_ID && name == kind).then(|| String::from_utf8_lossy(text).into_owned())
    })
}

/// What is inside elements that follow each other.
fn elements(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    tagged(bytes).map(|(_, inside)| inside)
}

/// Elements that follow each other: their tags, and what is inside.
fn tagged(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, inside, rest) = element(bytes)?;
        bytes = rest;
        Some((tag, inside))
    })
}

const OBJECT_ID: u8 = 0x06;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// 1.2.840.113549.1.9.14
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
/// 2.5.29.17
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// `[0]`, constructed.
const ATTRIBUTES: u8 = 0xa0;
const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;

/// The tags of elements that follow each other; none, and so not equal to any, if they are cut off.
fn tags(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut tags = Vec::new();
    while !bytes.is_empty() {
        let Some((tag, _, rest)) = element(bytes) else {
            return Some(Vec::new());
        };
        tags.push(tag);
        bytes = rest;
    }
    Some(tags)
}

/// The first element: its tag, what is inside, and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, length, rest @ ..] = bytes else {
        return None;
    };
    let (length, rest) = match usize::from(*length) {
        short @ ..=0x7f => (short, rest),
        long @ 0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(long - 0x80)?;
            (
                digits
                    .iter()
                    .fold(0, |length, digit| length << 8 | usize::from(*digit)),
                rest,
            )
        }
        _ => return None,
    };
    let (inside, rest) = rest.split_at_checked(length)?;
    Some((*tag, inside, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_subject() {
        let attribute = |id: u8, text: &[u8]| {
            let inside = [&[6, 3, 0x55, 4, id, 0x0c, text.len() as u8], text].concat();
            let pair = [&[0x30, inside.len() as u8], inside.as_slice()].concat();
            [&[0x31, pair.len() as u8], pair.as_slice()].concat()
        };
        let names = [
            attribute(3, b"me"),
            attribute(10, b"us"),
            attribute(10, b"them"),
        ]
        .concat();
        let contents = [&[2, 1, 0, 0x30, names.len() as u8], names.as_slice()].concat();
        let signed = [&[0x30, contents.len() as u8], contents.as_slice()].concat();
        let request = [&[0x30, signed.len() as u8], signed.as_slice()].concat();
        assert_eq!(organizations(&request), ["us", "them"]);
        assert_eq!(organizations(&request[..20]), [""; 0]);
        assert_eq!(common_name(&request).as_deref(), Some("me"));
    }

    #[test]
    fn a_signed_thing_has_three_parts() {
        assert_eq!(signed_error(&[0x30, 6, 0x30, 0, 0x30, 0, 3, 0]), None);
        assert_eq!(
            signed_error(&[0x30, 6, 0x30]),
            Some("asn1: syntax error: data truncated")
        );
        assert!(signed_error(&[0x30, 2, 0x30, 0]).is_some());
    }
}
