//! Which plugins are on, at which points, in which order?
//!
//! Some points ask nobody here who could say anything of his own: before scores, after binding, and for a permission.
//! What a file says of them is checked all the same.

use mizzen_value::{Str, Value};

use super::ConfigurationError;
use super::arguments::Arguments;
use super::points::Point;
use crate::plugin::{
    BEST, Balanced, DeclaredFeatures, DynamicResources, Filter, ImageLocality, Name, NodeName,
    NodePorts, NodeUnschedulable, Partial, Score, TaintToleration, VolumeBinding, VolumeLimits,
    VolumeRestrictions, VolumeZone, Wanted,
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
#[derive(Debug, Clone, PartialEq, Eq)]
struct Enabled {
    name: Str,
    weight: i64,
}

/// What a file says of one point at which plugins are asked.
struct Said {
    enabled: Vec<Enabled>,
    disabled: Vec<Str>,
}

impl Said {
    fn of(set: &Value) -> Said {
        let enabled = |one: &Value| Enabled {
            name: one["name"].str().into(),
            weight: one["weight"].int(),
        };
        Said {
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

/// A profile as a file describes it.
pub(super) fn profile(
    value: &Value,
    path: &str,
    share: Option<usize>,
    ignored: &[Str],
) -> Result<Profile, ConfigurationError> {
    let name = value["schedulerName"]
        .as_str()
        .unwrap_or("default-scheduler");
    let arguments = Arguments::of(&value["pluginConfig"], path, ignored)?;
    let asked = Asked::of(&value["plugins"])?;
    asked.check(name)?;
    Ok(Profile {
        name: name.into(),
        filters: asked.filters(&arguments),
        scores: asked.scores(&arguments)?,
        gates: asked.has(Point::PreEnqueue, Name::SchedulingGates),
        awaits_claims: asked.has(Point::PreEnqueue, Name::DynamicResources),
        frees_devices: asked.has(Point::PostFilter, Name::DynamicResources),
        preemption: asked
            .has(Point::PostFilter, Name::DefaultPreemption)
            .then_some(arguments.breadth),
        share,
    })
}

/// Those who say how good nodes are, and how much each counts.
type Scores = Vec<(Box<dyn Score>, i64)>;

/// Who is asked at each point, in order, and how much a score counts.
struct Asked(Vec<(Point, Vec<(Name, i64)>)>);

impl Asked {
    fn of(plugins: &Value) -> Result<Asked, ConfigurationError> {
        let said: Vec<(Point, Said)> = Point::ALL
            .iter()
            .map(|point| (*point, Said::of(&plugins[point.field()])))
            .collect();
        said.iter()
            .try_for_each(|(point, said)| check_named(*point, &said.enabled))?;
        let everywhere = merge(&Said::of(&plugins["multiPoint"]));
        let asked = said
            .iter()
            .map(|(point, said)| Ok((*point, expand(*point, &everywhere, said)?)));
        Ok(Asked(asked.collect::<Result<_, _>>()?))
    }

    fn at(&self, point: Point) -> impl Iterator<Item = (Name, i64)> {
        self.0
            .iter()
            .filter(move |(known, _)| *known == point)
            .flat_map(|(_, asked)| asked.iter().copied())
    }

    fn has(&self, point: Point, name: Name) -> bool {
        self.at(point).any(|(known, _)| known == name)
    }

    /// What no profile can do without.
    fn check(&self, profile: &str) -> Result<(), ConfigurationError> {
        let n_sorts = self.at(Point::QueueSort).count();
        if n_sorts != 1 {
            return Err(ConfigurationError(format!(
                "only one queue sort plugin required for profile with scheduler name \"{profile}\", but got {n_sorts}"
            )));
        }
        if self.at(Point::Bind).next().is_none() {
            return Err(ConfigurationError(format!(
                "at least one bind plugin is needed for profile with scheduler name \"{profile}\""
            )));
        }
        Ok(())
    }

    /// Those who check nodes, and then those who only look at pods.
    ///
    /// Kubernetes: there, who checks nodes without having looked at the pod fails every pod; here the look is part of it.
    fn filters(&self, arguments: &Arguments) -> Vec<Box<dyn Filter>> {
        let names = self.at(Point::Filter).map(|(name, _)| (name, true));
        let looks = self.at(Point::PreFilter).map(|(name, _)| (name, false));
        let looks = looks.filter(|(name, _)| !self.has(Point::Filter, *name));
        let part = |(name, checks): (Name, bool)| {
            let (whole, reserves) = (filter(name, arguments)?, self.reserves(name));
            let is_whole = checks && reserves == Point::Reserve.asks(name);
            let wanted = Wanted { checks, reserves };
            Some(if is_whole {
                whole
            } else {
                Box::new(Partial { whole, wanted }) as Box<dyn Filter>
            })
        };
        names.chain(looks).filter_map(part).collect()
    }

    /// Whether a plugin keeps and gets done what a pod needs.
    fn reserves(&self, name: Name) -> bool {
        self.has(Point::Reserve, name) && self.has(Point::PreBind, name)
    }

    fn scores(&self, arguments: &Arguments) -> Result<Scores, ConfigurationError> {
        let weigh = |(name, weight): (Name, i64)| (name, if weight == 0 { 1 } else { weight });
        let weighed: Vec<(Name, i64)> = self.at(Point::Score).map(weigh).collect();
        let total = weighed.iter().try_fold(0_i64, |total, (_, weight)| {
            total.checked_add(weight.checked_mul(BEST)?)
        });
        if total.is_none() {
            return Err(ConfigurationError(
                "score plugins: total score of Score plugins could overflow".into(),
            ));
        }
        Ok(weighed
            .into_iter()
            .filter_map(|(name, weight)| Some((score(name, arguments)?, weight)))
            .collect())
    }
}

/// Checks those who are named at a point of their own.
fn check_named(point: Point, named: &[Enabled]) -> Result<(), ConfigurationError> {
    for (at, Enabled { name, .. }) in named.iter().enumerate() {
        if !point.asks(known(point, name)?) {
            return Err(ConfigurationError(format!(
                "plugin \"{name}\" does not extend {} plugin",
                point.plugin()
            )));
        }
        check_once(point, name, &named[..at])?;
    }
    Ok(())
}

fn check_once(point: Point, name: &Str, before: &[Enabled]) -> Result<(), ConfigurationError> {
    match before.iter().any(|one| one.name == *name) {
        true => Err(ConfigurationError(format!(
            "plugin \"{name}\" already registered as \"{}\"",
            point.plugin()
        ))),
        false => Ok(()),
    }
}

fn known(point: Point, name: &str) -> Result<Name, ConfigurationError> {
    Name::of(name)
        .ok_or_else(|| ConfigurationError(format!("{} \"{name}\" does not exist", point.plugin())))
}

/// The standard plugins as a file changes them: those that it names again keep their place.
fn merge(said: &Said) -> Vec<Enabled> {
    let mut others: Vec<Option<&Enabled>> = said.enabled.iter().map(Some).collect();
    let mut merged = Vec::new();
    for (name, weight) in STANDARD
        .iter()
        .filter(|(name, _)| !said.disables(name.as_str()))
    {
        let again = said
            .enabled
            .iter()
            .rposition(|one| one.name == name.as_str());
        let again = again.and_then(|at| others[at].take()).cloned();
        merged.push(again.unwrap_or_else(|| Enabled {
            name: name.as_str().into(),
            weight: *weight,
        }));
    }
    // Who is named twice stays twice, and that is told.
    merged.extend(others.into_iter().flatten().cloned());
    merged
}

/// The plugins at one point: first those that are named there and everywhere, then those of everywhere, then the others.
fn expand(
    point: Point,
    everywhere: &[Enabled],
    said: &Said,
) -> Result<Vec<(Name, i64)>, ConfigurationError> {
    let mut rest: Vec<Enabled> = Vec::new();
    for one in everywhere {
        let asks = point.asks(known(point, &one.name)?);
        let is_named = said.enabled.iter().any(|named| named.name == one.name);
        if asks && !is_named && !said.disables(&one.name) {
            check_once(point, &one.name, &rest)?;
            rest.push(one.clone());
        }
    }
    let is_everywhere = |one: &&Enabled| {
        !said.disables(&one.name) && everywhere.iter().any(|known| known.name == one.name)
    };
    let overriding = said.enabled.iter().filter(is_everywhere);
    let others = said.enabled.iter().filter(|one| !is_everywhere(one));
    let all = overriding.chain(&rest).chain(others);
    Ok(all
        .filter_map(|one| Some((Name::of(&one.name)?, one.weight)))
        .collect())
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
        Name::VolumeBinding => Box::new(VolumeBinding {
            patience: arguments.patience,
        }),
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
        Name::NodeResourcesBalancedAllocation => Box::new(Balanced {
            resources: arguments.balanced.clone(),
        }),
        Name::ImageLocality => Box::new(ImageLocality),
        Name::DynamicResources => Box::new(DynamicResources),
        _ => return None,
    })
}
