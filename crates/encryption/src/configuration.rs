//! What does the file say? An `EncryptionConfiguration` of apiserver.config.k8s.io/v1, read strictly.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mizzen_object::config_file::Scheme;
use mizzen_object::{GroupResource, schema};
use mizzen_value::{Value, time};

use super::cipher::Method;
use super::validate::validate;

/// The shape of the file.
const TYPES: &str = include_str!("../data/encryption.types");

/// How long a plug-in may take unless the file says otherwise.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Why a file cannot be gone by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigurationError(pub(crate) String);

/// What the file says, in its order.
pub(super) struct Configuration {
    pub(super) entries: Vec<Entry>,
}

/// Some resources, and who seals them.
pub(super) struct Entry {
    pub(super) resources: Vec<GroupResource>,
    pub(super) providers: Vec<Provider>,
}

/// One who seals.
pub(super) enum Provider {
    /// Who leaves everything as it is.
    Identity,
    Keys(Method, Vec<Key>),
    Kms(KmsOptions),
}

/// A key, under its name.
pub(super) struct Key {
    pub(super) name: String,
    pub(super) secret: Vec<u8>,
}

/// Where a plug-in is.
#[derive(Debug, Clone)]
pub(super) struct KmsOptions {
    pub(super) name: String,
    /// The path of its socket; one that begins with `@` is in Linux's abstract namespace.
    pub(super) socket: String,
    pub(super) timeout: Duration,
}

impl Configuration {
    /// Reads a file's text.
    pub(super) fn parse(text: &[u8]) -> Result<Configuration, ConfigurationError> {
        let document = decode_strictly(text)?;
        if let Some(problems) = validate(&document).in_one() {
            return Err(ConfigurationError(problems));
        }
        let entries = document["resources"]
            .list()
            .iter()
            .map(entry)
            .collect::<Result<_, _>>()?;
        Ok(Configuration { entries })
    }
}

fn decode_strictly(text: &[u8]) -> Result<Value, ConfigurationError> {
    let types = schema::parse([("encryption.types", TYPES)]).expect("our own data are in order");
    let scheme = Scheme {
        name: "pkg/server/options/encryptionconfig/config.go:142",
        kinds: &[("apiserver.config.k8s.io/v1", "EncryptionConfiguration")],
        types: &types,
    };
    scheme
        .decode(text)
        .map_err(|error| ConfigurationError(error.to_string()))
}

fn entry(value: &Value) -> Result<Entry, ConfigurationError> {
    let resources = value["resources"]
        .list()
        .iter()
        .map(|name| group_resource(name.str()))
        .collect();
    let providers = value["providers"]
        .list()
        .iter()
        .map(provider)
        .collect::<Result<_, _>>()?;
    Ok(Entry {
        resources,
        providers,
    })
}

/// `pods` is in the group without a name, `pizzas.example.com` in another.
pub(super) fn group_resource(name: &str) -> GroupResource {
    let (resource, group) = name.split_once('.').unwrap_or((name, ""));
    GroupResource {
        group: group.into(),
        resource: resource.into(),
    }
}

fn provider(value: &Value) -> Result<Provider, ConfigurationError> {
    if !value["kms"].is_null() {
        return kms(&value["kms"]).map(Provider::Kms);
    }
    let keyed = Method::ALL
        .into_iter()
        .find(|(name, _)| !value[*name].is_null());
    Ok(match keyed {
        Some((name, method)) => {
            Provider::Keys(method, value[name]["keys"].list().iter().map(key).collect())
        }
        None => Provider::Identity,
    })
}

fn key(value: &Value) -> Key {
    let secret = BASE64_STANDARD
        .decode(value["secret"].str())
        .unwrap_or_default();
    Key {
        name: value["name"].str().into(),
        secret,
    }
}

fn kms(value: &Value) -> Result<KmsOptions, ConfigurationError> {
    if kms_version(value) == "v1" {
        return Err(ConfigurationError(
            "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead."
                .into(),
        ));
    }
    let path = value["endpoint"].str().trim_start_matches("unix:");
    let path = path
        .strip_prefix("//")
        .map_or(path, |rest| &rest[rest.find('/').unwrap_or(rest.len())..]);
    Ok(KmsOptions {
        name: value["name"].str().into(),
        socket: path
            .strip_prefix("/@")
            .map_or_else(|| path.into(), |name| format!("@{name}")),
        timeout: kms_timeout(value).map_err(ConfigurationError)?,
    })
}

/// Which version of the plug-ins' API is spoken.
pub(super) fn kms_version(value: &Value) -> &str {
    match value["apiVersion"].str() {
        "" => "v1",
        version => version,
    }
}

/// How long a plug-in may take; zero for what makes no sense.
pub(super) fn kms_timeout(value: &Value) -> Result<Duration, String> {
    let Some(text) = value["timeout"].as_str() else {
        return Ok(TIMEOUT);
    };
    let nanos = time::duration_nanos(text).map_err(|error| error.to_string())?;
    Ok(Duration::from_nanos(
        u64::try_from(nanos).unwrap_or_default(),
    ))
}
