//! Taints and tolerations: which taints does a toleration tolerate?
//!
//! The one rule for scheduler, kubelet, taint eviction, DaemonSets and admission, for nodes and for devices. What decides
//! often keeps [`Taint`] and [`Toleration`], which are read once; [`tolerates`] is the same rule on plain objects.
//!
//! Kubernetes: `Toleration.ToleratesTaint` (api/core/v1/toleration.go), `resourceclaim.ToleratesTaint` for devices, and
//! pkg/util/tolerations for what contains what. `Lt` and `Gt` are behind the gate TaintTolerationComparisonOperators,
//! which is off in v1.36: they tolerate nothing, as any other operator that is not known.

use mizzen_value::{Str, Value};

/// The fields that tell one toleration from another; how long it lasts does not.
const IDENTITY: [&str; 4] = ["key", "operator", "value", "effect"];

/// What keeps pods off a node, or a claim off a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Taint {
    /// Its name.
    pub key: Str,
    /// Its value.
    pub value: Str,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`; other effects do nothing.
    pub effect: Str,
}

impl Taint {
    /// Reads a taint.
    pub fn new(taint: &Value) -> Taint {
        let text = |field: &str| taint[field].str().into();
        Taint {
            key: text("key"),
            value: text("value"),
            effect: text("effect"),
        }
    }

    /// Reads a list of taints.
    pub fn list(taints: &Value) -> Box<[Taint]> {
        taints.items().map(Taint::new).collect()
    }

    /// Whether pods that do not tolerate it are not scheduled.
    pub fn forbids_scheduling(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TolerationOperator {
    Equal,
    Exists,
    /// One that is not known, or whose gate is off.
    Unsupported,
}

/// Which taints a pod tolerates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toleration {
    key: Str,
    operator: TolerationOperator,
    value: Str,
    /// Empty for every effect.
    pub effect: Str,
}

impl Toleration {
    /// Reads a toleration.
    pub fn new(toleration: &Value) -> Toleration {
        let text = |field: &str| toleration[field].str().into();
        Toleration {
            key: text("key"),
            operator: match toleration["operator"].str() {
                "" | "Equal" => TolerationOperator::Equal,
                "Exists" => TolerationOperator::Exists,
                _ => TolerationOperator::Unsupported,
            },
            value: text("value"),
            effect: text("effect"),
        }
    }

    /// Reads a list of tolerations.
    pub fn list(tolerations: &Value) -> Box<[Toleration]> {
        tolerations.items().map(Toleration::new).collect()
    }

    /// Whether it tolerates a taint. An empty key stands for every key, an empty effect for every effect.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                TolerationOperator::Equal => self.value == taint.value,
                TolerationOperator::Exists => true,
                TolerationOperator::Unsupported => false,
            }
    }
}

/// Whether a toleration tolerates a taint, both as objects have them.
pub fn tolerates(toleration: &Value, taint: &Value) -> bool {
    Toleration::new(toleration).tolerates(&Taint::new(taint))
}

/// Whether one of the tolerations tolerates the taint.
pub fn any_tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations
        .iter()
        .any(|toleration| toleration.tolerates(taint))
}

/// The first taint that forbids scheduling and is not tolerated.
pub fn first_untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints
        .iter()
        .find(|taint| taint.forbids_scheduling() && !any_tolerates(tolerations, taint))
}

/// Whether two tolerations are the same but for how long they last. Kubernetes: `MatchToleration`.
fn is_same(one: &Value, other: &Value) -> bool {
    IDENTITY
        .iter()
        .all(|field| one[*field].str() == other[*field].str())
}

/// Adds a toleration. It replaces those that are the same but for how long they last, each in its place. Kubernetes:
/// `AddOrUpdateTolerationInPodSpec`.
pub fn add_or_update(tolerations: &mut Vec<Value>, toleration: &Value) {
    let mut is_there = false;
    for known in tolerations
        .iter_mut()
        .filter(|known| is_same(known, toleration))
    {
        *known = toleration.clone();
        is_there = true;
    }
    if !is_there {
        tolerations.push(toleration.clone());
    }
}

/// All tolerations without those that another makes redundant; of equal ones the first stays.
pub fn merge(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let is_covered = merged.iter().any(|other| is_superset(other, toleration))
            || all[index + 1..]
                .iter()
                .any(|other| !is_equal(other, toleration) && is_superset(other, toleration));
        if !is_covered {
            merged.push(toleration.clone());
        }
    }
    merged
}

fn is_equal(one: &Value, other: &Value) -> bool {
    is_same(one, other) && one["tolerationSeconds"].as_int() == other["tolerationSeconds"].as_int()
}

/// Whether one toleration tolerates all that another does. Kubernetes: `Equal` must be written out on the other side.
pub fn is_superset(all: &Value, one: &Value) -> bool {
    let text = |field: &str| (all[field].str(), one[field].str());
    let ((key, other_key), (effect, other_effect)) = (text("key"), text("effect"));
    let (operator, other_operator) = text("operator");
    let seconds = |toleration: &Value| toleration["tolerationSeconds"].as_int();
    let lasts = match seconds(all) {
        Some(limit) if effect == "NoExecute" => {
            seconds(one).is_some_and(|seconds| seconds <= limit)
        }
        _ => true,
    };
    let has_key = key == other_key || key.is_empty() && operator == "Exists";
    let has_effect = effect == other_effect || effect.is_empty();
    let has_value = match operator {
        "Equal" | "" => other_operator == "Equal" && all["value"].str() == one["value"].str(),
        operator => operator == "Exists",
    };
    is_equal(all, one) || has_key && has_effect && lasts && has_value
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn read(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_toleration_tolerates_what_it_names() {
        let taint =
            r#"{"key":"k","value":"v","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z"}"#;
        let number = r#"{"key":"k","value":"5","effect":"NoExecute"}"#;
        let plain = r#"{"key":"k","effect":"NoExecute"}"#;
        let odd = r#"{"key":"k","effect":"NoAccess"}"#;
        #[rustfmt::skip]
        let cases = [
            // The operator.
            (r#"{"key":"k","value":"v"}"#, taint, true),
            (r#"{"key":"k","operator":"Equal","value":"v"}"#, taint, true),
            (r#"{"key":"k","operator":"Equal","value":"w"}"#, taint, false),
            (r#"{"key":"k"}"#, taint, false),
            (r#"{"key":"k"}"#, plain, true),
            (r#"{"key":"k","operator":"Exists"}"#, taint, true),
            (r#"{"key":"k","operator":"Exists","value":"w"}"#, taint, true),
            (r#"{"key":"k","operator":"Near","value":"v"}"#, taint, false),
            (r#"{"key":"k","operator":"equal","value":"v"}"#, taint, false),
            // Comparisons are behind a gate that is off.
            (r#"{"key":"k","operator":"Lt","value":"9"}"#, number, false),
            (r#"{"key":"k","operator":"Gt","value":"1"}"#, number, false),
            (r#"{"key":"k","operator":"Gt","value":"5"}"#, number, false),
            // The key.
            (r#"{"key":"other","operator":"Exists"}"#, taint, false),
            (r#"{"operator":"Exists"}"#, taint, true),
            (r#"{"value":"v"}"#, taint, true),
            (r#"{"value":"w"}"#, taint, false),
            (r#"{}"#, plain, true),
            // The effect.
            (r#"{"key":"k","operator":"Exists","effect":"NoExecute"}"#, taint, true),
            (r#"{"key":"k","operator":"Exists","effect":"NoSchedule"}"#, taint, false),
            (r#"{"key":"k","operator":"Exists","effect":"NoAccess"}"#, taint, false),
            (r#"{"key":"k","operator":"Exists","effect":"NoAccess"}"#, odd, true),
            (r#"{"key":"k","operator":"Exists"}"#, odd, true),
            // How long it lasts is another question.
            (r#"{"key":"k","operator":"Exists","tolerationSeconds":0}"#, taint, true),
        ];
        for (toleration, taint, expected) in cases {
            let found = tolerates(&read(toleration), &read(taint));
            assert_eq!(found, expected, "{toleration} {taint}");
        }
    }

    #[test]
    fn only_two_effects_forbid_scheduling() {
        let untolerated = |taints: &str, tolerations: &str| {
            let taints = Taint::list(&read(taints));
            let found = first_untolerated(&taints, &Toleration::list(&read(tolerations)));
            found.map(|taint| taint.key.clone())
        };
        let taints = r#"[{"key":"a","effect":"PreferNoSchedule"},{"key":"b","effect":"NoAccess"},{"key":"c"},
            {"key":"d","effect":"NoSchedule"},{"key":"e","effect":"NoExecute"}]"#;
        let d = r#"{"key":"d","operator":"Exists"}"#;
        let e = r#"{"key":"e","operator":"Exists"}"#;
        assert_eq!(untolerated(taints, "[]").as_deref(), Some("d"));
        assert_eq!(untolerated(taints, &format!("[{d}]")).as_deref(), Some("e"));
        assert_eq!(untolerated(taints, &format!("[{d},{e}]")), None);
    }

    #[test]
    fn a_toleration_may_include_another() {
        let lasting =
            r#"{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}"#;
        let shorter = lasting.replace('5', "4");
        let longer = lasting.replace('5', "6");
        #[rustfmt::skip]
        let cases = [
            ("{}", "{}", true),
            (r#"{"operator":"Exists"}"#, r#"{"key":"a","operator":"Equal","value":"x"}"#, true),
            (r#"{"key":"a","operator":"Exists"}"#, r#"{"key":"b","operator":"Exists"}"#, false),
            (r#"{"key":"a","operator":"Exists","effect":"NoSchedule"}"#, r#"{"key":"a"}"#, false),
            (r#"{"key":"a","operator":"Exists"}"#, r#"{"key":"a","effect":"NoSchedule"}"#, true),
            (r#"{"key":"a","value":"x"}"#, r#"{"key":"a","operator":"Equal","value":"x"}"#, true),
            (r#"{"key":"a","operator":"Equal"}"#, r#"{"key":"a","value":""}"#, false),
            (r#"{"key":"a","value":""}"#, r#"{"key":"a"}"#, true),
            (r#"{"key":"a","operator":"Odd"}"#, r#"{"key":"a","operator":"Exists"}"#, false),
            (lasting, &shorter, true),
            (lasting, &longer, false),
            (lasting, r#"{"key":"a","operator":"Exists","effect":"NoExecute"}"#, false),
        ];
        for (all, one, expected) in cases {
            assert_eq!(is_superset(&read(all), &read(one)), expected, "{all} {one}");
        }
    }

    #[test]
    fn tolerations_that_another_includes_are_left_out() {
        let short = r#"{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":3}"#;
        let one = r#"{"key":"a","operator":"Equal","value":"x"}"#;
        let all = r#"{"key":"a","operator":"Exists"}"#;
        let any = r#"{"operator":"Exists"}"#;
        for (before, after) in [
            (format!("[{one},{all},{one}]"), format!("[{all}]")),
            (format!("[{one},{one}]"), format!("[{one}]")),
            (format!("[{short},{any}]"), format!("[{any}]")),
            (format!("[{any},{short}]"), format!("[{any}]")),
            (
                r#"[{"key":"a"},{"key":"a"},{"key":"b"}]"#.to_owned(),
                r#"[{"key":"a"},{"key":"b"}]"#.to_owned(),
            ),
        ] {
            let merged = Value::List(merge(read(&before).list()));
            assert_eq!(json::to_string(&merged), after);
        }
    }

    #[test]
    fn a_toleration_is_added_once_and_replaces_those_that_end() {
        let ends = r#"{"key":"x","operator":"Exists","effect":"NoSchedule","tolerationSeconds":5}"#;
        let same = r#"{"key":"x","operator":"Exists","effect":"NoSchedule"}"#;
        let other = r#"{"key":"x","operator":"Exists"}"#;
        for (before, after) in [
            ("[]".to_owned(), format!("[{same}]")),
            (format!("[{other}]"), format!("[{other},{same}]")),
            (format!("[{ends},{other}]"), format!("[{same},{other}]")),
            (format!("[{ends},{same}]"), format!("[{same},{same}]")),
        ] {
            let mut tolerations = read(&before).list().to_vec();
            add_or_update(&mut tolerations, &read(same));
            assert_eq!(json::to_string(&Value::List(tolerations)), after);
        }
    }
}
