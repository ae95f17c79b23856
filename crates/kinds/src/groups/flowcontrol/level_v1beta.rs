//! Priority levels of the versions before v1, whose limited levels could not tell zero shares from none.
//!
//! v1beta1 and v1beta2 call the shares assured. v1beta3 has an annotation for zero.
//!
//! Kubernetes: pkg/apis/flowcontrol/v1beta1 to v1beta3.

use mizzen_value::Value;

use super::level::{DEFAULT_SHARES, LEVEL, PRESERVE_ZERO, PriorityLevelStrategy};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

/// Priority levels of v1beta1 and v1beta2.
pub(super) const ASSURED: Behaviour = Behaviour {
    default: |level| default_shares(level, ASSURED_SHARES),
    to_stored: |level| rename_shares(level, ASSURED_SHARES, NOMINAL_SHARES),
    from_stored: |level| rename_shares(level, NOMINAL_SHARES, ASSURED_SHARES),
    ..LEVEL
};

/// Priority levels of v1beta3.
pub(super) const V1BETA3: Behaviour = Behaviour {
    default: |level| {
        if level["metadata"]["annotations"]
            .get(PRESERVE_ZERO)
            .is_none()
        {
            return default_shares(level, NOMINAL_SHARES);
        }
        if let Some(limited) = limited(level) {
            limited.set_default(NOMINAL_SHARES, 0);
        }
        default_rest(level, NOMINAL_SHARES);
    },
    to_stored: |level| {
        if let Some(annotations) = level.at_mut("metadata.annotations") {
            annotations.remove(PRESERVE_ZERO);
        }
    },
    from_stored: |level| {
        if limited(level).is_some_and(|limited| limited[NOMINAL_SHARES].is_empty()) {
            level
                .entry("metadata")
                .entry("annotations")
                .set_default(PRESERVE_ZERO, "");
        }
    },
    ..LEVEL
};

const ASSURED_SHARES: &str = "assuredConcurrencyShares";
const NOMINAL_SHARES: &str = "nominalConcurrencyShares";

fn limited(level: &mut Value) -> Option<&mut Value> {
    level
        .at_mut("spec.limited")
        .filter(|limited| !limited.is_null())
}

fn default_shares(level: &mut Value, name: &str) {
    if let Some(limited) = limited(level)
        && limited[name].is_empty()
    {
        limited.set(name, DEFAULT_SHARES);
    }
    default_rest(level, name);
}

/// What all versions default alike, once the shares of a limited level are there.
fn default_rest(level: &mut Value, shares: &str) {
    rename_shares(level, shares, NOMINAL_SHARES);
    PriorityLevelStrategy::default(level);
    rename_shares(level, NOMINAL_SHARES, shares);
}

fn rename_shares(level: &mut Value, from: &str, to: &str) {
    if let Some(limited) = limited(level)
        && let Some(shares) = limited.remove(from)
    {
        limited.set(to, shares);
    }
}
