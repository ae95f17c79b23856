//! The flags about what a node with real containers keeps for the system, and when it evicts pods.

use std::time::Duration;

use clap::Args;
use mizzen_node::Options;
use mizzen_node::eviction::{DEFAULT_HARD, EvictionConfig, parse_thresholds};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::server::duration;

/// The resources that can be reserved.
const RESERVABLE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// What a node keeps for the system, and when it evicts pods, with the flags and defaults of the kubelet.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodePressureArgs {
    /// Evict pods with real containers at once when less than this is left; empty for never
    #[arg(long, value_name = "SIGNAL<VALUE,…", default_value = DEFAULT_HARD)]
    eviction_hard: String,
    /// Evict pods with real containers when less than this is left for the grace period of the signal
    #[arg(long, value_name = "SIGNAL<VALUE,…", default_value = "")]
    eviction_soft: String,
    /// Let soft thresholds be met for so long
    #[arg(long, value_name = "SIGNAL=DURATION,…", default_value = "")]
    eviction_soft_grace_period: String,
    /// Evict until so much is left beyond the threshold
    #[arg(long, value_name = "SIGNAL=VALUE,…", default_value = "")]
    eviction_minimum_reclaim: String,
    /// Give pods that are evicted at soft thresholds at most so many seconds to end
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    eviction_max_pod_grace_period: u32,
    /// Keep a condition of pressure for so long after the last threshold was met
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    eviction_pressure_transition_period: Duration,
    /// Keep this of the machine for Kubernetes: pods cannot request it
    #[arg(long, value_name = "RESOURCE=AMOUNT,…", default_value = "", value_parser = reserved)]
    kube_reserved: Value,
    /// Keep this of the machine for the system: pods cannot request it
    #[arg(long, value_name = "RESOURCE=AMOUNT,…", default_value = "", value_parser = reserved)]
    system_reserved: Value,
}

/// What a node keeps for the system, and when it evicts pods.
#[derive(Debug, Clone)]
pub(crate) struct NodePressure {
    eviction: EvictionConfig,
    reserved: Value,
}

impl NodePressureArgs {
    pub(crate) fn options(&self) -> Result<NodePressure, String> {
        Ok(NodePressure {
            eviction: EvictionConfig {
                thresholds: parse_thresholds(
                    &self.eviction_hard,
                    &self.eviction_soft,
                    &self.eviction_soft_grace_period,
                    &self.eviction_minimum_reclaim,
                )?,
                pressure_transition_period: self.eviction_pressure_transition_period,
                max_pod_grace_period: Duration::from_secs(
                    self.eviction_max_pod_grace_period.into(),
                ),
                ..EvictionConfig::default()
            },
            reserved: sum(&self.kube_reserved, &self.system_reserved),
        })
    }
}

impl NodePressure {
    /// Sets the options of a node.
    pub(crate) fn apply(&self, options: &mut Options) {
        options.eviction = self.eviction.clone();
        options.reserved = self.reserved.clone();
    }
}

/// Parses `cpu=200m,memory=500Mi`.
fn reserved(text: &str) -> Result<Value, String> {
    let mut reserved = Value::object();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, amount) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not RESOURCE=AMOUNT"))?;
        if !RESERVABLE.contains(&name) {
            let names = RESERVABLE.join(", ");
            return Err(format!("{name:?} cannot be reserved; these can: {names}"));
        }
        let quantity = Quantity::parse(amount).ok();
        let quantity = quantity.filter(|quantity| !quantity.is_negative());
        let quantity =
            quantity.ok_or_else(|| format!("{amount:?} is not an amount such as 200m or 1Gi"))?;
        reserved.set(name, quantity.to_string());
    }
    Ok(reserved)
}

fn sum(one: &Value, other: &Value) -> Value {
    let mut sum = Value::object();
    for name in RESERVABLE {
        let amounts = [one, other].map(|of| Quantity::parse_or_zero(of[name].str()));
        let total = amounts[0].add(&amounts[1]);
        if !total.is_zero() {
            sum.set(name, total.to_string());
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use mizzen_value::value;

    use super::*;

    #[derive(Parser)]
    struct Node {
        #[command(flatten)]
        pressure: NodePressureArgs,
    }

    fn options(flags: &[&str]) -> Result<NodePressure, String> {
        let words = ["node"].iter().chain(flags);
        let node = Node::try_parse_from(words).map_err(|error| error.to_string())?;
        node.pressure.options()
    }

    #[test]
    fn thresholds_and_reservations_have_the_flags_and_defaults_of_the_kubelet() {
        let usual = options(&[]).unwrap();
        assert_eq!(usual.eviction, EvictionConfig::default());
        assert_eq!(usual.reserved, Value::object());
        let never = options(&["--eviction-hard="]).unwrap();
        assert_eq!(never.eviction.thresholds, []);
        let kept = options(&[
            "--kube-reserved=cpu=200m,memory=1Gi",
            "--system-reserved=cpu=300m",
        ]);
        assert_eq!(
            kept.unwrap().reserved,
            value!({ "cpu": "500m", "memory": "1Gi" })
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (flag, why) in [
            ("--eviction-hard=cpu.available<1", "not an eviction signal"),
            (
                "--eviction-soft=memory.available<1Gi",
                "needs a grace period",
            ),
            ("--eviction-hard=memory.available", "is not SIGNAL<VALUE"),
            ("--kube-reserved=cpu", "is not RESOURCE=AMOUNT"),
            ("--kube-reserved=cpu=-1", "is not an amount"),
            ("--system-reserved=pods=1", "cannot be reserved"),
        ] {
            let error = options(&[flag]).unwrap_err();
            assert!(error.contains(why), "{flag}: {error}");
        }
    }
}
