//! Header blocks: names and values, compressed by one zlib stream per direction with SPDY's
//! dictionary.

use bytes::Buf as _;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

/// The initial dictionary of compressed headers (SPDY/3.1, section 2.6.10.1).
static DICTIONARY: &[u8] = include_bytes!("dictionary");
/// The Adler-32 checksum that identifies the dictionary.
const DICTIONARY_ID: u32 = 0xe3c6_a7c2;
/// The largest decompressed header block.
const MAX_BLOCK: usize = 64 * 1024;
/// The most names in a header block.
const MAX_HEADERS: u32 = 128;

/// The headers of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// The value of a header, `""` if it is missing. Names are case-insensitive.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self
            .0
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }
}

/// Why a header block is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("the header block is not a zlib stream with SPDY's dictionary")]
    Compression,
    #[error(
        "the header block is larger than {MAX_BLOCK} bytes or has more than {MAX_HEADERS} headers"
    )]
    TooLarge,
    #[error("the header block is malformed")]
    Malformed,
}

/// Decompresses the header blocks of one direction.
#[derive(Default)]
pub(super) struct Inflater {
    /// `None` before the first block.
    raw: Option<Decompress>,
}

impl Inflater {
    /// The headers of the next block.
    pub(super) fn read(&mut self, block: &[u8]) -> Result<Headers, HeaderError> {
        let (raw, block) = match &mut self.raw {
            Some(raw) => (raw, block),
            None => {
                let (primed, rest) = open(block)?;
                (self.raw.insert(primed), rest)
            }
        };
        let plain = inflate(raw, block)?;
        Headers::parse(&plain)
    }
}

/// Reads the zlib header. The rest is decompressed as raw deflate, as if a stored block with the
/// dictionary had come first: flate2 can set a dictionary only with another zlib implementation.
fn open(block: &[u8]) -> Result<(Decompress, &[u8]), HeaderError> {
    let [method, flags, rest @ ..] = block else {
        return Err(HeaderError::Compression);
    };
    let is_zlib = method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31);
    if !is_zlib {
        return Err(HeaderError::Compression);
    }
    let mut raw = Decompress::new(false);
    let has_dictionary = flags & 0x20 != 0;
    if !has_dictionary {
        return Ok((raw, rest));
    }
    let (id, rest) = rest.split_first_chunk().ok_or(HeaderError::Compression)?;
    if u32::from_be_bytes(*id) != DICTIONARY_ID {
        return Err(HeaderError::Compression);
    }
    let length = u16::try_from(DICTIONARY.len()).expect("the dictionary is small");
    let mut stored = vec![0];
    stored.extend_from_slice(&length.to_le_bytes());
    stored.extend_from_slice(&(!length).to_le_bytes());
    stored.extend_from_slice(DICTIONARY);
    inflate(&mut raw, &stored)?;
    Ok((raw, rest))
}

fn inflate(raw: &mut Decompress, block: &[u8]) -> Result<Vec<u8>, HeaderError> {
    let mut plain = Vec::with_capacity(MAX_BLOCK);
    let before = raw.total_in();
    raw.decompress_vec(block, &mut plain, FlushDecompress::Sync)
        .map_err(|_| HeaderError::Compression)?;
    match raw.total_in() - before == block.len() as u64 && plain.len() < MAX_BLOCK {
        true => Ok(plain),
        false => Err(HeaderError::TooLarge),
    }
}

impl Headers {
    fn parse(mut plain: &[u8]) -> Result<Headers, HeaderError> {
        let count = plain.try_get_u32().map_err(|_| HeaderError::Malformed)?;
        if count > MAX_HEADERS {
            return Err(HeaderError::TooLarge);
        }
        let mut headers = Vec::new();
        for _ in 0..count {
            headers.push((text(&mut plain)?, text(&mut plain)?));
        }
        Ok(Headers(headers))
    }
}

fn text(plain: &mut &[u8]) -> Result<String, HeaderError> {
    let length = plain.try_get_u32().map_err(|_| HeaderError::Malformed)?;
    let length = usize::try_from(length).map_err(|_| HeaderError::Malformed)?;
    let (text, rest) = plain
        .split_at_checked(length)
        .ok_or(HeaderError::Malformed)?;
    *plain = rest;
    String::from_utf8(text.into()).map_err(|_| HeaderError::Malformed)
}

/// Compresses the header blocks of one direction. Clients accept a zlib stream without a dictionary
/// as well.
pub(super) struct Deflater(Compress);

impl Default for Deflater {
    fn default() -> Deflater {
        Deflater(Compress::new(Compression::fast(), true))
    }
}

impl Deflater {
    /// The next block.
    pub(super) fn write(&mut self, headers: &Headers) -> Vec<u8> {
        let mut plain = Vec::new();
        let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        plain.extend_from_slice(&number(headers.0.len()));
        for text in headers.0.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend_from_slice(&number(text.len()));
            plain.extend_from_slice(text.as_bytes());
        }
        let mut block = Vec::with_capacity(plain.len() + 1024);
        self.0
            .compress_vec(&plain, &mut block, FlushCompress::Sync)
            .expect("compressing cannot fail");
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        Headers(
            pairs
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
        )
    }

    #[test]
    fn headers_are_the_same_after_a_round_trip() {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        for sent in [
            headers(&[]),
            headers(&[("streamtype", "error")]),
            headers(&[("a", "1"), ("b", "")]),
        ] {
            assert_eq!(inflater.read(&deflater.write(&sent)), Ok(sent));
        }
    }

    /// Two blocks that zlib itself compressed with the dictionary, as clients do.
    #[test]
    fn blocks_that_were_compressed_with_the_dictionary_are_read() {
        let blocks: [&[u8]; 2] = [
            &[
                0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0xa6, 0x23, 0x46, 0x70, 0x3a, 0x2b, 0x29,
                0x4a, 0x4d, 0xcc, 0x85, 0x16, 0x25, 0xac, 0xa9, 0xa0, 0x80, 0x06, 0x00, 0x00, 0x00,
                0xff, 0xff,
            ],
            &[
                0xc2, 0x2a, 0x05, 0x4c, 0xcc, 0x29, 0xf9, 0xa5, 0x25, 0x00, 0x00, 0x00, 0x00, 0xff,
                0xff,
            ],
        ];
        let mut inflater = Inflater::default();
        assert_eq!(
            inflater.read(blocks[0]),
            Ok(headers(&[("streamtype", "error")]))
        );
        assert_eq!(
            inflater.read(blocks[1]),
            Ok(headers(&[("streamtype", "stdout")]))
        );
        assert_eq!(
            Headers::get(&headers(&[("streamtype", "a")]), "streamType"),
            "a"
        );
    }

    #[test]
    fn invalid_and_oversized_blocks_are_rejected() {
        let read = |block: &[u8]| Inflater::default().read(block);
        assert_eq!(read(b""), Err(HeaderError::Compression));
        assert_eq!(read(b"GET / HTTP/1.1"), Err(HeaderError::Compression));
        assert_eq!(
            read(&[0x78, 0xbb, 1, 2, 3, 4, 5]),
            Err(HeaderError::Compression)
        );
        let mut deflater = Deflater::default();
        let large = deflater.write(&headers(&[("a", &"x".repeat(MAX_BLOCK))]));
        assert_eq!(read(&large), Err(HeaderError::TooLarge));
        let many: Vec<(&str, &str)> = vec![("a", "b"); 200];
        assert_eq!(
            read(&Deflater::default().write(&headers(&many))),
            Err(HeaderError::TooLarge)
        );
        let mut cut = Compress::new(Compression::fast(), true);
        let mut block = Vec::with_capacity(100);
        cut.compress_vec(
            &[0, 0, 0, 1, 0, 0, 0, 9, b'a'],
            &mut block,
            FlushCompress::Sync,
        )
        .unwrap();
        assert_eq!(read(&block), Err(HeaderError::Malformed));
    }
}
