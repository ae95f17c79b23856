//! Encoding and parsing of DER elements: tag, length, contents.

use rcgen::Error;

/// An integer.
pub(crate) const INTEGER: u8 = 0x02;
/// Bits; the first byte is the number of unused bits at the end.
pub(crate) const BIT_STRING: u8 = 0x03;
/// Bytes.
pub(crate) const OCTET_STRING: u8 = 0x04;
/// No value.
pub(crate) const NULL: u8 = 0x05;
/// An object identifier.
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
/// A string.
pub(crate) const UTF8_STRING: u8 = 0x0c;
/// Elements in order.
pub(crate) const SEQUENCE: u8 = 0x30;
/// Elements without order.
pub(crate) const SET: u8 = 0x31;

/// Encodes an element.
pub(crate) fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
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

/// The first element, and the rest.
pub(crate) fn split(der: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let (head, length) = measure(der)?;
    der.split_at_checked(head + length)
        .ok_or(Error::CouldNotParseCertificate)
}

/// The contents of the first element.
pub(crate) fn contents(der: &[u8]) -> Result<&[u8], Error> {
    let (head, _) = measure(der)?;
    let (element, _) = split(der)?;
    Ok(&element[head..])
}

/// The length of the header (tag and length) and of the contents.
fn measure(der: &[u8]) -> Result<(usize, usize), Error> {
    let first = usize::from(*der.get(1).ok_or(Error::CouldNotParseCertificate)?);
    if first < 0x80 {
        return Ok((2, first));
    }
    let n_bytes = first & 0x7f;
    let bytes = der.get(2..2 + n_bytes).filter(|bytes| bytes.len() <= 4);
    let bytes = bytes.ok_or(Error::CouldNotParseCertificate)?;
    Ok((
        2 + n_bytes,
        bytes
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte)),
    ))
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
            assert_eq!(
                split(&with_rest).unwrap(),
                (element.as_slice(), [1, 2].as_slice())
            );
            assert_eq!(contents(&with_rest).unwrap(), inner);
        }
    }

    #[test]
    fn truncated_elements_are_rejected() {
        assert!(split(&[SEQUENCE, 5, 1]).is_err());
        assert!(split(&[SEQUENCE, 0x82, 1]).is_err());
        assert!(split(&[]).is_err());
    }
}
