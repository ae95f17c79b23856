//! Numbers as Go's client writes them: the shortest text, with an exponent below 1e-4 and from 1e6 on (Go: `%g`).

use std::fmt::{self, Write as _};

/// The value of a series. A metric is a float, whatever it counts.
pub trait Number {
    /// The nearest float.
    fn to_f64(self) -> f64;
}

macro_rules! number {
    ($($ty:ty),*) => { $(impl Number for $ty {
        fn to_f64(self) -> f64 {
            self as f64
        }
    })* };
}
number!(u8, u16, u32, u64, usize, i32, i64, f64);

pub(crate) fn write(out: &mut String, number: f64) -> fmt::Result {
    if number.is_nan() {
        return out.write_str("NaN");
    }
    if number.is_infinite() {
        return out.write_str(if number > 0.0 { "+Inf" } else { "-Inf" });
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        -4..=5 => write!(out, "{number}"),
        exponent => write!(
            out,
            "{digits}e{}{:02}",
            if exponent < 0 { '-' } else { '+' },
            exponent.abs()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (number, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (0.00002048, "2.048e-05"),
            (123_456.0, "123456"),
            (999_999.5, "999999.5"),
            (1_000_000.0, "1e+06"),
            (1_763_304_476.25, "1.76330447625e+09"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            let mut out = String::new();
            write(&mut out, number).unwrap();
            assert_eq!(out, expected);
        }
    }
}
