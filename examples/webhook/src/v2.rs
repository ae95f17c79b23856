//! `backups.example.com/v2`, the hub: the version in which backups are stored.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is backed up, when, and for how long it is kept.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "example.com",
    version = "v2",
    kind = "Backup",
    namespaced,
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct BackupSpec {
    /// The claim whose volume is backed up.
    pub claim: String,
    /// When, as cron writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// How long backups are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// How long backups are kept.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct Retention {
    /// In days.
    pub days: u32,
}
