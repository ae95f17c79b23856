//! Reading one field of a JSON text. Parsing stops behind the field: mostly metadata is read, and
//! that comes first.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor,
};

/// The value at a path; `None` if there is no such field.
pub(crate) fn read<'a, T: Deserialize<'a>>(
    text: &'a [u8],
    path: &[impl AsRef<str>],
) -> Result<Option<T>, serde_json::Error> {
    let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    let mut found = None;
    let seek = Seek {
        path: &path,
        found: &mut found,
    };
    let outcome = seek.deserialize(&mut serde_json::Deserializer::from_slice(text));
    // The error stops the parser once the field is found.
    if found.is_none() {
        outcome.map(|()| None)
    } else {
        Ok(found)
    }
}

/// Follows a path, field by field.
struct Seek<'a, T> {
    path: &'a [&'a str],
    found: &'a mut Option<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Seek<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if !self.path.is_empty() {
            return deserializer.deserialize_map(self);
        }
        *self.found = Some(T::deserialize(deserializer)?);
        Ok(())
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Seek<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((name, path)) = self.path.split_first() else {
            return Ok(());
        };
        while let Some(is_it) = map.next_key_seed(Is(name))? {
            if is_it {
                map.next_value_seed(Seek {
                    path,
                    found: &mut *self.found,
                })?;
                if self.found.is_some() {
                    return Err(A::Error::custom("found"));
                }
                continue;
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Whether a field has this name.
struct Is<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de> Visitor<'de> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<i32>) {
        assert_eq!(read::<i32>(text.as_bytes(), &["a", "b"]).unwrap(), expected);
    }

    #[test]
    fn a_field_is_found_or_missing() {
        check(r#"{"x": [1], "a": {"c": 1, "b": 2}, "z": 3}"#, Some(2));
        check(r#"{"a": {"c": 1}, "z": 3}"#, None);
        check(r#"{"a": {}}"#, None);
        check(r#"{"z": 3}"#, None);
    }

    #[test]
    fn a_value_that_is_no_object_is_rejected() {
        assert!(read::<i32>(b"[1]", &["a"]).is_err());
        assert!(read::<i32>(br#"{"a": 1}"#, &["a", "b"]).is_err());
    }
}
