//! Integers in text, with the error messages of Go's `strconv`.

use std::num::IntErrorKind::{NegOverflow, PosOverflow};

use mizzen_value::json::quote;

/// Reads a number as this function of Go's `strconv` does.
pub fn parse(function: &str, text: &str) -> Result<i64, String> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        let problem = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.{function}: parsing {}: {problem}", quote(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_numbers_have_the_errors_of_strconv() {
        assert_eq!(
            (parse("Atoi", "+007"), parse("Atoi", "-3")),
            (Ok(7), Ok(-3))
        );
        for text in ["", "+", "x", "7x", "1_0", "0x1", " 1"] {
            assert_eq!(
                parse("Atoi", text),
                Err(format!("strconv.Atoi: parsing \"{text}\": invalid syntax"))
            );
        }
        for text in ["99999999999999999999", "-9223372036854775809"] {
            let expected = format!("strconv.ParseInt: parsing \"{text}\": value out of range");
            assert_eq!(parse("ParseInt", text), Err(expected));
        }
    }
}
