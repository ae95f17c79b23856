//! What does a file say? Its fields are known, each of its type, and none is there twice; so are those of the arguments of
//! plugins that ship with us.

use mizzen_object::config_file::{self, ConfigFileError, Scheme};
use mizzen_object::decode::{TypeMeta, type_meta};
use mizzen_object::schema;
use mizzen_value::{Str, Value, json, time};

use super::ConfigurationError;
use super::validate::VERSION;

/// The kind of files.
const KIND: &str = "KubeSchedulerConfiguration";
/// It, and the arguments of plugins.
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

/// Arguments that are spans of time.
const SPANS: [&str; 2] = ["filterTimeout", "bindingTimeout"];
/// The same of what is said about the election.
const ELECTION_SPANS: [&str; 3] = ["leaseDuration", "renewDeadline", "retryPeriod"];

/// Reads a file's text.
pub(super) fn decode(text: &[u8]) -> Result<Value, ConfigurationError> {
    let files = [(
        "configuration.types",
        include_str!("../../data/configuration.types"),
    )];
    let types = schema::parse(files).expect("our own data are in order");
    let scheme = Scheme {
        name: "pkg/scheduler/apis/config/scheme/scheme.go:29",
        kinds: &KINDS,
        types: &types,
    };
    let decoded = scheme.decode_leniently(text).and_then(|mut decoded| {
        check_spans(&decoded.value)?;
        decoded
            .complaints
            .extend(all_arguments(&scheme, &decoded.value)?);
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

/// What a strict decoder refuses of the arguments of plugins.
fn all_arguments(scheme: &Scheme, file: &Value) -> Result<Vec<String>, ConfigFileError> {
    let mut complaints = Vec::new();
    for (profile_idx, profile) in file["profiles"].list().iter().enumerate() {
        for (config_idx, config) in profile["pluginConfig"].list().iter().enumerate() {
            let place = |error: ConfigFileError| {
                format!("decoding .profiles[{profile_idx}].pluginConfig[{config_idx}]: {error}")
            };
            let found = arguments(scheme, config["name"].str(), &config["args"])
                .map_err(|error| ConfigFileError::Invalid(place(error)))?;
            complaints.extend(config_file::strict(found).err().map(place));
        }
    }
    Ok(complaints)
}

/// The same for one plugin. Arguments of plugins that are not ours can be anything.
fn arguments(scheme: &Scheme, plugin: &str, args: &Value) -> Result<Vec<String>, ConfigFileError> {
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
    let meta = implied(meta, &kind);
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
    check_spans(&decoded.value).map_err(|error| place(error.to_string()))?;
    let refused = config_file::strict(decoded.complaints).err();
    Ok(refused
        .map(|error| place(error.to_string()).to_string())
        .into_iter()
        .collect())
}

/// Spans of time are texts to the decoder, and must make sense.
fn check_spans(value: &Value) -> Result<(), ConfigFileError> {
    let own = SPANS.iter().map(|field| &value[*field]);
    let of_election = ELECTION_SPANS
        .iter()
        .map(|field| &value["leaderElection"][*field]);
    for span in own.chain(of_election).filter_map(Value::as_str) {
        time::duration_nanos(span).map_err(|error| ConfigFileError::Invalid(error.to_string()))?;
    }
    Ok(())
}

/// Arguments need not say what they are.
fn implied(said: TypeMeta, kind: &str) -> TypeMeta {
    let or = |said: Str, implied: &str| {
        if said.is_empty() {
            implied.into()
        } else {
            said
        }
    };
    TypeMeta {
        api_version: or(said.api_version, VERSION),
        kind: or(said.kind, kind),
    }
}
