//! Rewrites the path of requests over HTTP/2, so that the `h2` crate accepts and rejects the same paths as Go's server.
//!
//! `h2` cuts a path at `#`, rejects other characters that Go accepts, and accepts some that Go rejects. So the frames of a
//! connection are scanned on their way to `h2`, and the path is parsed by Go's rules (`request_line`). The path is in a header
//! block (HPACK, RFC 7541): a sequence of fields, each a reference to a table or a literal. A literal may be added to the
//! dynamic table of the connection.
//!
//! A path that is a reference was a literal before. A literal that is not added to the table is replaced by the escaped path,
//! or by one that `h2` rejects if Go rejects it. A literal that is added is replaced by a path of the same length that `h2`
//! rejects: clients that use the table for paths escape them.
//!
//! Invariant: an entry of `h2`'s table has the size of the client's entry.

use std::sync::LazyLock;

use crate::framing::RewriteStream;
use crate::request_line;

/// The length of the connection preface.
const PREFACE: usize = 24;
/// The length, the type, the flags and the stream of a frame.
const FRAME_HEAD: usize = 9;
/// The longest frame that the server accepts.
const MAX_FRAME: usize = 16 * 1024;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// `:path` in the static table, with `/` and with `/index.html`.
const PATHS: [usize; 2] = [4, 5];
/// A field that is added to the table.
const INDEXED: u8 = 0x40;
/// `h2` rejects a path with this character.
const REJECTED: u8 = b'<';

/// Rewrites the paths of a connection.
#[derive(Debug)]
pub struct PathScanner {
    /// How many bytes are left before the next frame.
    n_unscanned: usize,
    /// The part of a frame that is held back.
    held: Vec<u8>,
}

impl Default for PathScanner {
    fn default() -> PathScanner {
        PathScanner {
            n_unscanned: PREFACE,
            held: Vec::new(),
        }
    }
}

impl RewriteStream for PathScanner {
    fn scan(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (mut rewritten, mut start) = (None::<Vec<u8>>, 0);
        while start < bytes.len() {
            let rest = &bytes[start..];
            if self.n_unscanned > 0 {
                let used = self.n_unscanned.min(rest.len());
                self.n_unscanned -= used;
                if let Some(out) = &mut rewritten {
                    out.extend_from_slice(&rest[..used]);
                }
                start += used;
                continue;
            }
            let whole = frame_size(rest).filter(|_| self.held.is_empty());
            if let Some(size) = whole.filter(|size| !is_held(rest) || rest.len() >= *size) {
                match is_held(rest).then(|| rewrite(&rest[..size])).flatten() {
                    None => self.n_unscanned = size,
                    Some(frame) => {
                        let out = rewritten.get_or_insert_with(|| bytes[..start].to_vec());
                        out.extend(frame);
                        start += size;
                    }
                }
                continue;
            }
            let out = rewritten.get_or_insert_with(|| bytes[..start].to_vec());
            let n_missing = frame_size(&self.held).unwrap_or(FRAME_HEAD) - self.held.len();
            let used = n_missing.min(rest.len());
            self.held.extend_from_slice(&rest[..used]);
            start += used;
            match frame_size(&self.held) {
                Some(size) if !is_held(&self.held) => {
                    self.n_unscanned = size - FRAME_HEAD;
                    out.append(&mut self.held);
                }
                Some(size) if self.held.len() == size => {
                    let frame = std::mem::take(&mut self.held);
                    out.extend(rewrite(&frame).unwrap_or(frame));
                }
                _ => {}
            }
        }
        rewritten
    }

    fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// The size of the frame that begins here, if its header is complete.
fn frame_size(frame: &[u8]) -> Option<usize> {
    match frame {
        [high, middle, low, ..] if frame.len() >= FRAME_HEAD => {
            let length = u32::from_be_bytes([0, *high, *middle, *low]);
            Some(FRAME_HEAD + length as usize)
        }
        _ => None,
    }
}

/// Whether a frame may have a path, so that it is held back until it is complete.
fn is_held(frame: &[u8]) -> bool {
    frame[3] == HEADERS && frame_size(frame).is_some_and(|size| size <= FRAME_HEAD + MAX_FRAME)
}

/// The HEADERS frame with a rewritten path, if that differs.
fn rewrite(frame: &[u8]) -> Option<Vec<u8>> {
    let flags = frame[4];
    let mut start = FRAME_HEAD;
    let mut n_padding = 0;
    if flags & PADDED != 0 {
        n_padding = usize::from(*frame.get(start)?);
        start += 1;
    }
    if flags & PRIORITY != 0 {
        start += 5;
    }
    let end = frame.len().checked_sub(n_padding)?;
    let field = PathField::find(frame.get(..end)?, start)?;
    let literal = field.replacement()?;
    let mut out = [&frame[..field.start], &literal, &frame[field.end..]].concat();
    let length = out.len() - FRAME_HEAD;
    if length > MAX_FRAME {
        return None;
    }
    out[..3].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
    Some(out)
}

/// A literal path, and its place in a frame.
struct PathField {
    start: usize,
    end: usize,
    /// The bits of its first byte that say how it is represented.
    representation: u8,
    path: Vec<u8>,
}

impl PathField {
    /// Finds the literal path of a header block.
    fn find(block: &[u8], start: usize) -> Option<PathField> {
        let mut at = start;
        while at < block.len() {
            let (start, first) = (at, block[at]);
            let (representation, n_bits) = match first {
                0x80.. => (0x80, 7),
                0x40.. => (INDEXED, 6),
                0x20.. => (0x20, 5),
                _ => (first & 0x10, 4),
            };
            let name = read_integer(block, &mut at, n_bits)?;
            match representation {
                0x80 if PATHS.contains(&name) => return None,
                0x80 | 0x20 => continue,
                _ => {}
            }
            if name == 0 {
                read_string(block, &mut at)?;
            }
            let (is_huffman, value) = read_string(block, &mut at)?;
            if PATHS.contains(&name) {
                let path = match is_huffman {
                    true => decode_huffman(value)?,
                    false => value.to_vec(),
                };
                return Some(PathField {
                    start,
                    end: at,
                    representation,
                    path,
                });
            }
        }
        None
    }

    /// The field that `h2` gets, if it differs.
    fn replacement(&self) -> Option<Vec<u8>> {
        let is_path = self.path == b"*" || self.path.starts_with(b"/");
        let target = request_line::parse(b"GET", &self.path).filter(|_| is_path);
        let value = match target {
            Some(target) if target == self.path => return None,
            Some(target) if self.representation != INDEXED => target,
            _ if self.representation != INDEXED => vec![REJECTED],
            _ => {
                let mut rejected = self.path.clone();
                *rejected.first_mut()? = REJECTED;
                rejected
            }
        };
        let mut literal = vec![self.representation | PATHS[0] as u8];
        put_length(value.len(), &mut literal);
        literal.extend(value);
        Some(literal)
    }
}

/// An integer with a prefix of `n_bits` (RFC 7541, section 5.1).
fn read_integer(block: &[u8], at: &mut usize, n_bits: u32) -> Option<usize> {
    let most = (1 << n_bits) - 1;
    let mut number = usize::from(*block.get(*at)?) & most;
    *at += 1;
    if number < most {
        return Some(number);
    }
    // `h2` rejects a length that exceeds a frame.
    for shift in [0, 7, 14] {
        let byte = usize::from(*block.get(*at)?);
        *at += 1;
        number += (byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// A string, and whether it is Huffman-coded.
fn read_string<'a>(block: &'a [u8], at: &mut usize) -> Option<(bool, &'a [u8])> {
    let is_huffman = block.get(*at)? & 0x80 != 0;
    let length = read_integer(block, at, 7)?;
    let value = block.get(*at..*at + length)?;
    *at += length;
    Some((is_huffman, value))
}

/// Appends the length of a string that is not Huffman-coded.
fn put_length(length: usize, out: &mut Vec<u8>) {
    if length < 0x7f {
        out.push(length as u8);
        return;
    }
    out.push(0x7f);
    let mut rest = length - 0x7f;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The length of the Huffman code of each byte (RFC 7541, appendix B). The codes are canonical: shorter ones first, those of
/// one length in the order of their bytes.
#[rustfmt::skip]
const CODE_LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];
const MAX_CODE: usize = 30;

/// The codes of one length: the first code, and the bytes of all of them.
#[derive(Debug, Default, Clone)]
struct HuffmanCodes {
    first: u32,
    bytes: Vec<u8>,
}

static CODES: LazyLock<[HuffmanCodes; MAX_CODE + 1]> = LazyLock::new(|| {
    let mut codes: [HuffmanCodes; MAX_CODE + 1] = Default::default();
    for (byte, length) in (0..=u8::MAX).zip(CODE_LENGTHS) {
        codes[usize::from(length)].bytes.push(byte);
    }
    let mut next = 0;
    for codes in &mut codes {
        codes.first = next;
        next = (next + codes.bytes.len() as u32) << 1;
    }
    codes
});

/// `None` if the string is not Huffman-coded.
fn decode_huffman(string: &[u8]) -> Option<Vec<u8>> {
    let codes = &*CODES;
    let mut decoded = Vec::with_capacity(string.len() * 2);
    let (mut code, mut length) = (0u32, 0);
    for byte in string {
        for bit in (0..8).rev() {
            code = code << 1 | u32::from(byte >> bit & 1);
            length += 1;
            let HuffmanCodes { first, bytes } = codes.get(length)?;
            let found = code
                .checked_sub(*first)
                .and_then(|at| bytes.get(at as usize));
            if let Some(found) = found {
                decoded.push(*found);
                (code, length) = (0, 0);
            }
        }
    }
    // The rest is padding.
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags, 0, 0, 0, 1]);
        bytes.extend(payload);
        bytes
    }

    fn literal(representation: u8, value: &[u8]) -> Vec<u8> {
        let mut field = vec![representation];
        put_length(value.len(), &mut field);
        [field, value.to_vec()].concat()
    }

    fn compress(text: &[u8]) -> Vec<u8> {
        let (mut bits, mut bytes) = (Vec::new(), Vec::new());
        for byte in text {
            let length = usize::from(CODE_LENGTHS[usize::from(*byte)]);
            let codes = &CODES[length];
            let at = codes.bytes.iter().position(|known| known == byte).unwrap();
            let code = codes.first + at as u32;
            bits.extend((0..length).rev().map(|bit| code >> bit & 1 == 1));
        }
        for chunk in bits.chunks(8) {
            let bit = |at: usize| chunk.get(at).copied().unwrap_or(true);
            bytes.push((0..8).fold(0, |byte, at| byte << 1 | u8::from(bit(at))));
        }
        bytes
    }

    /// The frames that `h2` gets, however they are split.
    #[track_caller]
    fn check(frames: &[Vec<u8>], expected: &[Vec<u8>]) {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let sent = [preface.clone(), frames.concat()].concat();
        let expected = [preface, expected.concat()].concat();
        for size in [1, 2, 3, 7, 10, sent.len()] {
            let (mut scanner, mut found) = (PathScanner::default(), Vec::new());
            for chunk in sent.chunks(size) {
                found.extend(scanner.scan(chunk).unwrap_or_else(|| chunk.to_vec()));
            }
            found.extend(scanner.end());
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    /// A request with a path.
    fn request(field: Vec<u8>) -> Vec<u8> {
        let fields = [vec![0x82, 0x87], field, literal(0x41, b"x"), vec![0xbe]];
        frame(HEADERS, 5, &fields.concat())
    }

    #[test]
    fn strings_are_decompressed() {
        let compressed = [
            0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
        ];
        assert_eq!(decode_huffman(&compressed).unwrap(), b"www.example.com");
        let all: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(decode_huffman(&compress(&all)).unwrap(), all);
        assert_eq!(decode_huffman(&[0xff; 8]), None);
    }

    #[test]
    fn a_literal_path_is_escaped_or_rejected() {
        let data = frame(0, 0, &[0x44; 40]);
        for (path, expected) in [
            (&b"/a#b"[..], &b"/a%23b"[..]),
            (b"/<a b>?`\xff", b"/%3Ca%20b%3E?%60%FF"),
            (b"/a%zz", b"<"),
            (b"?a", b"<"),
            (b"a", b"<"),
            (b"http://x/a", b"<"),
            (b"/\x7f", b"<"),
        ] {
            let compressed = compress(path);
            let mut field = vec![0x04, 0x80 | compressed.len() as u8];
            field.extend(compressed);
            for field in [field, literal(0x04, path), literal(0x05, path)] {
                let expected = request(literal(0x04, expected));
                check(
                    &[data.clone(), request(field.clone()), data.clone()],
                    &[data.clone(), expected, data.clone()],
                );
            }
            check(
                &[request(literal(0x14, path))],
                &[request(literal(0x14, expected))],
            );
            // An entry of the table keeps its size.
            let rejected = [&b"<"[..], &path[1..]].concat();
            check(
                &[request(literal(0x44, path))],
                &[request(literal(0x44, &rejected))],
            );
        }
    }

    #[test]
    fn other_headers_are_unchanged() {
        let unknown = [
            vec![0x00],
            literal(0, b":path")[1..].to_vec(),
            literal(0, b"/#")[1..].to_vec(),
        ];
        let frames = [
            frame(4, 0, &[]),
            request(literal(0x04, b"/api/v1/pods?a=%zz")),
            request(literal(0x44, b"*")),
            request(vec![0x84]),
            request(unknown.concat()),
            frame(HEADERS, 4, &[0x82, 0x04, 0x7f]),
            frame(HEADERS, 4, &[]),
            frame(9, 4, b"\x04\x02/#"),
            b"\0\0".to_vec(),
        ];
        check(&frames, &frames);
    }

    #[test]
    fn a_path_is_found_behind_padding_and_priority() {
        let padded = |path: &[u8]| {
            let block = [&[2, 0, 0, 0, 0, 9][..], &literal(0x04, path), &[0, 0]].concat();
            frame(HEADERS, PADDED | PRIORITY | 4, &block)
        };
        check(&[padded(b"/#")], &[padded(b"/%23")]);
    }
}
