//! `KubeSchedulerConfiguration` of kubescheduler.config.k8s.io/v1.

mod decode;
mod extension_points;
mod plugin_args;
mod plugins;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use mizzen_value::{Value, time, value};

use crate::extender::ExtenderOptions;
use crate::framework::{Registry, WaitingPods};
use crate::profile::Profile;
use crate::queue::BackoffDurations;
pub(crate) use extension_points::ExtensionPoint;
use validate::validate;

/// A validated scheduler configuration.
pub struct Configuration {
    pub(crate) profiles: Vec<Arc<Profile>>,
    pub(crate) extenders: Vec<ExtenderOptions>,
    pub(crate) backoff_durations: BackoffDurations,
    pub(crate) waiting_pods: WaitingPods,
}

/// Why a configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigurationError(String);

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration::from_value(&Value::Null, &Registry::new())
            .expect("the default configuration is valid")
    }
}

impl Configuration {
    /// Decodes and validates a file.
    pub fn parse(text: &[u8]) -> Result<Configuration, ConfigurationError> {
        Configuration::parse_with(text, &Registry::new())
    }

    /// Decodes and validates a file that may name the plugins of a registry.
    pub fn parse_with(
        text: &[u8],
        registry: &Registry,
    ) -> Result<Configuration, ConfigurationError> {
        Configuration::from_value(&decode::decode(text)?, registry)
    }

    /// The default configuration, with all plugins of a registry at all their extension points.
    pub fn with_plugins(registry: &Registry) -> Result<Configuration, ConfigurationError> {
        let enabled: Vec<Value> = registry
            .names()
            .map(|name| value!({"name": name}))
            .collect();
        let profile = value!({"plugins": {"multiPoint": {"enabled": enabled}}});
        Configuration::from_value(&value!({"profiles": [profile]}), registry)
    }

    fn from_value(value: &Value, registry: &Registry) -> Result<Configuration, ConfigurationError> {
        if let Some(problems) = validate(value).aggregate() {
            return Err(ConfigurationError(problems));
        }
        let extenders: Vec<ExtenderOptions> = value["extenders"]
            .list()
            .iter()
            .map(extender_options)
            .collect::<Result<_, _>>()?;
        let ignored: Vec<_> = extenders
            .iter()
            .flat_map(|one| one.ignored_by_scheduler.clone())
            .collect();
        let percentage_of_nodes_to_score =
            percentage_of_nodes_to_score(&value["percentageOfNodesToScore"]);
        let standard = [Value::Null];
        let profiles = match value["profiles"].list() {
            [] => &standard,
            profiles => profiles,
        };
        let profile = |(at, one): (usize, &Value)| {
            let percentage_of_nodes_to_score =
                self::percentage_of_nodes_to_score(&one["percentageOfNodesToScore"])
                    .or(percentage_of_nodes_to_score);
            let source = plugins::ProfileSource {
                value: one,
                path: format!("profiles[{at}]"),
                percentage_of_nodes_to_score,
                ignored: &ignored,
                registry,
            };
            source.decode().map(Arc::new)
        };
        let profiles = profiles
            .iter()
            .enumerate()
            .map(profile)
            .collect::<Result<_, _>>()?;
        Ok(Configuration {
            profiles,
            extenders,
            backoff_durations: backoff_durations(value),
            waiting_pods: registry.waiting_pods(),
        })
    }
}

/// `percentageOfNodesToScore`, if it is set.
fn percentage_of_nodes_to_score(value: &Value) -> Option<usize> {
    value
        .as_int()
        .and_then(|percentage_of_nodes_to_score| usize::try_from(percentage_of_nodes_to_score).ok())
}

fn backoff_durations(value: &Value) -> BackoffDurations {
    let seconds = |field: &str| {
        value[field]
            .as_int()
            .and_then(|seconds| u64::try_from(seconds).ok())
    };
    let standard = BackoffDurations::default();
    BackoffDurations {
        initial: seconds("podInitialBackoffSeconds").map_or(standard.initial, Duration::from_secs),
        max: seconds("podMaxBackoffSeconds").map_or(standard.max, Duration::from_secs),
        ..standard
    }
}

fn extender_options(value: &Value) -> Result<ExtenderOptions, ConfigurationError> {
    let text = |field: &str| value[field].str().to_string();
    let managed = || value["managedResources"].list().iter();
    let nanos = match value["httpTimeout"].str() {
        "" => 0,
        text => {
            time::duration_nanos(text).map_err(|error| ConfigurationError(error.to_string()))?
        }
    };
    let timeout = match u64::try_from(nanos) {
        Ok(0) | Err(_) => Duration::from_secs(5),
        Ok(nanos) => Duration::from_nanos(nanos),
    };
    Ok(ExtenderOptions {
        url: text("urlPrefix"),
        filter: text("filterVerb"),
        prioritize: text("prioritizeVerb"),
        preempt: text("preemptVerb"),
        bind: text("bindVerb"),
        weight: value["weight"].int(),
        timeout,
        node_cache_capable: value["nodeCacheCapable"].bool(),
        managed: managed().map(|one| one["name"].str().into()).collect(),
        ignored_by_scheduler: managed()
            .filter(|one| one["ignoredByScheduler"].bool())
            .map(|one| one["name"].str().into())
            .collect(),
        ignorable: value["ignorable"].bool(),
        enable_https: value["enableHTTPS"].bool(),
        tls: value["tlsConfig"].clone(),
    })
}

#[cfg(test)]
mod tests;
