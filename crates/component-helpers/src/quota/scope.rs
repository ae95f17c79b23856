//! Quota scopes: which objects a ResourceQuota applies to.

use std::fmt;

use mizzen_value::Value;

/// One condition of a quota.
#[derive(Debug, Clone, PartialEq)]
pub struct ScopeSelector {
    /// The scope that it matches.
    pub scope: String,
    /// How it compares.
    pub operator: String,
    /// What it compares with.
    pub values: Vec<String>,
}

/// The conditions of a quota, all of which must hold.
pub fn selectors(quota: &Value) -> Vec<ScopeSelector> {
    let spec = &quota["spec"];
    let plain = spec["scopes"].items().map(|scope| ScopeSelector {
        scope: scope.str().into(),
        operator: "Exists".into(),
        values: Vec::new(),
    });
    plain
        .chain(
            spec["scopeSelector"]["matchExpressions"]
                .items()
                .map(ScopeSelector::of),
        )
        .collect()
}

impl ScopeSelector {
    /// Reads one.
    pub fn of(value: &Value) -> ScopeSelector {
        ScopeSelector {
            scope: value["scopeName"].str().into(),
            operator: value["operator"].str().into(),
            values: value["values"]
                .items()
                .map(|value| value.str().to_string())
                .collect(),
        }
    }

    /// Whether any of `names` is selected, or none being there is.
    pub fn selects(&self, names: &[&str]) -> bool {
        let listed = |name: &&str| self.values.iter().any(|value| value == name);
        match self.operator.as_str() {
            "Exists" => !names.is_empty(),
            "DoesNotExist" => names.is_empty(),
            "In" => names.iter().any(listed),
            "NotIn" => names.is_empty() || names.iter().any(|name| !listed(name)),
            _ => false,
        }
    }
}

/// As Go prints it.
impl fmt::Display for ScopeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{{{} {} [{}]}}",
            self.scope,
            self.operator,
            self.values.join(" ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(operator: &str, names: &[&str], expected: bool) {
        let selector = ScopeSelector {
            scope: "PriorityClass".into(),
            operator: operator.into(),
            values: vec!["high".into()],
        };
        assert_eq!(selector.selects(names), expected);
    }

    #[test]
    fn operators_mean_what_they_mean_for_labels() {
        check("In", &["high"], true);
        check("In", &["low"], false);
        check("In", &[], false);
        check("NotIn", &["high"], false);
        check("NotIn", &["low"], true);
        check("NotIn", &[], true);
        check("Exists", &["low"], true);
        check("Exists", &[], false);
        check("DoesNotExist", &[], true);
        check("DoesNotExist", &["low"], false);
    }
}
