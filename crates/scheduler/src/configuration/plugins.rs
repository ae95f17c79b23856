//! Which plugins are enabled at which extension points, and in which order.
//!
//! No in-tree plugin here does anything of its own at PreScore, PostBind and Permit; their
//! configuration is still validated. Plugins out of tree come from a `Registry`.

use std::sync::Arc;

use mizzen_value::{Str, Value};

use super::ConfigurationError;
use super::extension_points::ExtensionPoint;
use super::plugin_args::PluginArgs;
use crate::framework::{CustomFilter, CustomPlugin, Registry};
use crate::plugin::{
    BalancedAllocation, DeclaredFeatures, DynamicResources, EnabledPhases, FilterPlugin,
    ImageLocality, MAX_NODE_SCORE, Name, NodeName, NodePorts, NodeUnschedulable, RestrictedPlugin,
    ScorePlugin, TaintToleration, VolumeBinding, VolumeLimits, VolumeRestrictions, VolumeZone,
};
use crate::profile::{PostFilterPlugin, Profile};

/// The plugins that are enabled by default, and the weights of their scores.
const DEFAULT_PLUGINS: [(Name, i64); 20] = [
    (Name::SchedulingGates, 0),
    (Name::PrioritySort, 0),
    (Name::NodeUnschedulable, 0),
    (Name::NodeName, 0),
    (Name::TaintToleration, 3),
    (Name::NodeAffinity, 2),
    (Name::NodePorts, 0),
    (Name::NodeResourcesFit, 1),
    (Name::VolumeRestrictions, 0),
    (Name::NodeVolumeLimits, 0),
    (Name::VolumeBinding, 0),
    (Name::VolumeZone, 0),
    (Name::PodTopologySpread, 2),
    (Name::InterPodAffinity, 2),
    (Name::DynamicResources, 2),
    (Name::DefaultPreemption, 0),
    (Name::NodeResourcesBalancedAllocation, 1),
    (Name::ImageLocality, 1),
    (Name::DefaultBinder, 0),
    (Name::NodeDeclaredFeatures, 0),
];

/// An enabled plugin, and the weight of its score.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EnabledPlugin {
    name: Str,
    weight: i64,
}

/// The configuration of one extension point.
struct PluginSet {
    enabled: Vec<EnabledPlugin>,
    disabled: Vec<Str>,
}

impl PluginSet {
    fn decode(set: &Value) -> PluginSet {
        let enabled = |one: &Value| EnabledPlugin {
            name: one["name"].str().into(),
            weight: one["weight"].int(),
        };
        PluginSet {
            enabled: set["enabled"].list().iter().map(enabled).collect(),
            disabled: set["disabled"]
                .list()
                .iter()
                .map(|one| one["name"].str().into())
                .collect(),
        }
    }

    fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|one| one == "*" || one == name)
    }
}

/// A profile of the configuration file, and what it depends on.
pub(super) struct ProfileSource<'a> {
    pub value: &'a Value,
    /// Its path in the file.
    pub path: String,
    pub percentage_of_nodes_to_score: Option<usize>,
    /// The resources that extenders manage alone.
    pub ignored: &'a [Str],
    pub registry: &'a Registry,
}

impl ProfileSource<'_> {
    pub(super) fn decode(&self) -> Result<Profile, ConfigurationError> {
        let name = self.value["schedulerName"]
            .as_str()
            .unwrap_or("default-scheduler");
        let arguments = PluginArgs::decode(&self.value["pluginConfig"], &self.path, self.ignored)?;
        let custom = self.create_custom_plugins()?;
        let enabled_plugins = EnabledPlugins::new(&self.value["plugins"], custom)?;
        enabled_plugins.check_required(name)?;
        let post_filters =
            enabled_plugins
                .at(ExtensionPoint::PostFilter)
                .filter_map(|(name, _)| match name {
                    Name::DynamicResources => Some(PostFilterPlugin::DeallocateClaims),
                    Name::DefaultPreemption => {
                        Some(PostFilterPlugin::Preemption(arguments.candidate_limits))
                    }
                    name => enabled_plugins.custom(name).map(PostFilterPlugin::Custom),
                });
        Ok(Profile {
            name: name.into(),
            metrics: Arc::default(),
            filters: enabled_plugins.filters(&arguments),
            scores: enabled_plugins.scores(&arguments)?,
            scheduling_gates: enabled_plugins
                .has(ExtensionPoint::PreEnqueue, Name::SchedulingGates),
            awaits_claims: enabled_plugins.has(ExtensionPoint::PreEnqueue, Name::DynamicResources),
            post_filters: post_filters.collect(),
            custom_scores: enabled_plugins.custom_scores(),
            reserves: enabled_plugins.custom_at(ExtensionPoint::Reserve),
            permits: enabled_plugins.custom_at(ExtensionPoint::Permit),
            pre_binds: enabled_plugins.custom_at(ExtensionPoint::PreBind),
            percentage_of_nodes_to_score: self.percentage_of_nodes_to_score,
        })
    }

    /// Creates the plugins out of tree that the profile enables anywhere.
    fn create_custom_plugins(&self) -> Result<Vec<CustomPlugin>, ConfigurationError> {
        let mut created: Vec<CustomPlugin> = Vec::new();
        let sets = self.value["plugins"].entries().map(|(_, set)| set);
        for enabled in sets.flat_map(|set| set["enabled"].list()) {
            let name = self.registry.parse(enabled["name"].str());
            let Some(name) = name.filter(|name| created.iter().all(|one| one.name != *name)) else {
                continue;
            };
            let configs = self.value["pluginConfig"].list().iter();
            let mut args = configs
                .filter(|config| config["name"].str() == name.as_str())
                .map(|config| &config["args"]);
            let args = args.next_back().unwrap_or(&Value::Null);
            match self.registry.create(name, args) {
                Some(Ok(plugin)) => created.push(CustomPlugin { name, plugin }),
                Some(Err(error)) => {
                    return Err(ConfigurationError(format!(
                        "initializing plugin \"{name}\": {error}"
                    )));
                }
                None => {}
            }
        }
        Ok(created)
    }
}

/// Score plugins with their weights.
type Scores = Vec<(Name, Box<dyn ScorePlugin>, i64)>;

/// The enabled plugins of each extension point, in order, and the weights of their scores.
struct EnabledPlugins {
    points: Vec<(ExtensionPoint, Vec<(Name, i64)>)>,
    custom: CustomPlugins,
}

/// The plugins out of tree that a profile enables.
struct CustomPlugins(Vec<CustomPlugin>);

impl CustomPlugins {
    fn get(&self, name: Name) -> Option<&CustomPlugin> {
        self.0.iter().find(|custom| custom.name == name)
    }

    /// A plugin by its name, in tree or not.
    fn parse(&self, point: ExtensionPoint, name: &str) -> Result<Name, ConfigurationError> {
        let mut custom = self.0.iter().map(|custom| custom.name);
        Name::parse(name)
            .or_else(|| custom.find(|custom| custom.as_str() == name))
            .ok_or_else(|| {
                ConfigurationError(format!("{} \"{name}\" does not exist", point.plugin()))
            })
    }

    /// Whether a plugin implements an extension point.
    fn implement(&self, point: ExtensionPoint, name: Name) -> bool {
        match self.get(name) {
            Some(custom) => custom.plugin.implements(point),
            None => point.is_implemented_by(name),
        }
    }

    /// The plugins at one extension point: first those named both there and in `multiPoint`, then the
    /// rest of `multiPoint`, then the rest of the point.
    fn expand(
        &self,
        point: ExtensionPoint,
        everywhere: &[EnabledPlugin],
        said: &PluginSet,
    ) -> Result<Vec<(Name, i64)>, ConfigurationError> {
        let mut rest: Vec<EnabledPlugin> = Vec::new();
        for one in everywhere {
            let is_implemented_by = self.implement(point, self.parse(point, &one.name)?);
            let is_named = said.enabled.iter().any(|named| named.name == one.name);
            if is_implemented_by && !is_named && !said.disables(&one.name) {
                check_once(point, &one.name, &rest)?;
                rest.push(one.clone());
            }
        }
        let is_everywhere = |one: &&EnabledPlugin| {
            !said.disables(&one.name)
                && everywhere
                    .iter()
                    .any(|plugin_name| plugin_name.name == one.name)
        };
        let overriding = said.enabled.iter().filter(is_everywhere);
        let others = said.enabled.iter().filter(|one| !is_everywhere(one));
        let all = overriding.chain(&rest).chain(others);
        Ok(all
            .filter_map(|one| Some((self.parse(point, &one.name).ok()?, one.weight)))
            .collect())
    }
}

impl EnabledPlugins {
    fn new(
        plugins: &Value,
        custom: Vec<CustomPlugin>,
    ) -> Result<EnabledPlugins, ConfigurationError> {
        let custom = CustomPlugins(custom);
        let sets: Vec<(ExtensionPoint, PluginSet)> = ExtensionPoint::ALL
            .iter()
            .map(|point| (*point, PluginSet::decode(&plugins[point.field()])))
            .collect();
        for (point, PluginSet { enabled, .. }) in &sets {
            for (at, EnabledPlugin { name, .. }) in enabled.iter().enumerate() {
                if !custom.implement(*point, custom.parse(*point, name)?) {
                    return Err(ConfigurationError(format!(
                        "plugin \"{name}\" does not extend {} plugin",
                        point.plugin()
                    )));
                }
                check_once(*point, name, &enabled[..at])?;
            }
        }
        let multi_point = merge_defaults(&PluginSet::decode(&plugins["multiPoint"]));
        let enabled_plugins = sets
            .iter()
            .map(|(point, set)| Ok((*point, custom.expand(*point, &multi_point, set)?)));
        Ok(EnabledPlugins {
            points: enabled_plugins.collect::<Result<_, _>>()?,
            custom,
        })
    }

    fn custom(&self, name: Name) -> Option<CustomPlugin> {
        self.custom.get(name).cloned()
    }

    /// The plugins out of tree at an extension point.
    fn custom_at(&self, point: ExtensionPoint) -> Vec<CustomPlugin> {
        let names = self.at(point).map(|(name, _)| name);
        names.filter_map(|name| self.custom(name)).collect()
    }

    /// The plugins out of tree at Score, and their weights.
    fn custom_scores(&self) -> Vec<(CustomPlugin, i64)> {
        let scores = self.at(ExtensionPoint::Score);
        scores
            .filter_map(|(name, weight)| Some((self.custom(name)?, weight.max(1))))
            .collect()
    }

    fn at(&self, point: ExtensionPoint) -> impl Iterator<Item = (Name, i64)> {
        self.points
            .iter()
            .filter(move |(extension_point, _)| *extension_point == point)
            .flat_map(|(_, enabled_plugins)| enabled_plugins.iter().copied())
    }

    fn has(&self, point: ExtensionPoint, name: Name) -> bool {
        self.at(point).any(|(plugin_name, _)| plugin_name == name)
    }

    /// Every profile needs one QueueSort plugin and a Bind plugin.
    fn check_required(&self, profile: &str) -> Result<(), ConfigurationError> {
        let n_sorts = self.at(ExtensionPoint::QueueSort).count();
        if n_sorts != 1 {
            return Err(ConfigurationError(format!(
                "only one queue sort plugin required for profile with scheduler name \"{profile}\", but got {n_sorts}"
            )));
        }
        if self.at(ExtensionPoint::Bind).next().is_none() {
            return Err(ConfigurationError(format!(
                "at least one bind plugin is needed for profile with scheduler name \"{profile}\""
            )));
        }
        Ok(())
    }

    /// The plugins of Filter, then those of PreFilter alone.
    ///
    /// Kubernetes: there, a plugin at Filter that is not at PreFilter fails every pod; here
    /// PreFilter is part of it.
    fn filters(&self, arguments: &PluginArgs) -> Vec<Box<dyn FilterPlugin>> {
        let names = self
            .at(ExtensionPoint::Filter)
            .map(|(name, _)| (name, true));
        let looks = self
            .at(ExtensionPoint::PreFilter)
            .map(|(name, _)| (name, false));
        let looks = looks.filter(|(name, _)| !self.has(ExtensionPoint::Filter, *name));
        let part = |(name, checks): (Name, bool)| {
            if let Some(custom) = self.custom(name) {
                let pre_filters = self.has(ExtensionPoint::PreFilter, name);
                return Some(Box::new(CustomFilter {
                    custom,
                    pre_filters,
                    filters: checks,
                }) as Box<dyn FilterPlugin>);
            }
            let (inner, reserves) = (filter_plugin(name, arguments)?, self.reserves(name));
            let is_whole = checks && reserves == ExtensionPoint::Reserve.is_implemented_by(name);
            let enabled = EnabledPhases { checks, reserves };
            Some(if is_whole {
                inner
            } else {
                Box::new(RestrictedPlugin { inner, enabled }) as Box<dyn FilterPlugin>
            })
        };
        names.chain(looks).filter_map(part).collect()
    }

    /// Whether a plugin reserves what a pod needs and runs its PreBind steps.
    fn reserves(&self, name: Name) -> bool {
        self.has(ExtensionPoint::Reserve, name) && self.has(ExtensionPoint::PreBind, name)
    }

    fn scores(&self, arguments: &PluginArgs) -> Result<Scores, ConfigurationError> {
        let weigh = |(name, weight): (Name, i64)| (name, if weight == 0 { 1 } else { weight });
        let weighed: Vec<(Name, i64)> = self.at(ExtensionPoint::Score).map(weigh).collect();
        let total = weighed.iter().try_fold(0_i64, |total, (_, weight)| {
            total.checked_add(weight.checked_mul(MAX_NODE_SCORE)?)
        });
        if total.is_none() {
            return Err(ConfigurationError(
                "score plugins: total score of Score plugins could overflow".into(),
            ));
        }
        Ok(weighed
            .into_iter()
            .filter_map(|(name, weight)| Some((name, score_plugin(name, arguments)?, weight)))
            .collect())
    }
}

fn check_once(
    point: ExtensionPoint,
    name: &Str,
    before: &[EnabledPlugin],
) -> Result<(), ConfigurationError> {
    match before.iter().any(|one| one.name == *name) {
        true => Err(ConfigurationError(format!(
            "plugin \"{name}\" already registered as \"{}\"",
            point.plugin()
        ))),
        false => Ok(()),
    }
}

/// The default plugins, with the changes of `multiPoint`. A default plugin that is enabled again
/// keeps its place.
fn merge_defaults(said: &PluginSet) -> Vec<EnabledPlugin> {
    let mut others: Vec<Option<&EnabledPlugin>> = said.enabled.iter().map(Some).collect();
    let mut merged = Vec::new();
    for (name, weight) in DEFAULT_PLUGINS
        .iter()
        .filter(|(name, _)| !said.disables(name.as_str()))
    {
        let again = said
            .enabled
            .iter()
            .rposition(|one| one.name == name.as_str());
        let again = again.and_then(|at| others[at].take()).cloned();
        merged.push(again.unwrap_or_else(|| EnabledPlugin {
            name: name.as_str().into(),
            weight: *weight,
        }));
    }
    // A plugin that is named twice stays in the list twice, and `expand` reports it.
    merged.extend(others.into_iter().flatten().cloned());
    merged
}

fn filter_plugin(name: Name, arguments: &PluginArgs) -> Option<Box<dyn FilterPlugin>> {
    Some(match name {
        Name::NodeUnschedulable => Box::new(NodeUnschedulable),
        Name::NodeName => Box::new(NodeName),
        Name::TaintToleration => Box::new(TaintToleration),
        Name::NodeAffinity => Box::new(arguments.node_affinity()),
        Name::NodePorts => Box::new(NodePorts),
        Name::NodeResourcesFit => Box::new(arguments.fit()),
        Name::VolumeRestrictions => Box::new(VolumeRestrictions),
        Name::NodeVolumeLimits => Box::new(VolumeLimits),
        Name::VolumeBinding => Box::new(VolumeBinding {
            bind_timeout: arguments.bind_timeout,
        }),
        Name::VolumeZone => Box::new(VolumeZone),
        Name::PodTopologySpread => Box::new(arguments.spread()),
        Name::InterPodAffinity => Box::new(arguments.affinity.clone()),
        Name::DynamicResources => Box::new(DynamicResources),
        Name::NodeDeclaredFeatures => Box::new(DeclaredFeatures),
        _ => return None,
    })
}

fn score_plugin(name: Name, arguments: &PluginArgs) -> Option<Box<dyn ScorePlugin>> {
    Some(match name {
        Name::TaintToleration => Box::new(TaintToleration),
        Name::NodeAffinity => Box::new(arguments.node_affinity()),
        Name::NodeResourcesFit => Box::new(arguments.fit()),
        Name::PodTopologySpread => Box::new(arguments.spread()),
        Name::InterPodAffinity => Box::new(arguments.affinity.clone()),
        Name::NodeResourcesBalancedAllocation => Box::new(BalancedAllocation {
            resources: arguments.balanced_resources.clone(),
        }),
        Name::ImageLocality => Box::new(ImageLocality),
        Name::DynamicResources => Box::new(DynamicResources),
        _ => return None,
    })
}
