//! What does a file say? Its fields are known, each of its type, and none is there twice; so are those of the arguments of
//! plugins that ship with us.

use mizzen_object::decode::{self, Decoded, TypeMeta, type_meta};
use mizzen_object::schema::{self, Schemas, Struct};
use mizzen_object::{Str, Value, json, time, yaml};

use super::ConfigurationError;
use super::validate::VERSION;

/// The kind of files.
const KIND: &str = "KubeSchedulerConfiguration";
/// Where upstream knows its kinds from.
const SCHEME: &str = "pkg/scheduler/apis/config/scheme/scheme.go:29";

/// Arguments that are spans of time.
const SPANS: [&str; 2] = ["filterTimeout", "bindingTimeout"];
/// The same of what is said about the election.
const ELECTION_SPANS: [&str; 3] = ["leaseDuration", "renewDeadline", "retryPeriod"];

/// What could not be read, and what a forgiving reader would have left out.
type Outcome<T> = Result<(T, Vec<String>), String>;

/// Reads a file's text.
pub(super) fn decode(text: &[u8]) -> Result<Value, ConfigurationError> {
    let (value, complaints) = Types::load().file(text).map_err(ConfigurationError)?;
    match strict(complaints) {
        Some(problem) => Err(ConfigurationError(problem)),
        None => Ok(value),
    }
}

/// The types that a file can speak of.
struct Types(Schemas);

impl Types {
    fn load() -> Types {
        let files = [(
            "configuration.types",
            include_str!("../../data/configuration.types"),
        )];
        Types(schema::parse(files).expect("our own data are in order"))
    }

    fn get(&self, kind: &str) -> Option<&Struct> {
        self.0
            .types
            .get(format!("{VERSION}.{kind}").as_str())
            .map(|ty| &**ty)
    }

    fn file(&self, text: &[u8]) -> Outcome<Value> {
        let document = yaml::read(text).map_err(|error| error.to_string())?;
        let is_json = text.trim_ascii_start().starts_with(b"{");
        let converted = document.to_json();
        let plain = if is_json && json::parse(text).is_ok() {
            text
        } else {
            &converted
        };
        let meta = kind_of(plain)?;
        check_there(&meta, text)?;
        self.check_known(&meta)?;
        let ty = self.get(KIND).ok_or("our own data lack the file")?;
        let decoded = read(ty, plain)?;
        let mut complaints = decoded.complaints;
        complaints.extend(self.all_arguments(&decoded.value)?);
        // What JSON has twice is said by its own reader, except where anything can be.
        if plain != text || complaints.is_empty() {
            complaints.splice(0..0, document.complaint);
        }
        Ok((decoded.value, complaints))
    }

    /// What is wrong with the arguments of plugins.
    fn all_arguments(&self, file: &Value) -> Result<Vec<String>, String> {
        let mut complaints = Vec::new();
        for (profile_idx, profile) in file["profiles"].list().iter().enumerate() {
            for (config_idx, config) in profile["pluginConfig"].list().iter().enumerate() {
                let place = |problem: String| {
                    format!(
                        "decoding .profiles[{profile_idx}].pluginConfig[{config_idx}]: {problem}"
                    )
                };
                let found = self
                    .arguments(config["name"].str(), &config["args"])
                    .map_err(place)?;
                complaints.extend(strict(found).map(place));
            }
        }
        Ok(complaints)
    }

    /// The same for one plugin. Arguments of plugins that are not ours can be anything.
    fn arguments(&self, plugin: &str, args: &Value) -> Result<Vec<String>, String> {
        let kind = format!("{plugin}Args");
        let Some(ty) = self.get(&kind).filter(|_| !args.is_null()) else {
            return Ok(Vec::new());
        };
        let place = |problem: String| format!("decoding args for plugin {plugin}: {problem}");
        let text = json::to_string(args);
        let meta = implied(kind_of(text.as_bytes()).map_err(place)?, &kind);
        self.check_known(&meta).map_err(place)?;
        if meta.kind != kind {
            let group = VERSION.split('/').next().unwrap_or_default();
            return Err(format!(
                "args for plugin {plugin} were not of type {kind}.{group}, got {}.{group}",
                meta.kind
            ));
        }
        let decoded = read(ty, text.as_bytes()).map_err(place)?;
        Ok(strict(decoded.complaints).map(place).into_iter().collect())
    }

    fn check_known(&self, meta: &TypeMeta) -> Result<(), String> {
        let is_kind = meta.kind == KIND || meta.kind.ends_with("Args");
        if meta.api_version == VERSION && is_kind && self.get(&meta.kind).is_some() {
            return Ok(());
        }
        let (kind, version) = (json::quote(&meta.kind), json::quote(&meta.api_version));
        Err(format!(
            "no kind {kind} is registered for version {version} in scheme \"{SCHEME}\""
        ))
    }
}

/// Reads what is of a type. Spans of time are texts to it, and must make sense.
fn read(ty: &Struct, text: &[u8]) -> Result<Decoded, String> {
    let decoded = decode::decode(ty, text).map_err(|error| error.to_string())?;
    let own = SPANS.iter().map(|field| &decoded.value[*field]);
    let of_election = ELECTION_SPANS
        .iter()
        .map(|field| &decoded.value["leaderElection"][*field]);
    for span in own.chain(of_election).filter_map(Value::as_str) {
        time::duration_nanos(span).map_err(|error| error.to_string())?;
    }
    Ok(decoded)
}

/// One error of all complaints, if there are any.
fn strict(complaints: Vec<String>) -> Option<String> {
    (!complaints.is_empty()).then(|| format!("strict decoding error: {}", complaints.join(", ")))
}

fn kind_of(text: &[u8]) -> Result<TypeMeta, String> {
    type_meta(text).map_err(|why| format!("couldn't get version/kind; json parse error: {why}"))
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

fn check_there(meta: &TypeMeta, text: &[u8]) -> Result<(), String> {
    let missing = match (meta.kind.is_empty(), meta.api_version.is_empty()) {
        (true, _) => "Kind",
        (false, true) => "apiVersion",
        (false, false) => return Ok(()),
    };
    Err(format!(
        "Object '{missing}' is missing in '{}'",
        String::from_utf8_lossy(text)
    ))
}
