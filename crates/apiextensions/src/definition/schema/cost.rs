//! CEL cost limits of a schema's validation rules.

use mizzen_object::{Path, Violations};
use mizzen_value::Value;

/// The most that one expression may cost, by estimate.
const EXPRESSION_LIMIT: u64 = 10_000_000;
/// The most that all expressions of a schema may cost together.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// How many of the most expensive rules are reported.
const TOLD: usize = 4;

/// The costs of all expressions of a schema.
#[derive(Debug, Default)]
pub(super) struct Costs {
    total: u64,
    /// Where the dearest stand, the dearest first.
    dearest: Vec<(String, u64)>,
}

impl Costs {
    /// Adds an expression, and says so if it alone is too dear. `limited` says whether that matters.
    pub(super) fn add(
        &mut self,
        what: &str,
        cost: u64,
        limited: bool,
        path: &Path,
        violations: &mut Violations,
    ) {
        if limited && cost > EXPRESSION_LIMIT {
            violations.forbidden(
                path,
                &excess(&format!("estimated {what} cost"), cost, EXPRESSION_LIMIT),
            );
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.dearest.push((path.to_string(), cost));
            self.dearest
                .sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.dearest.truncate(TOLD);
        }
    }

    /// Whether all expressions together are too dear for the schema at `path`.
    pub(super) fn validate(&self, path: &Path, violations: &mut Violations) {
        if self.total <= SCHEMA_LIMIT {
            return;
        }
        for (place, _) in &self.dearest {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            violations.forbidden(place, detail);
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        violations.forbidden(path, &excess(what, self.total, SCHEMA_LIMIT));
    }
}

fn excess(what: &str, cost: u64, limit: u64) -> String {
    let factor = match cost as f64 / limit as f64 {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// How many times more often what is inside a schema can stand in an object than what is around it; `None` if there
/// is no bound.
pub(super) fn elements(schema: &Value) -> Option<u64> {
    let bound = |name: &str| Some(u64::try_from(schema.get(name)?.int()).unwrap_or_default());
    match schema["type"].str() {
        "object" if schema.get("additionalProperties").is_some() => bound("maxProperties"),
        "array" => bound("maxItems"),
        _ => Some(1),
    }
}
