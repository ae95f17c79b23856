//! Which plugins are on, in which order?

use mizzen_object::{Str, Value};

use super::ConfigurationError;
use super::arguments::Arguments;
use crate::plugin::{
    Balanced, DeclaredFeatures, DynamicResources, Filter, ImageLocality, Name, NodeName, NodePorts,
    NodeUnschedulable, Score, TaintToleration, VolumeBinding, VolumeLimits, VolumeRestrictions, VolumeZone,
};
use crate::profile::Profile;

/// The plugins that are on unless somebody says otherwise, and how much their scores count.
const STANDARD: [(Name, i64); 20] = [
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

/// A plugin that is on, and how much its score counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Enabled {
    name: Name,
    weight: i64,
}

/// What a file says of one point at which plugins are asked.
struct Said {
    enabled: Vec<Enabled>,
    disabled: Vec<Name>,
    all_disabled: bool,
}

impl Said {
    fn of(set: &Value) -> Result<Said, ConfigurationError> {
        let name = |one: &Value| {
            let name = one["name"].str();
            Name::of(name).ok_or_else(|| ConfigurationError(format!("plugin \"{name}\" does not exist")))
        };
        let enabled = |one: &Value| Ok(Enabled { name: name(one)?, weight: one["weight"].int() });
        let disabled = set["disabled"].list().iter();
        Ok(Said {
            enabled: set["enabled"].list().iter().map(enabled).collect::<Result<_, _>>()?,
            all_disabled: disabled.clone().any(|one| one["name"].str() == "*"),
            disabled: disabled.filter(|one| one["name"].str() != "*").map(name).collect::<Result<_, _>>()?,
        })
    }

    fn disables(&self, name: Name) -> bool {
        self.all_disabled || self.disabled.contains(&name)
    }
}

/// A profile as a file describes it.
pub(super) fn profile(
    name: &str,
    value: &Value,
    share: Option<usize>,
    ignored: &[Str],
) -> Result<Profile, ConfigurationError> {
    let arguments = Arguments::of(&value["pluginConfig"], ignored)?;
    let plugins = &value["plugins"];
    let everywhere = merge(&Said::of(&plugins["multiPoint"])?);
    let point = |point: &str, takes_part: fn(Name) -> bool| -> Result<Vec<Enabled>, ConfigurationError> {
        expand(&everywhere, &Said::of(&plugins[point])?, takes_part)
    };
    let filters = point("filter", filters)?.into_iter().filter_map(|one| filter(one.name, &arguments));
    let scores = point("score", scores)?.into_iter();
    let scores = scores.filter_map(|one| Some((score(one.name, &arguments)?, one.weight.max(1))));
    let gates = point("preEnqueue", |name| name == Name::SchedulingGates)?;
    let rooms = point("postFilter", |name| matches!(name, Name::DynamicResources | Name::DefaultPreemption))?;
    let has = |name: Name| rooms.iter().any(|one| one.name == name);
    Ok(Profile {
        name: name.into(),
        filters: filters.collect(),
        scores: scores.collect(),
        gates: !gates.is_empty(),
        devices: has(Name::DynamicResources),
        preemption: has(Name::DefaultPreemption).then_some(arguments.breadth),
        share,
    })
}

/// The standard plugins as a file changes them: those that it names again keep their place.
fn merge(said: &Said) -> Vec<Enabled> {
    let again = |name: Name| said.enabled.iter().find(|one| one.name == name).copied();
    let standard = STANDARD.iter().filter(|(name, _)| !said.disables(*name));
    let standard =
        standard.map(|(name, weight)| again(*name).unwrap_or(Enabled { name: *name, weight: *weight }));
    let mut merged: Vec<Enabled> = standard.collect();
    for one in &said.enabled {
        if !merged.iter().any(|known| known.name == one.name) {
            merged.push(*one);
        }
    }
    merged
}

/// The plugins at one point: first those that are named there and everywhere, then those of everywhere, then the others.
fn expand(
    everywhere: &[Enabled],
    said: &Said,
    takes_part: fn(Name) -> bool,
) -> Result<Vec<Enabled>, ConfigurationError> {
    if let Some(stranger) = said.enabled.iter().find(|one| !takes_part(one.name)) {
        return Err(ConfigurationError(format!("plugin \"{}\" does not extend this point", stranger.name)));
    }
    let is_everywhere = |one: &&Enabled| everywhere.iter().any(|known| known.name == one.name);
    let is_named = |one: &&Enabled| said.enabled.iter().any(|known| known.name == one.name);
    let overriding = said.enabled.iter().filter(is_everywhere);
    let rest =
        everywhere.iter().filter(|one| !is_named(one) && !said.disables(one.name) && takes_part(one.name));
    let others = said.enabled.iter().filter(|one| !is_everywhere(one));
    Ok(overriding.chain(rest).chain(others).copied().collect())
}

fn filters(name: Name) -> bool {
    filter(name, &Arguments::default()).is_some()
}

fn scores(name: Name) -> bool {
    score(name, &Arguments::default()).is_some()
}

fn filter(name: Name, arguments: &Arguments) -> Option<Box<dyn Filter>> {
    Some(match name {
        Name::NodeUnschedulable => Box::new(NodeUnschedulable),
        Name::NodeName => Box::new(NodeName),
        Name::TaintToleration => Box::new(TaintToleration),
        Name::NodeAffinity => Box::new(arguments.node_affinity()),
        Name::NodePorts => Box::new(NodePorts),
        Name::NodeResourcesFit => Box::new(arguments.fit()),
        Name::VolumeRestrictions => Box::new(VolumeRestrictions),
        Name::NodeVolumeLimits => Box::new(VolumeLimits),
        Name::VolumeBinding => Box::new(VolumeBinding { patience: arguments.patience }),
        Name::VolumeZone => Box::new(VolumeZone),
        Name::PodTopologySpread => Box::new(arguments.spread()),
        Name::InterPodAffinity => Box::new(arguments.affinity.clone()),
        Name::DynamicResources => Box::new(DynamicResources),
        Name::NodeDeclaredFeatures => Box::new(DeclaredFeatures),
        _ => return None,
    })
}

fn score(name: Name, arguments: &Arguments) -> Option<Box<dyn Score>> {
    Some(match name {
        Name::TaintToleration => Box::new(TaintToleration),
        Name::NodeAffinity => Box::new(arguments.node_affinity()),
        Name::NodeResourcesFit => Box::new(arguments.fit()),
        Name::PodTopologySpread => Box::new(arguments.spread()),
        Name::InterPodAffinity => Box::new(arguments.affinity.clone()),
        Name::NodeResourcesBalancedAllocation => Box::new(Balanced { resources: arguments.balanced.clone() }),
        Name::ImageLocality => Box::new(ImageLocality),
        _ => return None,
    })
}
