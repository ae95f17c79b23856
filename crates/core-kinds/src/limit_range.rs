//! LimitRanges: validation of their bounds, and defaults derived from them.

use std::collections::BTreeSet;

use mizzen_object::validate::{field, names, repeats};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::resources;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_component_helpers::resource_names::is_overcommit_allowed;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<LimitRangeStrategy>();

pub(super) struct LimitRangeStrategy;

impl KindStrategy for LimitRangeStrategy {
    fn default(range: &mut Value) {
        for item in range.entry("spec").entry("limits").list_mut() {
            if item["type"].str() == "Container" {
                for (from, to) in [
                    ("max", "default"),
                    ("default", "defaultRequest"),
                    ("min", "defaultRequest"),
                ] {
                    for (resource, amount) in item[from].clone().entries() {
                        item.entry(to).set_default(resource, amount.clone());
                    }
                }
            }
            LISTS
                .iter()
                .for_each(|list| resources::round(item.get_mut(list)));
        }
    }

    fn validate(range: &Value, _: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let path = Path::new("spec");
        let path = path.child("limits");
        let items = range["spec"]["limits"].list();
        let repeated = repeats(items, |item| item["type"].str());
        for (index, item) in items.iter().enumerate() {
            let path = path.index(index);
            let ty = item["type"].str();
            let wrong = names::is_qualified_name(ty);
            if wrong.is_empty() && !ty.contains('/') && !TYPES.contains(&ty) {
                violations.invalid(
                    path.child("type"),
                    ty,
                    "must be a standard limit type or fully qualified",
                );
            }
            field::all(wrong, ty, &path.child("type"), violations);
            if repeated[index] {
                violations.duplicate(path.child("type"), item["type"].str());
            }
            resource_names(item, &path, violations);
            let resources: BTreeSet<&str> = LISTS
                .iter()
                .filter(|list| item["type"].str() != "Pod" || !list.starts_with("default"))
                .flat_map(|list| item[*list].entries().map(|(resource, _)| resource))
                .collect();
            for resource in resources {
                LimitBounds::of(item, resource).validate(resource, &path, violations);
            }
        }
    }
}

const TYPES: [&str; 3] = ["Pod", "Container", "PersistentVolumeClaim"];
const LISTS: [&str; 5] = [
    "max",
    "min",
    "default",
    "defaultRequest",
    "maxLimitRequestRatio",
];

fn resource_names(item: &Value, path: &Path, violations: &mut Violations) {
    let (before, after) = LISTS.split_at(4);
    before
        .iter()
        .for_each(|list| names_in(item, list, &path.child(list), violations));
    let has_storage = |list: &str| !item[list]["storage"].is_null();
    if item["type"].str() == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
        let message =
            "either minimum or maximum storage value is required, but neither was provided";
        violations.required(path.child("limits"), message);
    }
    after
        .iter()
        .for_each(|list| names_in(item, list, &path.child(list), violations));
}

fn names_in(item: &Value, list: &str, path: &Path, violations: &mut Violations) {
    let ty = item["type"].str();
    if ty == "Pod" && list.starts_with("default") {
        if !item[list].is_empty() {
            violations.forbidden(path, "may not be specified when `type` is 'Pod'");
        }
        return;
    }
    for (resource, _) in item[list].entries() {
        match ty {
            "Pod" | "Container" => {
                resources::container_name(resource, &path.key(resource), violations)
            }
            _ => resources::name(resource, &path.key(resource), violations),
        }
    }
}

/// What an item says about one resource.
struct LimitBounds {
    min: Option<Quantity>,
    max: Option<Quantity>,
    limit: Option<Quantity>,
    request: Option<Quantity>,
    ratio: Option<Quantity>,
}

impl LimitBounds {
    fn of(item: &Value, resource: &str) -> LimitBounds {
        let amount = |list: &str| item[list][resource].as_str().map(Quantity::parse_or_zero);
        let has_defaults = item["type"].str() != "Pod";
        LimitBounds {
            min: amount("min"),
            max: amount("max"),
            limit: amount("default").filter(|_| has_defaults),
            request: amount("defaultRequest").filter(|_| has_defaults),
            ratio: amount("maxLimitRequestRatio"),
        }
    }

    fn validate(&self, resource: &str, path: &Path, violations: &mut Violations) {
        for (field, shown, (low, low_word), (high, high_word)) in self.orders() {
            if let (Some(low), Some(high)) = (low, high)
                && low > high
            {
                let message =
                    format!("{low_word} value {low} is greater than {high_word} value {high}");
                violations.invalid(
                    path.child(field).key(resource),
                    shown.unwrap_or(low).to_string(),
                    &message,
                );
            }
        }
        self.validate_ratio(resource, path, violations);
        if let (Some(limit), Some(request)) = (self.limit, self.request)
            && !is_overcommit_allowed(resource)
            && limit != request
        {
            let message = format!(
                "default value {limit} must equal to defaultRequest value {request} in {resource}"
            );
            violations.invalid(
                path.child("defaultRequest").key(resource),
                request.to_string(),
                &message,
            );
        }
    }

    /// What must not be greater than what: where it is reported, the amount that is shown if it is not the
    /// lower one, and both amounts by their names.
    ///
    /// Kubernetes: for `default` the message shows the bound, not the default.
    fn orders(&self) -> [(&'static str, Option<Quantity>, Named, Named); 6] {
        let min = (self.min, "min");
        let max = (self.max, "max");
        let limit = (self.limit, "default");
        let request = (self.request, "default request");
        [
            ("min", None, min, max),
            ("defaultRequest", self.request, min, request),
            ("defaultRequest", None, request, max),
            (
                "defaultRequest",
                None,
                request,
                (self.limit, "default limit"),
            ),
            ("default", None, min, limit),
            ("default", self.max, limit, max),
        ]
    }

    fn validate_ratio(&self, resource: &str, path: &Path, violations: &mut Violations) {
        let Some(ratio) = self.ratio else { return };
        let path = path.child("maxLimitRequestRatio");
        let path = path.key(resource);
        if ratio < Quantity::parse_or_zero("1") {
            violations.invalid(
                path,
                ratio.to_string(),
                &format!("ratio {ratio} is less than 1"),
            );
        }
        if let (Some(min), Some(max)) = (self.min, self.max) {
            let limit = max.as_f64() / min.as_f64();
            if ratio.as_f64() > limit {
                let message = format!("ratio {ratio} is greater than max/min = {limit:.6}");
                violations.invalid(path, ratio.to_string(), &message);
            }
        }
    }
}

type Named = (Option<Quantity>, &'static str);

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    #[track_caller]
    fn refused(items: &str, expected: &[&str]) {
        check(BEHAVIOUR)
            .create(&format!(r#"{{"spec":{{"limits":[{items}]}}}}"#))
            .refused(expected);
    }

    #[test]
    fn defaults_of_containers_follow_from_bounds() {
        check(BEHAVIOUR)
            .create(r#"{"spec":{"limits":[{"type":"Container","max":{"cpu":"1"},"min":{"memory":"1"}}]}}"#)
            .has(
                "spec.limits",
                r#"[{"type":"Container","max":{"cpu":"1"},"min":{"memory":"1"},"default":{"cpu":"1"},
                    "defaultRequest":{"cpu":"1","memory":"1"}}]"#,
            );
    }

    #[test]
    fn bounds_fit_together() {
        refused(
            r#"{"type":"Container","min":{"cpu":"2"},"max":{"cpu":"1"}}"#,
            &[
                r#"spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1"#,
                r#"spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1"#,
                r#"spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1"#,
            ],
        );
        refused(
            r#"{"type":"Container","default":{"cpu":"2"},"max":{"cpu":"1"}}"#,
            &[
                r#"spec.limits[0].defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater than max value 1"#,
                r#"spec.limits[0].default[cpu]: Invalid value: "1": default value 2 is greater than max value 1"#,
            ],
        );
        refused(
            r#"{"type":"Pod","maxLimitRequestRatio":{"cpu":"500m"},"default":{"cpu":"1"}}"#,
            &[
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
                r#"spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1"#,
            ],
        );
        refused(
            r#"{"type":"Pod","maxLimitRequestRatio":{"cpu":"3"},"min":{"cpu":"1"},"max":{"cpu":"2"}}"#,
            &[
                r#"spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000"#,
            ],
        );
    }

    #[test]
    fn types_and_resources_are_validated() {
        refused(
            r#"{"type":"Container"},{"type":"Container"},{"type":"Nope"},{"type":"PersistentVolumeClaim"}"#,
            &[
                "spec.limits[1].type: Duplicate value: \"Container\"",
                "spec.limits[2].type: Invalid value: \"Nope\": must be a standard limit type or fully qualified",
                "spec.limits[3].limits: Required value: either minimum or maximum storage value is required",
            ],
        );
        refused(
            r#"{"type":"Pod","max":{"nope":"1"}}"#,
            &[
                "spec.limits[0].max[nope]: Invalid value: \"nope\": must be a standard resource type or fully",
                "spec.limits[0].max[nope]: Invalid value: \"nope\": must be a standard resource for containers",
            ],
        );
    }
}
