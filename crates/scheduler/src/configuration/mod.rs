//! How does a file set the scheduler up? `KubeSchedulerConfiguration` of kubescheduler.config.k8s.io/v1.

mod arguments;
mod decode;
mod plugins;
mod points;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use mizzen_value::{Value, time};

use crate::extender::ExtenderOptions;
use crate::profile::Profile;
use crate::queue::Delays;
use validate::validate;

/// What a file says.
pub struct Configuration {
    pub(crate) profiles: Vec<Arc<Profile>>,
    pub(crate) extenders: Vec<ExtenderOptions>,
    pub(crate) delays: Delays,
}

/// Why a configuration makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigurationError(String);

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration::read(&Value::Null).expect("what nobody says makes sense")
    }
}

impl Configuration {
    /// Reads a file's text.
    pub fn parse(text: &[u8]) -> Result<Configuration, ConfigurationError> {
        Configuration::read(&decode::decode(text)?)
    }

    fn read(value: &Value) -> Result<Configuration, ConfigurationError> {
        if let Some(problems) = validate(value).in_one() {
            return Err(ConfigurationError(problems));
        }
        let extenders: Vec<ExtenderOptions> = value["extenders"]
            .list()
            .iter()
            .map(extender)
            .collect::<Result<_, _>>()?;
        let ignored: Vec<_> = extenders
            .iter()
            .flat_map(|one| one.ignored_by_scheduler.clone())
            .collect();
        let share = share(&value["percentageOfNodesToScore"]);
        let standard = [Value::Null];
        let profiles = match value["profiles"].list() {
            [] => &standard,
            profiles => profiles,
        };
        let profile = |(at, one): (usize, &Value)| {
            let share = self::share(&one["percentageOfNodesToScore"]).or(share);
            plugins::profile(one, &format!("profiles[{at}]"), share, &ignored).map(Arc::new)
        };
        let profiles = profiles
            .iter()
            .enumerate()
            .map(profile)
            .collect::<Result<_, _>>()?;
        Ok(Configuration {
            profiles,
            extenders,
            delays: delays(value),
        })
    }
}

/// Of how many nodes in a hundred the best is chosen, if somebody says so.
fn share(value: &Value) -> Option<usize> {
    value.as_int().and_then(|share| usize::try_from(share).ok())
}

fn delays(value: &Value) -> Delays {
    let seconds = |field: &str| {
        value[field]
            .as_int()
            .and_then(|seconds| u64::try_from(seconds).ok())
    };
    let standard = Delays::default();
    Delays {
        first: seconds("podInitialBackoffSeconds").map_or(standard.first, Duration::from_secs),
        most: seconds("podMaxBackoffSeconds").map_or(standard.most, Duration::from_secs),
        ..standard
    }
}

fn extender(value: &Value) -> Result<ExtenderOptions, ConfigurationError> {
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
        knows_nodes: value["nodeCacheCapable"].bool(),
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
