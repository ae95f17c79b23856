//! The file: an `EncryptionConfiguration` of apiserver.config.k8s.io/v1, decoded strictly.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mizzen_object::config_file::ConfigScheme;
use mizzen_object::{GroupResource, schema};
use mizzen_value::{Value, time};

use super::cipher::Method;
use super::validate::validate;

/// The types of the file.
const TYPES: &str = include_str!("../data/encryption.types");

/// The default timeout of a KMS plug-in.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a file is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EncryptionConfigurationError(pub(crate) String);

/// The content of the file, in its order.
pub(super) struct EncryptionConfiguration {
    pub(super) entries: Vec<ResourceConfiguration>,
}

/// Resources and the providers that encrypt them.
pub(super) struct ResourceConfiguration {
    pub(super) resources: Vec<GroupResource>,
    pub(super) providers: Vec<ProviderConfiguration>,
}

/// A provider.
pub(super) enum ProviderConfiguration {
    /// Plain text.
    Identity,
    Keys(Method, Vec<KeyConfiguration>),
    Kms(KmsOptions),
}

/// A key and its name.
pub(super) struct KeyConfiguration {
    pub(super) name: String,
    pub(super) secret: Vec<u8>,
}

/// A KMS plug-in.
#[derive(Debug, Clone)]
pub(super) struct KmsOptions {
    pub(super) name: String,
    /// The path of its socket; one that begins with `@` is in Linux's abstract namespace.
    pub(super) socket: String,
    pub(super) timeout: Duration,
}

impl EncryptionConfiguration {
    /// Decodes and validates the text of a file.
    pub(super) fn parse(
        text: &[u8],
    ) -> Result<EncryptionConfiguration, EncryptionConfigurationError> {
        let types = schema::parse([("encryption.types", TYPES)]).expect("the built-in types parse");
        let scheme = ConfigScheme {
            name: "pkg/server/options/encryptionconfig/config.go:142",
            kinds: &[("apiserver.config.k8s.io/v1", "EncryptionConfiguration")],
            types: &types,
        };
        let document = scheme.decode(text);
        let document = document.map_err(|error| EncryptionConfigurationError(error.to_string()))?;
        if let Some(problems) = validate(&document).aggregate() {
            return Err(EncryptionConfigurationError(problems));
        }
        let entries = document["resources"].list().iter().map(|entry| {
            let resources = entry["resources"].list().iter();
            let providers = entry["providers"].list().iter();
            Ok(ResourceConfiguration {
                resources: resources.map(|name| group_resource(name.str())).collect(),
                providers: providers
                    .map(ProviderConfiguration::from_value)
                    .collect::<Result<_, _>>()?,
            })
        });
        let entries = entries.collect::<Result<_, _>>()?;
        Ok(EncryptionConfiguration { entries })
    }
}

/// Parses `pods` (of the core group) and `pizzas.example.com`.
pub(super) fn group_resource(name: &str) -> GroupResource {
    let (resource, group) = name.split_once('.').unwrap_or((name, ""));
    GroupResource {
        group: group.into(),
        resource: resource.into(),
    }
}

impl ProviderConfiguration {
    fn from_value(value: &Value) -> Result<ProviderConfiguration, EncryptionConfigurationError> {
        if !value["kms"].is_null() {
            return KmsOptions::from_value(&value["kms"]).map(ProviderConfiguration::Kms);
        }
        let mut methods = Method::ALL.into_iter();
        let Some((name, method)) = methods.find(|(name, _)| !value[*name].is_null()) else {
            return Ok(ProviderConfiguration::Identity);
        };
        let keys = value[name]["keys"].list().iter().map(|key| {
            let secret = BASE64_STANDARD.decode(key["secret"].str());
            KeyConfiguration {
                name: key["name"].str().into(),
                secret: secret.unwrap_or_default(),
            }
        });
        Ok(ProviderConfiguration::Keys(method, keys.collect()))
    }
}

impl KmsOptions {
    fn from_value(value: &Value) -> Result<KmsOptions, EncryptionConfigurationError> {
        if kms_version(value) == "v1" {
            return Err(EncryptionConfigurationError(
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
            timeout: kms_timeout(value).map_err(EncryptionConfigurationError)?,
        })
    }
}

/// The version of the KMS API.
pub(super) fn kms_version(value: &Value) -> &str {
    match value["apiVersion"].str() {
        "" => "v1",
        version => version,
    }
}

/// The timeout of a plug-in; zero if it is negative.
pub(super) fn kms_timeout(value: &Value) -> Result<Duration, String> {
    let Some(text) = value["timeout"].as_str() else {
        return Ok(DEFAULT_TIMEOUT);
    };
    let nanos = time::duration_nanos(text).map_err(|error| error.to_string())?;
    Ok(Duration::from_nanos(
        u64::try_from(nanos).unwrap_or_default(),
    ))
}
