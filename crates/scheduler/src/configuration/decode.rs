//! Strict decoding of a configuration file and of the arguments of in-tree plugins: no unknown or
//! duplicate field, each of its type.

use mizzen_object::config_file::{self, ConfigFileError, ConfigScheme};
use mizzen_object::decode::{TypeMeta, type_meta};
use mizzen_object::schema;
use mizzen_value::{Str, Value, json, time};

use super::ConfigurationError;
use super::validate::VERSION;

const KIND: &str = "KubeSchedulerConfiguration";
/// The configuration, and the arguments of plugins.
const KINDS: [(&str, &str); 9] = [
    (VERSION, KIND),
    (VERSION, "DefaultPreemptionArgs"),
    (VERSION, "DynamicResourcesArgs"),
    (VERSION, "InterPodAffinityArgs"),
    (VERSION, "NodeAffinityArgs"),
    (VERSION, "NodeResourcesBalancedAllocationArgs"),
    (VERSION, "NodeResourcesFitArgs"),
    (VERSION, "PodTopologySpreadArgs"),
    (VERSION, "VolumeBindingArgs"),
];

/// Fields of plugin arguments that are durations.
const DURATIONS: [&str; 2] = ["filterTimeout", "bindingTimeout"];
/// Fields of `leaderElection` that are durations.
const ELECTION_DURATIONS: [&str; 3] = ["leaseDuration", "renewDeadline", "retryPeriod"];

/// Decodes a file.
pub(super) fn decode(text: &[u8]) -> Result<Value, ConfigurationError> {
    let files = [(
        "configuration.types",
        include_str!("../../data/configuration.types"),
    )];
    let types = schema::parse(files).expect("the embedded schema parses");
    let scheme = ConfigScheme {
        name: "pkg/scheduler/apis/config/scheme/scheme.go:29",
        kinds: &KINDS,
        types: &types,
    };
    let decoded = scheme.decode_leniently(text).and_then(|mut decoded| {
        check_durations(&decoded.value)?;
        decoded
            .complaints
            .extend(plugin_args_errors(&scheme, &decoded.value)?);
        config_file::strict(decoded.complaints)?;
        match decoded.value["kind"].str() == KIND {
            true => Ok(decoded.value),
            // Kubernetes: cmd/kube-scheduler/app/options/configfile.go
            false => Err(ConfigFileError::Invalid(format!(
                "couldn't decode as {KIND}, got {VERSION}, Kind={}: ",
                decoded.value["kind"].str()
            ))),
        }
    });
    decoded.map_err(|error| ConfigurationError(error.to_string()))
}

/// The strict decoding errors of all plugin arguments.
fn plugin_args_errors(scheme: &ConfigScheme, file: &Value) -> Result<Vec<String>, ConfigFileError> {
    let mut complaints = Vec::new();
    for (profile_idx, profile) in file["profiles"].list().iter().enumerate() {
        for (config_idx, config) in profile["pluginConfig"].list().iter().enumerate() {
            let place = |error: ConfigFileError| {
                format!("decoding .profiles[{profile_idx}].pluginConfig[{config_idx}]: {error}")
            };
            let found = decode_plugin_args(scheme, config["name"].str(), &config["args"])
                .map_err(|error| ConfigFileError::Invalid(place(error)))?;
            complaints.extend(config_file::strict(found).err().map(place));
        }
    }
    Ok(complaints)
}

/// The strict decoding errors of one plugin's arguments. Those of out-of-tree plugins can be
/// anything.
fn decode_plugin_args(
    scheme: &ConfigScheme,
    plugin: &str,
    args: &Value,
) -> Result<Vec<String>, ConfigFileError> {
    let kind = format!("{plugin}Args");
    if args.is_null() || !KINDS.contains(&(VERSION, &kind)) {
        return Ok(Vec::new());
    }
    let place = |error: String| {
        ConfigFileError::Invalid(format!("decoding args for plugin {plugin}: {error}"))
    };
    let text = json::to_string(args);
    let meta = type_meta(text.as_bytes()).map_err(|why| {
        place(format!(
            "couldn't get version/kind; json parse error: {why}"
        ))
    })?;
    let or_default = |text: Str, default: &str| match text.is_empty() {
        true => default.into(),
        false => text,
    };
    let meta = TypeMeta {
        api_version: or_default(meta.api_version, VERSION),
        kind: or_default(meta.kind, &kind),
    };
    let decoded = scheme
        .decode_as(&meta, text.as_bytes())
        .map_err(|error| place(error.to_string()));
    if decoded.is_ok() && meta.kind != kind {
        let group = VERSION.split('/').next().unwrap_or_default();
        return Err(ConfigFileError::Invalid(format!(
            "args for plugin {plugin} were not of type {kind}.{group}, got {}.{group}",
            meta.kind
        )));
    }
    let decoded = decoded?;
    check_durations(&decoded.value).map_err(|error| place(error.to_string()))?;
    let refused = config_file::strict(decoded.complaints).err();
    Ok(refused
        .map(|error| place(error.to_string()).to_string())
        .into_iter()
        .collect())
}

/// Durations are plain strings to the decoder and are parsed here.
fn check_durations(value: &Value) -> Result<(), ConfigFileError> {
    let own = DURATIONS.iter().map(|field| &value[*field]);
    let of_election = ELECTION_DURATIONS
        .iter()
        .map(|field| &value["leaderElection"][*field]);
    for span in own.chain(of_election).filter_map(Value::as_str) {
        time::duration_nanos(span).map_err(|error| ConfigFileError::Invalid(error.to_string()))?;
    }
    Ok(())
}
