//! How does a file set the scheduler up? `KubeSchedulerConfiguration` of kubescheduler.config.k8s.io/v1.

mod arguments;
mod plugins;

use std::sync::Arc;
use std::time::Duration;

use mizzen_object::{Value, time, yaml};

use crate::extender::ExtenderOptions;
use crate::profile::Profile;
use crate::queue::Delays;

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
        let document = yaml::read(text).map_err(|error| ConfigurationError(error.to_string()))?;
        if let Some(complaint) = document.complaint {
            return Err(ConfigurationError(complaint.to_string()));
        }
        let (version, kind) = (document.value["apiVersion"].str(), document.value["kind"].str());
        if (version, kind) != ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration") {
            return Err(ConfigurationError(format!(
                "no kind \"{kind}\" is registered for version \"{version}\""
            )));
        }
        Configuration::read(&document.value)
    }

    fn read(value: &Value) -> Result<Configuration, ConfigurationError> {
        let share = percentage(&value["percentageOfNodesToScore"], "percentageOfNodesToScore")?;
        let extenders: Vec<ExtenderOptions> =
            value["extenders"].list().iter().map(extender).collect::<Result<_, _>>()?;
        let ignored: Vec<_> = extenders.iter().flat_map(|one| one.ignored_by_scheduler.clone()).collect();
        if extenders.iter().filter(|one| !one.bind.is_empty()).count() > 1 {
            return Err(ConfigurationError("found 2 extenders implementing bind".into()));
        }
        let profiles: Vec<Profile> = match value["profiles"].list() {
            [] => vec![profile(&Value::Null, true, share, &ignored)?],
            profiles => {
                let alone = profiles.len() == 1;
                profiles.iter().map(|one| profile(one, alone, share, &ignored)).collect::<Result<_, _>>()?
            }
        };
        unique(&profiles)?;
        let profiles = profiles.into_iter().map(Arc::new).collect();
        Ok(Configuration { profiles, extenders, delays: delays(value)? })
    }
}

fn unique(profiles: &[Profile]) -> Result<(), ConfigurationError> {
    for (at, profile) in profiles.iter().enumerate() {
        if profiles[..at].iter().any(|other| other.name == profile.name) {
            let name = &profile.name;
            return Err(ConfigurationError(format!(
                "profiles[{at}].schedulerName: Duplicate value: \"{name}\""
            )));
        }
    }
    Ok(())
}

fn profile(
    value: &Value,
    alone: bool,
    share: Option<usize>,
    ignored: &[mizzen_object::Str],
) -> Result<Profile, ConfigurationError> {
    let name = match value["schedulerName"].str() {
        "" if alone => "default-scheduler",
        "" => return Err(ConfigurationError("profiles[].schedulerName: Required value".into())),
        name => name,
    };
    let own = percentage(&value["percentageOfNodesToScore"], "profiles[].percentageOfNodesToScore")?;
    plugins::profile(name, value, own.or(share), ignored)
}

fn percentage(value: &Value, name: &str) -> Result<Option<usize>, ConfigurationError> {
    match value.as_int() {
        None => Ok(None),
        Some(share @ 0..=100) => Ok(Some(share as usize)),
        Some(share) => {
            Err(ConfigurationError(format!("{name}: Invalid value: {share}: not in valid range [0-100]")))
        }
    }
}

fn delays(value: &Value) -> Result<Delays, ConfigurationError> {
    let seconds = |field: &str, default: Duration| match value[field].as_int() {
        None => Ok(default),
        Some(seconds) => u64::try_from(seconds).map(Duration::from_secs).map_err(|_| {
            ConfigurationError(format!("{field}: Invalid value: {seconds}: must be greater than 0"))
        }),
    };
    let standard = Delays::default();
    let first = seconds("podInitialBackoffSeconds", standard.first)?;
    let most = seconds("podMaxBackoffSeconds", standard.most)?;
    if most < first {
        return Err(ConfigurationError(
            "podMaxBackoffSeconds: must be greater than or equal to podInitialBackoffSeconds".into(),
        ));
    }
    Ok(Delays { first, most, ..standard })
}

fn extender(value: &Value) -> Result<ExtenderOptions, ConfigurationError> {
    let text = |field: &str| value[field].str().to_string();
    let managed = || value["managedResources"].list().iter();
    let nanos = match value["httpTimeout"].str() {
        "" => 0,
        text => time::duration_nanos(text).map_err(|error| ConfigurationError(error.to_string()))?,
    };
    let weight = value["weight"].int();
    if !value["prioritizeVerb"].str().is_empty() && weight <= 0 {
        return Err(ConfigurationError(
            "extenders[].weight: must have a positive weight applied to it".into(),
        ));
    }
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
        weight,
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
