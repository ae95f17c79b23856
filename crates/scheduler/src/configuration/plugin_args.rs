//! Plugin arguments: the `pluginConfig` of a profile.

use std::time::Duration;

use mizzen_value::{Str, Value, json};

use super::ConfigurationError;
use crate::model::{Labels, SpreadConstraint};
use crate::plugin::{
    Fit, InterPodAffinity, NodeAffinity, ResourceSpec, ScoringStrategy, ScoringStrategyType,
    TopologySpread, VolumeBinding,
};
use crate::preemption::CandidateLimits;

/// The decoded `pluginConfig` of a profile.
pub(super) struct PluginArgs {
    added_affinity: Value,
    ignored: Vec<Str>,
    ignored_groups: Vec<Str>,
    strategy: ScoringStrategy,
    pub balanced_resources: Vec<ResourceSpec>,
    pub affinity: InterPodAffinity,
    /// None for the system defaults.
    constraints: Option<Vec<SpreadConstraint>>,
    pub candidate_limits: CandidateLimits,
    /// `bindTimeoutSeconds` of VolumeBinding.
    pub bind_timeout: Duration,
}

impl Default for PluginArgs {
    fn default() -> PluginArgs {
        PluginArgs {
            added_affinity: Value::Null,
            ignored: Vec::new(),
            ignored_groups: Vec::new(),
            strategy: ScoringStrategy {
                kind: ScoringStrategyType::LeastAllocated,
                resources: ResourceSpec::default_list(),
            },
            balanced_resources: ResourceSpec::default_list(),
            affinity: InterPodAffinity::default(),
            constraints: None,
            candidate_limits: CandidateLimits::default(),
            bind_timeout: VolumeBinding::default().bind_timeout,
        }
    }
}

impl PluginArgs {
    /// Decodes the arguments of the profile at `path`. `ignored` are the resources that extenders
    /// manage alone.
    pub(super) fn decode(
        configs: &Value,
        path: &str,
        ignored: &[Str],
    ) -> Result<PluginArgs, ConfigurationError> {
        let mut arguments = PluginArgs {
            ignored: ignored.to_vec(),
            ..PluginArgs::default()
        };
        for (at, config) in configs.list().iter().enumerate() {
            arguments
                .decode_plugin(config["name"].str(), &config["args"])
                .map_err(|ConfigurationError(problem)| {
                    ConfigurationError(format!("{path}.pluginConfig[{at}].args.{problem}"))
                })?;
        }
        Ok(arguments)
    }

    fn decode_plugin(&mut self, plugin: &str, args: &Value) -> Result<(), ConfigurationError> {
        match plugin {
            "NodeAffinity" => self.added_affinity = args["addedAffinity"].clone(),
            "NodeResourcesFit" => self.decode_fit(args)?,
            "NodeResourcesBalancedAllocation" => {
                self.balanced_resources = decode_resources(&args["resources"])
            }
            "InterPodAffinity" => self.decode_affinity(args)?,
            "PodTopologySpread" => self.decode_spread(args)?,
            "DefaultPreemption" => self.decode_preemption(args)?,
            "VolumeBinding" => self.decode_volume_binding(args)?,
            // Arguments of out-of-tree plugins are ignored.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn node_affinity(&self) -> NodeAffinity {
        NodeAffinity::new(&self.added_affinity)
    }

    pub(super) fn fit(&self) -> Fit {
        let (ignored, ignored_groups) = (self.ignored.clone(), self.ignored_groups.clone());
        Fit {
            ignored,
            ignored_groups,
            strategy: self.strategy.clone(),
        }
    }

    pub(super) fn spread(&self) -> TopologySpread {
        self.constraints
            .clone()
            .map_or_else(TopologySpread::default, TopologySpread::with_defaults)
    }

    fn decode_fit(&mut self, args: &Value) -> Result<(), ConfigurationError> {
        let texts = |list: &Value| {
            list.list()
                .iter()
                .map(|one| one.str().into())
                .collect::<Vec<Str>>()
        };
        self.ignored.extend(texts(&args["ignoredResources"]));
        self.ignored_groups = texts(&args["ignoredResourceGroups"]);
        let strategy = &args["scoringStrategy"];
        self.strategy = ScoringStrategy {
            kind: decode_strategy_type(strategy)?,
            resources: decode_resources(&strategy["resources"]),
        };
        Ok(())
    }

    fn decode_affinity(&mut self, args: &Value) -> Result<(), ConfigurationError> {
        let hard_weight = args["hardPodAffinityWeight"].as_int().unwrap_or(1);
        if !(0..=100).contains(&hard_weight) {
            let problem = "not in valid range [0, 100]";
            return Err(ConfigurationError(format!(
                "hardPodAffinityWeight: Invalid value: {hard_weight}: {problem}"
            )));
        }
        let ignore_preferred_terms_of_existing_pods =
            args["ignorePreferredTermsOfExistingPods"].bool();
        self.affinity = InterPodAffinity {
            hard_weight,
            ignore_preferred_terms_of_existing_pods,
        };
        Ok(())
    }

    fn decode_spread(&mut self, args: &Value) -> Result<(), ConfigurationError> {
        let constraints = &args["defaultConstraints"];
        match args["defaultingType"].str() {
            "List" => {
                self.constraints =
                    Some(SpreadConstraint::list(constraints, &Labels::default()).to_vec())
            }
            "" | "System" if constraints.is_empty() => {}
            "" | "System" => {
                let problem = "when .defaultingType is System, defaultConstraints must be empty";
                return Err(ConfigurationError(format!(
                    "defaultingType: Invalid value: \"System\": {problem}"
                )));
            }
            other => {
                return Err(ConfigurationError(format!(
                    "defaultingType: Unsupported value: \"{other}\""
                )));
            }
        }
        Ok(())
    }

    fn decode_preemption(&mut self, args: &Value) -> Result<(), ConfigurationError> {
        let min_percentage = args["minCandidateNodesPercentage"].as_int().unwrap_or(10);
        let min_absolute = args["minCandidateNodesAbsolute"].as_int().unwrap_or(100);
        if !(0..=100).contains(&min_percentage)
            || min_absolute < 0
            || (min_percentage == 0 && min_absolute == 0)
        {
            return Err(ConfigurationError(
                "minCandidateNodesPercentage, minCandidateNodesAbsolute: cannot both be zero or out of range"
                    .into(),
            ));
        }
        self.candidate_limits = CandidateLimits {
            min_percentage: min_percentage as usize,
            min_absolute: min_absolute as usize,
        };
        Ok(())
    }

    fn decode_volume_binding(&mut self, args: &Value) -> Result<(), ConfigurationError> {
        let invalid = |field: &str, problem: &str| {
            let value = json::to_string(&args[field]);
            ConfigurationError(format!("{field}: Invalid value: {value}: {problem}"))
        };
        if !args["shape"].is_null() {
            let problem = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
            return Err(invalid("shape", problem));
        }
        let Some(seconds) = args["bindTimeoutSeconds"].as_int() else {
            return Ok(());
        };
        let seconds = u64::try_from(seconds).map_err(|_| {
            invalid(
                "bindTimeoutSeconds",
                "invalid BindTimeoutSeconds, should not be a negative value",
            )
        })?;
        self.bind_timeout = Duration::from_secs(seconds);
        Ok(())
    }
}

fn decode_strategy_type(strategy: &Value) -> Result<ScoringStrategyType, ConfigurationError> {
    Ok(match strategy["type"].str() {
        "" | "LeastAllocated" => ScoringStrategyType::LeastAllocated,
        "MostAllocated" => ScoringStrategyType::MostAllocated,
        "RequestedToCapacityRatio" => {
            let shape = strategy["requestedToCapacityRatio"]["shape"].list().iter();
            // Scores in the file go from 0 to 10.
            let shape: Vec<(i64, i64)> = shape
                .map(|point| (point["utilization"].int(), point["score"].int() * 10))
                .collect();
            if shape.is_empty() || !shape.is_sorted_by(|a, b| a.0 < b.0) {
                return Err(ConfigurationError(
                    "shape: utilization values must be sorted in increasing order".into(),
                ));
            }
            ScoringStrategyType::RequestedToCapacityRatio(shape)
        }
        other => {
            return Err(ConfigurationError(format!(
                "scoringStrategy.type: Unsupported value: \"{other}\""
            )));
        }
    })
}

fn decode_resources(resources: &Value) -> Vec<ResourceSpec> {
    let one = |one: &Value| ResourceSpec {
        name: one["name"].str().into(),
        weight: one["weight"].int().max(1),
    };
    match resources.list() {
        [] => ResourceSpec::default_list(),
        resources => resources.iter().map(one).collect(),
    }
}
