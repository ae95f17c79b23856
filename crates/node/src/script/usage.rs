//! The resource usage of simulated containers, from an annotation of their pod.
//!
//! `mizzen.dev/usage: "web: cpu=100m,memory=64Mi for 1m then cpu=800m for 5m then cpu=100m;
//! cpu=5m"`
//!
//! A clause applies to the container that it names, or to all without a clause of their own. Its
//! steps, separated by `then`, follow one another from the start of the container. A resource that
//! a step does not name keeps its value. The last step lasts; if it has a duration as well, the
//! steps repeat.

use std::time::Duration;

use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value};

use super::check_containers;
use super::parse::{LONGEST, read_duration};

/// The annotation with the resource usage.
pub(super) const USAGE: &str = "mizzen.dev/usage";

/// The default usage: that of an idle server.
const IDLE: ResourceUsage = ResourceUsage {
    nanocores: 1_000_000,
    memory_bytes: 16 * 1024 * 1024,
};
/// A running process has at least one page of memory.
const PAGE_BYTES: u64 = 4096;
const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The usage at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ResourceUsage {
    nanocores: u64,
    memory_bytes: u64,
}

/// The usage for some time.
#[derive(Debug, Clone, PartialEq)]
struct UsageStep {
    usage: ResourceUsage,
    /// `None` if it lasts.
    lasts: Option<Duration>,
}

/// The usage of a pod's containers: steps by container name, `None` for all without a clause.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageScript(Vec<(Option<Str>, Vec<UsageStep>)>);

/// The usage of one container over time.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageProfile(Vec<UsageStep>);

impl UsageScript {
    /// Parses a pod's annotation.
    pub fn from_pod(pod: &Value) -> Result<UsageScript, String> {
        let text = pod["metadata"]["annotations"][USAGE].str();
        let script = parse(text).map_err(|problem| format!("{USAGE}: {problem}"))?;
        let named = script.0.iter().filter_map(|(name, _)| name.as_deref());
        check_containers(pod, USAGE, named).map(|()| script)
    }

    /// The usage of a container, capped by its limits.
    pub fn profile(&self, container: &Value) -> UsageProfile {
        let name = container["name"].str();
        let own = self.0.iter().find(|(of, _)| of.as_deref() == Some(name));
        let clause = own.or_else(|| self.0.iter().find(|(of, _)| of.is_none()));
        let mut steps = match clause {
            Some((_, steps)) => steps.clone(),
            None => vec![UsageStep {
                usage: IDLE,
                lasts: None,
            }],
        };
        let limits = &container["resources"]["limits"];
        let limit = |resource: &str| limits[resource].as_str().map(Quantity::parse_or_zero);
        let (cpu, memory) = (limit("cpu"), limit("memory"));
        for UsageStep { usage, .. } in &mut steps {
            if let Some(cpu) = &cpu {
                usage.nanocores = usage.nanocores.min(nanocores(cpu));
            }
            if let Some(memory) = &memory {
                usage.memory_bytes = usage.memory_bytes.min(bytes(memory));
            }
            usage.memory_bytes = usage.memory_bytes.max(PAGE_BYTES);
        }
        UsageProfile(steps)
    }
}

impl UsageProfile {
    /// The CPU time from the start to `elapsed` after it.
    pub fn cpu_time(&self, elapsed: Duration) -> Duration {
        let (mut left, mut used) = (elapsed.as_nanos(), 0);
        if let Some(period) = self.period() {
            used = left / period * self.core_nanos(period);
            left %= period;
        }
        let nanos = (used + self.core_nanos(left)) / NANOS_PER_SECOND;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The working set at `elapsed` after the start.
    pub fn memory_bytes(&self, elapsed: Duration) -> u64 {
        let mut left = elapsed.as_nanos();
        if let Some(period) = self.period() {
            left %= period;
        }
        for UsageStep { usage, lasts } in &self.0 {
            match lasts.map(|lasts| lasts.as_nanos()) {
                Some(lasts) if lasts <= left => left -= lasts,
                _ => return usage.memory_bytes,
            }
        }
        0
    }

    /// The duration of all steps, if they repeat.
    fn period(&self) -> Option<u128> {
        self.0
            .iter()
            .map(|step| step.lasts.map(|lasts| lasts.as_nanos()))
            .sum()
    }

    /// Nanocores times nanoseconds, over the first `left` nanoseconds of one period.
    fn core_nanos(&self, mut left: u128) -> u128 {
        let mut used = 0;
        for UsageStep { usage, lasts } in &self.0 {
            let time = lasts.map_or(left, |lasts| lasts.as_nanos().min(left));
            used += u128::from(usage.nanocores) * time;
            left -= time;
        }
        used
    }
}

fn parse(text: &str) -> Result<UsageScript, String> {
    if text.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    let mut clauses: Vec<(Option<Str>, Vec<UsageStep>)> = Vec::new();
    for clause in text.split(';') {
        let words: Vec<&str> = clause.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let clause = words.join(" ");
        let (container, steps) = match clause.split_once(':') {
            Some((container, steps)) => (Some(Str::from(container.trim())), steps.trim()),
            None => (None, clause.as_str()),
        };
        if clauses.iter().any(|(other, _)| *other == container) {
            return Err("there are two clauses for one container".into());
        }
        clauses.push((container, parse_steps(steps)?));
    }
    Ok(UsageScript(clauses))
}

fn parse_steps(text: &str) -> Result<Vec<UsageStep>, String> {
    let mut steps: Vec<UsageStep> = Vec::new();
    for text in text.split(" then ") {
        let before = steps.last();
        if before.is_some_and(|before| before.lasts.is_none()) {
            return Err("only the last step can do without a time such as \"for 1m\"".into());
        }
        let mut usage = before.map_or(IDLE, |before| before.usage);
        let (amounts, lasts) = match text.split_once(" for ") {
            Some((amounts, time)) => (amounts, Some(read_duration(time.trim())?)),
            None => (text, None),
        };
        if lasts.is_some_and(|lasts| lasts.is_zero()) {
            return Err(format!("{text:?} takes no time"));
        }
        for amount in amounts.split(',') {
            let wrong = || format!("{:?} is not cpu=AMOUNT or memory=AMOUNT", amount.trim());
            let (resource, amount) = amount.split_once('=').ok_or_else(wrong)?;
            let quantity = Quantity::parse(amount)
                .ok()
                .filter(|quantity| !quantity.is_negative());
            let quantity = quantity
                .ok_or_else(|| format!("{amount:?} is not an amount such as 250m or 64Mi"))?;
            match resource.trim() {
                "cpu" => usage.nanocores = nanocores(&quantity),
                "memory" => usage.memory_bytes = bytes(&quantity),
                _ => return Err(wrong()),
            }
        }
        steps.push(UsageStep { usage, lasts });
    }
    Ok(steps)
}

fn nanocores(cpu: &Quantity) -> u64 {
    (cpu.as_f64() * 1e9).round() as u64
}

fn bytes(memory: &Quantity) -> u64 {
    u64::try_from(memory.value()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    /// The CPU time of each second in milliseconds, and the mebibytes at its end.
    #[track_caller]
    fn check(text: &str, container: &Value, expected: &[(u128, u64)]) {
        let profile = parse(text).unwrap().profile(container);
        let second = |at: u64| {
            let [from, to] = [at, at + 1].map(Duration::from_secs);
            let cpu = profile.cpu_time(to) - profile.cpu_time(from);
            (cpu.as_millis(), profile.memory_bytes(to) >> 20)
        };
        let found: Vec<_> = (0..expected.len() as u64).map(second).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn usage_is_constant_or_follows_steps() {
        let web = value!({ "name": "web" });
        check("", &web, &[(1, 16), (1, 16)]);
        check("cpu=250m,memory=64Mi", &web, &[(250, 64), (250, 64)]);
        check("cpu=2", &web, &[(2000, 16)]);
        check(
            "cpu=100m, memory=64Mi for 2s then cpu=800m for 1s then memory=1Mi",
            &web,
            &[(100, 64), (100, 64), (800, 1), (800, 1), (800, 1)],
        );
        check(
            "cpu=100m for 500ms then cpu=300m for 1s500ms",
            &web,
            &[(200, 16), (300, 16), (200, 16), (300, 16)],
        );
    }

    #[test]
    fn a_container_has_its_own_clause_or_the_common_one() {
        let text = "web: cpu=200m for 1s\n then cpu=400m; cpu=10m";
        check(text, &value!({ "name": "web" }), &[(200, 16), (400, 16)]);
        check(text, &value!({ "name": "side" }), &[(10, 16), (10, 16)]);
        check("web: cpu=2", &value!({ "name": "side" }), &[(1, 16)]);
    }

    #[test]
    fn limits_bound_usage() {
        let limits = value!({ "cpu": "500m", "memory": "32Mi" });
        let web = value!({ "name": "web", "resources": { "limits": limits } });
        check(
            "cpu=1,memory=1Gi for 1s then cpu=100m,memory=8Mi",
            &web,
            &[(500, 8), (100, 8)],
        );
    }

    #[test]
    fn invalid_annotations_are_rejected() {
        let cases = [
            ("cpu", "\"cpu\" is not cpu=AMOUNT or memory=AMOUNT"),
            (
                "disk=1Gi",
                "\"disk=1Gi\" is not cpu=AMOUNT or memory=AMOUNT",
            ),
            ("cpu=much", "\"much\" is not an amount such as 250m or 64Mi"),
            ("cpu=-1", "\"-1\" is not an amount such as 250m or 64Mi"),
            (
                "cpu=1 for ever",
                "\"ever\" is not a duration such as 500ms or 1m30s",
            ),
            ("cpu=1 for 0s", "\"cpu=1 for 0s\" takes no time"),
            (
                "cpu=1 then cpu=2",
                "only the last step can do without a time such as \"for 1m\"",
            ),
            ("cpu=1; cpu=2", "there are two clauses for one container"),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
        let pod = value!({
            "metadata": { "annotations": { "mizzen.dev/usage": "wbe: cpu=1" } },
            "spec": { "containers": [{ "name": "web" }] },
        });
        assert_eq!(
            UsageScript::from_pod(&pod).unwrap_err(),
            "mizzen.dev/usage: the pod has no container \"wbe\""
        );
    }
}
