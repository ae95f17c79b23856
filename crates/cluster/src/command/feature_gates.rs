//! `--feature-gates`: known gates are accepted in the state that the feature has here, and rejected otherwise.
//!
//! Kubernetes: component-base/featuregate/feature_gate.go, whose messages these are where it rejects, too.

use std::sync::LazyLock;

use mizzen_bootstrap::objects::parse_bool;
use mizzen_metrics::{Collector, Families};

/// The gates of v1.36. The format is in data/README.md.
static GATES: LazyLock<Vec<KnownGate>> = LazyLock::new(|| {
    include_str!("../../data/feature.gates")
        .lines()
        .map(KnownGate::parse)
        .collect()
});

/// A feature gate of Kubernetes.
struct KnownGate {
    name: &'static str,
    stage: &'static str,
    default: bool,
    is_locked: bool,
    /// The state of the feature here; none if it does not concern this process, such as gates of kubelets.
    is_on: Option<bool>,
}

impl KnownGate {
    fn parse(line: &'static str) -> KnownGate {
        let words: Vec<&str> = line.split_whitespace().collect();
        let default = words[2] == "true";
        let is_on = match words.last() {
            Some(&"on") => Some(true),
            Some(&"off") => Some(false),
            Some(&"elsewhere") => None,
            _ => Some(default),
        };
        KnownGate {
            name: words[0],
            stage: words[1],
            default,
            is_locked: words.contains(&"locked"),
            is_on,
        }
    }

    /// Whether the gate can be set to `wanted`.
    fn check(&self, wanted: bool) -> Result<(), String> {
        let KnownGate { name, default, .. } = self;
        match (
            self.is_locked && *default != wanted,
            self.is_on.is_none_or(|is_on| is_on == wanted),
        ) {
            (true, _) => Err(format!(
                "cannot set feature gate {name} to {wanted}, feature is locked to {default}"
            )),
            (_, true) => Ok(()),
            (_, false) if wanted => Err(format!(
                "cannot set feature gate {name} to true, this feature is not available here"
            )),
            (_, false) => Err(format!(
                "cannot set feature gate {name} to false, this feature is always on here"
            )),
        }
    }
}

/// The metric of enabled features. Kubernetes: component-base/metrics/prometheus/feature.
#[derive(Debug)]
pub(crate) struct FeatureMetrics;

impl Collector for FeatureMetrics {
    fn collect(&self, families: &mut Families) {
        let family = families.gauge("kubernetes_feature_enabled", "Whether a feature is on.");
        for gate in GATES.iter() {
            let stage = match gate.stage {
                "ga" => String::new(),
                stage => stage.to_uppercase(),
            };
            let is_on = gate.is_on.unwrap_or(gate.default);
            family.add(&[("name", gate.name), ("stage", &stage)], u8::from(is_on));
        }
        family.add(&[("name", "AllAlpha"), ("stage", "ALPHA")], 0);
        family.add(&[("name", "AllBeta"), ("stage", "BETA")], 0);
    }
}

/// A gate that was set to the state that its feature has.
#[derive(Debug, Clone)]
pub(super) struct FeatureGate {
    name: &'static str,
    stage: &'static str,
    enabled: bool,
}

/// The gates of one `--feature-gates`.
#[derive(Debug, Clone)]
pub(super) struct FeatureGates(Vec<FeatureGate>);

impl FeatureGates {
    /// Logs a warning for each gate that will be removed.
    pub(super) fn warn(&self) {
        for FeatureGate {
            name,
            stage,
            enabled,
        } in &self.0
        {
            if matches!(*stage, "ga" | "deprecated") {
                tracing::warn!(
                    gate = name,
                    stage,
                    enabled,
                    "feature gate will be removed in a future release"
                );
            }
        }
    }
}

/// Parses `[kube:]NAME=BOOL,…`.
pub(super) fn feature_gates(text: &str) -> Result<FeatureGates, String> {
    let pairs = text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty());
    let set: Vec<Vec<FeatureGate>> = pairs.map(parse_pair).collect::<Result<_, _>>()?;
    Ok(FeatureGates(set.into_iter().flatten().collect()))
}

/// The gates that one pair sets; `AllAlpha` and `AllBeta` set many.
fn parse_pair(pair: &str) -> Result<Vec<FeatureGate>, String> {
    let name = match pair.split_once(':') {
        Some(("kube", name)) => name,
        Some((component, _)) => return Err(format!("component not registered: {component}")),
        None => pair,
    };
    let (name, value) = name
        .split_once('=')
        .ok_or_else(|| format!("missing bool value for {name}"))?;
    let (name, value) = (name.trim(), value.trim());
    let enabled = parse_bool(value).ok_or_else(|| {
        format!("invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")
    })?;
    match name {
        "AllAlpha" => set_stage("alpha", name, enabled),
        "AllBeta" => set_stage("beta", name, enabled),
        _ => {
            let gate = GATES.iter().find(|gate| gate.name == name);
            let gate = gate.ok_or_else(|| format!("unrecognized feature gate: {name}"))?;
            gate.check(enabled)?;
            Ok(vec![FeatureGate {
                name: gate.name,
                stage: gate.stage,
                enabled,
            }])
        }
    }
}

/// Sets all gates of a stage, which must have that state already.
fn set_stage(stage: &str, name: &str, enabled: bool) -> Result<Vec<FeatureGate>, String> {
    let others = GATES
        .iter()
        .filter(|gate| gate.stage == stage && gate.is_on == Some(!enabled));
    let others: Vec<&str> = others.map(|gate| gate.name).collect();
    match others.is_empty() {
        true => Ok(Vec::new()),
        false => Err(format!(
            "cannot set feature gate {name} to {enabled}, these features are always {}: {}",
            !enabled,
            others.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_accepted_in_the_state_that_features_have() {
        for text in [
            "",
            "SidecarContainers=true",
            "kube:WatchList=1, AllAlpha=false,",
            "StorageVersionAPI=false",
            "ComponentFlagz=true",
            "CPUManagerPolicyBetaOptions=false,CPUManagerPolicyAlphaOptions=true",
        ] {
            assert!(
                feature_gates(text).is_ok(),
                "{text}: {:?}",
                feature_gates(text)
            );
        }
    }

    /// Kubernetes: test/compatibility_lifecycle/reference/versioned_feature_list.yaml has 230 gates that are not newer than
    /// v1.36, and client-go has ten of its own, which components know as well.
    #[test]
    fn every_gate_of_the_release_is_listed() {
        assert_eq!(GATES.len(), 240);
        assert!(GATES.is_sorted_by_key(|gate| gate.name));
        let count = |stage: &str, default: bool| {
            GATES
                .iter()
                .filter(|gate| gate.stage == stage && gate.default == default)
                .count()
        };
        let stages = ["alpha", "beta", "deprecated", "ga"];
        let counts = stages.map(|stage| (count(stage, true), count(stage, false)));
        assert_eq!(counts, [(0, 49), (88, 11), (6, 10), (76, 0)]);
        assert!(
            GATES
                .iter()
                .filter(|gate| gate.is_locked)
                .all(|gate| gate.is_on == Some(gate.default))
        );
    }

    #[test]
    fn gates_are_rejected_in_another_state() {
        for (text, expected) in [
            ("Foo=true", "unrecognized feature gate: Foo"),
            ("Foo", "missing bool value for Foo"),
            ("x:WatchList=true", "component not registered: x"),
            (
                "WatchList=maybe",
                "invalid value of WatchList=maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax",
            ),
            (
                "SidecarContainers=false",
                "cannot set feature gate SidecarContainers to false, feature is locked to true",
            ),
            (
                "WatchList=false",
                "cannot set feature gate WatchList to false, this feature is always on here",
            ),
            (
                "StorageVersionAPI=true",
                "cannot set feature gate StorageVersionAPI to true, this feature is not available here",
            ),
            (
                "ComponentFlagz=false",
                "cannot set feature gate ComponentFlagz to false, this feature is always on here",
            ),
            (
                "GitRepoVolumeDriver=true",
                "cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false",
            ),
            (
                "WatchListClient=true",
                "cannot set feature gate WatchListClient to true, this feature is not available here",
            ),
        ] {
            assert_eq!(feature_gates(text).unwrap_err(), expected);
        }
        assert!(
            feature_gates("AllBeta=true")
                .unwrap_err()
                .contains("CoordinatedLeaderElection")
        );
        assert!(
            feature_gates("AllBeta=false")
                .unwrap_err()
                .contains("WatchList")
        );
        assert!(
            feature_gates("AllAlpha=true")
                .unwrap_err()
                .contains("StorageVersionAPI")
        );
    }
}
