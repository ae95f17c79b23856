//! Eviction signals, their thresholds, and which of them are met.
//!
//! Kubernetes: pkg/kubelet/eviction/helpers.go and pkg/kubelet/eviction/api.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use mizzen_value::quantity::{Quantity, QuantityFormat};
use mizzen_value::time::duration_nanos;

use crate::moment::Moment;
use crate::stats::NodeStats;

/// The thresholds that are hard by default (pkg/kubelet/eviction/defaults_linux.go).
pub const DEFAULT_HARD: &str = "memory.available<100Mi, nodefs.available<10%, nodefs.inodesFree<5%, imagefs.available<15%, imagefs.inodesFree<5%";

/// What runs short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// `memory.available`: of the machine.
    MemoryAvailable,
    /// `allocatableMemory.available`: of the cgroup of all pods.
    AllocatableMemoryAvailable,
    /// `nodefs.available`: bytes on the disk of the node.
    NodeFsAvailable,
    /// `nodefs.inodesFree`.
    NodeFsInodesFree,
    /// `imagefs.available`: bytes on the disk of images.
    ImageFsAvailable,
    /// `imagefs.inodesFree`.
    ImageFsInodesFree,
    /// `pid.available`: process IDs.
    PidAvailable,
}

/// The signals that can be configured.
const CONFIGURABLE: [(&str, Signal); 6] = [
    ("memory.available", Signal::MemoryAvailable),
    ("nodefs.available", Signal::NodeFsAvailable),
    ("nodefs.inodesFree", Signal::NodeFsInodesFree),
    ("imagefs.available", Signal::ImageFsAvailable),
    ("imagefs.inodesFree", Signal::ImageFsInodesFree),
    ("pid.available", Signal::PidAvailable),
];

/// A condition of a node that runs short of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodePressure {
    Memory,
    Disk,
    Pid,
}

impl NodePressure {
    /// The type of the condition.
    pub(crate) fn name(self) -> &'static str {
        match self {
            NodePressure::Memory => "MemoryPressure",
            NodePressure::Disk => "DiskPressure",
            NodePressure::Pid => "PIDPressure",
        }
    }
}

impl Signal {
    fn parse(name: &str) -> Result<Signal, String> {
        let mut known = CONFIGURABLE.iter();
        let found = known.find(|(known, _)| *known == name);
        found.map(|(_, signal)| *signal).ok_or_else(|| {
            let names = CONFIGURABLE.map(|(name, _)| name).join(", ");
            format!("{name:?} is not an eviction signal, which are {names}")
        })
    }

    /// Whether flags can set a threshold for it.
    pub(crate) fn is_configurable(self) -> bool {
        CONFIGURABLE.iter().any(|(_, known)| *known == self)
    }

    /// The name, as flags and messages have it.
    pub(crate) fn name(self) -> &'static str {
        let mut known = CONFIGURABLE.iter();
        let found = known.find(|(_, known)| *known == self);
        found.map_or("allocatableMemory.available", |(name, _)| name)
    }

    /// The condition of the node.
    pub(crate) fn pressure(self) -> NodePressure {
        match self {
            Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => NodePressure::Memory,
            Signal::PidAvailable => NodePressure::Pid,
            _ => NodePressure::Disk,
        }
    }

    /// The resource, as messages name it.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => "memory",
            Signal::NodeFsAvailable | Signal::ImageFsAvailable => "ephemeral-storage",
            Signal::NodeFsInodesFree | Signal::ImageFsInodesFree => "inodes",
            Signal::PidAvailable => "pids",
        }
    }
}

/// An amount, or a part of the capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ThresholdValue {
    /// An amount.
    Quantity(Quantity),
    /// A part, up to 1.
    Percentage(f32),
}

impl ThresholdValue {
    /// Parses `100Mi` or `10%`; `None` for 0 % and 100 %, which disable a threshold.
    fn parse(text: &str) -> Result<Option<ThresholdValue>, String> {
        let Some(percent) = text.strip_suffix('%') else {
            let quantity = Quantity::parse(text)
                .map_err(|_| format!("{text:?} is not an amount such as 100Mi or 10%"))?;
            if quantity.is_negative() || quantity.is_zero() {
                return Err(format!("{text:?} is not above zero"));
            }
            return Ok(Some(ThresholdValue::Quantity(quantity)));
        };
        if matches!(percent, "0" | "100") {
            return Ok(None);
        }
        let part: Option<f32> = percent.parse().ok();
        match part.filter(|part| (0.0..=100.0).contains(part)) {
            Some(part) => Ok(Some(ThresholdValue::Percentage(part / 100.0))),
            None => Err(format!("{text:?} is not a percentage between 0% and 100%")),
        }
    }

    /// The amount, of a capacity.
    pub(crate) fn of(self, capacity: i64) -> Quantity {
        match self {
            ThresholdValue::Quantity(quantity) => quantity,
            ThresholdValue::Percentage(part) => {
                let amount = capacity as f64 * f64::from(part);
                Quantity::from_int(amount as i64, QuantityFormat::Binary)
            }
        }
    }
}

impl fmt::Display for ThresholdValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThresholdValue::Quantity(quantity) => write!(formatter, "{quantity}"),
            ThresholdValue::Percentage(part) => {
                // Without what the binary fraction adds.
                let percent = (f64::from(*part) * 1e6).round() / 1e4;
                write!(formatter, "{percent}%")
            }
        }
    }
}

/// When pods are evicted: less than this is left of something.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// What runs short.
    pub signal: Signal,
    /// What must be left.
    pub value: ThresholdValue,
    /// How long a soft threshold must be met; zero if it is hard.
    pub grace_period: Duration,
    /// What must be left beyond it before eviction ends.
    pub min_reclaim: Option<ThresholdValue>,
}

impl Threshold {
    /// Whether eviction is immediate.
    pub(crate) fn is_hard(&self) -> bool {
        self.grace_period.is_zero()
    }

    pub(crate) fn is_met(&self, observations: &Observations, with_reclaim: bool) -> bool {
        let Some(observed) = observations.get(&self.signal) else {
            return false;
        };
        let mut least = self.value.of(observed.capacity).value();
        if let Some(reclaim) = self.min_reclaim.filter(|_| with_reclaim) {
            least = least.saturating_add(reclaim.of(observed.capacity).value());
        }
        observed.available < least
    }
}

/// What is left of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observation {
    pub available: i64,
    pub capacity: i64,
}

/// What is left, by signal.
pub(crate) type Observations = BTreeMap<Signal, Observation>;

/// What the figures of a node say about its signals.
pub(crate) fn observations(stats: &NodeStats) -> Observations {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut found = Observations::new();
    let mut add = |signal: Signal, available: u64, capacity: u64| {
        if capacity > 0 {
            let (available, capacity) = (signed(available), signed(capacity));
            let observed = Observation {
                available,
                capacity,
            };
            found.insert(signal, observed);
        }
    };
    let memory = stats.memory_capacity;
    let working_set = stats.machine.memory.working_set;
    add(
        Signal::MemoryAvailable,
        memory.saturating_sub(working_set),
        memory,
    );
    if let Some(all) = &stats.all_pods
        && let Some(limit) = all.memory.limit.or(Some(memory))
    {
        let available = limit.saturating_sub(all.memory.working_set);
        add(Signal::AllocatableMemoryAvailable, available, limit);
    }
    if let Some(fs) = &stats.fs {
        add(Signal::NodeFsAvailable, fs.available, fs.capacity);
        add(Signal::NodeFsInodesFree, fs.inodes_free, fs.inodes);
    }
    if let Some(fs) = &stats.image_fs {
        add(Signal::ImageFsAvailable, fs.available, fs.capacity);
        add(Signal::ImageFsInodesFree, fs.inodes_free, fs.inodes);
    }
    if let Some(pids) = &stats.pids {
        add(
            Signal::PidAvailable,
            pids.max.saturating_sub(pids.running),
            pids.max,
        );
    }
    found
}

/// The configuration of eviction.
#[derive(Debug, Clone, PartialEq)]
pub struct EvictionConfig {
    /// When pods are evicted.
    pub thresholds: Vec<Threshold>,
    /// How long a condition of pressure stays after the last threshold was met.
    pub pressure_transition_period: Duration,
    /// The longest grace period of pods at soft thresholds.
    pub max_pod_grace_period: Duration,
    /// How often the node is measured.
    pub interval: Duration,
}

impl Default for EvictionConfig {
    /// The defaults of a kubelet.
    fn default() -> EvictionConfig {
        EvictionConfig {
            thresholds: parse_thresholds(DEFAULT_HARD, "", "", "").unwrap_or_default(),
            pressure_transition_period: Duration::from_secs(300),
            max_pod_grace_period: Duration::ZERO,
            interval: Duration::from_secs(10),
        }
    }
}

/// Parses thresholds as the kubelet's flags have them: `memory.available<100Mi,nodefs.available<10%`
/// as hard and as soft ones, `memory.available=1m30s` for the grace periods of soft ones, and
/// `nodefs.available=500Mi` for what must be reclaimed beyond them.
pub fn parse_thresholds(
    hard: &str,
    soft: &str,
    soft_grace_periods: &str,
    minimum_reclaim: &str,
) -> Result<Vec<Threshold>, String> {
    let mut thresholds = statements(hard, '<')?;
    let mut periods = BTreeMap::new();
    for (name, text) in parts(soft_grace_periods, '=')? {
        let nanos = duration_nanos(text).ok();
        let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
        let nanos = nanos.ok_or_else(|| format!("{text:?} is not a duration such as 1m30s"))?;
        periods.insert(Signal::parse(name)?, Duration::from_nanos(nanos));
    }
    for mut threshold in statements(soft, '<')? {
        let period = periods.get(&threshold.signal).copied();
        threshold.grace_period = period.filter(|period| !period.is_zero()).ok_or_else(|| {
            let name = threshold.signal.name();
            format!("the soft eviction threshold {name} needs a grace period")
        })?;
        thresholds.push(threshold);
    }
    for (name, text) in parts(minimum_reclaim, '=')? {
        let (signal, value) = (Signal::parse(name)?, ThresholdValue::parse(text)?);
        let meant = thresholds.iter_mut().filter(|it| it.signal == signal);
        meant.for_each(|threshold| threshold.min_reclaim = value);
    }
    // Kubernetes: all pods together have the same threshold (`addAllocatableThresholds`).
    let memory = thresholds.iter().copied();
    let memory = memory.filter(|it| it.signal == Signal::MemoryAvailable && it.is_hard());
    let allocatable: Vec<Threshold> = memory
        .map(|threshold| Threshold {
            signal: Signal::AllocatableMemoryAvailable,
            ..threshold
        })
        .collect();
    thresholds.extend(allocatable);
    Ok(thresholds)
}

fn statements(text: &str, separator: char) -> Result<Vec<Threshold>, String> {
    let mut found = Vec::new();
    for (name, value) in parts(text, separator)? {
        let signal = Signal::parse(name)?;
        found.extend(ThresholdValue::parse(value)?.map(|value| Threshold {
            signal,
            value,
            grace_period: Duration::ZERO,
            min_reclaim: None,
        }));
    }
    Ok(found)
}

fn parts(text: &str, separator: char) -> Result<Vec<(&str, &str)>, String> {
    let split = |part| {
        let (name, value) = str::split_once(part, separator)
            .ok_or_else(|| format!("{part:?} is not SIGNAL{separator}VALUE"))?;
        Ok((name.trim(), value.trim()))
    };
    let parts = text.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).map(split).collect()
}

/// The thresholds of a node over time.
#[derive(Debug, Default)]
pub(crate) struct ThresholdState {
    /// Since when each threshold is met.
    first_observed: Vec<(Threshold, Moment)>,
    /// When each condition was last observed.
    last_observed: BTreeMap<NodePressure, Moment>,
    /// The thresholds that were met last, grace periods included.
    met: Vec<Threshold>,
}

impl ThresholdState {
    /// Takes in what is observed. Returns the thresholds whose grace period is over, memory first,
    /// and the conditions of the node.
    pub(crate) fn observe(
        &mut self,
        config: &EvictionConfig,
        observations: &Observations,
        now: Moment,
    ) -> (Vec<Threshold>, Vec<NodePressure>) {
        let mut crossed: Vec<Threshold> = config.thresholds.clone();
        crossed.retain(|threshold| threshold.is_met(observations, false));
        for threshold in &self.met {
            if threshold.is_met(observations, true) && !crossed.contains(threshold) {
                crossed.push(*threshold);
            }
        }
        let first = |threshold: &Threshold| {
            let mut known = self.first_observed.iter();
            known
                .find(|(known, _)| known == threshold)
                .map_or(now, |(_, at)| *at)
        };
        let first_observed = crossed
            .iter()
            .map(|threshold| (*threshold, first(threshold)));
        self.first_observed = first_observed.collect();
        for threshold in &crossed {
            self.last_observed.insert(threshold.signal.pressure(), now);
        }
        let period = config.pressure_transition_period;
        self.last_observed
            .retain(|_, at| now.saturating_since(*at) < period || *at == now);
        let lasting = |(threshold, at): &&(Threshold, Moment)| {
            now.saturating_since(*at) >= threshold.grace_period
        };
        let met = self.first_observed.iter().filter(lasting);
        self.met = met.map(|(threshold, _)| *threshold).collect();
        let mut ranked = self.met.clone();
        ranked.sort_by_key(|threshold| threshold.signal.pressure() != NodePressure::Memory);
        (ranked, self.last_observed.keys().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(signal: Signal, available: i64, capacity: i64) -> Observations {
        let observed = Observation {
            available,
            capacity,
        };
        [(signal, observed)].into()
    }

    fn config(hard: &str, soft: &str, grace: &str, reclaim: &str) -> EvictionConfig {
        EvictionConfig {
            thresholds: parse_thresholds(hard, soft, grace, reclaim).unwrap(),
            ..EvictionConfig::default()
        }
    }

    #[test]
    fn thresholds_are_parsed_as_flags_have_them() {
        let parsed = EvictionConfig::default().thresholds;
        let signals: Vec<Signal> = parsed.iter().map(|it| it.signal).collect();
        assert_eq!(signals.len(), 6);
        assert_eq!(signals[0], Signal::MemoryAvailable);
        assert_eq!(signals[5], Signal::AllocatableMemoryAvailable);
        assert!(parsed.iter().all(Threshold::is_hard));
        // Zero and all disable one.
        let none = parse_thresholds("nodefs.available<0%,imagefs.available<100%", "", "", "");
        assert_eq!(none, Ok(Vec::new()));
        let soft = config(
            "",
            "pid.available<10%",
            "pid.available=1m30s",
            "pid.available=5",
        );
        let [soft] = soft.thresholds[..] else {
            panic!("one threshold");
        };
        assert_eq!(soft.grace_period, Duration::from_secs(90));
        assert!(soft.min_reclaim.is_some() && !soft.is_hard());
    }

    #[test]
    fn invalid_thresholds_are_rejected() {
        for (hard, soft, grace, why) in [
            ("disk<1Gi", "", "", "\"disk\" is not an eviction signal"),
            ("memory.available=1Gi", "", "", "is not SIGNAL<VALUE"),
            ("memory.available<x", "", "", "is not an amount"),
            ("memory.available<0", "", "", "is not above zero"),
            ("memory.available<101%", "", "", "is not a percentage"),
            ("", "memory.available<1Gi", "", "needs a grace period"),
            (
                "",
                "memory.available<1Gi",
                "memory.available=x",
                "is not a duration",
            ),
        ] {
            let error = parse_thresholds(hard, soft, grace, "").unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_condition_stays_for_the_transition_period() {
        let config = config("memory.available<100", "", "", "");
        let mut state = ThresholdState::default();
        let mut at = |available: i64, seconds: u64| {
            let seen = seen(Signal::MemoryAvailable, available, 1000);
            let (met, conditions) = state.observe(&config, &seen, Moment::from_secs(seconds));
            (met.len(), conditions.len())
        };
        assert_eq!(at(100, 0), (0, 0));
        assert_eq!(at(99, 10), (1, 1));
        assert_eq!(at(500, 20), (0, 1));
        assert_eq!(at(500, 309), (0, 1));
        assert_eq!(at(500, 310), (0, 0));
    }

    #[test]
    fn a_soft_threshold_waits_for_its_grace_period() {
        let config = config("", "nodefs.available<50%", "nodefs.available=30s", "");
        let mut state = ThresholdState::default();
        let mut at = |available: i64, seconds: u64| {
            let seen = seen(Signal::NodeFsAvailable, available, 1000);
            let (met, conditions) = state.observe(&config, &seen, Moment::from_secs(seconds));
            (met.len(), conditions)
        };
        assert_eq!(at(400, 0), (0, vec![NodePressure::Disk]));
        assert_eq!(at(400, 29).0, 0);
        assert_eq!(at(600, 30).0, 0);
        // It begins anew.
        assert_eq!(at(400, 40).0, 0);
        assert_eq!(at(400, 69).0, 0);
        assert_eq!(at(400, 70).0, 1);
    }

    #[test]
    fn a_minimum_is_reclaimed_before_eviction_ends() {
        let config = config("nodefs.available<100", "", "", "nodefs.available=50");
        let mut state = ThresholdState::default();
        let mut at = |available: i64, seconds: u64| {
            let seen = seen(Signal::NodeFsAvailable, available, 1000);
            let (met, _) = state.observe(&config, &seen, Moment::from_secs(seconds));
            met.len()
        };
        assert_eq!(
            [at(120, 0), at(90, 1), at(149, 2), at(150, 3), at(149, 4)],
            [0, 1, 1, 0, 0]
        );
    }

    #[test]
    fn memory_is_reclaimed_first() {
        let config = config("nodefs.available<100,memory.available<100", "", "", "");
        let mut all = seen(Signal::NodeFsAvailable, 1, 1000);
        all.extend(seen(Signal::MemoryAvailable, 1, 1000));
        let (met, conditions) =
            ThresholdState::default().observe(&config, &all, Moment::from_secs(1));
        assert_eq!(met[0].signal, Signal::MemoryAvailable);
        assert_eq!(conditions, [NodePressure::Memory, NodePressure::Disk]);
    }
}
