//! The values of enum types.

use std::collections::HashMap;
use std::sync::LazyLock;

static VALUES: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let lines = include_str!("enums.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, values)| (name, split(values)))
        .collect()
});

fn split(values: &'static str) -> Vec<&'static str> {
    values
        .split(", ")
        .map(|value| if value == r#""""# { "" } else { value })
        .collect()
}

/// The values of the Go type, such as `v1.RestartPolicy`; none if it is not an enum.
pub(super) fn values(go: &str) -> &'static [&'static str] {
    let name = go.rsplit('.').next().unwrap_or_default();
    VALUES.get(name).map_or(&[], Vec::as_slice)
}
