//! What are plugins told?

use std::time::Duration;

use mizzen_value::{Str, Value, json};

use super::ConfigurationError;
use crate::model::{Constraint, Labels};
use crate::plugin::{
    Fit, InterPodAffinity, Measure, NodeAffinity, Strategy, TopologySpread, VolumeBinding, Weighted,
};
use crate::preempt::Breadth;

/// What a profile's `pluginConfig` says.
pub(super) struct Arguments {
    added_affinity: Value,
    ignored: Vec<Str>,
    ignored_groups: Vec<Str>,
    strategy: Strategy,
    pub balanced: Vec<Weighted>,
    pub affinity: InterPodAffinity,
    /// None for the system's defaults.
    constraints: Option<Vec<Constraint>>,
    pub breadth: Breadth,
    /// How long pods wait for their volumes.
    pub patience: Duration,
}

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments {
            added_affinity: Value::Null,
            ignored: Vec::new(),
            ignored_groups: Vec::new(),
            strategy: Strategy {
                measure: Measure::LeastAllocated,
                resources: Weighted::default_list(),
            },
            balanced: Weighted::default_list(),
            affinity: InterPodAffinity::default(),
            constraints: None,
            breadth: Breadth::default(),
            patience: VolumeBinding::default().patience,
        }
    }
}

impl Arguments {
    /// Reads all arguments of a profile, which is at `path`. What extenders count themselves is ignored.
    pub(super) fn of(
        configs: &Value,
        path: &str,
        ignored: &[Str],
    ) -> Result<Arguments, ConfigurationError> {
        let mut arguments = Arguments {
            ignored: ignored.to_vec(),
            ..Arguments::default()
        };
        for (at, config) in configs.list().iter().enumerate() {
            arguments
                .read(config["name"].str(), &config["args"])
                .map_err(|ConfigurationError(problem)| {
                    ConfigurationError(format!("{path}.pluginConfig[{at}].args.{problem}"))
                })?;
        }
        Ok(arguments)
    }

    fn read(&mut self, plugin: &str, args: &Value) -> Result<(), ConfigurationError> {
        match plugin {
            "NodeAffinity" => self.added_affinity = args["addedAffinity"].clone(),
            "NodeResourcesFit" => self.read_fit(args)?,
            "NodeResourcesBalancedAllocation" => self.balanced = weighted(&args["resources"]),
            "InterPodAffinity" => self.read_affinity(args)?,
            "PodTopologySpread" => self.read_spread(args)?,
            "DefaultPreemption" => self.read_preemption(args)?,
            "VolumeBinding" => self.read_volumes(args)?,
            // Others may be there for plugins of somebody else.
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

    fn read_fit(&mut self, args: &Value) -> Result<(), ConfigurationError> {
        let texts = |list: &Value| {
            list.list()
                .iter()
                .map(|one| one.str().into())
                .collect::<Vec<Str>>()
        };
        self.ignored.extend(texts(&args["ignoredResources"]));
        self.ignored_groups = texts(&args["ignoredResourceGroups"]);
        let strategy = &args["scoringStrategy"];
        self.strategy = Strategy {
            measure: measure(strategy)?,
            resources: weighted(&strategy["resources"]),
        };
        Ok(())
    }

    fn read_affinity(&mut self, args: &Value) -> Result<(), ConfigurationError> {
        let hard_weight = args["hardPodAffinityWeight"].as_int().unwrap_or(1);
        if !(0..=100).contains(&hard_weight) {
            let problem = "not in valid range [0, 100]";
            return Err(ConfigurationError(format!(
                "hardPodAffinityWeight: Invalid value: {hard_weight}: {problem}"
            )));
        }
        let ignore_others_wishes = args["ignorePreferredTermsOfExistingPods"].bool();
        self.affinity = InterPodAffinity {
            hard_weight,
            ignore_others_wishes,
        };
        Ok(())
    }

    fn read_spread(&mut self, args: &Value) -> Result<(), ConfigurationError> {
        let constraints = &args["defaultConstraints"];
        match args["defaultingType"].str() {
            "List" => {
                self.constraints = Some(Constraint::list(constraints, &Labels::default()).to_vec())
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

    fn read_preemption(&mut self, args: &Value) -> Result<(), ConfigurationError> {
        let share = args["minCandidateNodesPercentage"].as_int().unwrap_or(10);
        let least = args["minCandidateNodesAbsolute"].as_int().unwrap_or(100);
        if !(0..=100).contains(&share) || least < 0 || (share == 0 && least == 0) {
            return Err(ConfigurationError(
                "minCandidateNodesPercentage, minCandidateNodesAbsolute: cannot both be zero or out of range"
                    .into(),
            ));
        }
        self.breadth = Breadth {
            share: share as usize,
            least: least as usize,
        };
        Ok(())
    }

    fn read_volumes(&mut self, args: &Value) -> Result<(), ConfigurationError> {
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
        self.patience = Duration::from_secs(seconds);
        Ok(())
    }
}

fn measure(strategy: &Value) -> Result<Measure, ConfigurationError> {
    Ok(match strategy["type"].str() {
        "" | "LeastAllocated" => Measure::LeastAllocated,
        "MostAllocated" => Measure::MostAllocated,
        "RequestedToCapacityRatio" => {
            let shape = strategy["requestedToCapacityRatio"]["shape"].list().iter();
            // Ten is the best that people can say.
            let shape: Vec<(i64, i64)> = shape
                .map(|point| (point["utilization"].int(), point["score"].int() * 10))
                .collect();
            if shape.is_empty() || !shape.is_sorted_by(|a, b| a.0 < b.0) {
                return Err(ConfigurationError(
                    "shape: utilization values must be sorted in increasing order".into(),
                ));
            }
            Measure::RequestedToCapacityRatio(shape)
        }
        other => {
            return Err(ConfigurationError(format!(
                "scoringStrategy.type: Unsupported value: \"{other}\""
            )));
        }
    })
}

fn weighted(resources: &Value) -> Vec<Weighted> {
    let one = |one: &Value| Weighted {
        name: one["name"].str().into(),
        weight: one["weight"].int().max(1),
    };
    match resources.list() {
        [] => Weighted::default_list(),
        resources => resources.iter().map(one).collect(),
    }
}
