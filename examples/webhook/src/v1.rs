//! `backups.example.com/v1`: the version that older clients use.

use kube::CustomResource;
use mizzen_sdk::convert::Convert;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v2;

/// What is backed up, when, and for how many days it is kept.
#[derive(CustomResource, Convert, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Backup",
    namespaced,
    derive = "PartialEq"
)]
#[kube(derive = "Convert", attr = "convert(hub = v2::Backup)")]
#[convert(hub = v2::BackupSpec)]
#[serde(rename_all = "camelCase")]
pub struct BackupSpec {
    /// The claim whose volume is backed up.
    #[convert(rename = "claim")]
    pub volume: String,
    /// When, as cron writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// For how many days backups are kept.
    #[convert(rename = "retention", with = "retention")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_days: Option<u32>,
}

/// What no attribute can say: a number in v1 is an object in v2.
mod retention {
    use mizzen_sdk::convert::ConvertError;

    use crate::v2::Retention;

    pub(super) fn to_hub(days: Option<u32>) -> Result<Option<Retention>, ConvertError> {
        Ok(days.map(|days| Retention { days }))
    }

    pub(super) fn from_hub(retention: Option<Retention>) -> Result<Option<u32>, ConvertError> {
        Ok(retention.map(|retention| retention.days))
    }
}
