//! Prints a quantity as Go's spew does: its internal fields after parsing.
//!
//! Kubernetes: the representation depends on how the text was parsed (resource/quantity.go,
//! ParseQuantity): an int64 and a scale if that is surely enough, otherwise an inf.Dec; the text is
//! kept if it looks canonical.

/// Prints the quantity with this canonical text.
pub(super) fn print(out: &mut String, text: &str) {
    let text = if text.is_empty() { "0" } else { text };
    let inside = match text {
        "0" => GoQuantity {
            value: 0,
            scale: 0,
            large: None,
            text,
            format: QuantityFormat::Decimal,
        },
        _ => QuantityParts::split(text).to_go_quantity(text),
    };
    inside.print(out);
}

struct GoQuantity<'a> {
    value: i64,
    scale: i32,
    large: Option<InfDec>,
    text: &'a str,
    format: QuantityFormat,
}

/// An integer of any length and its number of decimal places.
struct InfDec {
    is_negative: bool,
    words: Vec<u64>,
    scale: i64,
}

#[derive(Clone, Copy, PartialEq)]
enum QuantityFormat {
    Decimal,
    Binary,
    Exponent,
}

impl GoQuantity<'_> {
    fn print(&self, out: &mut String) {
        let GoQuantity {
            value, scale, text, ..
        } = self;
        *out += &format!(
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}}"
        );
        *out += " d:(resource.infDecAmount){Dec:(*inf.Dec)";
        match &self.large {
            None => *out += "<nil>",
            Some(large) => large.print(out),
        }
        *out += &format!(
            "}} s:(string){text} Format:(resource.Format){}}}",
            self.format.name()
        );
    }
}

impl InfDec {
    fn print(&self, out: &mut String) {
        let words: Vec<String> = self.words.iter().map(u64::to_string).collect();
        let (neg, abs, scale) = (self.is_negative, words.join(" "), self.scale);
        *out += &format!(
            "{{unscaled:(big.Int){{neg:(bool){neg} abs:(big.nat)[{abs}]}} scale:(inf.Scale){scale}}}"
        );
    }
}

impl QuantityFormat {
    /// The exponent and the format of a suffix.
    fn parse_suffix(suffix: &str) -> (i32, QuantityFormat) {
        const DECIMAL: [(&str, i32); 10] = [
            ("", 0),
            ("n", -9),
            ("u", -6),
            ("m", -3),
            ("k", 3),
            ("M", 6),
            ("G", 9),
            ("T", 12),
            ("P", 15),
            ("E", 18),
        ];
        const BINARY: [(&str, i32); 6] = [
            ("Ki", 10),
            ("Mi", 20),
            ("Gi", 30),
            ("Ti", 40),
            ("Pi", 50),
            ("Ei", 60),
        ];
        let find = |known: &[(&str, i32)]| {
            known
                .iter()
                .find(|(name, _)| *name == suffix)
                .map(|(_, exponent)| *exponent)
        };
        match (find(&DECIMAL), find(&BINARY)) {
            (Some(exponent), _) => (exponent, QuantityFormat::Decimal),
            (_, Some(exponent)) => (exponent, QuantityFormat::Binary),
            _ => (
                suffix
                    .get(1..)
                    .and_then(|digits| digits.parse().ok())
                    .unwrap_or_default(),
                QuantityFormat::Exponent,
            ),
        }
    }

    fn name(self) -> &'static str {
        match self {
            QuantityFormat::Decimal => "DecimalSI",
            QuantityFormat::Binary => "BinarySI",
            QuantityFormat::Exponent => "DecimalExponent",
        }
    }
}

/// The parts of a quantity's text.
struct QuantityParts<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
    /// The power of ten, or of two for a binary suffix.
    exponent: i32,
    format: QuantityFormat,
}

impl<'a> QuantityParts<'a> {
    fn split(text: &'a str) -> QuantityParts<'a> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (digits, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let whole = digits.trim_start_matches('0');
        let (exponent, format) = QuantityFormat::parse_suffix(suffix);
        let whole = if whole.is_empty() { "0" } else { whole };
        QuantityParts {
            is_negative: text.starts_with('-'),
            whole,
            fraction,
            exponent,
            format,
        }
    }

    fn to_go_quantity(&self, text: &'a str) -> GoQuantity<'a> {
        let format = self.format;
        match self.short() {
            Some((value, scale, true)) => GoQuantity {
                value,
                scale,
                large: None,
                text,
                format,
            },
            Some((value, scale, false)) => GoQuantity {
                value,
                scale,
                large: None,
                text: "",
                format,
            },
            None => GoQuantity {
                value: 0,
                scale: 0,
                large: Some(self.large()),
                text: "",
                format,
            },
        }
    }

    /// Value and scale if an int64 is enough, and whether the text looks canonical.
    fn short(&self) -> Option<(i64, i32, bool)> {
        if !self.is_surely_short() {
            return None;
        }
        let digits = [self.whole, self.fraction].concat();
        let number: i64 = digits.parse().ok()?;
        let (factor, scale) = match self.format {
            QuantityFormat::Binary => (1i64.checked_shl(self.exponent as u32)?, 0),
            _ => (1, self.exponent - self.fraction.len() as i32),
        };
        if scale < -9 {
            return None;
        }
        let looks_canonical = match self.format {
            QuantityFormat::Binary => number & 7 != 0,
            _ => scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0'),
        };
        let value = number.checked_mul(factor)?;
        Some((
            if self.is_negative { -value } else { value },
            scale,
            looks_canonical,
        ))
    }

    fn is_surely_short(&self) -> bool {
        let n_digits = (self.whole.len() + self.fraction.len()) as i32;
        match self.format {
            QuantityFormat::Binary => {
                self.fraction.is_empty()
                    && 15 - n_digits - (self.exponent as f32 * 3.0 / 10.0) as i32 > 0
            }
            _ => n_digits <= 18,
        }
    }

    /// The number in billionths, of any length.
    fn large(&self) -> InfDec {
        let shift = if self.format == QuantityFormat::Binary {
            0
        } else {
            self.exponent.clamp(-9, 1_000)
        };
        let n_zeros = (9 + shift as i64 - self.fraction.len() as i64).max(0) as usize;
        let digits = self
            .whole
            .bytes()
            .chain(self.fraction.bytes())
            .chain(std::iter::repeat_n(b'0', n_zeros));
        let mut words = Vec::new();
        digits.for_each(|digit| multiply_and_add(&mut words, 10, u64::from(digit - b'0')));
        if self.format == QuantityFormat::Binary {
            (0..self.exponent).for_each(|_| multiply_and_add(&mut words, 2, 0));
            // Whether so many billionths exceed the largest int64.
            let is_too_large = match words[..] {
                [] | [_] => false,
                [low, high] => {
                    (u128::from(high) << 64 | u128::from(low)) > i64::MAX as u128 * 1_000_000_000
                }
                _ => true,
            };
            if is_too_large {
                return InfDec {
                    is_negative: self.is_negative,
                    words: vec![i64::MAX as u64],
                    scale: 0,
                };
            }
        }
        InfDec {
            is_negative: self.is_negative,
            words,
            scale: 9,
        }
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Words of 64 bits, lowest first.
fn multiply_and_add(words: &mut Vec<u64>, factor: u64, summand: u64) {
    let mut carry = u128::from(summand);
    for word in words.iter_mut() {
        let product = u128::from(*word) * u128::from(factor) + carry;
        *word = product as u64;
        carry = product >> 64;
    }
    if carry > 0 {
        words.push(carry as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let mut out = String::new();
        print(&mut out, text);
        assert_eq!(out, expect);
    }

    fn short(value: i64, scale: i32, text: &str, format: &str) -> String {
        format!(
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){text} Format:(resource.Format){format}}}"
        )
    }

    fn large(neg: bool, words: &str, scale: i32, format: &str) -> String {
        format!(
            "{{i:(resource.int64Amount){{value:(int64)0 scale:(resource.Scale)0}} d:(resource.infDecAmount){{\
             Dec:(*inf.Dec){{unscaled:(big.Int){{neg:(bool){neg} abs:(big.nat)[{words}]}} scale:(inf.Scale){scale}}}}} \
             s:(string) Format:(resource.Format){format}}}"
        )
    }

    #[test]
    fn texts_that_look_canonical_are_kept() {
        check("0", &short(0, 0, "0", "DecimalSI"));
        check("1", &short(1, 0, "1", "DecimalSI"));
        check("250m", &short(250, -3, "250m", "DecimalSI"));
        check("10M", &short(10, 6, "10M", "DecimalSI"));
        check("1e3", &short(1, 3, "1e3", "DecimalExponent"));
        check("100Mi", &short(100 << 20, 0, "100Mi", "BinarySI"));
        check("-5", &short(-5, 0, "-5", "DecimalSI"));
    }

    #[test]
    fn other_texts_are_not() {
        check("64Mi", &short(64 << 20, 0, "", "BinarySI"));
        check("128Mi", &short(128 << 20, 0, "", "BinarySI"));
        check("512Ki", &short(512 << 10, 0, "", "BinarySI"));
        check("2000", &short(2000, 0, "", "DecimalSI"));
        check("1e4", &short(1, 4, "", "DecimalExponent"));
    }

    #[test]
    fn large_binary_amounts_are_decimals_in_billionths() {
        // 2^50 * 10^9 = 61035 * 2^64 + 2882303761517117440
        check(
            "1Pi",
            &large(false, "2882303761517117440 61035", 9, "BinarySI"),
        );
        check("10Ti", &short(10 << 40, 0, "10Ti", "BinarySI"));
        check("8Ei", &large(false, "9223372036854775807", 0, "BinarySI"));
    }

    #[test]
    fn long_decimal_amounts_are_decimals_in_billionths() {
        // 10^18 * 10^9 = 54210108 * 2^64 + 11515845246265065472
        check(
            "1000000000000000000",
            &large(false, "11515845246265065472 54210108", 9, "DecimalSI"),
        );
    }
}
