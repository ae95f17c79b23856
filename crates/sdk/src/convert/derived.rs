//! What derived conversions call for the items of containers.

use super::ConvertError;

/// Converts an optional value.
pub fn option<S, T>(
    value: Option<S>,
    convert: impl FnOnce(S) -> Result<T, ConvertError>,
) -> Result<Option<T>, ConvertError> {
    value.map(convert).transpose()
}

/// Converts a boxed value.
#[expect(clippy::boxed_local, reason = "the field is a box")]
pub fn boxed<S, T>(
    value: Box<S>,
    convert: impl FnOnce(S) -> Result<T, ConvertError>,
) -> Result<Box<T>, ConvertError> {
    convert(*value).map(Box::new)
}

/// Converts the items of a list.
pub fn list<S, T>(
    items: Vec<S>,
    convert: impl Fn(S) -> Result<T, ConvertError>,
) -> Result<Vec<T>, ConvertError> {
    let items = items.into_iter().enumerate();
    items
        .map(|(index, item)| convert(item).map_err(|error| error.at_index(index)))
        .collect()
}

/// Converts the values of a map.
pub fn map<K, S, T, M: FromIterator<(K, T)>>(
    items: impl IntoIterator<Item = (K, S)>,
    convert: impl Fn(S) -> Result<T, ConvertError>,
) -> Result<M, ConvertError> {
    let items = items.into_iter();
    items.map(|(key, item)| Ok((key, convert(item)?))).collect()
}
